"""Compaction of one log: what stays, what goes, and what it is made of afterwards."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kraftrio.broker.log.cleaner.cleaner import CleaningAborted
from kraftrio.broker.log.partition.timestamp_search import (
    offset_for_timestamp,
    offset_of_max_timestamp,
)
from kraftrio.broker.log.segment.names import LOG_SUFFIX
from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError
from kraftrio.wire.records.batch import BatchHeader, Compression, Record, build_batch, verify_crc
from tests.support.cleaning import clean, finish, start_run
from tests.support.logs import DIRECTORY, NOW_MS, LogContext, batch, load_tree, records_of
from tests.support.memory_files import MemoryFileSystem

DAY_MS = 86_400_000
RECORDED = Path(__file__).parents[4] / "data" / "log-dirs"


def compacted(**config: Any) -> LogContext:
    """A log of cleanup.policy=compact."""
    return LogContext(**{"cleanup_policy": "compact", **config})


def shown(context: LogContext) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in context.read_all()]


def headers(context: LogContext) -> list[BatchHeader]:
    """The headers of all batches, each of them checked."""
    found = []
    for scanned in context.log.batches(0):
        verify_crc(scanned.buffer, scanned.header)
        found.append(scanned.header)
    return found


def roll(context: LogContext) -> None:
    context.log.roll(context.now_ms)


# -- keys ------------------------------------------------------------------------------------------


def test_newest_record_of_each_key_stays() -> None:
    """Older records of a key go, the others keep offset, timestamp and value."""
    context = compacted()
    for key, value in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"b", b"5")]:
        context.append(value, key=key, timestamps=[NOW_MS + int(value)])
    run = clean(context)
    assert shown(context) == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]
    assert [r.timestamp - NOW_MS for r in context.read_all()] == [3, 4, 5]
    assert context.log.first_dirty_offset == run.end_offset == 5
    assert run.bytes_after < run.bytes_before
    assert context.log.size_bytes == context.log.segments.total_bytes()


def test_a_reader_gets_no_removed_record_from_memory() -> None:
    """The newest records are kept in memory for readers at the end, also beyond a roll."""
    context = compacted()
    context.append(b"0", key=b"a")
    assert context.log.read(1, 100, max_offset=1, min_one_batch=True).records == b""
    for value in (b"1", b"2", b"3"):
        context.append(value, key=b"a")
    clean(context)
    read = context.log.read(1, 1000, max_offset=4, min_one_batch=True)
    assert [record.value for record in records_of(read.records)] == [b"3"]


@pytest.mark.parametrize("compression", list(Compression))
def test_batch_keeps_its_ends_and_codec(compression: Compression) -> None:
    """A batch that loses records keeps base and last offset, sequence and compression."""
    context = compacted()
    records = [Record(0, NOW_MS + n, b"k%d" % (n % 3), b"v%d" % n) for n in range(5)]
    context.append_bytes(
        build_batch(
            records, compression=compression, producer_id=7, producer_epoch=1, base_sequence=20
        )
    )
    context.append(b"last", key=b"k1")
    clean(context)
    assert shown(context) == [(2, b"k2", b"v2"), (3, b"k0", b"v3"), (5, b"k1", b"last")]
    first = headers(context)[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 4, 2)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (7, 1, 20)
    assert (first.compression, first.max_timestamp) == (compression, NOW_MS + 3)


def test_keys_of_any_length_are_told_apart() -> None:
    """Long keys are hashed, and never taken for others."""
    keys = [b"", b"x", b"x" * 32, b"x" * 33, b"x" * 40, b"x" * 5000, b"x" * 4999 + b"y"]
    context = compacted()
    for value in (b"old", b"new"):
        for key in keys:
            context.append(value, key=key)
    clean(context)
    assert [(key, value) for _, key, value in shown(context)] == [(key, b"new") for key in keys]


def test_records_without_a_key_go() -> None:
    """They have no place in a compacted log (they came before its policy did)."""
    context = LogContext(cleanup_policy="delete")
    context.append(b"without a key", key=None)
    context.append(b"with a key", key=b"k")
    context.log.set_config(dataclasses.replace(context.config, cleanup_policy="compact"))
    clean(context)
    assert shown(context) == [(1, b"k", b"with a key")]


def test_clean_part_is_only_compared_with_the_dirty_one() -> None:
    """A later run drops what its dirty part has newer records of, and keeps all else."""
    context = compacted()
    for number in range(6):
        context.append(b"first", key=b"k%d" % number)
    clean(context)
    for number in range(0, 6, 2):
        context.append(b"second", key=b"k%d" % number)
    clean(context)
    assert [offset for offset, _, _ in shown(context)] == [1, 3, 5, 6, 7, 8]


def test_small_map_cleans_in_several_runs() -> None:
    """A run takes as many keys as its map holds, at least one batch, and the next goes on."""
    context = compacted(segment_bytes=400)
    for turn in range(2):
        for number in range(20):
            context.append(b"%d" % turn, b"%d" % turn, key=b"k%d" % number)
    roll(context)
    context.commit()
    ends = []
    while context.log.first_dirty_offset < 80:
        ends.append(context.log.first_dirty_offset)
        finish(start_run(context, map_bytes=1), context)
    assert len(ends) > 10
    assert ends == sorted(set(ends))
    assert shown(context) == [(41 + 2 * n, b"k%d" % n, b"1") for n in range(20)]


# -- what is not cleaned ---------------------------------------------------------------------------


def test_active_segment_stays() -> None:
    """Only closed segments are cleaned, and their keys alone are compared."""
    context = compacted()
    context.append(b"1", key=b"k")
    context.append(b"2", key=b"k")
    roll(context)
    context.append(b"3", key=b"k")
    context.append(b"4", key=b"k")
    context.commit()
    finish(start_run(context), context)
    assert [value for _, _, value in shown(context)] == [b"2", b"3", b"4"]
    assert context.log.first_dirty_offset == 2


def test_nothing_at_or_above_the_high_watermark_is_cleaned() -> None:
    """The segment that holds the high watermark stays whole."""
    context = compacted(segment_bytes=160)
    for number in range(8):
        context.append(b"%d" % number, key=b"k")
    assert context.log.segments.base_offsets == [0, 2, 4, 6]
    context.log.update_high_watermark(5)
    finish(start_run(context), context)
    assert [offset for offset, _, _ in shown(context)] == [3, 4, 5, 6, 7]
    assert context.log.first_dirty_offset == 4


def test_open_transactions_hold_the_cleaner_back() -> None:
    """What is at or above the last stable offset stays."""
    context = compacted(segment_bytes=160)
    context.append(b"0", key=b"k")
    context.append(b"1", key=b"k")
    context.append(b"2", key=b"k", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    for number in range(3, 8):
        context.append(b"%d" % number, key=b"k")
    run = clean(context)
    assert run.end_offset == 2
    assert [offset for offset, _, _ in shown(context)] == [1, 2, 3, 4, 5, 6, 7]


# -- tombstones ------------------------------------------------------------------------------------


def test_tombstone_gets_a_horizon_and_goes_after_it() -> None:
    """The first pass dates it, a pass after delete.retention.ms removes it (KIP-534)."""
    context = compacted(delete_retention_ms=DAY_MS)
    context.append(b"value", key=b"gone")
    context.append(None, b"b", key=b"gone", timestamps=[NOW_MS - 5, NOW_MS + 5])
    context.append(None, key=b"gone", timestamps=[NOW_MS + 7])
    context.append(b"other", key=b"other")
    clean(context)
    assert shown(context) == [(3, b"gone", None), (4, b"other", b"other")]
    tombstone, other = headers(context)[-2:]
    assert tombstone.delete_horizon == NOW_MS + DAY_MS
    assert other.delete_horizon is None
    assert context.read_all()[0].timestamp == NOW_MS + 7
    context.now_ms += DAY_MS - 1
    clean(context)
    assert [offset for offset, _, _ in shown(context)] == [3, 4]
    assert headers(context)[-2].delete_horizon == NOW_MS + DAY_MS
    context.now_ms += 1
    context.append(b"dirty", key=b"dirty")
    clean(context)
    assert [offset for offset, _, _ in shown(context)] == [4, 5]


def test_timestamps_survive_the_horizon() -> None:
    """The horizon takes the place of the base timestamp: the records' own stay."""
    context = compacted()
    records = [
        Record(0, NOW_MS - 9, b"a", None),
        Record(0, NOW_MS + 4, b"b", b"value", (("h", b"x"),)),
        Record(0, NOW_MS - 100, b"c", None),
    ]
    for compression in (Compression.NONE, Compression.LZ4):
        context.append_bytes(build_batch(records, compression=compression))
    clean(context)
    kept = context.read_all()
    assert [r._replace(offset=0) for r in kept] == records
    assert headers(context)[-1].max_timestamp == NOW_MS + 4


