"""Leader epochs: assignment, ends of epochs, owners of offsets, cuts."""

from __future__ import annotations

import pytest

from kraftrio.broker.log.leader_epoch_cache import EpochEntry, LeaderEpochCache


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(EpochEntry(*entry) for entry in entries)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # below the first known: that epoch ended where the first begins
        (1, (1, 20)),
        (2, (1, 20)),  # never wrote here: the floor's end
        (3, (3, 30)),
        (4, (3, 30)),
        (5, (5, 44)),  # the latest ends at the log end
        (6, (-1, -1)),
    ],
)
def test_end_offset_for_epoch(asked: int, answer: tuple[int, int]) -> None:
    """KIP-101's answers for known, skipped, older and newer epochs."""
    assert cache((1, 10), (3, 20), (5, 30)).end_offset_for(asked, 44) == answer


def test_no_epochs_no_answer() -> None:
    assert cache().end_offset_for(0, 5) == (-1, -1)
    assert cache().latest_epoch == -1
    assert cache().earliest is None


def test_epoch_of_an_offset() -> None:
    """The epoch that wrote it, not the current one."""
    epochs = cache((1, 10), (3, 20), (5, 30))
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 29, 30, 99)] == [
        -1, 1, 1, 3, 3, 5, 5,
    ]  # fmt: skip
    assert [epochs.previous_epoch(epoch) for epoch in (1, 2, 3, 5, 9)] == [-1, 1, 1, 3, 5]


def test_assignment_of_the_same_epoch_keeps_its_start() -> None:
    epochs = cache((1, 10))
    version = epochs.version
    assert not epochs.assign(1, 15)
    assert not epochs.assign(-1, 15)
    assert epochs.version == version
    assert epochs.assign(2, 15)
    assert epochs.version > version
    assert epochs.entries == [(1, 10), (2, 15)]


def test_contradicted_entries_are_dropped() -> None:
    """A newer leader that starts lower, or an older epoch that comes back, wins."""
    epochs = cache((1, 10), (3, 20), (5, 30))
    epochs.assign(6, 20)
    assert epochs.entries == [(1, 10), (6, 20)]
    epochs.assign(2, 40)
    assert epochs.entries == [(1, 10), (2, 40)]
    epochs.assign(2, 5)
    assert epochs.entries == [(2, 5)]


def test_truncation_from_the_end() -> None:
    epochs = cache((1, 10), (3, 20), (5, 30))
    epochs.truncate_from_end(31)
    assert len(epochs) == 3
    epochs.truncate_from_end(30)
    assert epochs.entries == [(1, 10), (3, 20)]
    epochs.truncate_from_end(0)
    assert epochs.entries == []


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (5, [(1, 10), (3, 20), (5, 30)]),
        (10, [(1, 10), (3, 20), (5, 30)]),
        (15, [(1, 15), (3, 20), (5, 30)]),
        (20, [(3, 20), (5, 30)]),
        (99, [(5, 99)]),
    ],
)
def test_truncation_from_the_start(start: int, left: list[tuple[int, int]]) -> None:
    """The epoch that the new start lies in begins there now."""
    epochs = cache((1, 10), (3, 20), (5, 30))
    epochs.truncate_from_start(start)
    assert epochs.entries == left
    epochs.clear()
    assert len(epochs) == 0
