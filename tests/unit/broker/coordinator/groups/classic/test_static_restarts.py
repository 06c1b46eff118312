"""Static members of classic groups, above all when they restart; in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_context import GroupContext


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


def static_group(context: GroupContext, **kwargs: Any) -> str:
    """Make a stable group of the static member inst-1; returns its member id."""
    ticket = context.send_join(instance_id="inst-1", **kwargs)
    context.advance(context.properties.group_initial_rebalance_delay_ms)
    member_id = context.joined(ticket).member_id
    context.send_sync(member_id, {member_id: b"mine"}, instance_id="inst-1")
    assert context.state == "Stable"
    return member_id


def test_static_member_joins_without_asking_for_an_id(context: GroupContext) -> None:
    """A static member's id begins with its instance id and is given with the first join."""
    assert static_group(context) == "inst-1-uuid1"


def test_static_restart_keeps_generation_and_assignment(context: GroupContext) -> None:
    """A restarted static leader gets a new id, no rebalance, and may keep its assignment."""
    old = static_group(context)
    response = context.joined(context.send_join(instance_id="inst-1"))
    assert response.error_code == ErrorCode.NONE
    assert response.member_id not in ("", old)
    assert (response.generation_id, response.skip_assignment) == (1, True)
    assert response.leader == response.member_id
    assert [m.member_id for m in response.members] == [response.member_id]
    assert context.state == "Stable"
    sync = context.send_sync(response.member_id, instance_id="inst-1")
    assert context.synced(sync).assignment == b"mine"


def test_static_restart_before_skipped_assignments(context: GroupContext) -> None:
    """Up to v8 the restarted leader sees its old id lead, so that it does not assign again."""
    old = static_group(context, api_version=8)
    response = context.joined(context.send_join(instance_id="inst-1", api_version=8))
    assert (response.leader, response.members, response.skip_assignment) == (old, [], False)
    assert context.state == "Stable"


def test_static_restart_is_stored_first(context: GroupContext) -> None:
    """The new id is answered only when stored; after a takeover it is the one that counts."""
    old = static_group(context)
    context.hold_commits = True
    ticket = context.send_join(instance_id="inst-1")
    assert ticket not in context.replies
    context.commit()
    new = context.joined(ticket).member_id
    other = context.reload()
    assert other.heartbeat(new, instance_id="inst-1") == ErrorCode.NONE
    assert other.heartbeat(old, instance_id="inst-1") == ErrorCode.FENCED_INSTANCE_ID


def test_static_restart_that_cannot_be_stored(context: GroupContext) -> None:
    """If the new id cannot be stored the old one stays, with its old settings."""
    old = static_group(context, session_timeout_ms=10_000)
    context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    ticket = context.send_join(instance_id="inst-1", session_timeout_ms=20_000, client_id="new")
    assert context.joined(ticket).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    member = context.group.members[old]
    assert (member.session_timeout_ms, member.client_id) == (10_000, "client")
    assert context.group.roster.leader_id == old
    assert context.heartbeat(old, instance_id="inst-1") == ErrorCode.NONE


def test_static_restart_updates_timeouts_and_client(context: GroupContext) -> None:
    """A restart brings new timeouts, client and metadata, and they survive a takeover."""
    static_group(context)
    ticket = context.send_join(
        instance_id="inst-1",
        session_timeout_ms=20_000,
        rebalance_timeout_ms=30_000,
        client_id="other",
        client_host="/10.0.0.9",
        protocols=[("range", b"new topics")],
    )
    for seen in (context, context.reload()):
        member = seen.group.members[context.joined(ticket).member_id]
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 30_000)
        assert (member.client_id, member.client_host) == ("other", "/10.0.0.9")
        assert member.metadata("range") == b"new topics"


def test_static_restart_with_another_protocol_rebalances(context: GroupContext) -> None:
    """A restart that changes the group's protocol needs a new generation."""
    static_group(context, protocols=[("range", b""), ("sticky", b"")])
    ticket = context.send_join(instance_id="inst-1", protocols=[("sticky", b""), ("range", b"")])
    response = context.joined(ticket)
    assert (response.generation_id, response.protocol_name) == (2, "sticky")
    assert response.skip_assignment is False


