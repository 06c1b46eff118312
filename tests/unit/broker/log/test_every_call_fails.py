"""Every call of the file system in everything that a log does fails once, and the log goes on.

A step is done with its first call failing, then its second, until it needs no more calls. After the
failure the log is used as if nothing had been (a refused append is sent again, smaller batches
come, segments roll), and then it is read, stopped and opened, killed and opened, or loses what was
not flushed. What was acknowledged is there each time, once, at its offset.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from kraftrio.broker.log.partition.results import AppendInfo
from kraftrio.broker.log.segment.names import LOG_SUFFIX, base_offset_of
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.support.logs import LogContext, records_of
from tests.support.memory_files import FailedCall

# The log treats all alike (what becomes of its directory is the log manager's to say).
CODES = [errno.EMFILE, errno.ENOSPC, errno.EIO]
PRODUCER_ID = 7
SIZES = (20, 90, 150, 10, 260, 15, 40, 200)


class Writer:
    """A leader's log, the one producer that writes to it, and what it was promised."""

    def __init__(self, context: LogContext) -> None:
        self.context = context
        self.promised: dict[int, bytes] = {}  # value by offset
        self.sequence = 0
        self.unsure = b""  # a value that is perhaps there

    def append(self, size_bytes: int) -> None:
        """Append one value of about this size; a refused one is replaced by the next call's."""
        value = self.unsure or (b"%d." % self.sequence).ljust(size_bytes, b"x")
        if self.context.config.flush_messages == 1:
            self.unsure = value  # if only its flush fails, it is there
        info = self.send(self.sequence, value)
        assert not info.duplicate or self.unsure
        assert info.base_offset not in self.promised
        self.unsure = b""
        self.sequence += 1
        self.promised[info.base_offset] = value

    def send(self, sequence: int, value: bytes) -> AppendInfo:
        return self.context.append(
            value,
            key=b"%d" % (sequence % 5),
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            sequence=sequence,
        )

    def write(self, sizes: tuple[int, ...] = SIZES) -> None:
        for size in sizes:
            self.append(size)
        self.context.commit()

    def cut(self) -> None:
        """The log was truncated: the producer goes on from what is left."""
        end_offset = self.context.log.log_end_offset
        self.promised = {o: value for o, value in self.promised.items() if o < end_offset}
        self.sequence = max((sequence_of(v) + 1 for v in self.promised.values()), default=0)


def sequence_of(value: bytes) -> int:
    return int(value.split(b".")[0])


Step = Callable[[Writer], None]


def append_some(writer: Writer) -> None:
    writer.context.leader_epoch += 1
    writer.write((90, 300, 30, 250))


def start_leader_epoch(writer: Writer) -> None:
    writer.context.leader_epoch += 2
    writer.context.log.start_leader_epoch(writer.context.leader_epoch)


def flush(writer: Writer) -> None:
    log = writer.context.log
    log.durability.flush_closed_segments()
    assert log.flush() == log.log_end_offset


def truncate(writer: Writer, offset: int) -> None:
    log = writer.context.log
    try:
        log.truncate_to(offset)
    finally:
        assert log.log_end_offset >= offset
        writer.cut()
    assert log.log_end_offset == offset


def truncate_in_the_active_segment(writer: Writer) -> None:
    truncate(writer, 12)


def truncate_segments_away(writer: Writer) -> None:
    truncate(writer, 3)


def truncate_to_nothing(writer: Writer) -> None:
    truncate(writer, 0)


def start_at(writer: Writer, offset: int) -> None:
    log = writer.context.log
    try:
        log.truncate_fully_and_start_at(offset)
    finally:
        writer.cut()
        if log.log_start_offset == log.log_end_offset == offset:
            writer.promised.clear()
            writer.sequence = 0
        writer.context.log_start_offset = log.log_start_offset
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset)


def start_behind_the_end(writer: Writer) -> None:
    start_at(writer, 100)


def start_within(writer: Writer) -> None:
    start_at(writer, 4)


def start_where_it_was(writer: Writer) -> None:
    start_at(writer, 0)


def retain(writer: Writer) -> None:
    log = writer.context.log
    try:
        log.apply_retention(writer.context.now_ms)
    finally:
        writer.context.log_start_offset = log.log_start_offset
    assert log.log_start_offset > 0
    log.retired.remove_expired(writer.context.now_ms + 10**9)


def delete_records(writer: Writer) -> None:
    writer.context.log_start_offset = 5
    writer.context.log.delete_records_before(5)


def roll(writer: Writer) -> None:
    writer.context.log.roll(writer.context.now_ms)


def stop(writer: Writer) -> None:
    """A stop that fails is not a clean one."""
    context = writer.context
    try:
        context.restart()
    except OSError:
        context.kill()


def open_after_kill(writer: Writer) -> None:
    """A start that fails is done again."""
    context = writer.context
    try:
        context.kill()
    except OSError:
        context.open(clean=False)


