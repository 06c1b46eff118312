"""Opening what is damaged: torn tails, bad batches, lost indexes, garbled files, leftovers."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraftrio.broker.log.checkpoints import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets, LogResources
from kraftrio.broker.log.partition.recovery import InconsistentTopicIdError, open_log
from kraftrio.broker.log.partition.timestamp_search import offset_for_timestamp
from kraftrio.wire.errors import CorruptBatchError
from tests.support.logs import DIRECTORY, NOW_MS, TOPIC_ID, TOPIC_PARTITION, LogContext, batch

FIRST = f"{0:020d}"
VALUES = [b"%d" % number for number in range(12)]


def filled(**config: Any) -> LogContext:
    """A log of twelve one-record batches of 70 bytes, four to a segment, in epochs 1 and 2."""
    context = LogContext(**{"segment_bytes": 290, "index_interval_bytes": 100, **config})
    context.leader_epoch = 1
    for number, value in enumerate(VALUES):
        context.leader_epoch = 1 if number < 6 else 2
        context.append(value)
    return context


def damage(context: LogContext, name: str, position: int) -> None:
    data = bytearray(context.read_file(name))
    data[position] ^= 0xFF
    context.overwrite(name, bytes(data))


def test_torn_tail_is_cut_at_every_length() -> None:
    """The last batch, cut anywhere, is dropped; the log goes on behind the one before."""
    whole = batch(b"torn")
    for size in range(1, len(whole)):
        context = LogContext()
        context.append(b"kept")
        context.log.close()
        context.overwrite(FIRST + ".log", context.read_file(FIRST + ".log") + whole[:size])
        context.kill()
        assert context.values() == [b"kept"]
        assert [event.action for event in context.log.recovery_events] == ["truncated"]
        assert context.append(b"next").base_offset == 1


def test_torn_tail_after_a_clean_stop_is_found() -> None:
    """The marker promises too much: a tail that is not a batch is cut all the same."""
    context = filled()
    context.log.close()
    name = f"{8:020d}.log"
    context.overwrite(name, context.read_file(name)[:-1])
    context.recovery_point = 12
    context.open(clean=True)
    assert context.values() == VALUES[:11]
    assert "truncated" in [event.action for event in context.log.recovery_events]


@pytest.mark.parametrize("offset", range(12))
def test_damaged_batch_in_the_unflushed_part_ends_the_log(offset: int) -> None:
    """The log is cut before the batch, later segments are dropped, and a warning says so."""
    context = filled()
    context.log.close()
    segment = offset - offset % 4
    size = len(context.read_file(f"{segment:020d}.log")) // 4
    damage(context, f"{segment:020d}.log", (offset % 4) * size + 65)
    context.recovery_point = 0
    context.kill()
    assert context.values() == VALUES[:offset]
    actions = [event.action for event in context.log.recovery_events]
    assert actions == ["truncated"] + ["dropped"] * (2 - segment // 4)
    assert f"offset {offset}" in str(context.log.recovery_events[0])
    assert context.log.latest_epoch == (2 if offset > 6 else 1 if offset else -1)
    assert context.append(b"again").base_offset == offset


def test_damaged_batch_in_the_flushed_part_stays_for_the_operator() -> None:
    """Below the recovery point nothing is thrown away; reading the batch shows the damage."""
    context = filled()
    context.log.close()
    context.recovery_point = 12
    damage(context, FIRST + ".log", 65)
    context.kill()
    assert context.log.log_end_offset == 12
    data = context.log.read(0, 1, max_offset=12, min_one_batch=True).records
    assert data[65] != batch(b"0")[65]


def test_offsets_that_go_back_end_the_log() -> None:
    """A valid batch with an offset that was there before is not a continuation."""
    context = LogContext()
    context.append(b"a")
    context.append(b"b")
    context.log.close()
    name = FIRST + ".log"
    repeated = batch(b"c", base_offset=1)
    context.overwrite(name, context.read_file(name) + repeated)
    context.kill()
    assert context.values() == [b"a", b"b"]


def test_lost_middle_segment_ends_the_log() -> None:
    """Records of a later segment do not count when those before them are gone."""
    context = filled()
    context.log.close()
    name = f"{4:020d}.log"
    data = context.read_file(name)
    context.overwrite(name, data[: len(data) // 2])
    context.kill()
    assert context.values() == VALUES[:6]
    assert context.log.recovery_events[-1].action == "dropped"


def without_end_of_the_second_segment() -> LogContext:
    """A compacted log whose segment of offsets 4 to 7 ends after 5."""
    context = filled(cleanup_policy="compact")
    context.log.close()
    name = f"{4:020d}.log"
    data = context.read_file(name)
    context.overwrite(name, data[: len(data) // 2])
    return context


@pytest.mark.parametrize(
    ("recovery_point", "first_dirty_offset"), [(0, 8), (3, 12), (8, 0), (12, 0), (None, 0)]
)
def test_compacted_log_may_have_holes_between_segments(
    recovery_point: int | None, first_dirty_offset: int
) -> None:
    """Kafka's compaction makes holes: where it was at work, or nobody knows, they are no loss."""
    context = without_end_of_the_second_segment()
    context.recovery_point = recovery_point
    context.first_dirty_offset = first_dirty_offset
    context.kill()
    assert context.values() == VALUES[:6] + VALUES[8:]
    assert "dropped" not in [event.action for event in context.log.recovery_events]


