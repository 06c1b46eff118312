"""Appends, rolls, reads, watermarks, truncation of one log."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from kraftrio.broker.log.log_config import INT_MAX, LogConfig
from kraftrio.broker.log.partition.partition_log import AppendOrigin
from kraftrio.broker.log.producers import replay as producer_replay
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records.batch import iter_headers, parse_header
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.support.logs import NOW_MS, LogContext, batch, records_of

DAY_MS = 86_400_000


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


# -- appends


def test_offsets_follow_each_other() -> None:
    """base_offset is that of the first record, and the end is one after the last."""
    context = LogContext()
    info = context.append(b"a", b"b", b"c")
    assert (info.base_offset, info.last_offset, context.log.log_end_offset) == (0, 2, 3)
    info = context.append(b"d")
    assert (info.base_offset, info.last_offset, info.log_start_offset) == (3, 3, 0)
    assert [(r.offset, r.value) for r in context.read_all()] == [
        (0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"),
    ]  # fmt: skip


def test_records_are_stamped_in_place() -> None:
    """The request's own buffer is changed, so that it can be sent on without a copy."""
    context = LogContext()
    context.append(b"a")
    data = bytearray(b"...") + batch(b"b")
    context.log.append_as_leader(memoryview(data)[3:], 4, NOW_MS)
    header = parse_header(data, 3)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 4)


def test_repeats_of_the_last_five_batches_are_answered_from_memory() -> None:
    """Also after a clean restart, a kill and a truncation that spares them."""
    context = LogContext()
    for sequence in range(0, 12, 2):
        context.append(b"a", b"b", producer_id=1, producer_epoch=0, sequence=sequence)

    def repeat_all() -> None:
        for sequence in range(2, 12, 2):
            info = context.append(b"a", b"b", producer_id=1, producer_epoch=0, sequence=sequence)
            assert info.duplicate
            assert (info.base_offset, info.last_offset) == (sequence, sequence + 1)
        assert context.log.log_end_offset == 12

    repeat_all()
    with pytest.raises(KafkaError) as error:
        context.append(b"a", b"b", producer_id=1, producer_epoch=0, sequence=0)
    assert code_of(error) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    context.kill()
    repeat_all()
    context.restart()
    # A snapshot keeps one batch per producer, as Kafka's does; the log gives the others back.
    repeat_all()
    context.append(b"c", producer_id=1, producer_epoch=0, sequence=12)
    context.log.truncate_to(12)
    assert context.append(b"a", b"b", producer_id=1, producer_epoch=0, sequence=10).duplicate
    assert context.append(b"c", producer_id=1, producer_epoch=0, sequence=12).base_offset == 12


def test_repeats_are_recognised_when_each_batch_lies_in_a_segment_of_its_own() -> None:
    """After a restart, too, when the newest segment before the snapshot holds one of them only."""
    context = LogContext()
    for sequence in range(8):
        context.append(b"a", producer_id=1, producer_epoch=0, sequence=sequence)
        context.log.roll(context.now_ms)
    for begin_again in (context.restart, context.kill, context.restart):
        begin_again()
        for sequence in range(3, 8):
            info = context.append(b"a", producer_id=1, producer_epoch=0, sequence=sequence)
            assert info.duplicate
            assert info.base_offset == sequence
    assert context.log.log_end_offset == 8


