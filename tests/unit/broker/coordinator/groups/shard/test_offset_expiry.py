"""Expiry of very many offsets: in slices, each of which is committed before the next."""

from __future__ import annotations

import pytest

from kraftrio.wire.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_context import GroupContext

COUNT = 1_200
MAX_RECORDS = 250
WEEK_MS = 10_080 * 60_000
CHECK_MS = 600_000


@pytest.fixture
def context() -> GroupContext:
    """A group that holds offsets of two topics, all of which expire within the next check."""
    context = GroupContext()
    for partition in range(COUNT):
        context.commit_offset(f"topic{partition % 2}", partition)
    context.advance(WEEK_MS - CHECK_MS)
    assert len(context.all_offsets()) == COUNT
    return context


def slices(context: GroupContext, until_ms: float) -> list[int]:
    """Let time pass; return how many records each slice had that comes meanwhile."""
    sizes = []
    end_ms = context.now.monotonic_ms + until_ms
    while (deadline_ms := context.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
        before = len(context.log)
        context.advance(max(deadline_ms - context.now.monotonic_ms, 0))
        if len(context.log) > before:
            sizes.append(len(context.log) - before)
    return sizes


def test_each_slice_is_small(context: GroupContext) -> None:
    """A few milliseconds later all are gone, and the group, too."""
    sizes = slices(context, 2 * CHECK_MS)
    assert max(sizes) <= MAX_RECORDS + 1
    assert sum(sizes) == COUNT + 1
    assert (context.all_offsets(), context.state) == ({}, "absent")
    other = context.reload()
    assert (other.all_offsets(), other.state) == ({}, "absent")


def test_a_slice_waits_for_the_one_before(context: GroupContext) -> None:
    """Nothing piles up while replicas are slow."""
    context.hold_commits = True
    assert len(slices(context, CHECK_MS + 1_000)) == 1
    context.commit()
    assert len(slices(context, 1_000)) == 1


def test_a_run_ends_with_an_append_that_fails(context: GroupContext) -> None:
    """The next one comes at the next check, not at once; then all goes."""
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    tried = 0
    next_deadline_ms = context.shard.next_deadline_ms
    end_ms = context.now.monotonic_ms + CHECK_MS + 1_000
    while (deadline_ms := next_deadline_ms()) is not None and deadline_ms <= end_ms:
        context.advance(max(deadline_ms - context.now.monotonic_ms, 0))
        tried += 1
    assert tried <= 2
    assert len(context.all_offsets()) == COUNT
    context.append_error = ErrorCode.NONE
    context.advance(2 * CHECK_MS)
    assert context.state == "absent"


def test_an_offset_committed_between_two_slices_keeps_its_group(context: GroupContext) -> None:
    """It may be of a topic that the run has left behind already."""
    context.advance(max((context.shard.next_deadline_ms() or 0) - context.now.monotonic_ms, 0))
    context.advance(max((context.shard.next_deadline_ms() or 0) - context.now.monotonic_ms, 0))
    left = len(context.all_offsets())
    assert 0 < left < COUNT, "a run has begun"
    while any(topic == "topic0" for topic, _ in context.all_offsets()):
        context.advance(1)
    context.commit_offset("topic0", 0, 7)
    context.advance(CHECK_MS)
    assert context.all_offsets() == {("topic0", 0): 7}
    assert context.state == "Empty"