STEPS: dict[str, tuple[Step, dict[str, Any]]] = {
    "append and roll": (append_some, {}),
    "append with flush.messages": (append_some, {"flush_messages": 1}),
    "roll": (roll, {}),
    "flush": (flush, {}),
    "start a leader epoch": (start_leader_epoch, {}),
    "truncate in the active segment": (truncate_in_the_active_segment, {}),
    "truncate segments away": (truncate_segments_away, {}),
    "truncate to nothing": (truncate_to_nothing, {}),
    "start behind the end": (start_behind_the_end, {}),
    "start within": (start_within, {}),
    "start where it was": (start_where_it_was, {}),
    "retention": (retain, {"retention_bytes": 500}),
    "delete records": (delete_records, {}),
    "stop": (stop, {}),
    "open after a kill": (open_after_kill, {}),
}


# A follower tries these until they succeed; it may be made the leader before.
DONE_AGAIN = [name for name in STEPS if name.startswith(("truncate", "start "))]
WAYS = [(False, False), (True, False), (False, True)]  # done again; the ending comes at once


def started(config: dict[str, Any]) -> Writer:
    """A log of several segments and epochs, flushed half-way."""
    writer = Writer(LogContext(segment_bytes=500, index_interval_bytes=100, **config))
    writer.write()
    writer.context.log.flush()
    writer.context.recovery_point = writer.context.log.recovery_point
    writer.context.leader_epoch = 2
    writer.write(SIZES[:5])
    return writer


def failed_once(name: str, *, again: bool) -> Iterator[tuple[str, Writer]]:
    """The log after each failure of the step, left so or with the step done once more."""
    step, config = STEPS[name]
    for number in range(1, 1000):
        writer = started(config)
        call = FailedCall(number, CODES[number % len(CODES)])
        writer.context.fs.failed_call = call
        try:
            step(writer)
        except OSError as error:
            assert call.place in str(error)
        writer.context.fs.heal()
        if not call.place:
            assert number > 1, "the step touches no file"
            return
        if again:
            step(writer)
        yield call.place, writer
    raise AssertionError("the step does not end")


def check(writer: Writer, where: str) -> None:
    """What was promised is there, and the segments lie side by side."""
    context = writer.context
    log = context.log
    records = context.read_all()
    found = {record.offset: record.value for record in records}
    wanted = {o: v for o, v in writer.promised.items() if o >= log.log_start_offset}
    assert found == wanted, where
    assert len(records) == len(found), where
    for before, after in pairwise(log.segments):
        assert before.size_bytes, where
        assert before.end_offset == after.base_offset, where
        *_, last = before.log_file.scan()
        assert last.header.next_offset == after.base_offset, where
    end_offset = max(writer.promised, default=log.log_start_offset - 1) + 1
    assert log.log_end_offset == end_offset, where
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments), where
    on_disk = [b for name in context.files() if (b := base_offset_of(name, LOG_SUFFIX)) is not None]
    assert on_disk == log.segments.base_offsets, where
    for offset in log.segments.base_offsets:
        offset = max(offset, log.log_start_offset)
        if offset == log.log_end_offset:
            continue
        read = log.read(offset, 1, max_offset=log.log_end_offset, min_one_batch=True)
        assert records_of(read.records)[0].offset == offset, where
    check_repeats(writer, where)


def check_repeats(writer: Writer, where: str) -> None:
    """The producer's last batch is still known, and what it must not send is refused."""
    newest = max(writer.promised, default=None)
    if newest is None:
        return
    value = writer.promised[newest]
    info = writer.send(sequence_of(value), value)
    assert (info.duplicate, info.base_offset) == (True, newest), where
    with pytest.raises(KafkaError) as refused:
        writer.send(sequence_of(value) + 2, b"a gap")
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, where


def read_on(writer: Writer, where: str) -> None:
    check(writer, where)


def stop_and_start(writer: Writer, where: str) -> None:
    writer.context.restart()
    check(writer, where)


def kill_and_start(writer: Writer, where: str) -> None:
    writer.context.kill()
    check(writer, where)


def lose_power(writer: Writer, where: str) -> None:
    context = writer.context
    context.recovery_point = context.log.flush()
    context.fs = context.fs.after_crash()
    context.open(clean=False)
    check(writer, where)


Ending = Callable[[Writer, str], None]
ENDINGS: list[Ending] = [read_on, stop_and_start, kill_and_start, lose_power]


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
@pytest.mark.parametrize("name", STEPS)
def test_nothing_is_lost_by_a_failed_call(name: str, ending: Ending) -> None:
    """The log goes on at once, with what fits into the segment that was to be rolled, too."""
    for again, at_once in WAYS if name in DONE_AGAIN else WAYS[:1]:
        if at_once and name.startswith("start"):
            continue  # who wrote what is gone may still be known after a kill
        for where, writer in failed_once(name, again=again):
            place = f"{name}, {where}, {ending.__name__}"
            if at_once:
                ending(writer, place)
            writer.write((10, 5, 100))
            check(writer, place)
            writer.write(SIZES)
            ending(writer, place)
