"""The table of a member's states."""

from __future__ import annotations

from kraftrio.clients.heartbeat_member.states import HeartbeatMemberState

IN_GROUP = {
    HeartbeatMemberState.RECONCILING,
    HeartbeatMemberState.ACKNOWLEDGING,
    HeartbeatMemberState.STABLE,
}


def test_who_may_be_thrown_out() -> None:
    """Only who the coordinator may know; who has failed comes back as fenced, if at all."""
    for state in HeartbeatMemberState:
        knows = state in IN_GROUP or state is HeartbeatMemberState.JOINING
        is_alive = state is not HeartbeatMemberState.FAILED
        assert state.sends_heartbeats == knows
        assert state.may_become(HeartbeatMemberState.FENCED) == (knows or not is_alive)
        assert state.may_become(HeartbeatMemberState.STALE) == knows
        assert state.may_become(HeartbeatMemberState.UNSUBSCRIBED) == is_alive
        assert state.may_become(HeartbeatMemberState.FAILED) == is_alive


def test_no_member_owns_partitions_without_acknowledging_them() -> None:
    """The way from an assignment to a quiet member leads over the acknowledgement, or is none."""
    assert not HeartbeatMemberState.STABLE.may_become(HeartbeatMemberState.ACKNOWLEDGING)
    assert HeartbeatMemberState.RECONCILING.may_become(HeartbeatMemberState.ACKNOWLEDGING)
    assert {state for state in HeartbeatMemberState if state.is_in_group} == IN_GROUP
