"""A shard that holds nothing takes next to no memory, and goes when its partition is led elsewhere.

A broker may lead thousands of them, and lead each of them often.
"""

from __future__ import annotations

from typing import Any

from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.kraft_meta.metadata.image import GROUP_VERSION
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from tests.support.memory import bytes_each, freed_by_itself
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, FakeReplicas, ask
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


def test_shards_of_groups_are_freed() -> None:
    """Whatever kinds of group they had."""
    stand_in = BrokerStandIn()
    stand_in.metadata.set_feature(GROUP_VERSION, 1)
    stand_in.metadata.add_topic("t", b"t" * 16, 4)
    with freed_by_itself():
        joined = ask(
            stand_in,
            ConsumerGroupHeartbeatRequest(
                group_id="consumer",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            ),
            1,
        )
        assert joined.error_code == ErrorCode.NONE
        join = JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")],
        )
        assert ask(stand_in, join, 9).error_code == ErrorCode.MEMBER_ID_REQUIRED
        for group_id in ("consumer", "classic", "share"):
            stand_in.coordinator.read(
                group_id, lambda shard, _now: (shard.share, shard.streams, shard.classic_requests)
            )
        for partition in range(4):
            stand_in.coordinator.resign(partition)


def test_shards_of_share_states_are_freed() -> None:
    stand_in = ShareStandIn()
    with freed_by_itself():
        stand_in.initialize(1, 0)
        stand_in.coordinator.resign(0)


def test_shards_of_transactions_are_freed() -> None:
    stand_in = Coordinator()
    stand_in.runtime.elect(0, 0)
    with freed_by_itself():
        assert stand_in.init().value.error_code == ErrorCode.NONE
        stand_in.runtime.resign(0)
