"""Measure the Python clients side by side against one broker: records a second and CPU a record.

    python scripts/bench_clients.py [--bootstrap-server HOST:PORT] [--records N] [--rounds N]

Every measurement is a process of its own; clients take turns, each of them first in its turn, so
that a busy machine is busy for all of them. A ratio is the median of those within a round; that of
processor time holds on a busy machine, too. All producers have the same settings (acks=all,
idempotent where they can, lingering 5 ms, batches of 16 KiB) and wait for every record's result;
all consumers read the same topic from its beginning. Without --bootstrap-server a node of ours is
started for the time it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

CLIENTS = ("kraftrio", "kraftrio.asyncio", "aiokafka", "kafka-python", "confluent-kafka")
OURS = "kraftrio"
UNDER_ASYNCIO = ("kraftrio.asyncio", "aiokafka")
EXPECTED = {"aiokafka": 3.0, "kafka-python": 3.0}
SIZES = (100, 1000)
LINGER_MS = 5
BATCH_BYTES = 16384
CHILD_TIMEOUT_S = 600


def module(name: str) -> Any:
    """Import another project's client from the cache that the conformance tests fill."""
    from tests.conformance.clients.install import python_client

    return python_client(name)


class Watch:
    """Times a measurement: wall clock and this process's CPU."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def result(self) -> dict[str, float]:
        return {
            "seconds": time.perf_counter() - self._wall,
            "cpu_seconds": time.process_time() - self._cpu,
        }


# Producing


async def produce_kraftrio(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    from kraftrio import Producer

    return await produced(Producer, address, topic, value, count)


async def produce_asyncio(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    from kraftrio.asyncio import Producer

    return await produced(Producer, address, topic, value, count)


async def produced(
    made: Any, address: str, topic: str, value: bytes, count: int
) -> dict[str, float]:
    """Produce with one of our producers: their programs are the same."""
    async with made(address, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        await (await producer.send(topic, value))
        watch = Watch()
        deliveries = [await producer.send(topic, value) for _ in range(count)]
        await producer.flush()
        for delivery in deliveries:
            delivery.result()
        return watch.result()


async def produce_aiokafka(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    producer = module("aiokafka").AIOKafkaProducer(
        bootstrap_servers=address,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
    )
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)
        watch = Watch()
        futures = [await producer.send(topic, value) for _ in range(count)]
        await producer.flush()
        for future in futures:
            future.result()
        return watch.result()
    finally:
        await producer.stop()


def produce_kafka_python(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    producer = module("kafka").KafkaProducer(
        bootstrap_servers=address,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        max_in_flight_requests_per_connection=5,
    )
    producer.send(topic, value).get(30)
    watch = Watch()
    futures = [producer.send(topic, value) for _ in range(count)]
    producer.flush()
    for future in futures:
        future.get(30)
    result = watch.result()
    producer.close()
    return result


def produce_confluent_kafka(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    producer = module("confluent_kafka").Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
        }
    )
    delivered = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    producer.produce(topic, value, on_delivery=on_delivery)
    producer.flush()
    watch = Watch()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    assert delivered == count + 1, delivered
    return watch.result()


# Consuming


async def consume_kraftrio(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    from kraftrio import Consumer

    return await consumed(Consumer, address, topic, count)


async def consume_asyncio(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    from kraftrio.asyncio import Consumer

    return await consumed(Consumer, address, topic, count)


async def consumed(made: Any, address: str, topic: str, count: int) -> dict[str, float]:
    """Consume with one of our consumers."""
    from kraftrio import TopicPartition

    async with made(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen = 0
        watch = Watch()
        async for record in consumer:
            assert record.value is not None
            seen += 1
            if seen == 1:
                watch = Watch()
            if seen > count:
                break
        return watch.result()


async def consume_aiokafka(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    library = module("aiokafka")
    consumer = library.AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([library.TopicPartition(topic, 0)])
        seen = 0
        watch = Watch()
        async for record in consumer:
            assert record.value is not None
            seen += 1
            if seen == 1:
                watch = Watch()
            if seen > count:
                break
        return watch.result()
    finally:
        await consumer.stop()


def consume_kafka_python(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    library = module("kafka")
    consumer = library.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([library.TopicPartition(topic, 0)])
    watch = Watch()
    for seen, record in enumerate(consumer, 1):
        assert record.value is not None
        if seen == 1:
            watch = Watch()
        if seen > count:
            break
    result = watch.result()
    consumer.close()
    return result


def consume_confluent_kafka(address: str, topic: str, value: bytes, count: int) -> dict[str, float]:
    library = module("confluent_kafka")
    consumer = library.Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([library.TopicPartition(topic, 0, 0)])
    seen = 0
    watch = Watch()
    while seen <= count:
        for message in consumer.consume(500, 1.0):
            assert message.error() is None, message.error()
            assert message.value() is not None
            seen += 1
            if seen == 1:
                watch = Watch()
    result = watch.result()
    consumer.close()
    return result


Measure = Callable[[str, str, bytes, int], "dict[str, float] | Awaitable[dict[str, float]]"]

MEASURES: dict[tuple[str, str], Measure] = {
    ("kraftrio", "produce"): produce_kraftrio,
    ("kraftrio.asyncio", "produce"): produce_asyncio,
    ("aiokafka", "produce"): produce_aiokafka,
    ("kafka-python", "produce"): produce_kafka_python,
    ("confluent-kafka", "produce"): produce_confluent_kafka,
    ("kraftrio", "consume"): consume_kraftrio,
    ("kraftrio.asyncio", "consume"): consume_asyncio,
    ("aiokafka", "consume"): consume_aiokafka,
    ("kafka-python", "consume"): consume_kafka_python,
    ("confluent-kafka", "consume"): consume_confluent_kafka,
}


def run_child(text: str) -> int:
    """Make one measurement and print it."""
    import trio

    client, mode, address, topic, size, count = json.loads(text)
    measure: Any = MEASURES[client, mode]
    arguments = (address, topic, b"x" * size, count)
    if client in UNDER_ASYNCIO:
        result = asyncio.run(measure(*arguments))
    elif client == OURS:
        result = trio.run(measure, *arguments)
    else:
        result = measure(*arguments)
    print(json.dumps(result))
    return 0


def measured(
    client: str, mode: str, address: str, topic: str, size: int, count: int
) -> dict[str, float]:
    """Make one measurement in a process of its own."""
    text = json.dumps([client, mode, address, topic, size, count])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--child", text],
        capture_output=True,
        text=True,
        timeout=CHILD_TIMEOUT_S,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise SystemExit(f"{client} could not {mode}: {done.stderr.strip()[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


async def create_topic(address: str, topic: str) -> None:
    from kraftrio import Admin
    from kraftrio.clients.admin.types import NewTopic

    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=1)])


def compare(address: str, counts: dict[int, int], rounds: int, modes: list[str]) -> bool:
    """Measure everything and print it; True if ours is as fast as expected."""
    import trio

    good = True
    print(f"{'':32}{'records/s':>12}{'MB/s':>8}{'us CPU':>9}   ours: rate    CPU")
    for mode in modes:
        for size in SIZES:
            count = counts[size]
            results: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
            filled = f"bench-{os.getpid()}-{mode}-{size}"
            trio.run(create_topic, address, filled)
            if mode == "consume":
                measured(OURS, "produce", address, filled, size, count)
            for turn in range(rounds):
                first = turn % len(CLIENTS)
                for client in CLIENTS[first:] + CLIENTS[:first]:
                    results[client].append(measured(client, mode, address, filled, size, count))
            for client in CLIENTS:
                rate = count / statistics.median(one["seconds"] for one in results[client])
                cpu_s = statistics.median(one["cpu_seconds"] for one in results[client])
                faster, cheaper = (
                    median_ratio(results[client], results[OURS], key)
                    for key in ("seconds", "cpu_seconds")
                )
                good = good and faster >= EXPECTED.get(client, 0.0)
                print(
                    f"{mode} {size:>5} B {client:<18}{rate:>12,.0f}{rate * size / 1e6:>8.1f}"
                    f"{cpu_s / count * 1e6:>9.2f}   {faster:>5.2f}x{cheaper:>7.2f}x"
                    + ("" if client != OURS else "  (itself)"),
                    flush=True,
                )
    return good


def median_ratio(theirs: list[dict[str, float]], ours: list[dict[str, float]], key: str) -> float:
    """Return the median of theirs to ours, round by round."""
    return statistics.median(one[key] / other[key] for one, other in zip(theirs, ours, strict=True))


def main() -> int:
    """Compare the clients; status 1 if ours is not as fast as expected."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a broker that runs")
    parser.add_argument("--records", type=int, default=200_000, help="of 100 B; a half of 1 KB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", choices=["produce", "consume", "both"], default="both")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return run_child(arguments.child)
    counts = {100: arguments.records, 1000: arguments.records // 2}
    modes = ["produce", "consume"] if arguments.mode == "both" else [arguments.mode]
    if arguments.bootstrap_server:
        return 0 if compare(arguments.bootstrap_server, counts, arguments.rounds, modes) else 1
    from tests.conformance.broker_process import Broker

    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder)) as broker:
        return 0 if compare(broker.address, counts, arguments.rounds, modes) else 1


if __name__ == "__main__":
    sys.exit(main())
