"""How long a rebalance of a classic group takes, and whom it waits for; in virtual time."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.groups.classic.member_sessions import NEW_MEMBER_JOIN_TIMEOUT_MS
from kraftrio.wire.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_context import GroupContext, Properties


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


def test_initial_delay_gathers_members() -> None:
    """Members that start within the initial delay share generation 1; each join extends it."""
    context = GroupContext(Properties(group_initial_rebalance_delay_ms=3_000))
    tickets = []
    for _ in range(5):
        tickets.append(context.start_member()[1])
        context.advance(200)
    context.advance(3_000 - 5 * 200)
    assert context.state == "PreparingRebalance", "joins came in the first delay: once more"
    context.advance(3_000)
    assert {context.joined(t).generation_id for t in tickets} == {1}
    assert context.state == "CompletingRebalance"


def test_initial_delay_ends_at_the_rebalance_timeout() -> None:
    """A trickle of joins holds the first rebalance up to the rebalance timeout, not forever."""
    context = GroupContext(Properties(group_initial_rebalance_delay_ms=3_000))
    _, first = context.start_member(rebalance_timeout_ms=10_000)
    for _ in range(9):
        context.advance(1_000)
        context.start_member(rebalance_timeout_ms=10_000)
    assert first not in context.replies
    context.advance(1_000)
    assert context.joined(first).generation_id == 1


def test_pending_member_that_vanishes_holds_no_rebalance_up(context: GroupContext) -> None:
    """A member id that was asked for and never used expires; the others' rebalance then ends."""
    member = context.stable_group()[0]
    context.new_member_id(session_timeout_ms=7_000)
    ticket = context.send_join(member, protocols=[("range", b"changed")])
    assert ticket not in context.replies, "the pending member is awaited"
    context.advance(7_000)
    assert context.joined(ticket).generation_id == 2
    assert context.group.roster.pending_join_members == {}


def test_pending_member_may_leave(context: GroupContext) -> None:
    """A pending member leaves without error, and is awaited no longer."""
    member = context.stable_group()[0]
    pending = context.new_member_id()
    ticket = context.send_join(member, protocols=[("range", b"changed")])
    assert context.leave((pending, None)) == [ErrorCode.NONE]
    assert context.joined(ticket).generation_id == 2
    assert context.joined(context.send_join(pending)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_that_vanishes_while_parked(context: GroupContext) -> None:
    """A parked first join does not keep a member forever: it is dropped after five minutes."""
    hour_ms = 3_600_000
    old = context.stable_group(rebalance_timeout_ms=hour_ms, session_timeout_ms=hour_ms)[0]
    _, ticket = context.start_member(rebalance_timeout_ms=hour_ms)
    context.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert context.joined(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(context.group.members) == [old]


def test_members_that_do_not_rejoin_are_removed(context: GroupContext) -> None:
    """At the rebalance timeout the generation begins without the dynamic members that are late."""
    leader, follower = context.stable_group(2, rebalance_timeout_ms=20_000)
    ticket = context.send_join(leader, rebalance_timeout_ms=20_000)
    for _ in range(4):
        context.advance(4_999)
        assert context.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    context.advance(5)
    assert context.joined(ticket).generation_id == 2
    assert [m.member_id for m in context.joined(ticket).members] == [leader]
    assert context.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_member_leads_when_the_leader_is_late(context: GroupContext) -> None:
    """A generation without the former leader is led by a member that joined."""
    _, follower = context.stable_group(2, rebalance_timeout_ms=9_000)
    ticket = context.send_join(follower, protocols=[("range", b"x")], rebalance_timeout_ms=9_000)
    context.advance(9_000)
    assert context.joined(ticket).leader == follower
