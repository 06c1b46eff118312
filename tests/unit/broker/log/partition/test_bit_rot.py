"""A disk that gives back other bits than were written: nothing is passed over, nothing is lost."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kraftrio.broker.log.partition.timestamp_search import offset_for_timestamp
from kraftrio.broker.log.segment.names import INDEX_SUFFIX, LOG_SUFFIX, segment_name
from kraftrio.wire.errors import CorruptBatchError, ErrorCode
from kraftrio.wire.records.batch import BatchHeader, iter_headers
from tests.support.logs import DIRECTORY, NOW_MS, LogContext, batch, records_of
from tests.support.memory_files import ReadFault

_LENGTH, _MAGIC, _DELTA, _SEQUENCE, _BATCH = 8, 16, 23, 53, 61


def flip_on_disk(context: LogContext, position: int, mask: int = 1, base_offset: int = 0) -> None:
    """Change bits of the first segment for good."""
    file = context.fs.open(f"{DIRECTORY}/{segment_name(base_offset)}{LOG_SUFFIX}")
    file.write_at(bytes([file.read_at(position, 1)[0] ^ mask]), position)
    file.sync()


def flip_once(position: int, mask: int = 1, *, after: int = 0) -> ReadFault:
    """Change bits in one read of them, the first one `after` so many; the disk is right."""
    passed: list[bool] = []

    def read(path: str, start: int, data: bytes) -> bytes:
        at = position - start
        if not path.endswith(LOG_SUFFIX) or not 0 <= at < len(data):
            return data
        passed.append(True)
        if len(passed) != after + 1:
            return data
        return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]

    return read


def headers_of(context: LogContext) -> list[BatchHeader]:
    return list(iter_headers(context.read_file(segment_name(0) + LOG_SUFFIX)))


def read(context: LogContext, offset: int, max_bytes: int = 1 << 20) -> list[int]:
    """The offsets that a reader finds from one on."""
    log = context.log
    found = log.read(offset, max_bytes, max_offset=log.log_end_offset, min_one_batch=True)
    return [record.offset for record in records_of(found.records)]


def three_batches(**config: Any) -> LogContext:
    """Batches of three records each."""
    context = LogContext(**config)
    for first in range(3):
        context.append(*(b"%d" % (3 * first + i) for i in range(3)))
    return context


@pytest.mark.parametrize("mask", [0x80, 0x40, 0x01])
def test_a_wrong_length_is_no_end_of_the_segment(mask: int) -> None:
    """A reader behind it gets the damage as an error, not the next segment's records."""
    context = three_batches()
    context.log.roll(NOW_MS)
    context.append(b"next")
    flip_on_disk(context, headers_of(context)[1].position + _LENGTH, mask)
    with pytest.raises(CorruptBatchError):
        read(context, 7)


def test_a_length_that_meets_a_later_batch_is_noticed() -> None:
    """Batches are often of one size: a wrong length may lead to the start of another one."""
    context = three_batches()
    first, second, _ = headers_of(context)
    assert first.size_bytes == second.size_bytes
    length = struct.pack(">i", first.size_bytes + second.size_bytes - 12)
    file = context.fs.open(context.path(segment_name(0) + LOG_SUFFIX))
    file.write_at(length, first.position + _LENGTH)
    with pytest.raises(CorruptBatchError):
        read(context, 3)


def test_damage_of_the_magic_is_damage_and_no_old_format() -> None:
    """Clients try again on CORRUPT_MESSAGE, and give up on INVALID_RECORD."""
    context = three_batches()
    flip_on_disk(context, headers_of(context)[1].position + _MAGIC, 2)
    for ask in (lambda: read(context, 4), lambda: list(context.log.batches(3))):
        with pytest.raises(CorruptBatchError) as caught:
            ask()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_offset_within_a_damaged_batch_is_not_passed_over() -> None:
    """A batch that seems to end earlier does not send a reader on to the next one."""
    context = three_batches()
    flip_on_disk(context, headers_of(context)[1].position + _DELTA + 3, 2)
    with pytest.raises(CorruptBatchError):
        read(context, 5)
    assert read(context, 6) == [6, 7, 8]


