"""What slow, greedy and hostile clients cost a broker, and those that are neither.

Called by `bench.py --crowd`. A normal producer and a normal consumer are timed alone, and then
beside 100 slow consumers, 100 that send 64 fetches at once, and 20 hostile clients (what they do
tests/integration/crowd says); the memory of the broker is watched meanwhile.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import Metrics, RunningBroker, running, tool

from tests.integration.crowd import crowding
from tests.integration.normal_clients import measure_normal_clients

SLOW, PIPELINING, HOSTILE = 100, 100, 20
PARTITIONS = 56
RECORDS = 70_000  # of 1 KB, over all partitions
SECONDS = 20.0
_WARM_UP_S = 3.0
_LOOK_S = 0.05


def measure_crowd(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one broker."""
    with running(kind, metrics) as broker:
        host, port = broker.address.split(":")
        address = (host, int(port))
        fill(broker)
        measure_normal_clients(address, _WARM_UP_S)
        for name in ("alone", "with the crowd"):
            with peak_memory(broker, f"memory {name}, MB", metrics):
                if name == "alone":
                    times = measure_normal_clients(address, SECONDS * scale)
                else:
                    with crowding(address, "much", PARTITIONS, SLOW, PIPELINING, HOSTILE):
                        times = measure_normal_clients(address, SECONDS * scale)
            for part in (0.5, 0.99, 1.0):
                acknowledged_ms, received_ms = times.percentile(part)
                shown = "max" if part == 1 else f"p{100 * part:.0f}"
                metrics.add(f"acknowledged {name} {shown}, ms", acknowledged_ms)
                metrics.add(f"received {name} {shown}, ms", received_ms)


def fill(broker: RunningBroker) -> None:
    """A topic of more than a fetch may ask for."""
    address = ("--bootstrap-server", broker.address)
    create = ("--create", "--topic", "much", "--partitions", str(PARTITIONS))
    tool("kafka-topics", *address, *create)
    tool(
        *("kafka-producer-perf-test", "--topic", "much", "--num-records", str(RECORDS)),
        *("--record-size", "1000", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.address}", "linger.ms=5"),
    )


@contextmanager
def peak_memory(broker: RunningBroker, name: str, metrics: Metrics) -> Iterator[None]:
    """Note the most memory that the broker had in the meantime."""
    is_over = threading.Event()
    peak_mb = broker.memory_mb()

    def watch() -> None:
        nonlocal peak_mb
        while not is_over.wait(_LOOK_S):
            peak_mb = max(peak_mb, broker.memory_mb())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        metrics.add(name, peak_mb)
