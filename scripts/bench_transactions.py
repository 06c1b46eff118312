"""What transactions cost, on one node and on three.

Called by `bench.py --transactions`. Records have 1 KB and go to a topic of three partitions.

- commit every 10 ms, 100 ms, 1 s: Apache's `kafka-producer-perf-test --transaction-duration-ms`,
  whose producer sends as fast as it can in between
- begin to commit: one producer, one record a transaction, from begin to the end of the commit;
  Java's client with transaction.version 2 where the broker has it, librdkafka as before KIP-890
- 50 producers: transactions of one record that end each second, over all of them (Java's client)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import apache_kafka
import bench
import bench_cluster
from bench import Measurable, Metrics, tool

from tests.conformance.clients.install import python_packages

INTERVALS_MS = (10, 100, 1000)
RECORDS = 200_000  # for each commit interval
WARM_UP = 0.1  # the part of them that is not counted
RECORD_BYTES = 1000
PARTITIONS = 3
LATENCY_S = 10.0
PRODUCERS = 50
PRODUCERS_S = 15.0

# The same as TransactionTimes.java for one producer.
LIBRDKAFKA = """
import sys, time
sys.path.append(sys.argv[1])
from confluent_kafka import Producer
producer = Producer(
    {"bootstrap.servers": sys.argv[2], "transactional.id": "librdkafka", "linger.ms": 0}
)
producer.init_transactions()
def transaction():
    begin = time.perf_counter()
    producer.begin_transaction()
    producer.produce(sys.argv[3], bytes(1000))
    producer.commit_transaction()
    return time.perf_counter() - begin
for _ in range(30):
    transaction()
end = time.perf_counter() + float(sys.argv[4])
while time.perf_counter() < end:
    print(round(transaction() * 1e6))
"""


def measure_transactions(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one kind of broker."""
    with bench.running(kind, metrics) as broker:
        measure_all(broker, "1 node", scale, metrics)
    with bench_cluster.running(kind, metrics) as nodes:
        measure_all(nodes, "3 nodes", scale, metrics)


def measure_all(broker: Measurable, where: str, scale: float, metrics: Metrics) -> None:
    """Everything, of one node or of a cluster."""
    for topic in ("intervals", "latency", "producers"):
        create = ("--create", "--topic", topic, "--partitions", str(PARTITIONS))
        tool("kafka-topics", "--bootstrap-server", broker.address, *create)
    for interval_ms in INTERVALS_MS:
        measure_interval(
            broker, interval_ms, f"{where}, commit every {interval_ms} ms", scale, metrics
        )
    times_us = java_times_us(broker, "latency", 1, LATENCY_S * scale)
    add_percentiles(metrics, f"{where}, begin to commit, Java", times_us)
    times_us = librdkafka_times_us(broker, "latency", LATENCY_S * scale)
    add_percentiles(metrics, f"{where}, begin to commit, librdkafka", times_us)
    cpu_before_s = broker.cpu_s()
    times_us = java_times_us(broker, "producers", PRODUCERS, PRODUCERS_S * scale)
    cpu_s = broker.cpu_s() - cpu_before_s
    per_second = PRODUCERS * len(times_us) * 1e6 / sum(times_us)
    name = f"{where}, {PRODUCERS} producers"
    metrics.add(f"{name}, transactions/s", per_second)
    metrics.add(f"{name}, broker CPU ms each", cpu_s * 1000 / len(times_us))
    add_percentiles(metrics, name, times_us)


def measure_interval(
    broker: Measurable, interval_ms: int, name: str, scale: float, metrics: Metrics
) -> None:
    """Send records as fast as the tool can, and commit every so many milliseconds."""
    records = int(RECORDS * scale)
    cpu_before_s = broker.cpu_s()
    output = tool(
        *("kafka-producer-perf-test", "--bootstrap-server", broker.address),
        *("--topic", "intervals", "--num-records", str(records), "--throughput", "-1"),
        *("--record-size", str(RECORD_BYTES), "--warmup-records", str(int(records * WARM_UP))),
        *("--transactional-id", f"every-{interval_ms}"),
        *("--transaction-duration-ms", str(interval_ms)),
    )
    cpu_s = broker.cpu_s() - cpu_before_s
    metrics.add(f"{name}, records/s", bench.last_rate(output))
    metrics.add(f"{name}, broker CPU s/GB", cpu_s / (records * RECORD_BYTES / 1e9))


def java_times_us(broker: Measurable, topic: str, producers: int, seconds: float) -> list[int]:
    """From begin to commit of every transaction that Java's producers made in that time."""
    program = Path(__file__).with_name("TransactionTimes.java")
    java = apache_kafka.java_command(flags=bench.PERF_FLAGS)
    arguments = (broker.address, topic, str(producers), str(seconds))
    return _times_us([*java, str(program), *arguments])


def librdkafka_times_us(broker: Measurable, topic: str, seconds: float) -> list[int]:
    """The same of one producer of librdkafka's."""
    packages = str(python_packages("python-clients.txt"))
    arguments = (packages, broker.address, topic, str(seconds))
    return _times_us([sys.executable, "-P", "-c", LIBRDKAFKA, *arguments])


def _times_us(command: list[str]) -> list[int]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"transactions failed:\n{done.stdout[-500:]}{done.stderr}")
    return [int(line) for line in done.stdout.split()]


def add_percentiles(metrics: Metrics, name: str, times_us: list[int]) -> None:
    """Note the median and the 99th percentile, in milliseconds."""
    ordered = sorted(times_us)
    metrics.add(f"{name} p50, ms", ordered[len(ordered) // 2] / 1000)
    metrics.add(f"{name} p99, ms", ordered[len(ordered) * 99 // 100] / 1000)
