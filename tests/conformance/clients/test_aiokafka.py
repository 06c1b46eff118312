"""aiokafka as it is: producers and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.install import python_client
from tests.conformance.clients.members import ThreadMember
from tests.conformance.clients.records import Abilities, Received, Record

pytestmark = scenarios.MARKS

Names = Callable[[], str]


class AioKafka:
    """The client of the scenarios; its loop runs while a call is under way."""

    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")
    can = Abilities()
    commits_at_rebalance = True
    commits_at_leave = False

    def __init__(self, address: str, **settings: object) -> None:
        self.library = python_client("aiokafka")
        self.address = address
        self._settings = settings
        self._producers: dict[str, Any] = {}
        self._runner = asyncio.Runner()

    def create_topic(self, topic: str, partitions: int) -> None:
        self._runner.run(self._create_topic(topic, partitions))

    async def _create_topic(self, topic: str, partitions: int) -> None:
        admin_module = python_client("aiokafka.admin")
        admin = admin_module.AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            new = admin_module.NewTopic(topic, partitions, 1)
            answer = await admin.create_topics([new])
            assert [error[1] for error in answer.topic_errors] == [0], answer
        finally:
            await admin.close()

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        return self._runner.run(self._produce(topic, codec, records))

    async def _produce(
        self, topic: str, codec: str, records: Sequence[Record]
    ) -> list[tuple[int, int]]:
        if codec not in self._producers:
            made = self.library.AIOKafkaProducer(
                bootstrap_servers=self.address,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                **self._settings,
            )
            await made.start()
            self._producers[codec] = made
        producer = self._producers[codec]
        futures = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        async with asyncio.timeout(scenarios.DEADLINE_S):
            places = await asyncio.gather(*futures)
        return [(place.partition, place.offset) for place in places]

    def member(self, topic: str, group: str, name: str) -> AioKafkaMember:
        return AioKafkaMember(self, topic, group, name)

    def close(self) -> None:
        for producer in self._producers.values():
            self._runner.run(producer.stop())
        self._runner.close()


class AioKafkaMember(ThreadMember):
    """A consumer that commits by hand, also when it must give partitions up."""

    def __init__(self, client: AioKafka, topic: str, group: str, name: str) -> None:
        super().__init__(name)
        self._library = client.library
        self._topic = topic
        self._settings = {
            "bootstrap_servers": client.address,
            "group_id": group,
            "client_id": name.replace(" ", "-"),
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": scenarios.SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": scenarios.HEARTBEAT_INTERVAL_MS,
            "fetch_max_wait_ms": 100,
        }
        self._leaving = False

    def open(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._open())

    async def _open(self) -> None:
        member = self

        class Listener(self._library.ConsumerRebalanceListener):  # type: ignore[name-defined,misc]
            async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                if revoked and not member._leaving:
                    await member._consumer.commit()
                member.assign(member.assignment - {tp.partition for tp in revoked})

            async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                member.assign(member.assignment | {tp.partition for tp in assigned})

        self._consumer = self._library.AIOKafkaConsumer(**self._settings)
        self._consumer.subscribe([self._topic], listener=Listener())
        await self._consumer.start()

    def poll(self) -> Iterable[Received]:
        batches = self._runner.run(self._consumer.getmany(timeout_ms=100, max_records=200))
        for found in batches.values():
            for m in found:
                record = Record(m.key, m.value, tuple(m.headers), m.timestamp)
                yield Received(m.partition, m.offset, record)

    def commit_positions(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._leaving = True
        self._runner.run(self._consumer.stop())
        self._runner.close()


@pytest.fixture
def client(bootstrap: str) -> Iterator[AioKafka]:
    """The client with idempotent producers."""
    with closing(AioKafka(bootstrap, enable_idempotence=True)) as made:
        yield made


def test_group(client: AioKafka, unique_topic: Names, unique_group: Names) -> None:
    """A topic's records through a group whose members come and go."""
    scenarios.check_group(client, unique_topic(), unique_group())


def test_restart(
    make_broker: Callable[..., Broker], unique_topic: Names, unique_group: Names
) -> None:
    """Members go on over a stop and a crash of the broker."""
    broker = make_broker()
    with closing(AioKafka(broker.address, enable_idempotence=True)) as client:
        scenarios.check_restart(client, broker, unique_topic(), unique_group())


def test_plain_producer(bootstrap: str, unique_topic: Names, unique_group: Names) -> None:
    """Without idempotence, acknowledged by the leader alone, all records arrive in order."""
    with closing(AioKafka(bootstrap, acks=1)) as client:
        scenarios.check_reading(client, unique_topic(), unique_group())
