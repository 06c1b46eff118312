"""Pending offsets by themselves: what looks at them and the ends of transactions cost.

What they mean is in `test_offset_layers`, against a model.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kraftrio.broker.coordinator.groups.offset_commit import CommitChange, StoredOffset
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.broker.coordinator.groups.pending_offsets import PendingOffsets
from kraftrio.wire.primitives import ZERO_UUID

PRODUCER_COUNT, PARTITIONS_EACH = 4_000, 5


def change(group_id: str, topic: str, partitions: range, offset: int = 1) -> CommitChange:
    value = StoredOffset(offset, -1, "", 0, -1, ZERO_UUID)
    return CommitChange(group_id, {topic: dict.fromkeys(partitions, value)})


def of_one_topic(producer_id: int) -> CommitChange:
    """The offsets of one of many producers, which share a group and a topic."""
    first = producer_id * PARTITIONS_EACH
    return change("group", "topic", range(first, first + PARTITIONS_EACH))


@pytest.fixture(scope="module")
def many() -> PendingOffsets:
    pending = PendingOffsets()
    for producer_id in range(PRODUCER_COUNT):
        pending.add(producer_id, of_one_topic(producer_id))
    return pending


@pytest.mark.parametrize(
    "look",
    [
        lambda pending: OffsetKey("group", "topic", 7) in pending,
        lambda pending: OffsetKey("group", "other", 7) not in pending,
        lambda pending: pending.has_group("group"),
        lambda pending: not pending.has_group("other"),
        lambda pending: 7 in pending.partitions("group", "topic"),
        lambda pending: pending.supersede(change("group", "topic", range(3))) is None,
        lambda pending: pending.end(PRODUCER_COUNT, commit=True) == [],
    ],
)
def test_a_look_does_not_go_through_all_that_is_pending(
    many: PendingOffsets, look: Callable[[PendingOffsets], bool]
) -> None:
    """20,000 offsets are pending; a walk over them for each look would take half a second."""
    began_s = time.thread_time()
    for _ in range(1_000):
        assert look(many)
    assert time.thread_time() - began_s < 0.1


def test_the_end_of_a_transaction_looks_at_its_own_offsets(many: PendingOffsets) -> None:
    """Others of the group and topic stay pending, and cost it nothing."""
    began_s = time.thread_time()
    for _ in range(200):
        (ended,) = many.end(3, commit=True)
        assert ended == of_one_topic(3)
        many.add(3, of_one_topic(3))
    assert time.thread_time() - began_s < 0.1
    assert len(many.partitions("group", "topic")) == PRODUCER_COUNT * PARTITIONS_EACH


def test_each_value_of_an_offset_is_given() -> None:
    """A deleted topic may be that of any of them; an aborted one takes its own along."""
    pending = PendingOffsets()
    for producer_id in (1, 2, 1):
        pending.add(producer_id, change("group", "topic", range(1), offset=10 + producer_id))
    assert [value.offset for _, value in pending.values("group", "topic")] == [12, 11]
    assert pending.end(2, commit=False) == []
    assert [value.offset for _, value in pending.values("group", "topic")] == [11]
    pending.drop(OffsetKey("group", "topic", 0))
    assert (list(pending.values("group", "topic")), list(pending.group_ids())) == ([], [])
    assert pending.end(1, commit=True) == []
