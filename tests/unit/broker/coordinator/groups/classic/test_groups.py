"""Syncing, heartbeats and leaving of classic groups, and their takeover; in virtual time."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.groups.classic.records import group_value
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.classic import decode_group_value
from kraftrio.wire.messages.group_records.keys import decode_key
from tests.unit.broker.coordinator.groups.group_context import GroupContext


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


# --- SyncGroup ---


def test_assignments_are_relayed_untouched(context: GroupContext) -> None:
    """Each member gets the leader's bytes; one that the leader left out gets none."""
    members = [context.start_member() for _ in range(3)]
    context.advance(0)
    (leader, _), (second, _), (third, _) = members
    parked = [context.send_sync(second), context.send_sync(third)]
    assert not set(parked) & set(context.replies)
    last = context.send_sync(leader, {leader: b"\x00\x01a", second: b"\xff\xfe"})
    assert context.synced(last).assignment == b"\x00\x01a"
    assert [context.synced(t).assignment for t in parked] == [b"\xff\xfe", b""]
    assert context.synced(last).protocol_type == "consumer"
    assert context.synced(last).protocol_name == "range"


def test_sync_waits_for_the_record(context: GroupContext) -> None:
    """Nobody gets an assignment that is not stored; then everybody does."""
    member, _ = context.start_member()
    context.advance(0)
    context.hold_commits = True
    ticket = context.send_sync(member, {member: b"a"})
    assert (ticket in context.replies, context.state) == (False, "CompletingRebalance")
    context.commit()
    assert context.synced(ticket).assignment == b"a"
    assert context.state == "Stable"


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_assignment_that_cannot_be_stored(
    context: GroupContext, failure: ErrorCode, reported: ErrorCode
) -> None:
    """Members get a coordinator error, never the log's, and the group rebalances."""
    member, _ = context.start_member()
    context.advance(0)
    context.append_error = failure
    ticket = context.send_sync(member, {member: b"a"})
    assert context.synced(ticket).error_code == reported
    assert context.state == "PreparingRebalance"
    context.append_error = ErrorCode.NONE
    context.settle_rebalance([(member, context.send_join(member))])


def test_sync_in_stable_group_repeats_the_assignment(context: GroupContext) -> None:
    """A member that lost its sync answer may ask again."""
    leader, follower = context.stable_group(2)
    assert context.synced(context.send_sync(follower)).assignment == f"for {follower}".encode()
    assert context.synced(context.send_sync(leader)).assignment == f"for {leader}".encode()