# -- producers and transactions --------------------------------------------------------------------


def test_last_batch_of_a_producer_stays_though_empty() -> None:
    """Its sequence is needed: after a restart without a snapshot the next one is accepted."""
    context = compacted()
    for sequence in range(3):
        context.append(b"x", key=b"k", producer_id=5, producer_epoch=2, sequence=sequence)
    context.append(b"newest", key=b"k")
    clean(context)
    clean(context)
    assert shown(context) == [(3, b"k", b"newest")]
    assert [(h.producer_id, h.record_count, h.last_sequence) for h in headers(context)] == [
        (5, 0, 2),
        (-1, 1, -1),
    ]
    for name in context.files():
        if name.endswith(".snapshot"):
            context.fs.remove(context.path(name))
    context.kill()
    with pytest.raises(KafkaError) as error:
        context.append(b"gap", key=b"k", producer_id=5, producer_epoch=2, sequence=5)
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    info = context.append(b"next", key=b"k", producer_id=5, producer_epoch=2, sequence=3)
    assert (info.duplicate, info.base_offset) == (False, 4)


def test_expired_producers_leave_nothing() -> None:
    """The empty batch goes once its producer is forgotten."""
    context = compacted()
    context.append(b"x", key=b"k", producer_id=5, producer_epoch=2, sequence=0)
    context.append(b"newest", key=b"k")
    clean(context)
    assert len(headers(context)) == 2
    context.log.producer_state.expire(context.now_ms + DAY_MS)
    clean(context)
    assert [header.base_offset for header in headers(context)] == [1]


