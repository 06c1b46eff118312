"""Power cuts and failing disks at every byte: what was promised is there, the rest is a prefix."""

from __future__ import annotations

import dataclasses
import errno
from random import Random

import pytest

from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records.batch import iter_headers, verify_crc
from tests.support.logs import LogContext, batch
from tests.support.memory_files import MemoryFileSystem

VALUES = [b"%d" % number * (1 + number % 5) for number in range(24)]


def survivor(context: LogContext, fs: MemoryFileSystem, recovery_point: int = 0) -> LogContext:
    """The log as another process finds it on what the crash left of the file system."""
    found = LogContext.__new__(LogContext)
    found.__dict__.update(context.__dict__)
    found.fs = fs
    found.recovery_point = recovery_point
    found.log = found.open(clean=False)
    return found


def check_whole(context: LogContext) -> None:
    """Every batch is intact, offsets have no holes, and the indexes find every record."""
    log = context.log
    expected = log.log_start_offset
    for scanned in log.batches(log.log_start_offset):
        verify_crc(scanned.buffer, scanned.header)
        assert scanned.header.base_offset == expected
        expected = scanned.header.next_offset
    assert expected == log.log_end_offset
    for offset in range(log.log_start_offset, log.log_end_offset):
        read = log.read(offset, 1, max_offset=log.log_end_offset, min_one_batch=True)
        assert next(iter_headers(read.records)).base_offset <= offset < read.next_offset


def write_history(context: LogContext) -> int:
    """Append with rolls, a flush in the middle and two epochs; return the flushed offset."""
    for value in VALUES[:8]:
        context.append(value)
    flushed = context.log.flush()
    context.leader_epoch = 3
    for value in VALUES[8:]:
        context.append(value)
    return flushed


def test_power_cut_at_every_byte_leaves_a_prefix() -> None:
    """Whatever reached the disk in order, the log is a prefix that holds all flushed records."""
    context = LogContext(segment_bytes=400, index_interval_bytes=80)
    flushed = write_history(context)
    assert len(context.log.segments) > 3
    for keep in range(context.fs.unsynced_units + 1):
        found = survivor(context, context.fs.after_crash(keep), recovery_point=flushed)
        values = found.values()
        assert values == VALUES[: len(values)], keep
        assert len(values) >= flushed, keep
        check_whole(found)
        assert found.log.recovery_point == flushed
        entries = [entry for entry in context.log.leader_epochs.entries
                   if entry.start_offset < len(values)]  # fmt: skip
        assert found.log.leader_epochs.entries == entries
    assert len(values) == len(VALUES)


@pytest.mark.parametrize("seed", range(60))
def test_reordered_writes_leave_a_prefix(seed: int) -> None:
    """Disks write files in any order; what is not in order is cut, never served."""
    context = LogContext(segment_bytes=400, index_interval_bytes=80)
    flushed = write_history(context)
    found = survivor(context, context.fs.after_crash(random=Random(seed)), flushed)
    values = found.values()
    assert values == VALUES[: len(values)]
    assert len(values) >= flushed
    check_whole(found)
    found.append(b"after")
    assert found.values() == [*VALUES[: len(values)], b"after"]


def test_second_crash_during_recovery_loses_nothing() -> None:
    """A recovery that dies half-way is simply done again."""
    context = LogContext(segment_bytes=400)
    flushed = write_history(context)
    first = survivor(context, context.fs.after_crash(context.fs.unsynced_units), flushed)
    for keep in range(first.fs.unsynced_units + 1):
        second = survivor(first, first.fs.after_crash(keep), flushed)
        values = second.values()
        assert values == VALUES[: len(values)]
        assert len(values) >= flushed
        check_whole(second)


