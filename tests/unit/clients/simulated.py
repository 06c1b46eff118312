"""Brokers to test clients with: whole nodes in memory and simulated time, the same for a seed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import NewTopic
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.producer.producer import Producer
from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.testing.simulation.cluster import Cluster, Shape
from kraftrio.testing.simulation.network import HostNetwork
from kraftrio.testing.simulation.world import START_WALL_MS, World

START_DEADLINE_S = 30.0
LIMIT_S = 600.0  # of simulated time
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


class Kafka:
    """A running cluster and the clients of one program on a machine of its own."""

    def __init__(self, world: World, cluster: Cluster, nursery: trio.Nursery) -> None:
        self.world = world
        self.cluster = cluster
        self.nursery = nursery
        self.network: HostNetwork = cluster.new_host("client")
        self._clients = 0

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.cluster.bootstrap)

    def rng(self) -> Random:
        self._clients += 1
        return self.world.rng(f"client-{self._clients}")

    def consumer(self, **settings: Any) -> Consumer:
        settings = {"auto_offset_reset": "earliest", **settings}
        return Consumer(self.bootstrap, network=self.network, rng=self.rng(), **settings)

    def producer(self, **settings: Any) -> Producer:
        settings = {"enable_idempotence": False, **settings}
        return Producer(self.bootstrap, network=self.network, rng=self.rng(), **settings)

    def now_ms(self) -> int:
        """The brokers' wall clock: producers must not be ahead of it."""
        return START_WALL_MS + int(self.world.now_s * 1000)

    async def create(
        self, topic: str, partitions: int = 1, replication: int = 1, **configs: object
    ) -> str:
        """Make a topic; configs have _ for Kafka's dots."""
        settings = {name.replace("_", "."): str(value) for name, value in configs.items()}
        async with Admin(self.bootstrap, network=self.network, rng=self.rng()) as admin:
            await admin.create_topics([NewTopic(topic, partitions, replication, settings)])
        return topic

    async def fill(self, topic: str, count: int, partition: int = 0, **settings: Any) -> None:
        """Write records with the values b"0", b"1"..."""
        now_ms = self.now_ms()
        async with self.producer(**settings) as producer:
            sent = [
                await producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=now_ms)
                for number in range(count)
            ]
        for delivery in sent:
            await delivery

    # What the cluster says about a topic's partition 0

    def _partition(self, topic: str) -> PartitionImage:
        images = [node.quorum.image for node in self.cluster.nodes.values() if node.is_ready]
        newest = max(images, key=lambda image: image.offset)
        found = newest.partition(topic, 0)
        assert found is not None
        return found

    def replicas_of(self, topic: str) -> list[int]:
        """The ids of the brokers that have it, the leader first."""
        leader_id = self.leader_of(topic)
        return sorted(self._partition(topic).replicas, key=lambda node_id: node_id != leader_id)

    def leader_of(self, topic: str) -> int:
        return self._partition(topic).leader

    def isr_of(self, topic: str) -> list[int]:
        return sorted(self._partition(topic).isr)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait in simulated time."""
        while not condition():  # noqa: ASYNC110 (nobody could set an event)
            await trio.sleep(0.05)


def simulate(
    main: Callable[[Kafka], Awaitable[None]],
    seed: str = "1",
    *,
    nodes: int = 1,
    **properties: str,
) -> World:
    """Run a test's program beside a cluster."""
    world = World(seed)
    settings = PROPERTIES | {name.replace("_", "."): value for name, value in properties.items()}
    failures: list[Exception] = []

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(world, nursery, Shape(nodes, properties=settings))
            cluster.start()
            await cluster.wait_until(cluster.all_ready, "all brokers are up", START_DEADLINE_S)
            try:
                with trio.fail_after(LIMIT_S):
                    await main(Kafka(world, cluster, nursery))
            except Exception as error:
                failures.append(error)  # raised below: from here it would come in groups
            for node in cluster.nodes.values():
                if node.is_running:
                    node.crash()
            nursery.cancel_scope.cancel()

    world.run(run)
    for failure in failures:
        raise failure
    return world