def test_only_so_much_of_a_log_is_looked_through_for_older_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start reads no more than that of all segments together."""
    context = LogContext()
    for sequence in range(5):
        context.append(b"a" * 100, producer_id=1, producer_epoch=0, sequence=sequence)
        context.log.roll(context.now_ms)
    monkeypatch.setattr(producer_replay, "_RECALL_BYTES", 200)
    context.restart()
    again = {"producer_id": 1, "producer_epoch": 0}
    assert context.append(b"a" * 100, sequence=3, **again).duplicate
    with pytest.raises(KafkaError) as error:
        context.append(b"a" * 100, sequence=2, **again)
    assert code_of(error) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_duplicate_reports_its_append_time() -> None:
    context = LogContext(message_timestamp_type="LogAppendTime")
    context.append(b"a", producer_id=1, producer_epoch=0, sequence=0)
    context.now_ms += 500
    info = context.append(b"a", producer_id=1, producer_epoch=0, sequence=0)
    assert (info.duplicate, info.log_append_time_ms) == (True, NOW_MS)


def test_follower_takes_batches_as_they_are() -> None:
    """Offsets and epochs are the leader's, also with gaps; a cut last batch is left out."""
    leader, follower = LogContext(), LogContext()
    leader.append(b"a", b"b")
    leader.leader_epoch = 5
    leader.append(b"c", producer_id=1, producer_epoch=0, sequence=0)
    data = bytes(leader.log.read(0, 1 << 20, max_offset=3, min_one_batch=True).records)
    gap = bytes(batch(b"z", base_offset=10, leader_epoch=6))
    info = follower.log.append_as_follower(data + gap + gap[:40], NOW_MS)
    assert (info.base_offset, info.last_offset) == (0, 10)
    assert [r.offset for r in follower.read_all()] == [0, 1, 2, 10]
    assert follower.log.leader_epochs.entries == [(0, 0), (5, 2), (6, 10)]
    assert follower.log.producer_state.get(1) is not None
    assert follower.log.append_as_follower(b"", NOW_MS).size_bytes == 0


def test_follower_refuses_offsets_it_has_and_bad_checksums() -> None:
    context = LogContext()
    context.append(b"a", b"b")
    with pytest.raises(KafkaError):
        context.log.append_as_follower(batch(b"x", base_offset=1), NOW_MS)
    bad = batch(b"x", base_offset=2)
    bad[-1] ^= 1
    with pytest.raises(KafkaError) as error:
        context.log.append_as_follower(bad, NOW_MS)
    assert code_of(error) is ErrorCode.CORRUPT_MESSAGE
    assert context.log.log_end_offset == 2


def test_follower_leaves_out_batches_of_later_epochs() -> None:
    """A fetch that began under an old leader may not bring records of a newer one."""
    context = LogContext()
    data = batch(b"a", base_offset=0, leader_epoch=3) + batch(b"b", base_offset=1, leader_epoch=4)
    context.log.append_as_follower(data, NOW_MS, leader_epoch=3)
    assert context.values() == [b"a"]


def test_follower_keeps_the_tail_of_what_came_in_pieces() -> None:
    """A reader at the end is served from memory; that must be each piece's own bytes."""
    context = LogContext(segment_bytes=200)
    assert not context.read_all()
    context.log.read(0, 1, max_offset=1, min_one_batch=True)  # from now on the tail is kept
    data = bytearray()
    for offset in range(4):
        data += batch(b"%d" % offset * 50, base_offset=offset, leader_epoch=1)
    context.log.append_as_follower(bytes(data), NOW_MS)
    assert context.values() == [b"%d" % offset * 50 for offset in range(4)]


def test_follower_starts_within_a_batch_where_the_leaders_log_does() -> None:
    """DeleteRecords left the leader's log start inside a batch: the whole batch is taken."""
    leader, follower = LogContext(), LogContext()
    leader.append(b"a", b"b", b"c", b"d")
    leader.commit()
    leader.log.delete_records_before(2)
    data = bytes(leader.log.read(2, 1 << 20, max_offset=4, min_one_batch=True).records)
    follower.log.truncate_fully_and_start_at(2, NOW_MS)
    follower.log.append_as_follower(data, NOW_MS)
    assert follower.log.log_end_offset == 4
    follower.commit()
    follower.log.delete_records_before(2)
    assert follower.values()[-2:] == [b"c", b"d"]
    with pytest.raises(KafkaError):  # only an empty log may begin again
        follower.log.append_as_follower(batch(b"x", b"y", base_offset=3), NOW_MS)


def test_a_log_cut_to_nothing_stops_cleanly(caplog: pytest.LogCaptureFixture) -> None:
    """Its index files are cut as well, so that the next start has nothing to repair."""
    context = LogContext(index_interval_bytes=1)
    for _ in range(3):
        context.append(b"a")
    context.restart()
    context.log.truncate_to(0)
    context.restart()
    context.append(b"b")
    assert context.values() == [b"b"]
    assert not caplog.records


def test_truncation_at_the_end_forgets_an_epoch_without_records() -> None:
    """An epoch begun as leader, without an append, must not be asked of the next leader."""
    context = LogContext()
    context.append(b"a")
    context.log.start_leader_epoch(3)
    assert context.log.latest_epoch == 3
    assert not context.log.truncate_to(1)
    assert context.log.latest_epoch == 0
    assert b"3 1" not in context.epochs_file()


