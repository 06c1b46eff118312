"""Produce to a partition with followers; internal topics, and DescribeProducers."""

from __future__ import annotations

import pytest
import trio

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.kraft_meta.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.topic_names import INTERNAL_TOPICS
from tests.support.logs import batch
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.api.data_context import Follower, Handlers, part_response
from tests.unit.broker.replica.replica_context import OTHER_ID, TOPIC_ID, TP, Broker


async def refused_by_sequence(broker: Broker, handlers: Handlers) -> Deferred[int]:
    """A producer's batch that this leader, with what it knows, finds out of order."""
    broker.replicas.led.append_to_leader(
        TP, batch(b"x", producer_id=7, producer_epoch=0, sequence=0)
    )
    out_of_order = batch(b"x", producer_id=7, producer_epoch=0, sequence=5)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[PartitionProduceData(index=0, records=memoryview(out_of_order))],
            )
        ],
    )
    response = handlers.produces.produce(request, context(12))
    assert isinstance(response, Deferred)
    code: Deferred[int] = Deferred()
    response.then(lambda value: code.complete(value.responses[0].partition_responses[0].error_code))
    run_waiting()
    return code


async def test_sequences_are_refused_by_a_leader_that_is_followed(autojump_clock: object) -> None:
    """Each member of the ISR fetches once more, as soon as it is answered."""
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2, 3))
        handlers = Handlers(broker)
        follower = Follower(handlers)
        parked = follower.fetch(named=False)
        assert isinstance(parked, Deferred) and not parked.done
        code = await refused_by_sequence(broker, handlers)
        assert parked.done, "the append has woken it already"
        follower.take(parked.value)
        handlers.fetch(1, 3)
        follower.take(part_response(follower.fetch(named=True)))  # perhaps sent before
        follower.fetch(named=True)
        assert not code.done, "broker 3 may have been made leader"
        handlers.fetch(1, 3)
        assert code.done and code.value == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_parked_follower_shows_at_once_that_it_follows(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        handlers.quota.throttles = False
        follower = Follower(handlers)
        broker.replicas.led.append_to_leader(
            TP, batch(b"x", producer_id=7, producer_epoch=0, sequence=0)
        )
        follower.take(part_response(follower.fetch(named=False)))
        parked = follower.fetch(named=True)
        assert isinstance(parked, Deferred) and not parked.done
        codes: list[ErrorCode] = []
        broker.replicas.led.when_confirmed(TP, 30_000, codes.append)
        run_waiting()
        assert parked.done and not codes
        follower.take(parked.value)
        assert isinstance(follower.fetch(named=False), Deferred), "and it may wait again"
        assert codes == [ErrorCode.NONE]


async def test_sequences_are_not_judged_by_a_leader_without_followers(
    autojump_clock: object,
) -> None:
    """It was cut off, and another one may lead since: the producer has to look."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        alone = await refused_by_sequence(broker, handlers)
        await trio.sleep(1)
        assert not alone.done
        await trio.sleep(2)
        assert alone.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_sequences_are_not_judged_by_a_deposed_leader(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        deposed = await refused_by_sequence(broker, handlers)
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=2))
        assert deposed.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_sequences_are_not_judged_by_fetches_in_another_leader_epoch(
    autojump_clock: object,
) -> None:
    """Another one may have led between the two, though we heard of both changes at once."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        refused = await refused_by_sequence(broker, handlers)
        broker.publish(
            PartitionChangeRecord(TOPIC_ID, 0, leader=2),
            PartitionChangeRecord(TOPIC_ID, 0, leader=1),
        )
        assert refused.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_sequences_are_judged_by_the_last_in_the_isr(autojump_clock: object) -> None:
    """No other can lead, and a follower that is put out of the ISR is waited for no more."""
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        code = await refused_by_sequence(broker, handlers)
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, isr=(1,)))
        assert code.value == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        codes: list[ErrorCode] = []
        broker.replicas.led.when_confirmed(TP, 1000, codes.append)
        assert codes == [ErrorCode.NONE]


async def test_produce_with_too_few_replicas(autojump_clock: object) -> None:
    broker = Broker(config=LogConfig(min_insync_replicas=2))
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        late = handlers.produce("t", timeout_ms=100)
        await trio.sleep(1)
        assert late.value == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, isr=(1,)))
        assert handlers.produce("t").value == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
        assert handlers.produce("t", acks=1).value == [(ErrorCode.NONE, 1)]


# -- internal topics, and producers -----------------------------------------------------------


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("version", [3, 12, 13])
async def test_internal_topics_are_written_by_brokers_and_tools_alone(
    topic: str, version: int
) -> None:
    """INVALID_TOPIC_EXCEPTION for anybody else; a partition that is not there comes first."""
    broker = Broker()
    broker.publish(TopicRecord(topic, TOPIC_ID), PartitionRecord(TOPIC_ID, 0, (1,), (1,), 1))
    handlers = Handlers(broker)

    def produce(client_id: str | None) -> list[int]:
        asked = context(version)
        asked.client_id = client_id
        topic_data = TopicProduceData(
            name="" if version == 13 else topic,
            topic_id=TOPIC_ID,
            partition_data=[
                PartitionProduceData(index=index, records=memoryview(batch(b"x")))
                for index in (0, 9)
            ],
        )
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic_data])
        response = handlers.produces.produce(request, asked)
        assert isinstance(response, ProduceResponse)
        return [one.error_code for one in response.responses[0].partition_responses]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for client_id in ("app", None, ""):
        assert produce(client_id) == [ErrorCode.INVALID_TOPIC_EXCEPTION, unknown]
    assert broker.replicas.led.log(TopicPartition(topic, 0)).log_end_offset == 0
    assert produce("__admin_client") == [ErrorCode.NONE, unknown]


async def test_producers_are_described_by_every_replica() -> None:
    """A follower knows them, too, and a replica that nobody has asked for yet; others do not."""
    broker = Broker()
    async with broker.running():
        handlers = Handlers(broker)

        def describe(topic: str = "t") -> tuple[int, list[int]]:
            request = DescribeProducersRequest(
                topics=[DescribeProducersTopicRequest(name=topic, partition_indexes=[0])]
            )
            response = handlers.produces.describe_producers(request, context(0))
            (answer,) = response.topics[0].partitions
            return answer.error_code, [one.producer_id for one in answer.active_producers]

        broker.publish(
            TopicRecord("t", TOPIC_ID), PartitionRecord(TOPIC_ID, 0, (1, 2, 3), (1, 2, 3), 2)
        )
        assert describe() == (ErrorCode.NONE, [])
        broker.replicas.follower_writes.append_as_follower(
            TP,
            batch(b"x", producer_id=7, producer_epoch=0, sequence=0),
            0,
            leader_high_watermark=0,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        assert describe() == (ErrorCode.NONE, [7])
        broker.publish(TopicRecord("u", OTHER_ID), PartitionRecord(OTHER_ID, 0, (2, 3), (2, 3), 2))
        assert describe("u") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        assert describe("none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        broker.replicas.failures.go_offline([TP])
        assert describe() == (ErrorCode.KAFKA_STORAGE_ERROR, [])