def test_sync_errors(context: GroupContext) -> None:
    """Unknown group or member 25, old generation 22, other protocol 23, rejoining 27."""
    nobody = GroupContext(group_id="absent")
    ticket = nobody.send_sync("m", generation_id=1)
    assert nobody.synced(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = context.stable_group(2)

    def error(ticket: int) -> int:
        return context.synced(ticket).error_code

    assert error(context.send_sync("ghost")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error(context.send_sync(follower, generation_id=0)) == ErrorCode.ILLEGAL_GENERATION
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(context.send_sync(follower, protocol_type="connect")) == inconsistent
    assert error(context.send_sync(follower, protocol_name="sticky")) == inconsistent
    assert error(context.send_sync(follower, protocol_name="range")) == ErrorCode.NONE
    context.send_join(leader)
    assert error(context.send_sync(follower)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_parked_sync_ends_when_a_rebalance_begins(context: GroupContext) -> None:
    """A join during the assignment sends the parked syncs back to joining."""
    (_, _), (second, _) = [context.start_member() for _ in range(2)]
    context.advance(0)
    parked = context.send_sync(second)
    third = context.new_member_id()
    context.send_join(third)
    assert context.synced(parked).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert context.state == "PreparingRebalance"


def test_members_that_never_sync_are_removed(context: GroupContext) -> None:
    """Who joins and heartbeats but never asks for an assignment is out at the rebalance timeout."""
    members = [context.start_member(rebalance_timeout_ms=20_000) for _ in range(2)]
    context.advance(0)
    (leader, _), (silent, _) = members
    context.send_sync(leader, {leader: b"a", silent: b"b"})
    for _ in range(5):
        context.advance(4_000)
        context.heartbeat(leader)
        context.heartbeat(silent)
    assert context.state == "PreparingRebalance"
    assert list(context.group.members) == [leader]


def test_late_commit_of_an_old_generation_changes_nothing(context: GroupContext) -> None:
    """An assignment that is stored only after the next rebalance began is not given out."""
    member, _ = context.start_member()
    context.advance(0)
    context.hold_commits = True
    sync = context.send_sync(member, {member: b"old"})
    join = context.send_join(member, protocols=[("range", b"new")])
    assert context.synced(sync).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert context.joined(join).generation_id == 2
    context.commit()
    assert context.state == "CompletingRebalance"
    assert context.group.members[member].assignment == b""


# --- heartbeats and sessions ---


def test_heartbeat_errors(context: GroupContext) -> None:
    """Unknown 25, other generation 22; a member of a live generation is fine."""
    nobody = GroupContext(group_id="absent")
    assert nobody.heartbeat("m", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    member = context.stable_group()[0]
    assert context.heartbeat(member) == ErrorCode.NONE
    assert context.heartbeat(member, generation_id=7) == ErrorCode.ILLEGAL_GENERATION
    assert context.heartbeat("ghost") == ErrorCode.UNKNOWN_MEMBER_ID


def test_session_expiry_removes_the_member(context: GroupContext) -> None:
    """A silent member is removed after its session timeout; the others rebalance."""
    leader, silent = context.stable_group(2)
    context.advance(6_000)
    context.heartbeat(leader)
    context.advance(4_000)
    assert context.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert silent not in context.group.members
    ticket = context.send_join(leader)
    assert [m.member_id for m in context.joined(ticket).members] == [leader]


def test_last_session_expiry_empties_the_group(context: GroupContext) -> None:
    """When the last member is gone the group is Empty, and a record says so."""
    context.stable_group()
    context.advance(10_000)
    assert context.state == "Empty"
    value = context.log[-1].value
    assert value is not None
    record = decode_group_value(value)
    assert (record.generation, record.protocol, record.leader, record.members) == (
        2,
        None,
        None,
        [],
    )
    assert record.protocol_type == "consumer"
    assert record.current_state_timestamp == context.now.wall_ms


def test_parked_rejoin_keeps_the_session(context: GroupContext) -> None:
    """A known member whose join is parked sends no heartbeats and is not removed for it."""
    leader, follower = context.stable_group(2, rebalance_timeout_ms=300_000)
    ticket = context.send_join(leader, rebalance_timeout_ms=300_000)
    for _ in range(5):
        context.advance(9_000)
        context.heartbeat(follower)
    assert ticket not in context.replies
    context.send_join(follower, rebalance_timeout_ms=300_000)
    assert context.joined(ticket).generation_id == 2


def test_heartbeat_during_the_assignment_is_fine(context: GroupContext) -> None:
    """While the leader assigns, heartbeats only prolong sessions."""
    member, _ = context.start_member()
    context.advance(0)
    assert context.state == "CompletingRebalance"
    assert context.heartbeat(member) == ErrorCode.NONE


# --- LeaveGroup ---


def test_leave_rebalances_the_others(context: GroupContext) -> None:
    """A member that leaves is gone at once; the others are asked to rejoin."""
    leader, follower = context.stable_group(2)
    assert context.leave((follower, None)) == [ErrorCode.NONE]
    assert context.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert context.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID


def test_last_leave_empties_the_group(context: GroupContext) -> None:
    """The last leave makes the group Empty with the next generation."""
    member = context.stable_group()[0]
    context.leave((member, None))
    assert (context.state, context.group.generation_id) == ("Empty", 2)


def test_batched_leave_reports_each_member(context: GroupContext) -> None:
    """Leaving several members gives each its own error; static ones may go by instance id alone."""
    static = context.send_join(instance_id="inst-1")
    context.advance(0)
    member = context.joined(static).member_id
    errors = context.leave(
        ("", "inst-1"), ("", "inst-2"), ("", None), ("ghost", None), (member, None)
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors == [ErrorCode.NONE, unknown, unknown, unknown, unknown]
    assert context.state == "Empty"


def test_leave_of_an_unknown_group(context: GroupContext) -> None:
    """Members of a group that does not exist are unknown."""
    assert context.leave(("m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_leaving_member_has_its_parked_join_answered(context: GroupContext) -> None:
    """Leaving ends the member's own parked join."""
    leader, _ = context.stable_group(2)
    ticket = context.send_join(leader)
    context.leave((leader, None))
    assert context.joined(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- takeover ---


def test_takeover_continues_a_stable_group(context: GroupContext) -> None:
    """Another broker that replays the log serves the group on, with fresh sessions."""
    leader, follower = context.stable_group(2)
    context.advance(9_000)
    other = context.reload()
    assert other.state == "Stable"
    other.advance(9_000)
    assert other.heartbeat(leader) == ErrorCode.NONE
    sync = other.send_sync(follower)
    assert other.synced(sync).assignment == f"for {follower}".encode()
    assert group_value(other.group) == group_value(context.group)


def test_unload_answers_everyone(context: GroupContext) -> None:
    """When the broker is no longer coordinator, parked joins and syncs end with 16."""
    leader, _ = context.stable_group(2)
    join = context.send_join(leader)
    context.carry_out(context.shard.unload(context.now))
    assert context.joined(join).error_code == ErrorCode.NOT_COORDINATOR
    other = GroupContext()
    other.start_member()
    second, _ = other.start_member()
    other.advance(0)
    parked = other.send_sync(second)
    other.carry_out(other.shard.unload(other.now))
    assert other.synced(parked).error_code == ErrorCode.NOT_COORDINATOR


def test_new_group_that_cannot_be_stored(context: GroupContext) -> None:
    """An old client's first join fails when the group cannot be stored, and nothing is left."""
    context.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    ticket = context.send_join(api_version=3)
    assert context.joined(ticket).error_code == ErrorCode.NOT_COORDINATOR
    assert context.group.members == {}


def test_records_are_of_the_group(context: GroupContext) -> None:
    """Every record of membership is keyed by the group."""
    context.stable_group(2)
    assert {getattr(decode_key(key), "group", None) for key, _ in context.log} == {"group"}