@pytest.mark.parametrize(("recovery_point", "first_dirty_offset"), [(0, 0), (5, 0), (7, 7)])
def test_a_hole_behind_what_was_compacted_is_a_loss(
    recovery_point: int, first_dirty_offset: int
) -> None:
    """A sync that failed may lose the end of a segment; this log never had a hole there."""
    context = without_end_of_the_second_segment()
    context.recovery_point = recovery_point
    context.first_dirty_offset = first_dirty_offset
    context.kill()
    assert context.values() == VALUES[:6]
    (event,) = [one for one in context.log.recovery_events if one.action == "dropped"]
    assert "records 6..7 are lost" in event.reason
    assert context.append(b"next").base_offset == 6


def test_a_hole_that_no_segment_could_hold_is_no_loss() -> None:
    """A follower rolls there: relative offsets would not fit."""
    context = LogContext(cleanup_policy="compact")
    context.append(b"first")
    far = batch(b"far", base_offset=1 << 32, leader_epoch=0)
    context.log.append_as_follower(bytes(far), NOW_MS)
    assert context.log.segments.base_offsets == [0, 1 << 32]
    context.kill()
    assert context.values() == [b"first", b"far"]


def test_batches_of_an_older_epoch_behind_newer_ones_were_cut() -> None:
    """A truncation that the disk did not keep, when what was written since is in their place."""
    context = LogContext()
    context.leader_epoch = 1
    for value in (b"a0", b"a1", b"a2", b"a3"):
        context.append(value)
    name = FIRST + ".log"
    before = context.read_file(name)
    context.log.truncate_to(1)
    context.leader_epoch = 2
    context.append(b"b1")
    after = context.read_file(name)
    context.log.close_files()
    context.overwrite(name, after + before[len(after) :])
    context.kill()
    assert context.values() == [b"a0", b"b1"]
    assert context.log.log_end_offset == 2
    (event,) = [one for one in context.log.recovery_events if one.action == "truncated"]
    assert "leader epoch 1 at offset 2 follows 2" in event.reason


