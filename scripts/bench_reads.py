"""Consuming a log that lies in memory, and one that has to come from the disk.

Called by `bench.py --reads`. One topic of 1 KB records is filled, then read by Apache's
`kafka-consumer-perf-test`, each time from its beginning:

- cached: right after it was written, from the page cache
- cold: its files were synced and dropped from the page cache (POSIX_FADV_DONTNEED) before
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from bench import Metrics, RunningBroker, consume, running, tool

RECORDS = 1_000_000
RECORD_BYTES = 1000
_TURNS = 3


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
        for name in ("cached", "cold"):
            rates: list[float] = []
            costs: list[float] = []
            for _ in range(_TURNS):
                if name == "cold":
                    drop_from_cache(broker)
                rate, cpu_s = consume(broker, "reads", records)
                rates.append(rate)
                costs.append(cpu_s / (records * RECORD_BYTES / 1e9))
            metrics.add(f"consume 1 KB {name}, records/s", statistics.median(rates))
            metrics.add(f"consume 1 KB {name}, broker CPU s/GB", statistics.median(costs))


def drop_from_cache(broker: RunningBroker) -> None:
    """Make the next read of every segment come from the disk."""
    for path in Path(broker.directory).rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
