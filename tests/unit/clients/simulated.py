"""What tests of clients say again and again to a cluster in virtual time.

`Kafka` is the fixture `kafka`: one broker, unless the mark `kafka` says more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from kraftrio.clients import surroundings
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.producer.producer import Producer
from kraftrio.kraft_meta.metadata.image import PartitionImage
from kraftrio.net.transport import Network
from kraftrio.testing import KafkaWorld
from kraftrio.testing.simulation.cluster import SimCluster
from kraftrio.testing.simulation.world import START_WALL_MS


class Kafka:
    """A running cluster, and the clients of one program."""

    def __init__(self, world: KafkaWorld) -> None:
        self.world = world

    @property
    def cluster(self) -> SimCluster:
        return self.world._running().cluster

    @property
    def network(self) -> Network:
        """Of the program's machine, for tests that put something before it."""
        return surroundings.network.get()()

    @property
    def bootstrap(self) -> str:
        return self.world.bootstrap_servers

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(self.bootstrap, **{"auto_offset_reset": "earliest", **settings})

    def producer(self, **settings: Any) -> Producer:
        return Producer(self.bootstrap, **{"enable_idempotence": False, **settings})

    def now_ms(self) -> int:
        """The brokers' wall clock: producers must not be ahead of it."""
        return START_WALL_MS + int(self.world.now_s * 1000)

    async def create(
        self, topic: str, partitions: int = 1, replication: int = 1, **configs: object
    ) -> str:
        """Make a topic; configs have _ for Kafka's dots."""
        config = {name.replace("_", "."): value for name, value in configs.items()}
        await self.world.create_topic(
            topic, partitions, replication_factor=replication, config=config
        )
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
    seed: int = 0,
    brokers: int = 1,
    config: Mapping[str, object] | None = None,
) -> None:
    """Run a program beside a cluster with a seed of the test's choice."""
    world = KafkaWorld(seed, brokers, config=config)
    world.run(lambda: main(Kafka(world)))
