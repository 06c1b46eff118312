"""Crashes in the middle of a compaction, at each file operation: the log shows the same values."""

from __future__ import annotations

import errno
from random import Random

import pytest

from kraftrio.wire.records.batch import verify_crc
from tests.support.cleaning import clean, finish, start_run
from tests.support.logs import LogContext
from tests.support.memory_files import FailedCall, MemoryFileSystem

CHANGES = ("write", "truncate", "sync", "rename", "remove", "make_directory")


class PowerCut(BaseException):
    """The process is gone."""


class FailingFileSystem(MemoryFileSystem):
    """Counts its operations, and ends everything at one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.operation_count = 0
        self.end_at: int | None = None

    def check_fault(self, operation: str, path: str) -> None:
        super().check_fault(operation, path)
        if operation in CHANGES:
            self.operation_count += 1
            if self.operation_count == self.end_at:
                raise PowerCut


def history(fs: MemoryFileSystem) -> LogContext:
    """Segments of values, tombstones, transactions and an idempotent producer, some compacted."""
    context = LogContext(
        fs, cleanup_policy="compact", segment_bytes=420, index_interval_bytes=100,
        delete_retention_ms=1000,
    )  # fmt: skip
    sequence = 0
    for turn in range(3):
        for number in range(6):
            value = None if number == turn else b"%d.%d" % (turn, number)
            context.append(
                value, key=b"k%d" % number, producer_id=1, producer_epoch=0, sequence=sequence
            )
            sequence += 1
        for producer_id in (2, 3):
            context.append(
                b"t%d" % turn, key=b"t", producer_id=producer_id, producer_epoch=0,
                sequence=turn, transactional=True,
            )  # fmt: skip
            context.append_marker(producer_id, 0, commit=producer_id == 2)
        if turn == 1:
            clean(context)
    context.now_ms += 2000
    context.log.roll(context.now_ms)
    context.append(b"active", key=b"k5")
    context.commit()
    context.log.flush()
    context.recovery_point = context.log.recovery_point
    return context


def committed(context: LogContext) -> dict[bytes | None, bytes | None]:
    """What a read_committed consumer makes of the log: the last value of each key."""
    log = context.log
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    table: dict[bytes | None, bytes | None] = {}
    hidden: set[int] = set()
    for scanned in log.batches(log.log_start_offset):
        header = scanned.header
        verify_crc(scanned.buffer, header)
        is_aborted = header.is_transactional and any(
            item.producer_id == header.producer_id
            and item.first_offset <= header.base_offset <= item.last_offset
            for item in aborted
        )
        if header.is_control or is_aborted:
            hidden.update(range(header.base_offset, header.next_offset))
        elif header.producer_id == 3:
            raise AssertionError(f"the abort of {header} is forgotten, though it is empty")
    for record in context.read_all():
        if record.offset in hidden:
            continue
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


def check(context: LogContext, expected: dict[bytes | None, bytes | None], end: int) -> None:
    """The log is whole and says what it said."""
    log = context.log
    assert log.log_end_offset == end
    assert committed(context) == expected
    context.commit()
    assert log.last_stable_offset == end
    for offset in range(log.log_start_offset, end):
        context.read_all(start_offset=offset)
    assert not [n for n in context.files() if n.endswith((".cleaned", ".swap", ".deleted"))]
    producer = log.producer_state.get(1)
    assert producer is not None
    assert producer.last_sequence == 17


def reopened(context: LogContext, fs: MemoryFileSystem, recovery_point: int | None) -> LogContext:
    found = LogContext.__new__(LogContext)
    found.__dict__.update(context.__dict__)
    found.fs = fs
    found.recovery_point = recovery_point
    found.log = found.open(clean=False)
    return found


def uncompacted() -> tuple[dict[bytes | None, bytes | None], int]:
    """What the history says before its compaction, and where it ends."""
    context = history(MemoryFileSystem())
    return committed(context), context.log.log_end_offset


def operations() -> int:
    """How many file operations a compaction of the history takes."""
    fs = FailingFileSystem()
    context = history(fs)
    before = fs.operation_count
    finish(start_run(context), context)
    return fs.operation_count - before


def killed_at(at: int) -> tuple[LogContext, FailingFileSystem]:
    """The history and its compaction up to an operation; nothing runs after it."""
    fs = FailingFileSystem()
    context = history(fs)
    fs.end_at = fs.operation_count + at
    run = start_run(context)
    with pytest.raises(PowerCut):
        run.build_map()
        while run.next_group():
            run.clean_group()
            run.swap(context.now_ms)
        run.sync()
    fs.end_at = None
    return context, fs


TOTAL = operations()
EXPECTED = uncompacted()


def test_compaction_shows_the_same_values() -> None:
    """The uninterrupted run, as a measure for the others."""
    context = history(MemoryFileSystem())
    expected, end = committed(context), context.log.log_end_offset
    run = start_run(context)
    finish(run, context)
    assert run.bytes_after < run.bytes_before
    assert committed(context) == expected
    found = reopened(context, context.fs.after_crash(0), context.recovery_point)
    check(found, expected, end)
    assert TOTAL > 40
    aborted = context.log.aborted_transactions(0, end)
    assert [item.first_offset for item in aborted] == [18, 28]  # of the first, 8, nothing is left


@pytest.mark.parametrize("at", range(1, TOTAL + 1))
def test_crash_at_each_operation(at: int) -> None:
    """The process or the power fails: the log is as before or after each swap."""
    context, fs = killed_at(at)
    everything = fs.unsynced_units
    survivors = [fs.after_crash(keep) for keep in (0, everything, everything // 2)]
    survivors += [fs.after_crash(random=Random(seed)) for seed in range(2)]
    for number, survivor in enumerate(survivors):
        recovery_point = (0, context.recovery_point)[number % 2]
        found = reopened(context, survivor, recovery_point)
        check(found, *EXPECTED)
        # A second crash, right after the start, and a compaction after it.
        copy = survivor.after_crash(survivor.unsynced_units // 2)
        again = reopened(context, copy, recovery_point)
        check(again, *EXPECTED)
        clean(again)
        assert committed(again) == EXPECTED[0]


def test_disk_error_at_each_call() -> None:
    """The disk refuses a call: the log goes on unless it was in a swap, and a restart finds all."""
    for number in range(1, 10_000):
        context = history(MemoryFileSystem())
        call = FailedCall(number, (errno.EIO, errno.ENOSPC, errno.EMFILE)[number % 3])
        context.fs.failed_call = call
        is_swapping = False
        try:
            run = start_run(context)
            try:
                run.build_map()
                while run.next_group():
                    run.clean_group()
                    is_swapping = True  # the log cleaner takes the directory offline then
                    run.swap(context.now_ms)
                    is_swapping = False
                run.sync()
            finally:
                run.discard()
        except OSError as error:
            assert call.place in str(error)
        context.fs.heal()
        if not call.place:
            assert number > 60
            return
        if not is_swapping:
            assert committed(context) == EXPECTED[0], call.place
            clean(context)
            assert committed(context) == EXPECTED[0], call.place
        context.log.close_files()
        context.open(clean=False)
        check(context, EXPECTED[0], EXPECTED[1])
    raise AssertionError("the compaction does not end")