def test_follower_with_smaller_segments_takes_everything() -> None:
    """What the leader could store must be storable here, batch by batch."""
    context = LogContext(segment_bytes=100)
    data = bytearray()
    for offset in range(4):
        data += batch(b"x" * 80, base_offset=offset, leader_epoch=1)
    context.log.append_as_follower(bytes(data), NOW_MS)
    assert context.log.log_end_offset == 4
    assert len(context.log.segments) == 4


def test_coordinator_appends_several_batches_at_once() -> None:
    context = LogContext()
    data = batch(b"a", b"b") + batch(b"c")
    info = context.log.append_as_leader(data, 2, NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert (info.base_offset, info.last_offset) == (0, 2)
    headers = list(iter_headers(data))
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 2), (2, 2)]


# -- rolls


def test_roll_by_size() -> None:
    """A segment never grows beyond segment.bytes; a producer snapshot marks each roll."""
    context = LogContext(segment_bytes=250)
    for _ in range(8):
        context.append(b"x" * 30)
    assert [s.size_bytes <= 250 for s in context.log.segments] == [True] * len(context.log.segments)
    bases = context.log.segments.base_offsets
    assert len(bases) == 4
    assert context.log.producers.snapshots.offsets == bases[1:]
    assert [f"{base:020d}.snapshot" in context.files() for base in bases] == [False] + [True] * 3


def test_roll_by_record_time() -> None:
    """segment.ms counts from the first record's time, so old data fill segments of their own."""
    context = LogContext(segment_ms=7 * DAY_MS)
    start = NOW_MS - 100 * DAY_MS
    for day in (0, 3, 7, 8, 12, 16):
        context.append(b"x", timestamps=[start + day * DAY_MS])
    assert context.log.segments.base_offsets == [0, 3, 5]
    context.restart()
    context.append(b"x", timestamps=[start + 23 * DAY_MS + 1])
    assert context.log.segments.base_offsets == [0, 3, 5, 6]


def test_roll_by_full_index() -> None:
    """An index has room for segment.index.bytes; the next batch begins a new segment."""
    context = LogContext(segment_index_bytes=24, index_interval_bytes=1)
    for _ in range(9):
        context.append(b"x")
    assert len(context.log.segments) > 1
    for segment in context.log.segments:
        assert segment.indexes.offsets.entry_count <= 3
        assert segment.indexes.times.entry_count <= 2
    assert len(context.values()) == 9


def test_roll_before_relative_offsets_overflow() -> None:
    """An offset 2^31 above the segment's base needs a new segment."""
    context = LogContext(index_interval_bytes=1, cleanup_policy="compact")
    follower = context.log
    follower.append_as_follower(batch(b"a", base_offset=0), NOW_MS)
    follower.append_as_follower(batch(b"b", base_offset=INT_MAX), NOW_MS)
    assert follower.segments.base_offsets == [0]
    follower.append_as_follower(
        batch(b"c", base_offset=INT_MAX + 1) + batch(b"d", base_offset=2 * INT_MAX + 50), NOW_MS
    )
    assert len(follower.segments) == 3
    for segment in follower.segments:
        assert all(segment.fits_offset(b.header.last_offset) for b in segment.log_file.scan())
    assert [r.value for r in context.read_all()] == [b"a", b"b", b"c", b"d"]
    context.kill()
    assert [r.value for r in context.read_all()] == [b"a", b"b", b"c", b"d"]


def test_roll_of_an_empty_segment_starts_it_over() -> None:
    """Nothing was written since the last roll: no second segment of the same name (KAFKA-6388)."""
    context = LogContext()
    context.append(b"a")
    context.log.roll(NOW_MS)
    context.log.roll(NOW_MS)
    assert context.log.segments.base_offsets == [0, 1]
    assert context.append(b"b").base_offset == 1
    assert context.kill().log_end_offset == 2


def test_roll_onto_a_leftover_segment() -> None:
    """A file of that name from an earlier life is overwritten, not appended to."""
    context = LogContext()
    context.append(b"a")
    context.overwrite(f"{1:020d}.log", b"rubbish")
    context.overwrite(f"{1:020d}.index", b"rubbish!")
    context.log.roll(NOW_MS)
    context.append(b"b")
    context.restart()
    assert context.values() == [b"a", b"b"]