def test_static_restart_during_the_assignment_rebalances(context: GroupContext) -> None:
    """A static member that restarts before assignments are out makes everybody join again."""
    first = context.send_join(instance_id="inst-1")
    second = context.send_join(instance_id="inst-2")
    context.advance(0)
    old = context.joined(first).member_id
    parked = context.send_sync(context.joined(second).member_id, instance_id="inst-2")
    context.send_join(instance_id="inst-1")
    assert context.state == "PreparingRebalance"
    assert context.synced(parked).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert context.heartbeat(old, instance_id="inst-1") == ErrorCode.FENCED_INSTANCE_ID


def test_static_restart_ends_the_old_ones_parked_requests(context: GroupContext) -> None:
    """The replaced member's parked join and sync end with FENCED_INSTANCE_ID."""
    old = context.send_join(instance_id="inst-1")
    new = context.send_join(instance_id="inst-1")
    assert context.joined(old).error_code == ErrorCode.FENCED_INSTANCE_ID
    context.advance(0)
    other = context.send_join(instance_id="inst-2")
    context.send_join(context.joined(new).member_id, instance_id="inst-1")
    follower = context.joined(other).member_id
    parked = context.send_sync(follower, instance_id="inst-2")
    context.send_join(instance_id="inst-2")
    assert context.synced(parked).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_restart_is_answered_when_the_sync_deadline_comes_first(
    context: GroupContext,
) -> None:
    """Its new id is being stored, and its former self never asked for the assignment."""
    timeouts: dict[str, Any] = {"session_timeout_ms": 120_000, "rebalance_timeout_ms": 20_000}
    tickets = [context.send_join(instance_id=f"inst-{i}", **timeouts) for i in (1, 2)]
    context.advance(0)
    leader, silent = [context.joined(ticket).member_id for ticket in tickets]
    context.send_sync(leader, {leader: b"a", silent: b"b"}, instance_id="inst-1")
    context.advance(19_000)
    context.hold_commits = True
    restarted = context.send_join(instance_id="inst-2", **timeouts)
    assert restarted not in context.replies
    context.advance(2_000)
    assert context.joined(restarted).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(context.group.members) == [leader]
    context.commit()
    again = context.send_join(instance_id="inst-2", **timeouts)
    context.send_join(leader, instance_id="inst-1", **timeouts)
    assert context.joined(again).error_code == ErrorCode.NONE


@pytest.mark.parametrize("request_name", ["join", "sync", "heartbeat", "leave"])
def test_stale_static_member_is_fenced(context: GroupContext, request_name: str) -> None:
    """Every request of a replaced static member ends with FENCED_INSTANCE_ID."""
    old = static_group(context)
    context.send_join(instance_id="inst-1")
    errors: dict[str, Callable[[], int]] = {
        "join": lambda: context.joined(context.send_join(old, instance_id="inst-1")).error_code,
        "sync": lambda: context.synced(context.send_sync(old, instance_id="inst-1")).error_code,
        "heartbeat": lambda: context.heartbeat(old, instance_id="inst-1"),
        "leave": lambda: context.leave((old, "inst-1"))[0],
    }
    assert errors[request_name]() == ErrorCode.FENCED_INSTANCE_ID


def test_static_members_outlive_the_rebalance_timeout(context: GroupContext) -> None:
    """A static member that is down during a rebalance keeps its place until its session ends."""
    hour_ms = 3_600_000
    first = context.send_join(
        instance_id="inst-1", session_timeout_ms=hour_ms, rebalance_timeout_ms=10_000
    )
    second = context.send_join(
        instance_id="inst-2", session_timeout_ms=hour_ms, rebalance_timeout_ms=10_000
    )
    context.advance(0)
    ids = [context.joined(t).member_id for t in (first, second)]
    context.settle_rebalance(list(zip(ids, (first, second), strict=True)))
    ticket = context.send_join(
        ids[1],
        instance_id="inst-2",
        protocols=[("range", b"changed")],
        session_timeout_ms=hour_ms,
        rebalance_timeout_ms=10_000,
    )
    context.advance(10_000)
    response = context.joined(ticket)
    assert response.generation_id == 2
    assert response.leader == ids[1], "the leader must be one that joined"
    assert {m.member_id for m in response.members} == set(ids)


def test_unknown_instance_id_with_member_id(context: GroupContext) -> None:
    """A member id together with an instance id that the group does not know is unknown."""
    context.stable_group()
    ticket = context.send_join("some-id", instance_id="inst-9")
    assert context.joined(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_with_a_stale_id_of_a_static_member(context: GroupContext) -> None:
    """A replaced static member cannot take its successor away."""
    old = static_group(context)
    context.send_join(instance_id="inst-1")
    assert context.leave((old, "inst-1")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert "inst-1" in context.group.roster.static_members
