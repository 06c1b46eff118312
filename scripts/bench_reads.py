"""Consuming a log that lies in memory, and one that has to come from the disk.

Called by `bench.py --reads`. One topic of 1 KB records is filled, then read by each client, every
time from its beginning:

- cached: right after it was written, from the page cache
- cold: its files were synced and dropped from the page cache (POSIX_FADV_DONTNEED) before

The clients are Apache's `kafka-consumer-perf-test` and kcat, which is librdkafka in C and prints
nothing here. On a machine with few processors the Java client is what limits the first: it needs
more of them than the broker, so that its rates say little of the broker's. kcat takes twice as many
records a second or more; its rate is over the whole run of the process, from its start to its end.
Without kcat on the machine those rows are left out, with a line that says so.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import Metrics, RunningBroker, consume, running, tool

RECORDS = 1_000_000
RECORD_BYTES = 1000
_TURNS = 3
_KCAT_TIMEOUT_S = 120


def measure_reads(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one broker."""
    records = int(RECORDS * scale)
    with running(kind, metrics) as broker:
        address = ("--bootstrap-server", broker.address)
        tool("kafka-topics", *address, "--create", "--topic", "reads", "--partitions", "1")
        tool(
            *("kafka-producer-perf-test", "--topic", "reads", "--num-records", str(records)),
            *("--record-size", str(RECORD_BYTES), "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={broker.address}", "linger.ms=5"),
            "batch.size=65536",
        )
        clients: dict[str, Callable[[RunningBroker, str, int], tuple[float, float]]]
        clients = {"Java": consume}
        if shutil.which("kcat") is None:
            print("kcat is not on this machine: its rows are left out", file=sys.stderr)
        else:
            clients["kcat"] = consume_by_kcat
        for name in ("cached", "cold"):
            for client, read in clients.items():
                rates: list[float] = []
                costs: list[float] = []
                for _ in range(_TURNS):
                    if name == "cold":
                        drop_from_cache(broker)
                    rate, cpu_s = read(broker, "reads", records)
                    rates.append(rate)
                    costs.append(cpu_s / (records * RECORD_BYTES / 1e9))
                what = f"consume 1 KB {name} by {client}"
                metrics.add(f"{what}, records/s", statistics.median(rates))
                metrics.add(f"{what}, broker CPU s/GB", statistics.median(costs))


def consume_by_kcat(broker: RunningBroker, topic: str, records: int) -> tuple[float, float]:
    """As `bench.consume`, of partition 0."""
    command = ["kcat", "-b", broker.address, "-q", "-C", "-t", topic, "-p", "0", "-o", "beginning"]
    cpu_before = broker.cpu_s()
    began_at = time.perf_counter()
    subprocess.run([*command, "-c", str(records), "-f", ""], check=True, timeout=_KCAT_TIMEOUT_S)
    rate = records / (time.perf_counter() - began_at)
    return rate, broker.cpu_s() - cpu_before


def drop_from_cache(broker: RunningBroker) -> None:
    """Make the next read of every segment come from the disk."""
    for path in Path(broker.directory).rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
