"""Joining, syncing, heartbeats and leaving of classic groups, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.classic.membership import NEW_MEMBER_JOIN_TIMEOUT_MS
from kraftrio.broker.coordinator.groups.classic.records import group_value
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records import decode_group_value, decode_key
from tests.unit.broker.coordinator.groups.group_context import GroupContext, Properties


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


# --- member ids and joining ---


def test_member_id_is_handed_out_first(context: GroupContext) -> None:
    """A first join since v4 is told a member id to join with, and the group exists from then on."""
    response = context.joined(context.send_join(client_id="kcat"))
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id == "kcat-uuid1"
    assert context.state == "Empty"
    value = context.log[0].value
    assert value is not None
    record = decode_group_value(value)
    assert (record.protocol_type, record.generation, record.members) == ("", 0, [])


def test_old_join_gets_in_without_asking_for_an_id(context: GroupContext) -> None:
    """Before v4 a join without a member id makes a member at once."""
    ticket = context.send_join(api_version=3)
    context.advance(0)
    response = context.joined(ticket)
    assert response.error_code == ErrorCode.NONE
    assert response.leader == response.member_id == "client-uuid1"


def test_first_member_leads_and_learns_of_everyone(context: GroupContext) -> None:
    """Only the leader is told the members with their metadata and instance ids."""
    first, first_join = context.start_member(protocols=[("range", b"one")])
    second, second_join = context.start_member(protocols=[("range", b"two")])
    context.advance(0)
    leader, follower = context.joined(first_join), context.joined(second_join)
    assert leader.leader == follower.leader == first
    assert leader.generation_id == follower.generation_id == 1
    assert {m.member_id: m.metadata for m in leader.members} == {first: b"one", second: b"two"}
    assert follower.members == []
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")
    assert context.state == "CompletingRebalance"


def test_unknown_member_id_without_group(context: GroupContext) -> None:
    """A member id of a group that does not exist is unknown, and no group is made."""
    response = context.joined(context.send_join("ghost"))
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert context.state == "absent"


def test_unknown_member_id_in_group(context: GroupContext) -> None:
    """A member id that the group never handed out is unknown."""
    context.stable_group()
    response = context.joined(context.send_join("ghost"))
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert context.state == "Stable"


@pytest.mark.parametrize("version", [3, 9])
def test_other_protocol_type_is_inconsistent(context: GroupContext, version: int) -> None:
    """A group of one protocol type turns other types away."""
    context.stable_group()
    ticket = context.send_join(protocol_type="connect", api_version=version)
    assert context.joined(ticket).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_no_common_protocol_is_inconsistent(context: GroupContext) -> None:
    """A joiner needs a protocol that every member supports."""
    context.stable_group(protocols=[("range", b""), ("roundrobin", b"")])
    ticket = context.send_join(protocols=[("sticky", b"")])
    assert context.joined(ticket).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", [("range", b"")]), ("consumer", [])])
def test_empty_protocols_make_no_group(
    context: GroupContext, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    """A first join must name a protocol type and a protocol."""
    ticket = context.send_join(protocol_type=protocol_type, protocols=protocols)
    assert context.joined(ticket).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert context.state == "absent"
    assert context.log == []


@pytest.mark.parametrize("protocol_type", ["connect", "sr", "streams"])
def test_other_protocol_types_are_opaque(context: GroupContext, protocol_type: str) -> None:
    """Groups of any protocol type work alike, whatever bytes they exchange."""
    protocols = [("v1", b"\xff\x00not a subscription")]
    member, ticket = context.start_member(protocol_type=protocol_type, protocols=protocols)
    context.advance(0)
    assert context.joined(ticket).protocol_type == protocol_type
    sync = context.send_sync(member, {member: b"\x00\x01"}, protocol_type=protocol_type)
    assert context.synced(sync).assignment == b"\x00\x01"


def test_protocol_is_chosen_by_votes(context: GroupContext) -> None:
    """Among what all support, each member votes for its first; most votes win."""
    liked = [("sticky", b""), ("range", b""), ("roundrobin", b"")]
    other = [("range", b""), ("roundrobin", b"")]
    tickets = [context.start_member(protocols=p)[1] for p in (other[::-1], liked, other)]
    context.advance(0)
    assert {context.joined(t).protocol_name for t in tickets} == {"range"}


def test_group_max_size(context: GroupContext) -> None:
    """A full group turns new members away and keeps its own."""
    context.properties.group_max_size = 2
    members = context.stable_group(2)
    response = context.joined(context.send_join())
    assert (response.error_code, response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert context.state == "Stable"
    ticket = context.send_join(members[1])
    assert context.joined(ticket).error_code == ErrorCode.NONE


def test_loaded_group_over_capacity_rebalances(context: GroupContext) -> None:
    """After a takeover with a smaller limit the group rebalances, and the last to rejoin is out."""
    members = context.stable_group(3)
    context.properties.group_max_size = 2
    other = context.reload()
    assert other.state == "PreparingRebalance"
    tickets = [other.send_join(member) for member in members]
    assert other.joined(tickets[2]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [other.joined(t).error_code for t in tickets[:2]] == [0, 0]
    assert other.joined(tickets[0]).generation_id == 2


# --- the initial delay and pending members ---


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
    """A trickle of joins holds the first rebalance up to the rebalance timeout, not for ever."""
    context = GroupContext(Properties(group_initial_rebalance_delay_ms=3_000))
    _, first = context.start_member(rebalance_timeout_ms=10_000)
    for _ in range(9):
        context.advance(1_000)
        context.start_member(rebalance_timeout_ms=10_000)
    assert first not in context.replies
    context.advance(1_000)
    assert context.joined(first).generation_id == 1


def test_pending_member_that_vanishes_holds_nobody_up(context: GroupContext) -> None:
    """A member id that was asked for and never used expires; the others' rebalance then ends."""
    member = context.stable_group()[0]
    context.new_member_id(session_timeout_ms=7_000)
    ticket = context.send_join(member, protocols=[("range", b"changed")])
    assert ticket not in context.replies, "the pending member is awaited"
    context.advance(7_000)
    assert context.joined(ticket).generation_id == 2
    assert context.group.pending_join_members == {}


