"""A shard that holds nothing takes next to no memory: a broker may lead thousands of them."""

from __future__ import annotations

from typing import Any

from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from tests.support.memory import bytes_each
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, FakeReplicas
from tests.unit.broker.coordinator.share_state.share_stand_in import ShareStandIn
from tests.unit.broker.coordinator.transactions.test_shard_in_runtime import Coordinator


def elect(coordinator: CoordinatorRuntime[Any], replicas: FakeReplicas, partition: int) -> None:
    """Have a broker lead an empty partition of a coordinator's topic."""
    replicas.lead(partition, coordinator.topic)
    coordinator.elect(partition, 0)


def test_shards_of_groups() -> None:
    """No kind of group is made before it is needed, and nothing is that all shards can share."""
    stand_in = BrokerStandIn(lead=False)
    taken = bytes_each(lambda n: elect(stand_in.coordinator, stand_in.replicas, n))
    assert taken < 3000


def test_shards_of_share_states() -> None:
    """Nothing but what says that there is none."""
    stand_in = ShareStandIn(lead=False)
    taken = bytes_each(lambda n: elect(stand_in.coordinator, stand_in.replicas, n))
    assert taken < 2500


def test_shards_of_transactions() -> None:
    """Likewise."""
    stand_in = Coordinator()
    assert bytes_each(lambda n: elect(stand_in.runtime, stand_in.replicas, n)) < 2000