def test_a_negative_length_ends_a_read() -> None:
    """It neither loops for ever nor breaks more than the reader's own request."""
    context = three_batches()
    second = headers_of(context)[1]
    for mask in (0x80, 0xFF):
        flip_on_disk(context, second.position + _LENGTH, mask)
        log = context.log
        end = log.log_end_offset
        found = log.read(0, second.position + 70, max_offset=end, min_one_batch=True)
        assert [r.offset for r in records_of(found.records)] == [0, 1, 2]
        flip_on_disk(context, second.position + _LENGTH, mask)


@pytest.mark.parametrize("name", ["offset", "position"])
def test_a_damaged_index_is_rebuilt(name: str) -> None:
    """An entry that points into the middle of a batch, or to another one, is found out."""
    context = LogContext(index_interval_bytes=100)
    for number in range(40):
        context.append(b"%d" % number)
    context.log.roll(NOW_MS)
    context.restart()
    path = segment_name(0) + INDEX_SUFFIX
    data = bytearray(context.read_file(path))
    assert len(data) >= 80
    data[40 + (7 if name == "position" else 3)] ^= 1
    context.overwrite(path, bytes(data))
    assert [read(context, offset)[0] for offset in range(40)] == list(range(40))


def test_times_do_not_hang_on_a_damaged_index() -> None:
    """Where records are looked for by an index that lies, it is made again."""
    context = LogContext(index_interval_bytes=100)
    for number in range(40):
        context.append(b"x", timestamps=[NOW_MS + number])
    context.log.roll(NOW_MS)
    context.restart()
    path = segment_name(0) + INDEX_SUFFIX
    data = bytearray(context.read_file(path))
    for entry in range(8, len(data), 8):
        data[entry + 7] ^= 1
    context.overwrite(path, bytes(data))
    for number in range(40):
        found = offset_for_timestamp(context.log, NOW_MS + number)
        assert found is not None
        assert found.offset == number


