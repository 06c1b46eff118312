"""Our clients in the new kinds of group while brokers of three die: no record is lost.

Each broker dies once: the group's coordinator, and a leader that has handed records out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest
import trio

from kraftrio import Admin, Consumer, Producer, ShareConsumer
from kraftrio.clients.admin.types import AlterConfigOp, ConfigResource, ConfigResourceType
from kraftrio.clients.cluster import open_cluster
from kraftrio.clients.coordinators import GROUP_KEY_TYPE
from kraftrio.errors import KafkaClientError
from tests.conformance.clients import scenarios
from tests.conformance.cluster_calls import NewTopic
from tests.conformance.cluster_process import Cluster

pytestmark = scenarios.MARKS

DEADLINE_S = 150.0
PARTITIONS = 3
LAYOUT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


class Work:
    """What was written, and who read how much of it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.read: Counter[bytes] = Counter()
        self.by: Counter[str] = Counter()

    def take(self, member: str, values: Collection[bytes | None]) -> None:
        self.read.update(value for value in values if value is not None)
        self.by[member] += len(values)

    async def more(self, count: int) -> None:
        """Wait until so many records more were read, by any member."""
        wanted = len(self.read) + count
        while len(self.read) < wanted:  # noqa: ASYNC110
            await trio.sleep(0.02)

    async def everything(self) -> None:
        """Wait until all that was written was read."""
        while set(self.written) - set(self.read):  # noqa: ASYNC110
            await trio.sleep(0.05)


async def feed(bootstrap: str, topic: str, work: Work, scope: trio.CancelScope) -> None:
    """Write numbers until it is stopped; all of them are written then."""
    async with Producer(bootstrap) as producer:
        with scope:
            while True:
                value = b"%05d" % len(work.written)
                await producer.send(topic, value, partition=len(work.written) % PARTITIONS)
                work.written.append(value)
                await trio.sleep(0.003)
        await producer.flush()


async def consume(bootstrap: str, topic: str, group: str, work: Work, name: str) -> None:
    settings: Any = {"group_id": group, "group_protocol": "consumer"}
    async with Consumer(bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        await consumer.subscribe([topic])
        while True:
            work.take(name, [record.value for record in await consumer.poll()])


async def share(bootstrap: str, topic: str, group: str, work: Work, name: str) -> None:
    async with ShareConsumer(bootstrap, group_id=group, max_poll_records=50) as consumer:
        await consumer.subscribe(topic)
        while True:
            try:
                work.take(name, [record.value for record in await consumer.poll()])
            except KafkaClientError as error:
                assert error.retriable, repr(error)


async def read_from_the_beginning(bootstrap: str, group: str) -> None:
    async with Admin(bootstrap) as admin:
        change = AlterConfigOp("share.auto.offset.reset", "earliest")
        resource = ConfigResource(ConfigResourceType.GROUP, group)
        await admin.incremental_alter_configs({resource: [change]})


@pytest.mark.parametrize("member", [consume, share])
async def test_brokers_die_in_the_middle(
    cluster: Cluster,
    new_topic: NewTopic,
    unique_group: Callable[[], str],
    member: Callable[..., Any],
) -> None:
    """Two members, both of which go on; what was not acknowledged comes again."""
    group, topic, work = unique_group(), new_topic(*LAYOUT), Work()
    await read_from_the_beginning(cluster.bootstrap, group)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            feeding = trio.CancelScope()
            nursery.start_soon(feed, cluster.bootstrap, topic, work, feeding)
            for name in ("first", "second"):
                nursery.start_soon(
                    partial(member, cluster.bootstrap, topic, group, work, name), name=name
                )
            for what in ("coordinator", "leader"):
                await work.more(200)
                if what == "leader":
                    victim = await trio.to_thread.run_sync(cluster.leader, topic)
                else:
                    async with open_cluster(cluster.bootstrap) as client:
                        victim = await client.coordinators.find(group, GROUP_KEY_TYPE)
                cluster.node(victim).kill9()
                await work.more(200)
                await trio.to_thread.run_sync(cluster.heal)
            before = dict(work.by)
            while any(work.by[name] == before.get(name, 0) for name in ("first", "second")):
                await work.more(50)
            feeding.cancel()
            await work.everything()
            nursery.cancel_scope.cancel()
    assert min(work.by.values()) > 0
