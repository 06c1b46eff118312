"""What the parts of the core share: who leads, who may stand."""

from __future__ import annotations

import pytest

from tests.unit.kraft_meta.raft.core_parts import parts


def test_a_leader_that_resigned_is_no_leader_to_others() -> None:
    """Its epoch still is its own, so nobody else is accepted in it."""
    core = parts()
    leader = core.lead()
    assert (core.state.is_leader, core.state.leader_id) == (True, 1)
    core.roles.resign(leader, 0)
    assert (core.state.is_leader, core.state.leader_id) == (False, -1)
    assert core.state.quorum.leader_id == 1


@pytest.mark.parametrize(
    ("is_proven", "end_offset", "may_stand"),
    [(True, 0, True), (True, 3, True), (False, 0, True), (False, 3, False)],
)
def test_a_voter_that_may_not_be_believed_stands_only_to_found_a_cluster(
    is_proven: bool, end_offset: int, may_stand: bool
) -> None:
    """See voter_memory.py, rules 2 and 5."""
    assert parts(end_offset=end_offset, is_proven=is_proven).state.may_stand is may_stand
