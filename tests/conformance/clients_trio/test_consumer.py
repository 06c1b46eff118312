"""Our consumer against a broker: what other clients sent, groups, restarts, cut connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

from kraftrio import Admin, Consumer, TopicPartition
from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentAdmin, ConfluentKafka
from tests.conformance.clients.install import python_client
from tests.conformance.clients.records import Abilities, Record, make_record
from tests.conformance.clients_trio.consuming import (
    TrioConsumer,
    read_to_end,
    received,
    wait_decided,
)
from tests.conformance.clients_trio.producing import CuttingNetwork, random_budget
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools

pytestmark = scenarios.MARKS

Names = Callable[[], str]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MIB = 1 << 20


# -- what others sent -----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
async def test_reads_what_librdkafka_sent(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names, codec: str
) -> None:
    """Keys, values, headers, nulls, timestamps and offsets, for records of all kinds."""
    topic = kafka.create_topic(unique_topic())
    records = [make_record(number, Abilities()) for number in range(1200)]
    ConfluentKafka(bootstrap).produce(topic, codec, records)
    async with Consumer(bootstrap) as consumer:
        found = [received(record) for record in await read_to_end(consumer, topic)]
    assert [each.offset for each in found] == list(range(1200))
    assert [each.record for each in found] == records


@pytest.mark.parametrize("codec", CODECS)
async def test_sizes(bootstrap: str, kafka: KafkaTools, unique_topic: Names, codec: str) -> None:
    """From one byte to a MiB, also beyond what a fetch asks for."""
    topic = kafka.create_topic(unique_topic(), max_message_bytes=3 * MIB)
    noise = random.Random(codec).randbytes(MIB)
    sizes = (1, 2, 63, 64, 8191, 8192, 16_383, 16_384, 100_000, MIB - 1, MIB)
    records = [Record(b"%d" % size, noise[:size]) for size in sizes]
    records += [Record(noise[:size], b"a" * size) for size in (1, 64, 70_000)]
    client = ConfluentKafka(bootstrap, message_max_bytes=3 * MIB)
    client.produce(topic, codec, records)
    for limits in ({}, {"fetch_max_bytes": 1_000, "max_partition_fetch_bytes": 500}):
        async with Consumer(bootstrap, **limits) as consumer:  # type: ignore[arg-type]
            found = [received(each).record for each in await read_to_end(consumer, topic)]
        assert [each._replace(timestamp_ms=None) for each in found] == records


@pytest.mark.parametrize("codec", CODECS)
async def test_reads_what_java_sent(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names, codec: str
) -> None:
    """Through the console producer, with keys and headers, in batches of the codec."""
    topic = kafka.create_topic(unique_topic())
    lines = [f"h:{n},x:y|key {n}|value {n} {'abc' * (n % 50)}" for n in range(500)]
    kafka.produce(
        topic,
        lines,
        "--compression-codec",
        codec,
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "headers.delimiter=|", "--reader-property", "key.separator=|"),
    )
    async with Consumer(bootstrap) as consumer:
        found = await read_to_end(consumer, topic)
    assert [
        f"h:{dict(each.headers)['h'].decode()},x:y|{each.key.decode()}|{each.value.decode()}"  # type: ignore[union-attr]
        for each in found
    ] == lines


async def test_transactions(bootstrap: str, unique_topic: Names, unique_group: Names) -> None:
    """Aborted and open transactions are left out of what read_committed reads."""
    topic = unique_topic()
    client = ConfluentKafka(bootstrap, transactional_id=unique_group())
    client.create_topic(topic, 1)
    numbered = [make_record(number, client.can) for number in range(600)]
    kept = client.transact(topic, numbered[:100], commit=True)
    client.transact(topic, numbered[100:250], commit=False)
    kept += client.transact(topic, numbered[250:400], commit=True)
    client.transact(topic, numbered[400:450], commit=False)
    async with Admin(bootstrap) as admin:
        await wait_decided(admin, [topic])
    async with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        found = [received(each).record for each in await read_to_end(consumer, topic)]
        assert found == kept
        at_end = await consumer.position(TopicPartition(topic, 0))
        assert at_end == 454  # the markers have offsets, too
        assert consumer.current_lag(TopicPartition(topic, 0)) == 0
    producer = client._producer("lz4")
    producer.begin_transaction()
    client._send(producer, topic, numbered[450:500])
    async with Consumer(bootstrap) as consumer:
        found = [received(each).record for each in await read_to_end(consumer, topic)]
        assert found == numbered[:500]
    async with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        found = [received(each).record for each in await read_to_end(consumer, topic)]
        assert found == kept
        ends = await consumer.offsets.end([TopicPartition(topic, 0)])
        assert ends == {TopicPartition(topic, 0): 454}
        producer.commit_transaction(scenarios.DEADLINE_S)
        more: list[Any] = []
        with trio.fail_after(20):
            while len(more) < 50:
                more += [received(each).record for each in await consumer.poll(timeout_ms=500)]
        assert more == numbered[450:500]


async def test_compacted_and_deleted_records(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names
) -> None:
    """A log that begins later: the beginning is there, and a position before it is reset."""
    topic = kafka.create_topic(unique_topic())
    records = [make_record(number, Abilities()) for number in range(300)]
    ConfluentKafka(bootstrap).produce(topic, "zstd", records)
    admin = ConfluentAdmin(bootstrap)
    assert admin.delete_records(topic, {0: 120}) == {0: 120}
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        assert await consumer.offsets.beginning([place]) == {place: 120}
        consumer.assign([place])
        consumer.seek(place, 5)
        with trio.fail_after(20):
            assert (await anext(consumer)).offset == 120


# -- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy", ["range", "roundrobin", "sticky", "cooperative-sticky", "default"]
)
def test_group(bootstrap: str, unique_topic: Names, unique_group: Names, strategy: str) -> None:
    """10,000 records through a group: members join and leave, later ones go on as committed."""
    chosen = {} if strategy == "default" else {"partition_assignment_strategy": strategy}
    client = TrioConsumer(bootstrap, **chosen)
    scenarios.check_group(client, unique_topic(), unique_group())


def test_restart(
    make_broker: Callable[..., Broker], unique_topic: Names, unique_group: Names
) -> None:
    """Members go on over a stop and a crash of the broker."""
    broker = make_broker()
    client = TrioConsumer(broker.address)
    scenarios.check_restart(client, broker, unique_topic(), unique_group())


def test_group_admin(bootstrap: str, unique_topic: Names, unique_group: Names) -> None:
    """The group is described by others as a group should be."""
    client = TrioConsumer(bootstrap)
    admin = ConfluentAdmin(bootstrap)
    scenarios.check_group_admin(admin, client, unique_topic(), unique_group())


async def test_java_sees_the_lag(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names, unique_group: Names
) -> None:
    """kafka-consumer-groups shows member, position and lag; then a Java consumer goes on."""
    topic, group = kafka.create_topic(unique_topic()), unique_group()
    kafka.produce(topic, [str(n) for n in range(10)])
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "client_id": "ours"}
    with trio.fail_after(60):
        async with Consumer(bootstrap, group_id=group, **settings) as consumer:
            await consumer.subscribe([topic])
            for _ in range(4):
                await anext(consumer)
            await consumer.commit()
            describe = ("kafka-consumer-groups", "--describe", "--group", group)
            shown = await trio.to_thread.run_sync(lambda: kafka.run(*describe))
            [row] = shown.rows("GROUP")
            assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("4", "10", "6")
            assert (row["CLIENT-ID"], row["HOST"]) == ("ours", "/127.0.0.1")
        lines = kafka.consume(topic, "--group", group, count=6)
        assert lines == ["4", "5", "6", "7", "8", "9"]
        kafka.produce(topic, ["10"])
        async with Consumer(bootstrap, group_id=group, **settings) as consumer:
            await consumer.subscribe([topic])
            assert (await anext(consumer)).value == b"10"


async def test_a_static_member(bootstrap: str, unique_topic: Names, unique_group: Names) -> None:
    """It comes back within its session, and the group's generation stays as it was."""
    topic, group = unique_topic(), unique_group()
    ConfluentAdmin(bootstrap).create_topic(topic, 2, {})
    generations = []
    with trio.fail_after(60):
        for _ in range(3):
            async with Consumer(bootstrap, group_id=group, group_instance_id="one") as consumer:
                await consumer.subscribe([topic])
                while not consumer.assignment:
                    await consumer.poll(timeout_ms=100)
                assert len(consumer.assignment) == 2
                generations.append(consumer.group_metadata().generation_id)
    assert len(set(generations)) == 1


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_cut_connections(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names, unique_group: Names, seed: int
) -> None:
    """Nothing is lost or doubled, whatever the request during which a connection ends."""
    topic = unique_topic()
    client = ConfluentKafka(bootstrap)
    client.create_topic(topic, 2)
    records = [make_record(number, client.can) for number in range(4000)]
    for first in range(0, len(records), 50):  # batches that fit through what is cut
        client.produce(topic, "lz4", records[first : first + 50])
    found: list[tuple[int, int]] = []
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            network = CuttingNetwork(nursery, random_budget(seed, 2_000, 50_000))
            async with Consumer(
                bootstrap,
                network=network,
                group_id=unique_group(),
                auto_offset_reset="earliest",
                max_partition_fetch_bytes=10_000,
                auto_commit_interval_ms=50,
                heartbeat_interval_ms=100,
                reconnect_backoff_ms=1,
                reconnect_backoff_max_ms=20,
                retry_backoff_ms=5,
            ) as consumer:
                await consumer.subscribe([topic])
                async for record in consumer:
                    found.append((record.partition, record.offset))
                    if len(found) == len(records):
                        break
            assert network.cuts > 3
            nursery.cancel_scope.cancel()
    assert len(set(found)) == len(records)
    for partition in range(2):
        offsets = [offset for number, offset in found if number == partition]
        assert offsets == sorted(offsets)


