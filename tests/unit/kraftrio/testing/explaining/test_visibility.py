"""Why records are not visible: each reason is caused in a world, and given with its event."""

from __future__ import annotations

import pytest
import trio

from kraftrio import Admin, Producer, TopicPartition
from kraftrio.errors import KafkaClientError
from kraftrio.testing import KafkaWorld
from kraftrio.testing.explaining.evidence import Answer, Reason

ORDERS = TopicPartition("orders", 0)


def _event(answer: Answer) -> str:
    assert answer.event is not None, answer
    return " ".join(answer.event[1:])


async def _leader(world: KafkaWorld) -> int:
    return (await world.topics())["orders"].partitions[0].leader_id


async def test_visible_and_never_written(kafka_world: KafkaWorld) -> None:
    (sent,) = await kafka_world.produce("orders", "one", partition=0)
    assert kafka_world.explain(sent).visibility.reason is Reason.VISIBLE
    beyond = kafka_world.explain("orders", 0, 7).visibility
    assert beyond.reason is Reason.NOT_WRITTEN
    assert beyond.text == "orders-0 ends at offset 1, and no record was written there"
    assert kafka_world.explain("bills", 0, 0).visibility.reason is Reason.NO_PARTITION
    assert kafka_world.explain("orders", value="two").visibility.reason is Reason.NOT_SENT
    with pytest.raises(ValueError, match="explain\\(\\) takes a record, or a topic with partition"):
        kafka_world.explain("orders", 0)


async def test_above_the_high_watermark(kafka_world: KafkaWorld) -> None:
    """Until a follower that stands still has it, or is not a member of the ISR any more."""
    await kafka_world.create_topic("orders", partitions=1)
    leader = await _leader(kafka_world)
    follower = leader % 3 + 1
    async with Producer(kafka_world.bootstrap_servers, acks=1) as producer:
        kafka_world.node(follower).pause()
        sent = await (await producer.send("orders", b"one"))
    await trio.sleep(1)
    answer = kafka_world.explain(sent).visibility
    assert answer.reason is Reason.ABOVE_HIGH_WATERMARK
    assert answer.text.endswith(f": n{follower} of the ISR does not have the record yet")
    assert _event(answer) == f"n{follower} pause "
    kafka_world.node(follower).resume()
    await kafka_world.partition("orders").high_watermark(1)
    kafka_world.links.cut(f"n{follower}", f"n{leader}")
    async with Producer(kafka_world.bootstrap_servers, acks=1) as producer:
        sent = await (await producer.send("orders", b"two"))
    await trio.sleep(1)
    assert _event(kafka_world.explain(sent).visibility) == f"net hang n{follower}>n{leader}"
    kafka_world.links.heal()
    await kafka_world.partition("orders").high_watermark(2)
    assert kafka_world.explain(sent).visibility.reason is Reason.VISIBLE


async def test_open_and_aborted_transactions(kafka_world: KafkaWorld) -> None:
    """The program's own request to abort, and the coordinator's when the time is up."""
    async with Producer(kafka_world.bootstrap_servers, transactional_id="t") as producer:
        with pytest.raises(RuntimeError, match="no"):
            async with producer.transaction():
                one = await (await producer.send("orders", b"one"))
                is_open = kafka_world.explain(one).visibility
                raise RuntimeError("no")
    assert is_open.reason is Reason.OPEN_TRANSACTION
    assert is_open.text == "the transaction of t has not ended; read_committed waits for it"
    assert "asks Produce to n" in _event(is_open)
    await kafka_world.transaction("t").ended()
    aborted = kafka_world.explain(one).visibility
    assert (aborted.reason, aborted.text) == (
        Reason.ABORTED,
        "the transaction of t was aborted, its marker is at offset 1",
    )
    assert "program asks EndTxn" in _event(aborted)
    assert "t abort" in _event(aborted)
    async with Producer(
        kafka_world.bootstrap_servers, transactional_id="t", transaction_timeout_ms=2000
    ) as producer:
        with pytest.raises(KafkaClientError):
            async with producer.transaction():
                two = await (await producer.send("orders", b"two"))
                await trio.sleep(20)
    answer = kafka_world.explain(two).visibility
    assert answer.reason is Reason.ABORTED
    assert 'transaction aborted transactional_id=t reason="timed out"' in _event(answer)
    marker = kafka_world.explain("orders", 0, 1).visibility
    assert marker.reason is Reason.CONTROL_RECORD