def test_pending_member_may_leave(context: GroupContext) -> None:
    """A pending member leaves without error, and is awaited no longer."""
    member = context.stable_group()[0]
    pending = context.new_member_id()
    ticket = context.send_join(member, protocols=[("range", b"changed")])
    assert context.leave((pending, None)) == [ErrorCode.NONE]
    assert context.joined(ticket).generation_id == 2
    assert context.joined(context.send_join(pending)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_that_vanishes_while_parked(context: GroupContext) -> None:
    """A parked first join does not keep a member for ever: it is dropped after five minutes."""
    hour_ms = 3_600_000
    old = context.stable_group(rebalance_timeout_ms=hour_ms, session_timeout_ms=hour_ms)[0]
    _, ticket = context.start_member(rebalance_timeout_ms=hour_ms)
    context.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert context.joined(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(context.group.members) == [old]


# --- rejoining ---


def test_follower_that_rejoins_unchanged_is_answered_at_once(context: GroupContext) -> None:
    """A follower's repeated join in a stable group gives the current generation."""
    leader, follower = context.stable_group(2)
    response = context.joined(context.send_join(follower))
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, leader)
    assert context.state == "Stable"


def test_leader_that_rejoins_starts_a_rebalance(context: GroupContext) -> None:
    """The leader's join asks for a new assignment, even with unchanged metadata."""
    leader, follower = context.stable_group(2)
    ticket = context.send_join(leader)
    assert context.state == "PreparingRebalance"
    assert context.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    context.send_join(follower)
    assert context.joined(ticket).generation_id == 2


def test_member_with_new_metadata_starts_a_rebalance(context: GroupContext) -> None:
    """A follower with changed metadata joins again for all."""
    leader, follower = context.stable_group(2)
    ticket = context.send_join(follower, protocols=[("range", b"other topics")])
    rejoined = context.send_join(leader)
    assert context.joined(ticket).generation_id == 2
    metadata = {m.member_id: m.metadata for m in context.joined(rejoined).members}
    assert metadata[follower] == b"other topics"


def test_join_is_repeated_after_a_lost_answer(context: GroupContext) -> None:
    """While assignments are awaited, a join with the same metadata gives the same answer again."""
    member, ticket = context.start_member()
    context.advance(0)
    again = context.send_join(member)
    assert context.joined(again) == context.joined(ticket)
    assert context.state == "CompletingRebalance"


def test_rejoin_at_once_after_the_first_sync(context: GroupContext) -> None:
    """A client that learns its topics late joins twice; the second round is an ordinary one."""
    member = context.stable_group()[0]
    ticket = context.send_join(member, protocols=[("range", b"with topics")])
    assert context.joined(ticket).generation_id == 2
    context.settle_rebalance([(member, ticket)])


def test_superseded_join_is_answered(context: GroupContext) -> None:
    """A member that sends its join again has its former request ended, not left hanging."""
    leader, _ = context.stable_group(2)
    first = context.send_join(leader)
    second = context.send_join(leader)
    assert context.joined(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in context.replies


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
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_assignment_that_cannot_be_stored(
    context: GroupContext, failure: ErrorCode, told: ErrorCode
) -> None:
    """Members hear a coordinator error, never the log's, and the group rebalances."""
    member, _ = context.start_member()
    context.advance(0)
    context.append_error = failure
    ticket = context.send_sync(member, {member: b"a"})
    assert context.synced(ticket).error_code == told
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
    """A member that leaves is gone at once; the others are told to rejoin."""
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


def test_leave_with_a_stale_id_of_a_static_member(context: GroupContext) -> None:
    """A replaced static member cannot take its successor away."""
    old = static_group(context)
    context.send_join(instance_id="inst-1")
    assert context.leave((old, "inst-1")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert "inst-1" in context.group.static_members


def test_leaving_member_has_its_parked_join_answered(context: GroupContext) -> None:
    """Leaving ends the member's own parked join."""
    leader, _ = context.stable_group(2)
    ticket = context.send_join(leader)
    context.leave((leader, None))
    assert context.joined(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- static members ---


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
    """A restarted static leader gets a new id, no rebalance, and is told to keep its assignment."""
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
    """Up to v8 the restarted leader is told its old id leads, so that it does not assign anew."""
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
    assert context.group.leader_id == old
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
    timeouts = {"session_timeout_ms": 120_000, "rebalance_timeout_ms": 20_000}
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
