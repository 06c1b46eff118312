"""The table of a member's states."""

from __future__ import annotations

from kraftrio.clients.heartbeat_member.states import MemberState

IN_GROUP = {MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE}


def test_who_may_be_thrown_out() -> None:
    """Only who the coordinator may know; who has failed comes back as fenced, if at all."""
    for state in MemberState:
        knows = state in IN_GROUP or state is MemberState.JOINING
        is_alive = state is not MemberState.FAILED
        assert state.sends_heartbeats == knows
        assert state.may_become(MemberState.FENCED) == (knows or not is_alive)
        assert state.may_become(MemberState.STALE) == knows
        assert state.may_become(MemberState.UNSUBSCRIBED) == is_alive
        assert state.may_become(MemberState.FAILED) == is_alive


def test_nobody_owns_partitions_without_acknowledging_them() -> None:
    """The way from an assignment to a quiet member leads over the acknowledgement, or is none."""
    assert not MemberState.STABLE.may_become(MemberState.ACKNOWLEDGING)
    assert MemberState.RECONCILING.may_become(MemberState.ACKNOWLEDGING)
    assert {state for state in MemberState if state.is_in_group} == IN_GROUP
