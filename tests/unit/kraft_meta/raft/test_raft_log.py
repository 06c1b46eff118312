"""The metadata log ahead of the disk: proposals, durability, commits and cuts."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.raft_log import CommittedRecordsError, RaftLog
from kraftrio.kraft_meta.raft.values import LogBatch, OffsetAndEpoch, SnapshotId
from tests.unit.kraft_meta.raft.raft_cluster import MemoryLog


def raft_log(*, end_offset: int = 0, committed: int = 0, batch_max_records: int = 100) -> RaftLog:
    """Give a log with so many records of epoch 1 on disk."""
    disk = MemoryLog()
    disk.append([LogBatch(offset, 1, 0, (b"x",)) for offset in range(end_offset)])
    starts = [(1, 0)] if end_offset else []
    return RaftLog(disk, EpochStarts(starts, 0, end_offset, None), committed, batch_max_records)


def test_proposals_become_batches_of_a_bounded_size_and_are_never_split() -> None:
    """Two of two records fit into four; the third begins a batch of its own."""
    log = raft_log(batch_max_records=4)
    assert [log.propose([b"a", b"b"], 1), log.propose([b"c", b"d"], 1)] == [0, 2]
    assert log.propose([b"e", b"f", b"g", b"h", b"i"], 1) == 4
    _cut, batches = log.take_writes(9)
    assert [len(batch.values) for batch in batches] == [4, 5]
    assert {batch.timestamp_ms for batch in batches} == {9}
    assert not log.has_writes


def test_what_was_taken_is_durable_only_when_the_shell_says_so() -> None:
    """And a truncation that came meanwhile takes it back."""
    log = raft_log()
    log.append_fetched([LogBatch(0, 1, 0, (b"a", b"b"))], 1)
    log.take_writes(0)
    assert log.stable_end_offset == 0
    assert log.read(0, 100) == ()
    log.truncate_to(0)
    assert not log.on_durable()
    assert log.stable_end_offset == 0
    assert log.take_writes(0) == (0, ())
    log.append_fetched([LogBatch(0, 2, 0, (b"c",))], 2)
    log.take_writes(0)
    assert log.on_durable()
    assert log.stable_end_offset == 1


def test_fetched_batches_are_taken_as_far_as_they_follow() -> None:
    """Not after a gap, not of an older epoch, not of one that the leader is not in."""
    for wrong in (
        LogBatch(3, 2, 0, (b"b",)),
        LogBatch(2, 0, 0, (b"b",)),
        LogBatch(2, 9, 0, (b"b",)),
    ):
        log = raft_log(end_offset=1)
        log.append_fetched([LogBatch(1, 2, 0, (b"a",)), wrong], 2)
        assert log.end_offset == 2


def test_the_high_watermark_never_goes_back() -> None:
    """A lower offset changes nothing."""
    log = raft_log(end_offset=5)
    assert log.high_watermark is None
    assert log.advance_high_watermark(0)
    assert log.advance_high_watermark(3)
    assert not log.advance_high_watermark(2)
    assert log.high_watermark == 3


def test_committed_records_are_not_given_up() -> None:
    """Neither what is below the high watermark, nor what the election state remembers."""
    log = raft_log(end_offset=5, committed=2)
    log.check_uncommitted(2, "the leader's log ends at")
    with pytest.raises(CommittedRecordsError, match="ends at offset 1, but records up to offset 2"):
        log.check_uncommitted(1, "the leader's log ends at")
    log.advance_high_watermark(4)
    with pytest.raises(CommittedRecordsError):
        log.check_uncommitted(3, "the leader's log ends at")


def test_a_log_that_lacks_committed_records_is_known_to_have_lost_them() -> None:
    """It commits nothing by itself, and is not empty in the sense of a new node."""
    log = raft_log(committed=3)
    assert log.has_lost_records
    assert not log.has_nothing
    assert log.high_watermark is None
    assert log.durable_committed_offset == 3


def test_a_diverging_log_is_cut_where_both_logs_agree() -> None:
    """At the end of the epoch that the leader names, or before, where this log left it earlier."""
    log = raft_log(end_offset=5)
    assert log.diverging_offset(OffsetAndEpoch(3, 1)) == 3
    assert log.diverging_offset(OffsetAndEpoch(9, 1)) == 5
    log.append_fetched([LogBatch(5, 3, 0, (b"a",))], 3)
    assert log.diverging_offset(OffsetAndEpoch(9, 2)) == 5


def test_a_snapshot_takes_the_place_of_the_log() -> None:
    """Everything below its end is committed and durable."""
    log = raft_log(end_offset=5)
    log.reset_to(SnapshotId(8, 4))
    assert log.end == OffsetAndEpoch(8, 4)
    assert (log.stable_end_offset, log.high_watermark) == (8, 8)