def transaction(
    context: LogContext, producer_id: int, *items: tuple[bytes, bytes | None], commit: bool
) -> None:
    """One transaction with a record a batch, and its marker."""
    entry = context.log.producer_state.get(producer_id)
    sequence = 0 if entry is None else entry.last_sequence + 1
    for key, value in items:
        context.append(
            value,
            key=key,
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequence,
            transactional=True,
        )
        sequence += 1
    context.append_marker(producer_id, 0, commit=commit)


def test_aborted_records_go_and_hide_nothing() -> None:
    """An aborted record is not a newer record of its key; it goes itself at once."""
    context = compacted()
    context.append(b"committed", key=b"k")
    transaction(context, 1, (b"k", b"aborted"), (b"j", b"aborted"), commit=False)
    context.append(b"end", key=b"end")
    clean(context)
    assert [r.value for r in context.read_all() if r.offset != 3] == [b"committed", b"end"]


def test_marker_stays_until_its_transaction_is_gone() -> None:
    """Then it gets a horizon, and goes at the first pass after it."""
    context = compacted(delete_retention_ms=DAY_MS)
    transaction(context, 1, (b"k", b"1"), commit=True)  # 0, marker 1
    transaction(context, 2, (b"j", b"1"), commit=True)  # 2, marker 3
    transaction(context, 1, (b"m", b"1"), commit=True)  # 4, marker 5
    clean(context)
    markers = [h.base_offset for h in headers(context) if h.is_control]
    assert markers == [1, 3, 5]
    context.append(b"2", key=b"k")  # 6
    clean(context)  # drops offset 0 and has seen its batch: the marker stays as it is
    assert [h.base_offset for h in headers(context)] == [1, 2, 3, 4, 5, 6]
    assert headers(context)[0].delete_horizon is None
    clean(context)  # the transaction is gone
    assert headers(context)[0].delete_horizon == context.now_ms + DAY_MS
    context.now_ms += DAY_MS
    clean(context)
    assert [h.base_offset for h in headers(context)] == [2, 3, 4, 5, 6]


def test_markers_are_matched_by_producer_not_by_key_bytes() -> None:
    """A record whose key has the bytes of a marker's key does not remove the marker."""
    context = compacted()
    for key in (b"\0\0\0\0", b"\0\0\0\1"):
        transaction(context, 1, (b"k%d" % key[3], b"value"), commit=bool(key[3]))
        context.append(b"clash", key=key)
    clean(context)
    clean(context)
    assert [h.base_offset for h in headers(context) if h.is_control] == [1, 4]
    assert [r.value for r in context.read_all() if r.offset in (2, 3, 5)] == [
        b"clash",
        b"value",
        b"clash",
    ]