def test_epochs_are_those_of_the_batches_that_came_back() -> None:
    """A power cut after a truncation may keep the checkpoint of epochs, and none of the cut.

    Else the follower would say that its old records are the new leader's, and keep them.
    """
    seen = set()
    for seed in range(60):
        context = LogContext()
        context.leader_epoch = 1
        for value in (b"a0", b"a1", b"a2", b"a3"):
            context.append(value)
        context.log.flush()
        context.log.truncate_to(1)
        context.recovery_point = context.log.recovery_point
        context.leader_epoch = 2
        context.append(b"b1")
        context.log.close_files()
        context.fs = context.fs.after_crash(random=Random(seed))
        context.open(clean=False)
        batches = [one.header for one in context.log.batches(0)]
        for header in batches:
            epoch = context.log.leader_epochs.epoch_for_offset(header.base_offset)
            assert epoch == header.partition_leader_epoch, (seed, batches)
        assert context.log.latest_epoch == batches[-1].partition_leader_epoch
        seen.add(tuple(context.values()))
    assert (b"a0", b"a1", b"a2", b"a3") in seen, "the truncation was never lost"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "torn", "garbage", "padded", "too long"])
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_are_rebuilt(suffix: str, harm: str, clean: bool) -> None:
    """A lost or wrong index costs a rebuild and nothing else, also for the append after."""
    context = filled()
    context.log.close()
    context.recovery_point = 12
    for base in (0, 4, 8):
        name = f"{base:020d}{suffix}"
        data = context.read_file(name)
        assert data
        if harm == "missing":
            context.fs.remove(context.path(name))
        elif harm == "torn":
            context.overwrite(name, data[:-1])
        elif harm == "garbage":
            context.overwrite(name, bytes(range(1, 1 + len(data))))
        elif harm == "padded":
            context.overwrite(name, data + bytes(len(data) * 9))
        else:
            context.overwrite(name, data + data)
    context.open(clean=clean)
    assert context.values() == VALUES
    for offset in range(12):
        assert context.read_all(offset)[0].offset == offset
    assert offset_for_timestamp(context.log, NOW_MS) == (0, NOW_MS, 1)
    context.append(b"more")
    context.log.roll(NOW_MS)
    context.log.close()
    good = filled()
    good.log.close()
    for base in (0, 4):
        name = f"{base:020d}{suffix}"
        assert context.read_file(name) == good.read_file(name)


def test_damaged_transaction_index_is_rebuilt() -> None:
    """Aborted transactions are found again from the markers in the log."""
    context = LogContext()
    context.append(b"a", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    context.append(b"b", producer_id=2, producer_epoch=0, sequence=0, transactional=True)
    context.append_marker(1, 0, commit=False)
    context.append_marker(2, 0, commit=True)
    context.commit()
    expected = context.log.aborted_transactions(0, 4)
    assert [(t.producer_id, t.first_offset, t.last_offset) for t in expected] == [(1, 0, 2)]
    context.log.close()
    context.overwrite(FIRST + ".txnindex", b"garbage")
    context.recovery_point = 4
    context.open(clean=True)
    assert context.log.aborted_transactions(0, 4) == expected
    context.kill()
    assert context.log.aborted_transactions(0, 4) == expected


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"0\n2\n0 0\n", b"0\n1\nx y\n", b"\0\0\0\0", b"7\n0\n"]
)
@pytest.mark.parametrize("clean", [True, False])
def test_garbled_epoch_checkpoint_is_rebuilt(content: bytes, clean: bool) -> None:
    """Half-written or zeroed, the epochs come from the batches."""
    context = filled()
    context.log.close()
    context.recovery_point = 12
    context.overwrite(LEADER_EPOCH_CHECKPOINT, content)
    context.open(clean=clean)
    assert context.log.leader_epochs.entries == [(1, 0), (2, 6)]
    context.log.flush()
    context.leader_epoch = 3
    context.append(b"x")
    assert context.epochs_file() == b"0\n3\n1 0\n2 6\n3 12\n"


def test_missing_epoch_checkpoint_is_rebuilt() -> None:
    context = filled()
    context.log.close()
    context.recovery_point = 12
    context.fs.remove(context.path(LEADER_EPOCH_CHECKPOINT))
    context.open(clean=True)
    assert context.log.leader_epochs.entries == [(1, 0), (2, 6)]


def test_epochs_beyond_the_end_are_forgotten() -> None:
    """An epoch that wrote nothing that is left cannot be claimed."""
    context = filled()
    context.log.start_leader_epoch(9)
    assert context.log.latest_epoch == 9
    context.kill()
    assert context.log.latest_epoch == 2