def test_kill_of_the_process_loses_nothing() -> None:
    """The page cache outlives the process: all appends are there, and are checked again."""
    context = LogContext(segment_bytes=400)
    write_history(context)
    context.kill()
    assert context.values() == VALUES
    assert context.log.recovery_point == 0
    context.log.flush()
    after_power_cut = survivor(context, context.fs.after_crash(0), recovery_point=len(VALUES))
    assert after_power_cut.values() == VALUES


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_torn_append_is_undone_at_every_byte(code: int) -> None:
    """A write that fails after some bytes leaves no trace, and the next append works."""
    size = len(batch(b"second"))
    for written in range(size):
        context = LogContext()
        context.append(b"first")
        context.fs.write_fault = lambda path, position, size, n=written: (
            (n, OSError(code, "injected")) if path.endswith(".log") else None
        )
        with pytest.raises(OSError, match="injected"):
            context.append(b"second", producer_id=7, producer_epoch=0, sequence=5)
        assert context.log.log_end_offset == 1
        assert context.log.producer_state.get(7) is None
        context.fs.heal()
        assert context.append(b"third").base_offset == 1
        assert context.values() == [b"first", b"third"]
        context.kill()
        assert context.values() == [b"first", b"third"]


def test_torn_append_that_cannot_be_cut_is_cut_before_the_next() -> None:
    """While the disk refuses the cut too, appends fail; afterwards the tail is right."""
    context = LogContext()
    context.append(b"first")
    context.fs.write_fault = lambda path, position, size: (9, OSError(errno.EIO, "injected"))
    context.fs.fail("truncate", ".log")
    for _ in range(2):
        with pytest.raises(OSError, match="injected"):
            context.append(b"second")
    assert context.values() == [b"first"]
    context.fs.heal()
    context.append(b"short")
    assert context.values() == [b"first", b"short"]
    context.kill()
    assert context.values() == [b"first", b"short"]


def test_failing_roll_leaves_the_log_as_it_was() -> None:
    """When the new segment cannot be made, nothing is appended; the next try works."""
    context = LogContext(segment_bytes=150)
    context.append(b"x" * 60)
    context.fs.fail("open", f"{1:020d}", errno.ENOSPC)
    with pytest.raises(OSError, match="injected"):
        context.append(b"y" * 60)
    assert context.log.log_end_offset == 1
    context.fs.heal()
    assert context.append(b"y" * 60).base_offset == 1
    assert context.restart().log_end_offset == 2
    assert len(context.log.segments) == 2


def test_failing_flush_does_not_move_the_recovery_point() -> None:
    """Durable is only what a sync confirmed; the next flush syncs again."""
    context = LogContext()
    context.append(b"first")
    context.fs.fail("sync", ".log")
    with pytest.raises(OSError, match="injected"):
        context.log.flush()
    assert context.log.recovery_point == 0
    context.fs.heal()
    assert context.log.flush() == 1
    found = survivor(context, context.fs.after_crash(0), recovery_point=1)
    assert found.values() == [b"first"]


def test_flush_with_flush_messages_one_makes_every_append_durable() -> None:
    """flush.messages=1: what append returned survives any power cut."""
    context = LogContext(flush_messages=1)
    context.leader_epoch = 4
    for count, value in enumerate(VALUES[:4], 1):
        context.append(value)
        found = survivor(context, context.fs.after_crash(0), recovery_point=count)
        assert found.values() == VALUES[:count]
    assert found.log.latest_epoch == 4
    assert found.log.topic_id == context.log.topic_id


def test_producer_state_is_rebuilt_after_power_cut() -> None:
    """Duplicates of what survived are still recognised, of what was lost are new."""
    context = LogContext(segment_bytes=300)
    for sequence in range(8):
        context.append(b"x" * 20, producer_id=9, producer_epoch=0, sequence=sequence)
    for keep in range(0, context.fs.unsynced_units + 1, 7):
        found = survivor(context, context.fs.after_crash(keep))
        end = found.log.log_end_offset
        for sequence in range(max(0, end - 5), end):
            info = found.append(b"x" * 20, producer_id=9, producer_epoch=0, sequence=sequence)
            assert info.duplicate
            assert info.base_offset == sequence
        assert found.log.log_end_offset == end
        info = found.append(b"x" * 20, producer_id=9, producer_epoch=0, sequence=end)
        assert (info.duplicate, info.base_offset) == (False, end)


