"""Members, static members and the leader of a classic group."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.classic.roster import ClassicMember, MemberRoster
from kraftrio.wire.errors import ErrorCode


def member(member_id: str, instance_id: str | None = None, *protocols: str) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1000 * len(member_id),
        session_timeout_ms=10_000,
        protocols=tuple((name, name.encode()) for name in protocols or ("range",)),
    )


def roster_of(*members: ClassicMember) -> MemberRoster:
    roster = MemberRoster()
    for each in members:
        roster.add(each)
    return roster


def test_a_leader_that_goes_is_replaced() -> None:
    roster = roster_of(member("a"), member("b"))
    assert roster.is_leader("a")
    roster.remove("a")
    assert roster.is_leader("b")
    roster.remove("b")
    assert roster.leader_id is None and not roster.elect_joined_leader()


def test_the_leader_of_a_rebalance_is_one_who_has_joined() -> None:
    """A static leader that did not come back leaves the lead to a member that did."""
    roster = roster_of(member("a", "static"), member("bb"))
    assert not roster.elect_joined_leader()
    roster.park_join(roster.members["bb"], "ticket")
    assert not roster.has_all_members_joined
    assert roster.elect_joined_leader() and roster.is_leader("bb")
    assert roster.take_join_ticket(roster.members["bb"]) == "ticket"
    assert roster.take_join_ticket(roster.members["bb"]) is None
    assert roster.awaiting_join_count == 0
    assert roster.rebalance_timeout_ms == 2000


def test_a_static_member_that_restarts_takes_the_place_of_its_former_self() -> None:
    roster = roster_of(member("old", "static"), member("other"))
    roster.pending_sync_members["old"] = None
    assert roster.replace_static("static", "old", "new").member_id == "new"
    assert roster.is_leader("new") and list(roster.pending_sync_members) == ["new"]
    assert roster.check_member("old", "static") is ErrorCode.FENCED_INSTANCE_ID
    assert roster.check_member("old", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert roster.check_member("new", "static") is ErrorCode.NONE
    assert roster.check_member("new", "unknown") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_is_one_that_all_support() -> None:
    roster = roster_of(member("a", None, "range", "sticky"), member("b", None, "sticky", "range"))
    assert roster.select_protocol() == "range"
    roster.set_protocols(roster.members["a"], (("sticky", b""),))
    assert roster.select_protocol() == "sticky"


def test_all_have_joined_once_those_that_were_given_an_id_have() -> None:
    roster = roster_of(member("a"))
    roster.pending_join_members["b"] = None
    roster.park_join(roster.members["a"], "ticket")
    assert not roster.has_all_members_joined
    roster.add(member("b"))
    roster.park_join(roster.members["b"], "another")
    assert roster.has_all_members_joined and not roster.pending_join_members