def test_transaction_index_follows_the_markers() -> None:
    """Aborted transactions of which a batch is left stay in the index, also after a merge."""
    context = compacted(segment_bytes=400)
    transaction(context, 1, (b"a", b"1"), commit=False)
    transaction(context, 2, (b"b", b"1"), (b"c", b"1"), commit=False)
    for _ in range(3):
        transaction(context, 1, (b"a", b"1"), commit=False)
    context.append(b"end", key=b"end")
    before = context.log.aborted_transactions(0, 100)
    assert len(before) == 5
    clean(context)
    # The last batches of both producers are left, empty; the entries of the first pass stay.
    assert context.log.aborted_transactions(0, 100) == before
    clean(context)
    left = context.log.aborted_transactions(0, 100)
    assert [(t.producer_id, t.first_offset) for t in left] == [(2, 2), (1, before[-1].first_offset)]
    empty = [h for h in headers(context) if h.is_transactional and not h.is_control]
    assert [(h.producer_id, h.record_count) for h in empty] == [(2, 0), (1, 0)]
    context.kill()
    assert [(t.producer_id, t.last_offset) for t in context.log.aborted_transactions(0, 100)] == [
        (t.producer_id, t.last_offset) for t in left
    ]
    context.commit()
    assert context.log.last_stable_offset == context.log.log_end_offset


def test_no_transaction_is_open_after_compaction_and_a_crash() -> None:
    """However many passes and crashes: data never lose their marker before they go themselves."""
    context = compacted(segment_bytes=300, delete_retention_ms=0)
    for turn in range(4):
        for producer_id in (1, 2, 3):
            transaction(
                context,
                producer_id,
                (b"k%d" % producer_id, b"%d" % turn),
                commit=producer_id != 2 or turn == 0,
            )
    for _ in range(4):
        clean(context)
        context.recovery_point = 0
        context.kill()
        context.commit()
        assert context.log.last_stable_offset == context.log.log_end_offset
        entries = context.log.producer_state.active_producers()
        assert all(entry.current_txn_first_offset is None for entry in entries)


# -- segments --------------------------------------------------------------------------------------


def test_small_segments_are_merged() -> None:
    """Neighbours that fit one segment become one, and the log stays readable from anywhere."""
    context = compacted(segment_bytes=1000, index_interval_bytes=100)
    for number in range(60):
        context.append(b"v%d" % number, key=b"k%d" % (number % 7))
    assert len(context.log.segments) > 4
    clean(context)
    clean(context)
    assert context.log.segments.base_offsets == [0, 60]
    expected = shown(context)
    assert [offset for offset, _, _ in expected] == list(range(53, 60))
    for start in range(60):
        read = context.read_all(start_offset=start)
        assert [r.offset for r in read] == list(range(max(53, start), 60))
    snapshots = [name for name in context.files() if name.endswith(".snapshot")]
    assert snapshots == [f"{60:020d}.snapshot"]
    for open_again in (context.restart, context.kill):
        open_again()
        assert shown(context) == expected
        assert context.log.recovery_events == ()
        assert context.append(b"more", key=b"more%d" % context.log.log_end_offset)
        expected = shown(context)


def test_merge_respects_the_offset_range() -> None:
    """No segment spans more than 2^31-1 offsets (KAFKA-6264)."""
    context = compacted()
    last = 2**31 - 1
    for base_offset in (0, last, last + 1, last + 2):
        data = batch(b"v", key=b"%d" % base_offset, base_offset=base_offset, leader_epoch=0)
        context.log.append_as_follower(data, NOW_MS)
        roll(context)
    clean(context)
    assert context.log.segments.base_offsets == [0, last + 1, last + 3]
    assert [offset for offset, _, _ in shown(context)] == [0, last, last + 1, last + 2]
    context.kill()
    assert [offset for offset, _, _ in shown(context)] == [0, last, last + 1, last + 2]


def test_segment_without_records_keeps_its_end() -> None:
    """An emptied group keeps its last batch, so that the next segment follows it without a gap."""
    context = compacted(segment_bytes=160)
    for number in range(6):
        context.append(b"%d" % number, key=b"k")
    clean(context)
    assert [(h.base_offset, h.record_count) for h in headers(context)] == [(1, 0), (3, 0), (5, 1)]
    config = dataclasses.replace(context.config, cleanup_policy="delete")
    context.config = config
    context.recovery_point = 0
    context.kill()  # a gap would count as lost records here
    assert context.log.recovery_events == ()
    assert shown(context) == [(5, b"k", b"5")]


