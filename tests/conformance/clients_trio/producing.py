"""Our producer in a test's hands, a network that cuts its connections, and what a log holds.

`read_log` reads with confluent-kafka, so that what our producer sent is judged by another client.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import trio

from kraftrio import Producer, RecordMetadata
from kraftrio.net.transport import SystemNetwork
from tests.conformance.clients.confluent import ConfluentKafka
from tests.conformance.clients.install import python_client
from tests.conformance.clients.records import Received, Record

READ_DEADLINE_S = 60.0
_CHUNK_BYTES = 64 << 10


async def send_all(
    producer: Producer, topic: str, records: Sequence[Record], **options: Any
) -> list[RecordMetadata]:
    """Send records and return where each was written."""
    deliveries = [
        await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
            **options,
        )
        for record in records
    ]
    await producer.flush()
    return [delivery.result() for delivery in deliveries]


class TrioProducer(ConfluentKafka):
    """Our producer and confluent-kafka's consumer, in the roles of the scenarios."""

    def __init__(self, address: str, **settings: Any) -> None:
        super().__init__(address)
        self.producer_settings = settings

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        async def run() -> list[RecordMetadata]:
            settings = {"compression_type": codec} | self.producer_settings
            async with Producer(self.address, **settings) as producer:
                return await send_all(producer, topic, records)

        return [(place.partition, place.offset) for place in trio.run(run)]


def read_log(address: str, topic: str, partition: int = 0) -> list[Received]:
    """Read a partition from its beginning to its end."""
    library = python_client("confluent_kafka")
    consumer = library.Consumer({"bootstrap.servers": address, "group.id": "reads-logs"})
    try:
        place = library.TopicPartition(topic, partition, library.OFFSET_BEGINNING)
        _, end = consumer.get_watermark_offsets(place, READ_DEADLINE_S)
        consumer.assign([place])
        found: list[Received] = []
        deadline = time.monotonic() + READ_DEADLINE_S
        while end and (not found or found[-1].offset < end - 1):
            assert time.monotonic() < deadline, f"only {len(found)} of {end} records in time"
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None, message.error()
                headers = tuple(message.headers() or ())
                record = Record(message.key(), message.value(), headers, message.timestamp()[1])
                found.append(Received(partition, message.offset(), record))
        return found
    finally:
        consumer.close()


class CuttingNetwork(SystemNetwork):
    """Connects through a proxy in the test, which cuts each connection after some bytes.

    Args:
        budget: how many bytes may go through the next connection, both ways together.
    """

    def __init__(self, nursery: trio.Nursery, budget: Callable[[], int]) -> None:
        self.cuts = 0
        self._nursery = nursery
        self._budget = budget
        self._ports: dict[tuple[str, int], int] = {}

    async def connect(self, host: str, port: int) -> Any:
        proxy = self._ports.get((host, port))
        if proxy is None:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            proxy = self._ports[host, port] = listener.socket.getsockname()[1]

            async def handle(stream: trio.SocketStream) -> None:
                await self._pass_on(stream, host, port)

            self._nursery.start_soon(trio.serve_listeners, handle, [listener])
        return await super().connect("127.0.0.1", proxy)

    async def _pass_on(self, client: trio.SocketStream, host: str, port: int) -> None:
        try:
            broker = await trio.open_tcp_stream(host, port)
        except OSError:
            await client.aclose()
            return
        left = [self._budget()]
        async with client, broker, trio.open_nursery() as nursery:

            async def pump(source: trio.SocketStream, target: trio.SocketStream) -> None:
                try:
                    while left[0] > 0 and (data := await source.receive_some(_CHUNK_BYTES)):
                        part = data[: left[0]]
                        left[0] -= len(data)
                        await target.send_all(part)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    left[0] = min(left[0], 1)
                if left[0] <= 0:
                    self.cuts += 1
                nursery.cancel_scope.cancel()

            nursery.start_soon(pump, client, broker)
            nursery.start_soon(pump, broker, client)


def random_budget(seed: int, low: int, high: int) -> Callable[[], int]:
    """Make budgets between two sizes."""
    rng = random.Random(seed)
    return lambda: rng.randrange(low, high)
