"""One group of three: a Java consumer, confluent-kafka and ours, with any of them as its leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.clients_trio.mixed_groups import ASSIGNORS, PARTITIONS, Group, classic
from tests.conformance.java_tools import KafkaTools

pytestmark = scenarios.MARKS

Names = Callable[[], str]


@pytest.mark.parametrize("order", [("ours", "java", "confluent"), ("java", "confluent", "ours")])
@pytest.mark.parametrize("strategy", sorted(ASSIGNORS))
def test_one_owner_per_partition(
    kafka: KafkaTools,
    unique_topic: Names,
    unique_group: Names,
    strategy: str,
    order: Sequence[str],
) -> None:
    """They join one after the other, each leaves and comes back; nothing is lost or doubled."""
    topic = kafka.create_topic(unique_topic(), partitions=PARTITIONS)
    group = Group(kafka, topic, unique_group(), classic(strategy))
    try:
        for name in order:
            group.join(name)
            group.send(group.wait_shared())
        for name in order:
            group.leave(name)
            group.send(group.wait_shared())
            group.join(name)
            group.send(group.wait_shared())
        for name in order:
            group.leave(name)
        group.check()
    finally:
        group.abandon()