async def test_leaders_are_killed(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Names, unique_group: Names
) -> None:
    """kill -9 of two leaders in turn: a group of two reads everything, each partition in order."""
    topic, group = unique_topic(), unique_group()
    cluster_tools.run(
        "kafka-topics", "--create", "--topic", topic, "--partitions", "3",
        "--replication-factor", "3", "--config", "min.insync.replicas=2",
    )  # fmt: skip
    producer = python_client("confluent_kafka").Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True}
    )
    sent: set[bytes] = set()
    seen: dict[int, dict[int, bytes]] = {0: {}, 1: {}, 2: {}}

    async def write(count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(sent)
            producer.produce(topic, value, partition=len(sent) % 3)
            sent.add(value)
            producer.poll(0)
            await trio.sleep(0.004)
        assert await trio.to_thread.run_sync(lambda: producer.flush(60)) == 0

    async def read() -> None:
        async with Consumer(
            cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        ) as consumer:
            await consumer.subscribe([topic])
            async for record in consumer:
                assert record.value is not None
                known = seen[record.partition].setdefault(record.offset, record.value)
                assert known == record.value

    with trio.fail_after(110):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(read)
            await write(300)
            for _ in range(2):
                node = cluster.node(leader_of(cluster, topic))
                async with trio.open_nursery() as writing:
                    writing.start_soon(write, 600)
                    await trio.sleep(0.5)
                    node.kill9()
                    await trio.sleep(3)
                    await trio.to_thread.run_sync(lambda: cluster.start_nodes(node.node_id))  # noqa: B023
                await trio.to_thread.run_sync(cluster.wait_healthy)
            while sum(map(len, seen.values())) < len(sent):  # noqa: ASYNC110
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    assert {value for values in seen.values() for value in values.values()} == sent
    for offsets in seen.values():
        assert sorted(offsets) == list(range(len(offsets)))


def leader_of(cluster: Cluster, topic: str) -> int:
    """Return the leader of partition 0."""
    admin = ConfluentAdmin(cluster.bootstrap)
    return admin.partitions(topic)[0][0]
