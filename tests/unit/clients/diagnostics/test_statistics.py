"""What `statistics()` of each client returns, against a whole broker."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.diagnostics.statistics import ClusterStatistics
from kraftrio.clients.errors import ClosedError, RecordTooLargeError
from kraftrio.clients.producer.producer import Producer
from kraftrio.clients.share.consumer import ShareConsumer
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

T0 = TopicPartition("t", 0)


async def test_of_a_producer(kafka: Kafka) -> None:
    """What was delivered, given up, and is neither yet."""
    await kafka.create("t", **{"max.message.bytes": 1_000})
    async with kafka.producer(linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        for size in (5, 5_000):
            delivery = await producer.send("t", b"x" * size, timestamp_ms=kafka.now_ms())
            before = producer.statistics()
            assert before.undecided_batches == 1 and before.buffered_bytes > 0
            await producer.flush()
            assert delivery.done
        after = producer.statistics()
        assert (after.delivered_records, after.failed_records) == (1, 1)
        assert (after.undecided_batches, after.buffered_bytes, after.waiting_sends) == (0, 0, 0)
        assert after.cluster.brokers == 1 and after.cluster.connected_brokers >= 1
        assert (after.cluster.topics, after.cluster.last_failure) == (1, None)
        assert before is not after and before.delivered_records == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            after.failed_records = 0  # type: ignore[misc]
        with pytest.raises(RecordTooLargeError):
            delivery.result()


async def test_of_a_consumer(kafka: Kafka) -> None:
    """How far behind it is, what is paused, and as whom it reads."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe("t")
        for _ in range(4):
            await anext(consumer)
        consumer.pause(T0)
        found = consumer.statistics()
        assert (found.lag, found.paused, found.fetched_records) == ({T0: 6}, {T0}, 10)
        assert found.member_id and found.generation_id > 0
        assert found.cluster.brokers == 1


@pytest.mark.parametrize(
    "client", [Producer("h:1"), Admin("h:1"), ShareConsumer("h:1", group_id="g")], ids=repr
)
def test_of_clients_that_are_not_open(client: Any) -> None:
    with pytest.raises(ClosedError):
        client.statistics()


async def test_of_an_admin_client_without_an_answer() -> None:
    async with Admin("127.0.0.1:1") as admin:
        assert admin.statistics() == ClusterStatistics(0, 0, 0, 0, None)


async def test_of_a_share_consumer_without_a_group() -> None:
    async with ShareConsumer("127.0.0.1:1", group_id="g") as consumer:
        found = consumer.statistics()
        assert (found.waiting_records, found.records_in_hand, found.pending_acknowledgements) == (
            (0, 0, 0)
        )
        assert found.member_id and not found.assignment
