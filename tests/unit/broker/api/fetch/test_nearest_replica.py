"""Which replica a consumer is named."""

from __future__ import annotations

from kraftrio.broker.api.fetch.nearest_replica import ReplicaView, select_replica

LEADER = ReplicaView(1, "a", 10, 0.0, is_leader=True)


def test_the_leader_serves_those_without_a_rack_or_with_its_own() -> None:
    others = [ReplicaView(2, "b", 10, 5.0), ReplicaView(3, "a", 10, 5.0)]
    assert select_replica("", [LEADER, *others]) is None
    assert select_replica("a", [LEADER, *others]) is None
    assert select_replica("c", [LEADER, *others]) is None


def test_of_a_rack_the_one_that_has_most_is_named() -> None:
    behind = ReplicaView(2, "b", 8, 9.0)
    late = ReplicaView(3, "b", 9, 4.0)
    early = ReplicaView(4, "b", 9, 7.0)
    assert select_replica("b", [LEADER, behind, late]) == 3
    assert select_replica("b", [LEADER, behind, early, late]) == 4
    assert select_replica("b", [LEADER, behind]) == 2