@pytest.mark.parametrize("content", [b"", b"version: 0", b"version: 0\ntopic_id: ???", b"\xff\xff"])
def test_garbled_topic_id_is_written_again(content: bytes) -> None:
    """A topic id that a power cut left empty comes back from a caller that knows it."""
    context = filled()
    context.log.close()
    context.overwrite(PARTITION_METADATA, content)
    context.kill()
    assert context.log.topic_id == TOPIC_ID
    assert context.log.recovery_events[0].action == "ignored"
    assert context.restart().topic_id == TOPIC_ID
    assert context.log.recovery_events == ()


def test_log_of_another_topic_is_refused() -> None:
    """Records of a deleted topic must not appear in a new one of the same name."""
    context = filled()
    context.log.close()
    with pytest.raises(InconsistentTopicIdError):
        open_log(
            LogResources(context.fs),
            DIRECTORY,
            TOPIC_PARTITION,
            context.config,
            CheckpointedOffsets(),
            topic_id=bytes(16),
            clean_shutdown=True,
            now_ms=NOW_MS,
        )


def test_deleted_and_cleaned_leftovers_are_removed() -> None:
    """Files of a deletion or compaction that did not finish are no data."""
    context = filled()
    context.log.close()
    stem = context.read_file(FIRST + ".log")
    for name in (".log.deleted", ".index.deleted", ".log.cleaned", ".timeindex.cleaned"):
        context.overwrite(FIRST + name, stem)
    context.overwrite(LEADER_EPOCH_CHECKPOINT + ".tmp", b"half")
    context.overwrite(f"{99:020d}.index", b"12345678")
    context.kill()
    assert context.values() == VALUES
    assert not [n for n in context.files() if n.endswith((".deleted", ".cleaned", ".tmp"))]
    assert f"{99:020d}.index" not in context.files()


def test_swap_is_completed() -> None:
    """A compacted segment that was ready replaces the segments it was made from."""
    context = filled(cleanup_policy="compact")
    context.log.close()
    compacted = batch(b"kept", base_offset=2) + batch(b"also", base_offset=7)
    context.overwrite(FIRST + ".log.swap", bytes(compacted))
    context.overwrite(FIRST + ".index.swap", b"")
    context.recovery_point = 12
    context.open(clean=True)
    assert [event.action for event in context.log.recovery_events] == ["completed"]
    assert context.values() == [b"kept", b"also", *VALUES[8:]]
    assert [name for name in context.files() if name.endswith(".log")] == [
        FIRST + ".log", f"{8:020d}.log",
    ]  # fmt: skip
    assert context.restart().recovery_events == ()


def test_swap_of_an_unfinished_group_is_undone() -> None:
    """While a cleaned file is left the old segments count."""
    context = filled(cleanup_policy="compact")
    context.log.close()
    context.overwrite(FIRST + ".log.swap", bytes(batch(b"half", base_offset=0)))
    context.overwrite(FIRST + ".log.cleaned", b"")
    context.open(clean=True)
    assert context.values() == VALUES


def test_damaged_snapshot_costs_only_a_longer_replay() -> None:
    """Producers come from an older snapshot or the whole log."""
    context = LogContext(segment_bytes=300)
    for sequence in range(9):
        context.append(b"x" * 20, producer_id=5, producer_epoch=0, sequence=sequence)
    context.log.close()
    snapshots = [name for name in context.files() if name.endswith(".snapshot")]
    assert len(snapshots) > 2
    for name in snapshots[1:]:
        damage(context, name, 8)
    context.recovery_point = 9
    context.open(clean=True)
    assert context.append(b"x" * 20, producer_id=5, producer_epoch=0, sequence=8).duplicate
    assert context.append(b"x" * 20, producer_id=5, producer_epoch=0, sequence=9).base_offset == 9


def test_stray_snapshots_are_removed() -> None:
    """Of the snapshots only those at segment starts and the newest are kept."""
    context = filled()
    context.log.close()
    context.overwrite(f"{5:020d}.snapshot", context.read_file(f"{4:020d}.snapshot"))
    context.recovery_point = 12
    context.open(clean=True)
    assert context.log.producers.snapshots.offsets == [4, 8, 12]