def test_segments_of_only_empty_batches() -> None:
    """They are cleaned like others (KAFKA-8335, KAFKA-6854)."""
    context = compacted(segment_bytes=160)
    for number in range(6):
        context.append(b"x", key=b"k", producer_id=number, producer_epoch=0, sequence=0)
    for _ in range(3):
        clean(context)
    assert [h.record_count for h in headers(context)] == [0, 0, 0, 0, 0, 1]
    for number in range(6):
        assert (
            context.append(
                b"y", key=b"k", producer_id=number, producer_epoch=0, sequence=1
            ).base_offset
            == 6 + number
        )


def test_unchanged_segment_is_left_alone() -> None:
    """A segment that loses nothing is not replaced."""
    context = compacted()
    context.append(b"only", key=b"only")
    roll(context)
    before = context.log.segments[0]
    clean(context)
    assert context.log.segments[0] is before
    assert not [name for name in context.files() if name.endswith((".deleted", ".cleaned"))]
    assert context.log.first_dirty_offset == 1


def test_timestamps_are_found_after_compaction() -> None:
    """By time, and the largest: also when the batch that had it is empty now."""
    context = compacted(index_interval_bytes=60)
    times = [NOW_MS + 10 * n for n in range(10)]
    for number, time in enumerate(times):
        context.append(b"%d" % number, key=b"k%d" % (number % 4), timestamps=[time])
    late = NOW_MS + 1000
    context.append(
        b"late", key=b"x", timestamps=[late], producer_id=1, producer_epoch=0, sequence=0
    )
    context.append(b"newer", key=b"x", timestamps=[NOW_MS + 50])
    clean(context)
    assert [h.record_count for h in headers(context)] == [1, 1, 1, 1, 0, 1]
    found = offset_for_timestamp(context.log, NOW_MS + 65)
    assert found is not None
    assert (found.offset, found.timestamp) == (7, NOW_MS + 70)
    largest = offset_of_max_timestamp(context.log)
    assert largest is not None
    assert (largest.offset, largest.timestamp) == (9, NOW_MS + 90)


def test_log_start_offset_is_respected() -> None:
    """After a deletion of records the dirty part begins at the log start."""
    context = compacted(cleanup_policy="compact,delete", segment_bytes=160)
    for number in range(8):
        context.append(b"%d" % number, key=b"k%d" % (number % 2))
    context.commit()
    context.log.delete_records_before(3)
    clean(context)
    assert context.log.log_start_offset == 3
    assert [offset for offset, _, _ in shown(context)] == [6, 7]


def test_retention_goes_on_after_compaction() -> None:
    """compact,delete: what is left is deleted by its age."""
    context = compacted(cleanup_policy="compact,delete", segment_bytes=160, retention_ms=DAY_MS)
    for number in range(6):
        context.append(b"%d" % number, key=b"%d" % number, timestamps=[NOW_MS + number])
    clean(context)
    assert context.log.apply_retention(NOW_MS + DAY_MS + 4) == 2
    assert context.log.log_start_offset == 4
    assert [offset for offset, _, _ in shown(context)] == [4, 5]


# -- beside Apache's own ---------------------------------------------------------------------------


def test_what_apache_compacted_stays_as_it_is() -> None:
    """A segment of its cleaner loses nothing in ours, until its tombstone is due."""
    fs = MemoryFileSystem()
    load_tree(fs, RECORDED / "compacted-0", DIRECTORY)
    fs.remove(f"{DIRECTORY}/partition.metadata")  # the context has a topic id of its own
    context = LogContext(fs, cleanup_policy="compact")
    before = context.read_file(f"{0:020d}.log")
    tombstone = headers(context)[-2]
    assert tombstone.delete_horizon is not None
    context.now_ms = tombstone.delete_horizon - 1
    context.commit()
    finish(start_run(context), context)
    assert context.read_file(f"{0:020d}.log") == before
    context.now_ms += 1
    context.log.first_dirty_offset = 0
    finish(start_run(context), context)
    assert context.read_file(f"{0:020d}.log") != before
    assert [offset for offset, _, _ in shown(context)] == [5, 12, 19, 21, 22, 23, 24, 26, 28]
    assert headers(context)[-2].next_offset == 28


# -- the log changes meanwhile ---------------------------------------------------------------------


def dirty(**config: Any) -> LogContext:
    """Twenty records of two keys in segments of two."""
    context = compacted(segment_bytes=160, **config)
    for number in range(20):
        context.append(b"%d" % number, key=b"k%d" % (number % 2))
    context.commit()
    return context


