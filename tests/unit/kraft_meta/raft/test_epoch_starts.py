"""Epochs of a log: ends, prefixes, truncation, snapshots."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.raft.epoch_starts import EpochStarts
from kraftrio.kraft_meta.raft.values import OffsetAndEpoch, SnapshotId


def epochs() -> EpochStarts:
    """Epoch 1 has 0 to 9, epoch 3 has 10 to 19, epoch 4 has 20 to 24."""
    starts = EpochStarts([], 0, 0, None)
    starts.append(1, 0, 10)
    starts.append(3, 10, 20)
    starts.append(4, 20, 25)
    return starts


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (0, 0)), (1, (10, 1)), (2, (10, 1)), (3, (20, 3)), (4, (25, 4)), (9, (25, 4))],
)
def test_where_an_epoch_ends(epoch: int, expected: tuple[int, int]) -> None:
    """The greatest known epoch not above the asked one, and its end."""
    assert epochs().end_offset_for_epoch(epoch) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ((0, 0), None),
        ((5, 1), None),
        ((10, 1), None),
        ((25, 4), None),
        ((11, 1), (10, 1)),
        ((12, 2), (10, 1)),
        ((26, 4), (25, 4)),
        ((30, 7), (25, 4)),
    ],
)
def test_which_logs_are_a_prefix(end: tuple[int, int], expected: tuple[int, int] | None) -> None:
    """Otherwise where to cut the other log back to."""
    assert epochs().check_prefix(OffsetAndEpoch(*end)) == expected


@pytest.mark.parametrize(
    ("end", "needs_snapshot"),
    [((0, 0), True), ((11, 3), True), ((15, 1), True), ((12, 3), False), ((20, 3), False)],
)
def test_logs_that_end_below_the_snapshot_need_it(
    end: tuple[int, int], needs_snapshot: bool
) -> None:
    """Also one that ends there with another epoch."""
    starts = epochs()
    snapshot_id = SnapshotId(12, 3)
    starts.clean_before(snapshot_id)
    found = starts.check_prefix(OffsetAndEpoch(*end))
    assert found == (snapshot_id if needs_snapshot else None)


def test_truncation_forgets_epochs() -> None:
    """The last epoch is that of the last record left."""
    starts = epochs()
    starts.truncate_to(20)
    assert starts.end == (20, 3)
    starts.truncate_to(15)
    assert starts.end == (15, 3)
    starts.append(5, 15, 16)
    assert starts.end_offset_for_epoch(3) == (15, 3)
    starts.truncate_to(0)
    assert starts.end == (0, 0)


def test_cleaning_up_to_the_end_keeps_the_last_epoch() -> None:
    """The snapshot knows it."""
    starts = epochs()
    starts.clean_before(SnapshotId(25, 4))
    assert starts.end == (25, 4)
    starts.append(6, 25, 26)
    assert starts.end_offset_for_epoch(4) == (25, 4)
    starts.reset_to(SnapshotId(100, 8))
    assert (starts.end, starts.log_start_offset) == ((100, 8), 100)


def test_holes_and_epochs_that_go_back_are_our_bugs() -> None:
    """Appends follow the end."""
    with pytest.raises(AssertionError):
        epochs().append(4, 26, 27)
    with pytest.raises(AssertionError):
        epochs().append(3, 25, 26)
