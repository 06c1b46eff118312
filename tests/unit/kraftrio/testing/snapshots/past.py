"""A past to go back to: offsets of a group, a compacted topic, transactions, one of them open.

What it is like is described by `picture`, for a world as of brokers with real sockets.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from kraftrio import Consumer, Producer, TopicPartition
from kraftrio.clients.admin.admin import Admin
from kraftrio.testing import KafkaCluster, KafkaWorld

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": 1000,
    "min.cleanable.dirty.ratio": 0.01,
}
COMPACTING = {"log.cleaner.backoff.ms": 2000}  # of the brokers

T = TypeVar("T")


async def make(servers: str) -> None:
    """Write the past into a new cluster, in which "states" is to be compacted."""
    async with Producer(servers, transactional_id="ended") as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send("payments", b"paid %d" % number)
    async with Producer(servers) as plain:
        for number in range(20):
            await plain.send("orders", b"order %d" % number, partition=number % 2)
    async with Consumer(
        servers, group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        await consumer.subscribe(["orders"])
        count = 0
        while count < 20:
            count += len(await consumer.poll())
        await consumer.commit({TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 10})


@dataclass(frozen=True)
class Picture:
    """What a test looks at."""

    orders: list[tuple[int, int, bytes | None]]
    states: list[tuple[int, bytes | None, bytes | None]]
    payments: list[bytes | None]
    paid: list[bytes | None]
    committed: dict[TopicPartition, int]
    transactions: dict[str, str]


async def picture(cluster: KafkaWorld | KafkaCluster) -> Picture:
    """Look at all of it."""
    orders = await _done(cluster.records("orders"))
    states = await _done(cluster.records("states"))
    payments = await _done(cluster.records("payments"))
    paid = await _done(cluster.records("payments", read_committed=True))
    async with Admin(cluster.bootstrap_servers) as admin:
        transactions = await admin.transactions.describe(["ended", "open"])
        return Picture(
            [(record.partition, record.offset, record.value) for record in orders],
            [(record.offset, record.key, record.value) for record in states],
            [record.value for record in payments],
            [record.value for record in paid],
            await _done(cluster.committed("billing")),
            {name: found.state for name, found in transactions.items()},
        )


async def _done(result: T | Awaitable[T]) -> T:
    return await result if isinstance(result, Awaitable) else result
