"""Where replicas are to lie: on the brokers given, shared out evenly, with few moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftrio.clients.cli.cluster.placement import plan_placement
from kraftrio.wire.primitives import TopicPartition


def topic(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", index): each for index, each in enumerate(replicas)}


def test_what_is_even_stays() -> None:
    current = topic((1, 2), (2, 3), (3, 1))
    assert plan_placement(current, [1, 2, 3]) == current


def test_a_new_broker_gets_its_share() -> None:
    placed = plan_placement(topic((1,), (1,), (2,), (2,)), [1, 2, 3])
    assert sorted(Counter(replicas[0] for replicas in placed.values()).values()) == [1, 1, 2]


def test_a_broker_is_emptied() -> None:
    placed = plan_placement(topic((1, 2), (2, 1)), [2, 3])
    assert {frozenset(replicas) for replicas in placed.values()} == {frozenset({2, 3})}


def test_more_replicas() -> None:
    placed = plan_placement(topic((1,), (2,)), [1, 2], replication_factor=2)
    assert placed == topic((1, 2), (2, 1))


def test_too_few_brokers() -> None:
    with pytest.raises(ValueError, match="2 replicas need 2 brokers, not 1"):
        plan_placement(topic((1, 2)), [3])


@given(
    st.lists(st.sets(st.integers(1, 6), min_size=2, max_size=2), min_size=1, max_size=30),
    st.sets(st.integers(1, 8), min_size=2, max_size=8),
)
def test_any_plan(replicas: list[set[int]], brokers: set[int]) -> None:
    """Every partition keeps its number of replicas, and no broker has two more than another."""
    placed = plan_placement(topic(*map(tuple, replicas)), sorted(brokers))
    assert all(len(set(each)) == 2 and set(each) <= brokers for each in placed.values())
    loads = Counter(dict.fromkeys(brokers, 0))
    loads.update(broker for each in placed.values() for broker in each)
    assert max(loads.values()) - min(loads.values()) <= 1
