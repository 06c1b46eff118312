"""Our clients' transactions while brokers of three die: each input gives one output, in order."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import trio

from kraftrio import Admin, Consumer, Producer, TopicPartition
from kraftrio.clients.cluster import open_cluster
from kraftrio.clients.coordinators import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE
from kraftrio.errors import FatalProducerError, KafkaClientError, TransactionAbortedError
from tests.conformance.clients import scenarios
from tests.conformance.clients_trio.consuming import read_to_end, wait_decided
from tests.conformance.cluster_calls import NewTopic
from tests.conformance.cluster_process import Cluster

pytestmark = scenarios.MARKS

logger = logging.getLogger(__name__)

DEADLINE_S = 120.0
PARTITIONS = 3
SESSION: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300}


class Copies:
    """Copies a topic to another in transactions, beginning again whenever one fails."""

    def __init__(self, bootstrap: str, source: str, target: str, name: str) -> None:
        self.committed = 0
        self.outcomes: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._name = name
        self.moved = trio.Event()

    async def run(self) -> None:
        while True:
            try:
                await self._live()
            except KafkaClientError as error:
                # Only these: whatever else comes out is a fault of the client's.
                assert isinstance(error, TransactionAbortedError | FatalProducerError) or (
                    error.retriable
                ), repr(error)
                self.outcomes[type(error).__name__] += 1

    async def _live(self) -> None:
        """Begin with what is committed, as a program does that was started again."""
        async with (
            Consumer(
                self._bootstrap,
                group_id=self._name,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                **SESSION,
            ) as consumer,
            Producer(self._bootstrap, transactional_id=self._name, max_block_ms=20_000) as producer,
        ):
            await consumer.subscribe([self._source])
            while True:
                records = await consumer.poll(max_records=25)
                async with producer.transaction() as transaction:
                    for record in records:
                        partition = record.partition
                        await producer.send(self._target, record.value, partition=partition)
                    await transaction.send_offsets(consumer)
                self.outcomes["committed"] += 1
                self.committed += len(records)
                self.moved.set()
                self.moved = trio.Event()

    async def wait(self, count: int) -> None:
        """Wait until this many more records are committed."""
        wanted = self.committed + count
        while self.committed < wanted:
            await self.moved.wait()


async def feed(
    bootstrap: str, topic: str, values: list[bytes], scope: trio.CancelScope, done: trio.Event
) -> None:
    """Write numbers until it is stopped; all of them are written then."""
    async with Producer(bootstrap) as producer:
        with scope:
            while True:
                value = b"%05d" % len(values)
                await producer.send(topic, value, partition=len(values) % PARTITIONS)
                values.append(value)
                await trio.sleep(0.002)
        await producer.flush()
    done.set()


async def coordinator(cluster: Cluster, key: str, key_type: int) -> int:
    async with open_cluster(cluster.bootstrap) as client:
        return await client.coordinators.find(key, key_type)


async def wait_ended(cluster: Cluster, topics: list[str]) -> None:
    """Wait until no transaction is open, in no partition and at no coordinator."""
    async with Admin(cluster.bootstrap) as admin:
        await wait_decided(admin, topics)
        while True:
            states = {each.state for each in await admin.transactions.list_ids()}
            if states <= {"CompleteCommit", "CompleteAbort", "Empty"}:
                return
            await trio.sleep(0.1)


async def test_brokers_die_in_the_middle(
    cluster: Cluster, new_topic: NewTopic, unique_group: Callable[[], str]
) -> None:
    """The coordinator of the transactions, that of the group and a leader, one after the other."""
    name = unique_group()
    layout = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    source, target = new_topic(*layout), new_topic(*layout)
    values: list[bytes] = []
    with trio.fail_after(DEADLINE_S):
        copies = Copies(cluster.bootstrap, source, target, name)
        async with trio.open_nursery() as nursery:
            feeding, fed = trio.CancelScope(), trio.Event()
            nursery.start_soon(feed, cluster.bootstrap, source, values, feeding, fed)
            nursery.start_soon(copies.run)
            for kind in (TRANSACTION_KEY_TYPE, GROUP_KEY_TYPE, None):
                await copies.wait(100)
                victim = cluster.leader(target) if kind is None else 0
                victim = victim or await coordinator(cluster, name, kind or 0)
                cluster.node(victim).kill9()
                await copies.wait(100)
                await trio.to_thread.run_sync(cluster.heal)
            feeding.cancel()
            await fed.wait()
            await wait_all(cluster, target, len(values))
            nursery.cancel_scope.cancel()
        await wait_ended(cluster, [source, target])
    logger.info("what became of the transactions: %s", dict(copies.outcomes))
    async with Consumer(cluster.bootstrap, isolation_level="read_committed") as consumer:
        found = await read_to_end(consumer, target)
    for partition in range(PARTITIONS):
        mine = [each.value for each in found if each.partition == partition]
        assert mine == values[partition::PARTITIONS]


async def wait_all(cluster: Cluster, topic: str, count: int) -> None:
    """Wait until so many records of a topic are committed."""
    async with Consumer(
        cluster.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            seen += len(await consumer.poll())
