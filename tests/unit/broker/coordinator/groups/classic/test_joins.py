"""Who may join a classic group, as whom, and what joining again comes to; in virtual time."""

from __future__ import annotations

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.classic import decode_group_value
from tests.unit.broker.coordinator.groups.group_context import GroupContext


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


# --- member ids and joining ---


def test_member_id_is_handed_out_first(context: GroupContext) -> None:
    """A first join since v4 gets a member id to join with, and the group exists from then on."""
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
    """Only the leader gets the members with their metadata and instance ids."""
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
