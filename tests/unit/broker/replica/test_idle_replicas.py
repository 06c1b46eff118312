"""A replica that nobody writes to or reads from takes little memory."""

from __future__ import annotations

from kraftrio.kraft_meta.metadata.records import PartitionRecord, TopicRecord
from kraftrio.wire.primitives import TopicPartition
from tests.support.memory import bytes_each
from tests.unit.broker.replica.replica_context import TOPIC_ID, Broker


async def test_replicas_with_an_empty_log() -> None:
    """What holds records or requests is made with the first of them."""
    broker = Broker()
    broker.publish(TopicRecord("t", TOPIC_ID))

    def lead(partition: int) -> object:
        broker.publish(PartitionRecord(TOPIC_ID, partition, (1, 2, 3), (1, 2, 3), 1))
        return broker.replicas.hosted.leader(TopicPartition("t", partition))

    assert bytes_each(lead) < 6500
