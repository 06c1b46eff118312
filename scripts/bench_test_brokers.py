"""What ten tests with a broker each take: a process of Apache Kafka, or what the fixture gives.

Called by `bench.py --test-brokers`. Each test starts its broker, writes a hundred records, reads
them as a group, and ends its broker. Apache Kafka runs as Testcontainers would have it: a process
for each test, killed at its end, here without the time that a container takes. Ours is what the
fixture `kafka_broker` gives a test, in the process of the tests; with "shared", one for all ten,
which is reset before each.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import START_DEADLINE_S, Metrics, answers, command_of, free_ports

from kraftrio import Consumer, Producer
from kraftrio.testing import KafkaBroker

_TESTS = 10
_RECORDS = 100
_DEADLINE_S = 60.0

Started = Callable[[], AbstractContextManager[str]]


def measure_test_brokers(kind: str, _scale: float, metrics: Metrics) -> None:
    """One round of one kind of broker."""
    if kind == "apache":
        _measure(_apache, "", metrics)
        return
    _measure(_fixture, "", metrics)
    with KafkaBroker() as broker:

        @contextmanager
        def reset() -> Iterator[str]:
            broker.reset()
            yield broker.bootstrap_servers

        _measure(reset, "shared, ", metrics)


def _measure(start: Started, name: str, metrics: Metrics) -> None:
    began_cpu_s, times_ms = _cpu_s(), []
    for _ in range(_TESTS):
        began_s = time.perf_counter()
        with start() as servers:
            trio.run(_test, servers)
        times_ms.append((time.perf_counter() - began_s) * 1000)
    metrics.add(f"{name}ten tests, s", sum(times_ms) / 1000)
    metrics.add(f"{name}a test, median ms", statistics.median(times_ms))
    metrics.add(f"{name}ten tests, CPU s", _cpu_s() - began_cpu_s)


def _cpu_s() -> float:
    """Processor seconds of this process and of those that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


async def _test(servers: str) -> None:
    with trio.fail_after(_DEADLINE_S):
        async with Producer(servers) as producer:
            for number in range(_RECORDS):
                await producer.send("orders", b"%d" % number)
        left = _RECORDS
        async with Consumer(servers, group_id="g", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["orders"])
            while left:
                left -= len(await consumer.poll())


@contextmanager
def _fixture() -> Iterator[str]:
    with KafkaBroker() as broker:
        yield broker.bootstrap_servers


@contextmanager
def _apache() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="bench-test-broker-"))
    port = free_ports(2)
    command = command_of("apache", directory, port)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline_s = time.perf_counter() + START_DEADLINE_S
        while not answers(port):
            if process.poll() is not None or time.perf_counter() > deadline_s:
                raise SystemExit(f"apache did not start:\n{(directory / 'log').read_text()}")
            time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)