def test_end_before_the_log_start_empties_the_log() -> None:
    """A log that lost what it had after its start offset begins again there."""
    context = filled()
    context.log.close()
    context.log_start_offset = 40
    context.kill()
    log = context.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (40, 40, 40)
    assert log.recovery_events[-1].action == "emptied"
    assert context.append(b"x").base_offset == 40


def test_recovery_point_is_never_beyond_the_end() -> None:
    """A recovery point from before a loss is cut to the end; a clean log's is its end."""
    context = filled()
    context.log.close()
    context.recovery_point = 99
    context.kill()
    assert context.log.recovery_point == 12
    context.recovery_point = 3
    context.log.close_files()
    assert context.open(clean=False).recovery_point == 3
    context.log.close()
    assert context.open(clean=True).recovery_point == 12


def test_clean_open_of_a_log_reads_no_segment_fully() -> None:
    """Idle partitions cost a walk of the last index interval, not the log."""
    context = LogContext(index_interval_bytes=4096)
    for _ in range(200):
        context.append(b"x" * 200)
    context.restart()
    assert not context.log.active_segment.indexes.are_loaded
    assert context.log.log_end_offset == 200


def test_bad_batch_of_a_scan_is_an_error() -> None:
    """Reading a log whose file was damaged behind our back does not loop or crash."""
    context = LogContext()
    context.append(b"a")
    context.append(b"b")
    size = len(batch(b"a"))
    data = context.read_file(FIRST + ".log")
    context.overwrite(FIRST + ".log", data[: size + 8] + bytes(4) + data[size + 12 :])
    with pytest.raises(CorruptBatchError):
        list(context.log.batches(0))


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_segment_inside_is_removed(clean: bool) -> None:
    """A roll that failed once left one while the log went on in the segment before."""
    context = filled()
    context.log.close()
    context.overwrite(f"{2:020d}.log", b"")
    context.overwrite(f"{2:020d}.index", b"")
    context.recovery_point = 12 if clean else 0
    context.open(clean=clean)
    assert context.values() == VALUES
    assert context.log.segments.base_offsets == [0, 4, 8]
    assert [r.offset for r in context.read_all(2)] == list(range(2, 12))
    assert [event.action for event in context.log.recovery_events] == ["removed"]
    assert f"{2:020d}.index" not in context.files()


@pytest.mark.parametrize("emptied", [[0], [0, 4], [0, 4, 8]])
def test_a_first_segment_that_lost_all_of_its_records_ends_the_log(emptied: list[int]) -> None:
    """A failed sync may cost all that was not flushed; the log must not begin behind that."""
    context = filled()
    context.log.close()
    for base_offset in emptied:
        context.overwrite(f"{base_offset:020d}.log", b"")
    context.recovery_point = 0
    context.open(clean=False)
    assert (context.log.log_start_offset, context.log.log_end_offset) == (0, 0)
    context.append(b"again")
    assert context.values() == [b"again"]


def test_an_empty_first_segment_below_the_log_start_is_removed() -> None:
    """Its records were deleted."""
    context = filled()
    context.log.close()
    context.overwrite(f"{0:020d}.log", b"")
    context.recovery_point, context.log_start_offset = 0, 4
    context.open(clean=False)
    assert context.log.log_start_offset == 4
    assert context.values() == VALUES[4:]


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("base_offset", [9, 12, 20])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("first_dirty_offset", [0, 12, 20])
def test_an_empty_last_segment_begins_where_the_log_ends(
    first_dirty_offset: int, clean: bool, base_offset: int, policy: str
) -> None:
    """One that lies elsewhere was left by a failed roll, and perhaps the log was cut since."""
    context = filled(cleanup_policy=policy)
    context.log.close()
    context.overwrite(f"{base_offset:020d}.log", b"")
    context.recovery_point = 12 if clean else 0
    context.first_dirty_offset = first_dirty_offset
    context.open(clean=clean)
    end_offset = 20 if policy == "compact" and base_offset == first_dirty_offset == 20 else 12
    assert context.log.log_end_offset == end_offset  # compaction may have left a hole before it
    context.append(b"after")
    assert context.values() == [*VALUES, b"after"]
    context.kill()
    assert context.values() == [*VALUES, b"after"]
    assert context.log.log_end_offset == end_offset + 1
