"""Which cluster a node belongs to."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity, ClusterIdError


def test_a_node_that_knows_no_cluster_takes_the_first_id_that_it_meets() -> None:
    """And keeps it: another one ends the node, with both ids and where each comes from."""
    identity = ClusterIdentity()
    assert (identity.is_known, identity.on_wire) == (False, None)
    identity.learn("A", "the metadata log")
    identity.learn("A", "somebody else")
    assert (identity.is_known, identity.on_wire) == (True, "A")
    with pytest.raises(ClusterIdError, match="the metadata log names cluster A, but node 2 is of"):
        identity.learn("B", "node 2")
    assert identity.cluster_id == "A"


@pytest.mark.parametrize(
    ("known", "named", "is_admitted"),
    [("A", "A", True), ("A", "B", False), ("A", None, True), ("A", "", True), ("", "B", True)],
)
def test_requests_of_another_cluster_are_not_admitted(
    known: str, named: str | None, is_admitted: bool
) -> None:
    """No id, on either side, contradicts nothing."""
    assert ClusterIdentity(known, "a test").admits(named) is is_admitted