def leftovers(context: LogContext) -> list[str]:
    return [name for name in context.files() if name.endswith((".cleaned", ".swap"))]


def test_appends_and_reads_go_on() -> None:
    """What is appended between the steps stays, whatever its key."""
    context = dirty()
    numbers = iter(range(20, 1000))
    old_end = context.log.active_segment.base_offset

    def work() -> None:
        context.append(b"%d" % next(numbers), key=b"k0")
        context.commit()
        assert context.read_all()[-1].offset == context.log.log_end_offset - 1

    finish(start_run(context), context, work)
    end = context.log.log_end_offset
    assert context.log.first_dirty_offset == old_end
    assert [offset for offset, _, _ in shown(context)] == [16, 17, *range(18, end)]


@pytest.mark.parametrize("step", range(4))
def test_truncation_ends_a_run(step: int) -> None:
    """A log that was cut keeps its segments, and the next run starts again."""
    context = dirty()
    steps = iter(range(100))

    def cut() -> None:
        if next(steps) == step:
            context.log.truncate_to(5)

    with pytest.raises(CleaningAborted):
        finish(start_run(context), context, cut)
    assert leftovers(context) == []
    assert context.log.log_end_offset <= 5
    assert context.log.first_dirty_offset == 0
    assert shown(context)[-1] == (context.log.log_end_offset - 1, b"k0", b"4")
    context.kill()
    assert context.log.log_end_offset <= 5
    clean(context)
    # Records that the cut ones made obsolete may be gone before the cut, not after it.
    assert [offset for offset, _, _ in shown(context)] in ([3, 4], [4])


def test_truncation_takes_the_clean_mark_back() -> None:
    """What is appended in the place of cut records is dirty."""
    context = dirty()
    clean(context)
    assert context.log.first_dirty_offset == 20
    context.log.truncate_to(17)
    assert context.log.first_dirty_offset == context.log.log_end_offset
    context.log.truncate_fully_and_start_at(9)
    assert context.log.first_dirty_offset == 9


def test_retention_ends_a_run() -> None:
    """Segments that went meanwhile do not come back."""
    context = dirty(cleanup_policy="compact,delete")
    steps = iter(range(100))

    def expire() -> None:
        if next(steps) == 1:
            context.log.delete_records_before(4)
            assert context.log.apply_retention(context.now_ms) == 2

    with pytest.raises(CleaningAborted):
        finish(start_run(context), context, expire)
    assert leftovers(context) == []
    assert context.log.segments.first_base_offset == 4


def test_deletion_of_the_log_ends_a_run() -> None:
    """A closed log that was moved away gets no files back under its old name."""
    context = dirty()
    steps = iter(range(100))

    def delete() -> None:
        if next(steps) == 1:
            context.log.close_files()
            context.fs.rename("/logs/topic-0", "/logs/topic-0.x-delete")
            context.log.moved("/logs/topic-0.x-delete")
            context.fs.make_directory("/logs/topic-0")

    with pytest.raises(CleaningAborted):
        finish(start_run(context), context, delete)
    assert context.files() == []


def test_change_of_policy_ends_a_run() -> None:
    """A topic that is not compacted any more keeps what it has."""
    context = dirty()

    def change() -> None:
        context.log.set_config(dataclasses.replace(context.config, cleanup_policy="delete"))

    with pytest.raises(CleaningAborted):
        finish(start_run(context), context, change)
    assert len(shown(context)) == 20
    assert leftovers(context) == []


def test_damaged_batch_ends_a_run() -> None:
    """A batch that fails its checksum is not copied with a new one."""
    context = dirty()
    path = context.log.segments[1].path(LOG_SUFFIX)
    data = bytearray(context.fs.read_file(path))
    data[-1] ^= 1
    context.fs.open(path).write_at(bytes(data), 0)
    with pytest.raises(CorruptBatchError):
        finish(start_run(context), context)
    assert leftovers(context) == []
    assert len(context.log.segments) == 10


def test_full_disk_leaves_the_log_as_it_was() -> None:
    """A copy that cannot be written is dropped."""
    context = dirty()
    context.fs.fail("write", ".cleaned")
    with pytest.raises(OSError, match="injected"):
        finish(start_run(context), context)
    context.fs.heal()
    assert leftovers(context) == []
    assert len(shown(context)) == 20
    clean(context)
    assert len(shown(context)) == 2