def test_stale_snapshot_of_lost_records_is_not_believed() -> None:
    """A snapshot that reached the disk before the records it covers is dropped."""
    context = LogContext(segment_bytes=300)
    context.append(b"a" * 20, producer_id=1, producer_epoch=0, sequence=0)
    context.log.flush()
    for sequence in range(1, 6):
        context.append(b"a" * 20, producer_id=1, producer_epoch=0, sequence=sequence)
    log = context.log  # whose snapshot survives, and the records do not
    log.producers.write_snapshot(log.log_end_offset, sync=True)
    found = survivor(context, context.fs.after_crash(0), recovery_point=1)
    assert found.log.log_end_offset == 1
    assert all(offset <= 1 for offset in found.log.producers.snapshots.offsets)
    with pytest.raises(KafkaError) as error:
        found.append(b"a" * 20, producer_id=1, producer_epoch=0, sequence=3)
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_truncation_survives_a_power_cut() -> None:
    """After a truncation and a flush the cut records stay gone."""
    context = LogContext(segment_bytes=300)
    write_history(context)
    context.log.flush()
    context.log.truncate_to(5)
    context.append(b"new")
    context.log.flush()
    found = survivor(context, context.fs.after_crash(0), recovery_point=6)
    assert found.values() == [*VALUES[:5], b"new"]
    check_whole(found)


def test_closed_log_type_is_one_log() -> None:
    """The context really opens PartitionLog (guards the helpers above)."""
    assert isinstance(LogContext().log, PartitionLog)


def test_removed_segments_stay_removed() -> None:
    """Records that were cut do not come back at a power cut, in place of those written since."""
    context = LogContext(segment_bytes=300)
    for number in range(8):
        context.append(b"old%d" % number)
    context.log.flush()
    context.log.truncate_to(1)
    context.config = dataclasses.replace(context.config, segment_bytes=10_000)
    context.log.set_config(context.config)
    for number in range(1, 9):
        context.append(b"new%d" % number)
    context.log.flush()
    found = survivor(context, context.fs.after_crash(0), recovery_point=9)
    assert found.values() == [b"old0", *(b"new%d" % number for number in range(1, 9))]
    check_whole(found)


def test_a_tail_that_could_not_be_cut_is_cut_before_a_roll() -> None:
    """Else the closed segment would keep half a batch, and readers would end there."""
    context = LogContext(segment_bytes=300)
    context.append(b"first")
    context.fs.write_fault = lambda path, position, size: (70, OSError(errno.ENOSPC, "injected"))
    context.fs.fail("truncate", ".log")
    with pytest.raises(OSError, match="injected"):
        context.append(b"second")
    context.fs.heal()
    context.log.roll(context.now_ms)
    context.append(b"third")
    context.restart()
    assert context.values() == [b"first", b"third"]


def test_producers_survive_a_power_cut_without_their_batches() -> None:
    """What retention has deleted is known by a snapshot only, so a flush makes that durable."""
    context = LogContext(segment_bytes=300, retention_bytes=0)
    context.append(b"a" * 200, producer_id=1, producer_epoch=0, sequence=0)
    context.log.roll(context.now_ms)
    context.commit()
    context.log.apply_retention(context.now_ms)
    context.append(b"b")
    flushed = context.log.flush()
    context.log_start_offset = context.log.log_start_offset
    found = survivor(context, context.fs.after_crash(0), recovery_point=flushed)
    assert found.values() == [b"b"]
    info = found.append(b"a" * 200, producer_id=1, producer_epoch=0, sequence=0)
    assert info.duplicate