# -- reads


def test_read_gives_whole_batches_up_to_the_size() -> None:
    context = LogContext(index_interval_bytes=150)
    size = 0
    for _ in range(50):
        size = context.append(b"x" * 20).size_bytes
    for count in range(1, 50):
        for extra in (0, size - 1):
            read = context.log.read(3, count * size + extra, max_offset=50, min_one_batch=False)
            wanted = min(count, 47)
            assert len(read.records) == wanted * size
            assert read.next_offset == 3 + wanted


def test_first_batch_is_whole_even_if_too_large() -> None:
    """A batch over the limit is given whole when it is the first, else not at all."""
    context = LogContext()
    context.append(b"x" * 1000)
    context.append(b"y")
    read = context.log.read(0, 10, max_offset=2, min_one_batch=True)
    assert (len(records_of(read.records)), read.next_offset) == (1, 1)
    read = context.log.read(0, 10, max_offset=2, min_one_batch=False)
    assert (bytes(read.records), read.next_offset) == (b"", 0)


def test_read_from_the_middle_gives_the_batch_that_covers_it() -> None:
    """Also when the log starts inside that batch."""
    context = LogContext()
    context.append(*[b"%d" % i for i in range(10)])
    context.commit()
    context.log.delete_records_before(5)
    read = context.log.read(5, 1 << 20, max_offset=10, min_one_batch=True)
    assert records_of(read.records)[0].offset == 0
    assert read.next_offset == 10
    with pytest.raises(KafkaError) as error:
        context.log.read(4, 1, max_offset=10, min_one_batch=True)
    assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_read_stays_below_max_offset() -> None:
    """No batch that reaches max_offset is given, wherever that lies."""
    context = LogContext(index_interval_bytes=100, segment_bytes=700)
    for number in range(30):
        context.append(*[b"x" * (number % 7)] * (1 + number % 3))
    end = context.log.log_end_offset
    for max_offset in range(end + 1):
        for start in range(0, end, 5):
            read = context.log.read(start, 1 << 20, max_offset=max_offset, min_one_batch=True)
            offsets = [r.offset for r in records_of(read.records)]
            assert all(offset < max_offset for offset in offsets)
            assert read.next_offset <= max(max_offset, start)


def test_read_at_the_end_is_empty_and_beyond_is_an_error() -> None:
    context = LogContext()
    assert context.log.read(0, 10, max_offset=0, min_one_batch=True) == (b"", 0)
    context.append(b"a")
    assert context.log.read(1, 10, max_offset=1, min_one_batch=True) == (b"", 1)
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as error:
            context.log.read(offset, 10, max_offset=1, min_one_batch=True)
        assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("seed", range(5))
def test_any_sequence_of_reads_gives_every_record_once(seed: int) -> None:
    """Readers of all kinds, mixed with appends: tail cache, cursors and indexes agree."""
    random = Random(seed)
    context = LogContext(segment_bytes=3000, index_interval_bytes=300)
    positions = [0, 0, 0]
    seen: list[list[bytes | None]] = [[], [], []]
    written: list[bytes | None] = []
    for _ in range(300):
        if random.random() < 0.5:
            values = [b"%d" % random.randrange(10**9) for _ in range(random.randrange(1, 4))]
            written += values
            context.append(*values)
        reader = random.randrange(3)
        read = context.log.read(
            positions[reader],
            random.choice([1, 200, 2000]),
            max_offset=context.log.log_end_offset - random.randrange(2),
            min_one_batch=True,
        )
        seen[reader] += [r.value for r in records_of(read.records) if r.offset >= positions[reader]]
        positions[reader] = read.next_offset
    for reader in range(3):
        assert seen[reader] == written[: positions[reader]]
    assert context.values() == written


def test_readers_at_the_end_cost_no_file_reads() -> None:
    """The tail is kept in memory once a reader waits there."""
    context = LogContext()
    context.append(b"a")
    assert context.log.read(1, 100, max_offset=1, min_one_batch=True).records == b""
    offset = 1
    context.append(b"b")
    reads = context.fs.read_count
    for number in range(50):
        read = context.log.read(
            offset, 1000, max_offset=context.log.log_end_offset, min_one_batch=True
        )
        assert records_of(read.records)
        offset = read.next_offset
        context.append(b"%d" % number)
    assert context.fs.read_count == reads