@pytest.mark.kafka(brokers=1)
async def test_deleted(kafka_world: KafkaWorld) -> None:
    """By retention, and on request."""
    day_ms = 86_400_000
    config = {"retention.ms": 7 * day_ms, "segment.ms": day_ms}
    await kafka_world.create_topic("orders", config=config)
    (old,) = await kafka_world.produce("orders", "old")
    kafka_world.move_clocks(9 * 86_400)
    await trio.sleep(400)
    answer = kafka_world.explain(old).visibility
    assert answer.reason is Reason.DELETED_BY_RETENTION
    assert "retention deleted segments partition=orders-0 count=1" in _event(answer)
    (new,) = await kafka_world.produce("orders", "new")
    async with Admin(kafka_world.bootstrap_servers) as admin:
        await admin.delete_records({ORDERS: -1})
    answer = kafka_world.explain(new).visibility
    assert answer.reason is Reason.DELETED_BY_REQUEST
    assert answer.text == "orders-0 begins at offset 2 now"
    assert "program asks DeleteRecords to n1: orders-0" in _event(answer)


@pytest.mark.kafka(brokers=1, config={"log.cleaner.backoff.ms": 1000})
async def test_compacted(kafka_world: KafkaWorld) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": 1000,
        "min.cleanable.dirty.ratio": 0.01,
        "max.compaction.lag.ms": 1000,
    }
    await kafka_world.create_topic("orders", config=config)
    (old,) = await kafka_world.produce("orders", "old", key="k")
    (newer,) = await kafka_world.produce("orders", "newer", key="k")
    kafka_world.move_clocks(5)
    await kafka_world.produce("orders", "other", key="l")
    await trio.sleep(60)
    answer = kafka_world.explain(old).visibility
    assert answer.reason is Reason.COMPACTED, answer
    assert answer.text == f"offset {newer.offset} has a newer record of its key, b'k'"
    assert "cleaned partition=orders-0" in _event(answer)


async def test_truncated_after_its_leader_was_lost(kafka_world: KafkaWorld) -> None:
    """It was acknowledged by the leader alone, which others could not copy from."""
    await kafka_world.create_topic("orders", partitions=1)
    leader = await _leader(kafka_world)
    others = [f"n{node}" for node in (1, 2, 3) if node != leader]
    for other in others:
        kafka_world.links.cut(other, f"n{leader}")
        kafka_world.links.cut(f"n{leader}", other)
    async with Producer(kafka_world.bootstrap_servers, acks=1) as producer:
        lost = await (await producer.send("orders", b"lost"))
    await trio.sleep(30)
    kafka_world.node(leader).kill()
    kafka_world.links.heal()
    await trio.sleep(5)
    gone = kafka_world.explain(lost).visibility
    assert gone.reason is Reason.TRUNCATED, gone
    kafka_world.node(leader).start()
    await kafka_world.healthy()
    await kafka_world.produce("orders", "another", partition=0)
    answer = kafka_world.explain("orders", value="lost").visibility
    assert answer.reason is Reason.TRUNCATED
    assert "another record is at offset 0 now" in answer.text
    assert f"n{leader} " in _event(answer)
    assert "truncate partition=orders-0 offset=0" in _event(answer)


@pytest.mark.kafka(config={"default.replication.factor": 3, "min.insync.replicas": 3})
async def test_refused_and_never_acknowledged(kafka_world: KafkaWorld) -> None:
    await kafka_world.create_topic("orders", partitions=1)
    leader = await _leader(kafka_world)
    kafka_world.node(leader % 3 + 1).kill()
    await trio.sleep(40)  # the ISR shrinks
    async with Producer(
        kafka_world.bootstrap_servers, delivery_timeout_ms=3000, request_timeout_ms=2000
    ) as producer:
        refused = await producer.send("orders", b"refused")
        with pytest.raises(KafkaClientError):
            await refused
        answer = kafka_world.explain("orders", value="refused").visibility
        assert answer.reason is Reason.REFUSED
        assert answer.text == f"n{leader} refused it: NOT_ENOUGH_REPLICAS"
        kafka_world.links.cut("program", f"n{leader}")
        silent = await producer.send("orders", b"silent", key=b"k")
        with pytest.raises(KafkaClientError):
            await silent
    answer = kafka_world.explain("orders", key="k").visibility
    assert answer.reason is Reason.NOT_ACKNOWLEDGED
    assert answer.text == f"the request of program never reached n{leader}"
    assert _event(answer) == f"net hang program>n{leader}"


async def test_written_but_never_acknowledged(kafka_world: KafkaWorld) -> None:
    """Its producer gave up before it came to know."""
    await kafka_world.create_topic("orders", partitions=1)
    leader = await _leader(kafka_world)
    async with Producer(
        kafka_world.bootstrap_servers, delivery_timeout_ms=3000, request_timeout_ms=2000
    ) as producer:
        await (await producer.send("orders", b"first"))
        kafka_world.links.cut(f"n{leader}", "program")
        silent = await producer.send("orders", b"silent")
        with pytest.raises(KafkaClientError):
            await silent
    answer = kafka_world.explain("orders", value="silent").visibility
    assert answer.reason is Reason.VISIBLE
    assert answer.text.endswith("; its producer never got the answer that it was written")
    assert "but the answer was lost" in _event(answer)