def test_a_damaged_index_shows_nothing_uncommitted() -> None:
    """Below the high watermark stays below it, wherever the index says that batches begin."""
    context = LogContext(index_interval_bytes=100)
    for number in range(40):
        context.append(b"%d" % number)
    context.restart()
    path = segment_name(0) + INDEX_SUFFIX
    data = bytearray(context.read_file(path))
    entry = 8 * (len(data) // 8 - 2)
    position = struct.unpack_from(">I", data, entry + 4)[0]
    for number in range(entry // 8):  # entries of the first half point into the second
        last_offset = struct.unpack_from(">I", data, 8 * number)[0]
        struct.pack_into(">II", data, 8 * number, last_offset, position - entry // 8 + number)
    context.overwrite(path, bytes(data))
    for high_watermark in range(1, 40):
        found = context.log.read(0, 1 << 20, max_offset=high_watermark, min_one_batch=True)
        offsets = [record.offset for record in records_of(found.records)]
        assert offsets == list(range(high_watermark))


def test_recovery_reads_twice_before_it_cuts() -> None:
    """One bad read is no reason to drop what is on the disk."""
    context = three_batches()
    context.fs.read_fault = flip_once(headers_of(context)[1].position + _BATCH)
    context.kill()
    assert context.log.log_end_offset == 9
    assert not context.log.recovery_events


def test_recovery_cuts_before_damage_that_stays() -> None:
    """What cannot be right is not served; what is before it is kept."""
    context = three_batches()
    flip_on_disk(context, headers_of(context)[1].position + _BATCH)
    context.kill()
    assert context.log.log_end_offset == 3


def test_a_follower_takes_what_is_before_the_damage() -> None:
    """As much as is good is safer with it; the damaged batch it refuses when it comes first."""
    context = LogContext()
    good, bad = batch(b"a", base_offset=0), batch(b"b", base_offset=1)
    bad[-1] ^= 1
    assert context.log.append_as_follower(good + bad, NOW_MS).last_offset == 0
    with pytest.raises(CorruptBatchError) as caught:
        context.log.append_as_follower(bytes(bad), NOW_MS)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert context.values() == [b"a"]


def test_a_follower_refuses_a_broken_header_behind_good_batches() -> None:
    """An impossible magic ends what is taken, too."""
    context = LogContext()
    good, bad = batch(b"a", base_offset=0), batch(b"b", base_offset=1)
    bad[_MAGIC] ^= 2
    assert context.log.append_as_follower(good + bad, NOW_MS).last_offset == 0
    assert context.values() == [b"a"]


@pytest.mark.parametrize("after", range(4))
def test_producers_are_read_from_sound_batches_only(after: int) -> None:
    """After a truncation a producer's last sequence is what the disk holds, not what it shows."""
    context = LogContext()
    for sequence in range(3):
        context.append(b"%d" % sequence, producer_id=7, producer_epoch=0, sequence=sequence)
    context.append(b"cut")
    position = headers_of(context)[2].position + _SEQUENCE + 3
    context.fs.read_fault = flip_once(position, 8, after=after)
    context.log.truncate_to(3)
    assert context.append(b"2", producer_id=7, producer_epoch=0, sequence=2).duplicate
    assert not context.append(b"3", producer_id=7, producer_epoch=0, sequence=3).duplicate


@pytest.mark.parametrize(("at", "reads_on"), [(_SEQUENCE, True), (_LENGTH, False)])
def test_what_follows_a_damaged_batch_still_ends_transactions(at: int, reads_on: bool) -> None:
    """Unless its length is damaged, too: then nothing says where the next one begins."""
    context = LogContext()
    context.append(b"x", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    context.append(b"damaged", producer_id=8, producer_epoch=0, sequence=0)
    context.append_marker(7, 0, commit=True)
    context.append(b"y", producer_id=8, producer_epoch=0, sequence=1)
    log = context.log
    flip_on_disk(context, headers_of(context)[1].position + at)
    segments = log.segments.from_offset(0)
    log.producers.restore(segments, 0, 4, NOW_MS, high_watermark=None)
    log.update_high_watermark(4)
    assert log.last_stable_offset == (4 if reads_on else 0)
    assert (log.producer_state.get(8) is not None) == reads_on


def test_a_time_is_not_looked_up_in_damaged_records() -> None:
    """The answer is that they are damaged, not an offset by chance."""
    context = LogContext()
    context.append(b"a", timestamps=[NOW_MS])
    context.append(b"b", timestamps=[NOW_MS + 5])
    flip_on_disk(context, headers_of(context)[0].position + _BATCH + 1, 0x20)
    with pytest.raises(CorruptBatchError):
        offset_for_timestamp(context.log, NOW_MS - 1)


def test_truncation_stays_whole_when_damage_is_in_its_way() -> None:
    """The log's end is where its bytes end, so that the next try and later appends fit."""
    context = three_batches()
    context.log.roll(NOW_MS)
    context.append(b"next")
    middle = headers_of(context)[1].position + _LENGTH
    flip_on_disk(context, middle, 0x40)
    with pytest.raises(CorruptBatchError):
        context.log.truncate_to(7)
    assert context.log.log_end_offset == context.log.active_segment.end_offset == 9
    flip_on_disk(context, middle, 0x40)
    context.log.truncate_to(6)
    context.append(b"again")
    assert [record.offset for record in context.read_all()] == [*range(6), 6]


def test_truncation_before_damage_is_carried_out() -> None:
    """Damage in what stays is no reason to leave the log half cut."""
    context = three_batches(index_interval_bytes=1)
    flip_on_disk(context, headers_of(context)[0].position + _MAGIC, 4)
    context.log.truncate_to(6)
    assert context.log.log_end_offset == context.log.active_segment.end_offset == 6


def test_a_length_beyond_the_end_of_the_segment_ends_a_read() -> None:
    """What is named of a file lies within it, whatever a header says."""
    context = three_batches()
    second = headers_of(context)[1]
    flip_on_disk(context, second.position + _LENGTH + 1, 1)
    found = context.log.read(0, 1 << 20, max_offset=8, min_one_batch=True)
    assert [record.offset for record in records_of(found.records)] == [0, 1, 2]