def test_read_continues_over_segments() -> None:
    context = LogContext(segment_bytes=200)
    for number in range(10):
        context.append(b"%d" % number)
    assert context.values() == [b"%d" % number for number in range(10)]


# -- watermarks


def test_high_watermark_is_what_the_owner_says() -> None:
    """Only a cut takes it back."""
    context = LogContext()
    context.append(b"a", b"b")
    context.append(b"c")
    for offset in (3, 1, 2):
        context.log.update_high_watermark(offset)
        assert context.log.high_watermark == offset
    context.log.truncate_to(2)
    assert context.log.high_watermark == 2
    context.log.truncate_to(0)
    assert context.log.high_watermark == 0


def test_last_stable_offset_waits_for_open_transactions() -> None:
    """It stops at the first open transaction until the marker is below the high watermark."""
    context = LogContext()
    context.append(b"plain")
    context.append(b"txn", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    context.append(b"plain")
    context.commit()
    assert context.log.last_stable_offset == 1
    context.append_marker(1, 0, commit=True)
    assert context.log.last_stable_offset == 1
    context.commit()
    assert context.log.last_stable_offset == 4
    assert context.log.aborted_transactions(0, 4) == []


def test_aborted_transactions_over_segments() -> None:
    """An abort is found by fetches of any of its records, in whatever segment the marker is."""
    context = LogContext(segment_bytes=180)
    for sequence in range(5):
        context.append(b"x", producer_id=1, producer_epoch=0, sequence=sequence, transactional=True)
    context.append_marker(1, 0, commit=False)
    context.append(b"later")
    context.commit()
    assert len(context.log.segments) > 2
    for _ in range(2):
        for offset in range(5):
            found = context.log.aborted_transactions(offset, offset + 1)
            assert [(t.producer_id, t.first_offset) for t in found] == [(1, 0)]
        assert context.log.aborted_transactions(6, 7) == []
        context.restart()


def test_marker_of_a_fenced_coordinator_is_refused() -> None:
    context = LogContext()
    context.append(b"x", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    context.append_marker(1, 0, commit=True, coordinator_epoch=5)
    with pytest.raises(KafkaError) as error:
        context.append_marker(1, 0, commit=True, coordinator_epoch=4)
    assert code_of(error) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert context.log.log_end_offset == 2


def test_follower_replays_markers() -> None:
    context = LogContext()
    data = batch(b"x", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    data += build_end_transaction_batch(
        1, 0, EndTransactionMarker(False, 0), timestamp=NOW_MS, base_offset=1
    )
    context.log.append_as_follower(bytes(data), NOW_MS)
    context.commit()
    assert context.log.last_stable_offset == 2
    assert len(context.log.aborted_transactions(0, 1)) == 1


# -- epochs


def test_epochs_start_with_the_leader_or_the_batch() -> None:
    context = LogContext()
    context.log.start_leader_epoch(3)
    context.leader_epoch = 3
    context.append(b"a")
    context.log.start_leader_epoch(5)
    context.log.start_leader_epoch(6)
    context.leader_epoch = 6
    context.append(b"b")
    assert context.epochs_file() == b"0\n2\n3 0\n6 1\n"
    assert context.log.end_offset_for_epoch(3) == (3, 1)
    assert context.log.end_offset_for_epoch(6) == (6, 2)
    assert [context.log.leader_epochs.epoch_for_offset(offset) for offset in range(3)] == [3, 6, 6]


# -- truncation


def test_truncation_cuts_everything_from_an_offset_on() -> None:
    """Bytes, indexes, epochs, producers and watermarks follow, in any segment."""
    for offset in range(13):
        context = LogContext(segment_bytes=290, index_interval_bytes=1)
        for number in range(12):
            context.leader_epoch = number // 3
            context.append(b"%d" % number, producer_id=1, producer_epoch=0, sequence=number)
        context.commit()
        assert context.log.truncate_to(offset) is (offset < 12)
        assert context.log.log_end_offset == offset
        assert context.log.high_watermark == offset
        assert context.values() == [b"%d" % number for number in range(offset)]
        assert context.log.latest_epoch == (-1 if offset == 0 else (offset - 1) // 3)
        assert context.log.size_bytes == context.log.segments.total_bytes()
        info = context.append(b"new", producer_id=1, producer_epoch=0, sequence=offset)
        assert info.base_offset == offset
        expected = context.values()
        assert context.restart().recovery_events == ()
        assert context.values() == expected
        context.kill()
        assert context.values() == expected


def test_truncation_inside_a_batch_cuts_it_whole() -> None:
    """Half a batch cannot be kept: the log ends where the batch began."""
    context = LogContext()
    context.append(b"a")
    context.append(b"b", b"c", b"d")
    context.log.truncate_to(2)
    assert context.log.log_end_offset == 1
    assert context.append(b"e").base_offset == 1


def test_truncation_reopens_transactions() -> None:
    """When the marker is cut, its transaction is open again."""
    context = LogContext()
    context.append(b"x", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    context.append_marker(1, 0, commit=False)
    context.append(b"y")
    context.commit()
    assert context.log.last_stable_offset == 3
    context.log.truncate_to(1)
    context.append(b"z")
    context.commit()
    assert context.log.last_stable_offset == 0
    assert context.log.aborted_transactions(0, 2) == []


def test_producers_do_not_expire_by_a_truncation() -> None:
    context = LogContext()
    context.append(b"x", producer_id=1, producer_epoch=0, sequence=0)
    context.append(b"y")
    context.log.truncate_to(1)
    assert context.append(b"x", producer_id=1, producer_epoch=0, sequence=0).duplicate


@pytest.mark.parametrize("offset", [0, 3, 100])
def test_full_truncation_starts_again_anywhere(offset: int) -> None:
    """As a follower does that was left behind the leader's log start."""
    context = LogContext(segment_bytes=200)
    for number in range(6):
        context.append(b"%d" % number, producer_id=1, producer_epoch=0, sequence=number)
    context.log.truncate_fully_and_start_at(offset)
    log = context.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (offset,) * 3
    assert (log.size_bytes, log.latest_epoch, len(log.producer_state)) == (0, -1, 0)
    assert context.append(b"new").base_offset == offset
    context.restart()
    assert context.values() == [b"new"]
    assert [n for n in context.files() if n.endswith(".log")] == [f"{offset:020d}.log"]


def test_truncation_below_the_first_segment() -> None:
    context = LogContext()
    context.log.truncate_fully_and_start_at(50)
    context.append(b"a")
    context.log.truncate_to(20)
    assert (context.log.log_start_offset, context.log.log_end_offset) == (20, 20)
    assert context.append(b"b").base_offset == 20


# -- configuration


def test_config_change_takes_effect_at_once() -> None:
    context = LogContext()
    context.append(b"x" * 100)
    context.log.set_config(dataclasses.replace(LogConfig(), segment_bytes=200))
    context.append(b"x" * 100)
    assert len(context.log.segments) == 2


def test_markers_and_own_batches_stay_in_memory_too() -> None:
    """Readers at the end of a transactional topic cost no file reads either."""
    context = LogContext()
    context.log.read(0, 100, max_offset=0, min_one_batch=True)
    reads = context.fs.read_count
    for sequence in range(3):
        context.append(b"x", producer_id=1, producer_epoch=0, sequence=sequence, transactional=True)
        context.append_marker(1, 0, commit=True)
    assert [r.offset for r in context.read_all(max_bytes=1)] == [0, 1, 2, 3, 4, 5]
    assert context.fs.read_count == reads


def test_closed_log_gives_an_error_and_opens_nothing() -> None:
    """Holders of the log of a failed directory or deleted topic get an error (KIP-112)."""
    context = LogContext()
    context.append(b"a")
    context.log.close_files()
    with pytest.raises(OSError, match="closed"):
        context.log.read(0, 100, max_offset=1, min_one_batch=True)
    with pytest.raises(OSError, match="closed"):
        context.append(b"b")
    assert context.log.flush() == 0


def test_a_cut_behind_the_last_batch_of_a_segment() -> None:
    """Where compaction left no batch below the offset the log ends there all the same."""
    context = LogContext(segment_bytes=200)
    for number in range(2):
        context.append(b"%d" % number)
    context.log.roll(NOW_MS, 10)  # a gap, as a leader with a compacted log has it
    context.append(b"10")
    assert context.log.truncate_to(7)
    assert context.log.log_end_offset == 7
    assert context.append(b"7").base_offset == 7
    assert context.values() == [b"0", b"1", b"7"]
