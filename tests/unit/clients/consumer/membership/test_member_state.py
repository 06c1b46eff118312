"""The moves of a member of a group, as the table says."""

from __future__ import annotations

import pytest

from kraftrio.clients.consumer.membership.member_state import ClassicMemberState

S = ClassicMemberState
LEGAL = {
    S.UNJOINED: {S.PREPARING},
    S.PREPARING: {S.JOINING},
    S.JOINING: {S.SHARING, S.SYNCING},
    S.SHARING: {S.SYNCING},
    S.SYNCING: {S.COMPLETING, S.JOINING},
    S.COMPLETING: {S.STABLE},
    S.STABLE: {S.PREPARING},
}


@pytest.mark.parametrize("state", ClassicMemberState)
def test_moves(state: ClassicMemberState) -> None:
    """A member may be thrown out or fail in every state; one that has failed may begin again."""
    moves = {other for other in ClassicMemberState if state.may_become(other)}
    ends = {S.UNJOINED} if state is S.FAILED else {S.UNJOINED, S.FAILED}
    assert moves == LEGAL.get(state, set()) | ends


def test_commits_are_taken_only_with_an_assignment_at_hand() -> None:
    assert {state for state in S if state.is_settled} == {S.PREPARING, S.COMPLETING, S.STABLE}


def test_heartbeats_are_not_sent_while_a_join_waits() -> None:
    silent = {state for state in S if not state.sends_heartbeats}
    assert silent == {S.UNJOINED, S.JOINING, S.FAILED}
