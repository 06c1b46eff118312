"""Look-ups of replicas: who may be served from which, and with what error if not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.unit.broker.replica.replica_context import TP, Broker, change


def refusal(look_up: Callable[..., object], *arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        look_up(*arguments)
    return caught.value.code


async def test_a_leader_serves_everybody_in_its_epoch() -> None:
    broker = Broker()
    partition = broker.lead()
    hosted = broker.replicas.hosted
    for found in (hosted.find(TP), hosted.leader(TP, 0), hosted.readable(TP, 0), hosted.online(TP)):
        assert found is partition
    assert refusal(hosted.leader, TP, 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    broker.publish(change(leader=2))
    broker.publish(change(leader=1))
    assert refusal(hosted.readable, TP, 0) is ErrorCode.FENCED_LEADER_EPOCH


async def test_a_follower_serves_readers_alone() -> None:
    broker = Broker()
    partition = broker.follow_broker_2()
    hosted = broker.replicas.hosted
    assert refusal(hosted.leader, TP) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert hosted.readable(TP, -1) is partition and hosted.online(TP) is partition


async def test_a_failed_directory_serves_no_requests() -> None:
    broker = Broker()
    partition = broker.lead()
    broker.replicas.failures.go_offline([TP])
    assert partition.state.role is Role.OFFLINE
    hosted = broker.replicas.hosted
    assert hosted.partition(TP) is partition
    for look_up, *arguments in (
        (hosted.leader, TP),
        (hosted.readable, TP, -1),
        (hosted.online, TP),
    ):
        assert refusal(look_up, *arguments) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_what_is_not_hosted_here_is_elsewhere_or_nowhere() -> None:
    broker = Broker()
    broker.lead()
    broker.publish(change(replicas=(2, 3), isr=(2, 3), leader=2))
    hosted = broker.replicas.hosted
    assert hosted.partition(TP) is None
    assert refusal(hosted.find, TP) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(hosted.find, TopicPartition("t", 9)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
