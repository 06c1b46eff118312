"""Measures clusters of three nodes, ours and Apache's: modes of scripts/bench.

Both have default timeouts and three replicas of everything, of which acks=all waits for two. All
nodes and the client share one machine, so ratios say more than single figures.

- --cluster: records per second with acks=all, CPU and memory of all nodes together
- --failover: kill -9 of a partition's leader, or of the active controller, while confluent-kafka in
  a process of its own sends one record after the other; what is printed is the longest silence
  after the kill, up to which nothing is acknowledged: median and worst of ten
- --many-topics: 1,000 topics with 3 partitions and 3 replicas each: until all are led and in sync,
  until a node and until the whole cluster is back after kill -9, until a topic can be created after
  the kill of the active controller, memory per replica
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import Metrics, Workload, cpu_s, measure_workload, memory_mb

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest, ElectLeadersRequest
from kraftrio.wire.messages.cluster import MetadataRequest
from tests.conformance.cases.raw_client import ConnectionClosed
from tests.conformance.clients.install import python_packages
from tests.conformance.cluster_process import Cluster

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "auto.leader.rebalance.enable": "false"}
WORKLOADS = (
    Workload("100 B acks=all", 500_000, 100, ("acks=all", "linger.ms=5", "batch.size=65536")),
    Workload("1 KB acks=all", 200_000, 1000, ("acks=all", "linger.ms=5", "batch.size=65536")),
)
PARTITIONS = 3
KILLS = 10
TOPICS = 1000
TOPICS_AT_ONCE = 50
READY_S = 300.0
SILENCE_S = 60.0
POLL_S = 0.25

# The client whose acknowledgements are watched: one line "MONOTONIC-TIME" for each.
SENDER = """
import sys, time
sys.path.append(sys.argv[1])
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[2], "log_level": 0})
def acknowledged(error, message):
    if error is None:
        print(time.monotonic(), flush=True)
while True:
    producer.produce(sys.argv[3], b"x" * 100, partition=int(sys.argv[4]), on_delivery=acknowledged)
    producer.flush()
"""


class RunningCluster:
    """All nodes together, as something to be measured."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.address = cluster.bootstrap

    def _pids(self) -> list[int]:
        return [node.process.pid for node in self.cluster.nodes.values() if node.process]

    def cpu_s(self) -> float:
        """Processor seconds of all nodes."""
        return sum(map(cpu_s, self._pids()))

    def memory_mb(self) -> float:
        """Resident sets of all nodes."""
        return sum(map(memory_mb, self._pids()))


@contextlib.contextmanager
def running(kind: str, metrics: Metrics) -> Iterator[RunningCluster]:
    """Start three nodes, note how long that took and what they weigh, and stop them at the end."""
    directory = Path(tempfile.mkdtemp(prefix=f"bench-cluster-{kind}-"))
    cluster = Cluster(directory, kind=kind, defaults=SETTINGS)
    try:
        begin = time.perf_counter()
        with cluster:
            metrics.add("start of all until healthy, s", time.perf_counter() - begin)
            yield RunningCluster(cluster)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measure_throughput(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of --cluster."""
    with running(kind, metrics) as nodes:
        time.sleep(2)
        metrics.add("memory idle, all nodes, MB", nodes.memory_mb())
        for number, workload in enumerate(WORKLOADS):
            measure_workload(nodes, workload, number, scale, metrics, PARTITIONS)
        metrics.add("memory after, all nodes, MB", nodes.memory_mb())


# -- failover -------------------------------------------------------------------------------------


def measure_failover(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of --failover."""
    kills = max(3, int(KILLS * scale))
    with running(kind, metrics) as nodes:
        cluster = nodes.cluster
        create_topics(cluster, ["failover"])
        for victim in ("leader", "controller"):
            gaps = []
            for _ in range(kills):
                wait_settled(cluster)
                gaps.append(silence_after_kill(cluster, victim))
                print(f"{kind}: {victim} killed, {gaps[-1]:.2f} s", file=sys.stderr)
            metrics.add(f"kill -9 of the {victim}, median silence, s", statistics.median(gaps))
            metrics.add(f"kill -9 of the {victim}, worst silence, s", max(gaps))


def silence_after_kill(cluster: Cluster, victim: str) -> float:
    """Kill a node under a client that sends all the time; return the longest silence after it."""
    elect_preferred(cluster)
    controller = cluster.controller()
    partition = next(
        index for index in range(PARTITIONS) if cluster.leader("failover", index) != controller
    )
    killed = controller if victim == "controller" else cluster.leader("failover", partition)
    packages = str(python_packages("python-clients.txt"))
    arguments = [packages, cluster.bootstrap, "failover", str(partition)]
    sender = subprocess.Popen(
        [sys.executable, "-P", "-c", SENDER, *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert sender.stdout is not None
        for _ in range(100):  # warm
            sender.stdout.readline()
        at = time.monotonic()
        cluster.node(killed).kill9()
        longest, last = 0.0, at
        while last < at + 2 or longest < 0.001:
            now = float(sender.stdout.readline())
            if now > at:
                longest, last = max(longest, now - last), now
            assert now - at < SILENCE_S
    finally:
        sender.kill()
        sender.communicate()
    cluster.start_nodes(killed)
    return longest


def elect_preferred(cluster: Cluster) -> None:
    """Give every partition back to its first replica, so that each node leads one."""
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)
    cluster.ask(request)


# -- many topics ----------------------------------------------------------------------------------


def measure_many_topics(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of --many-topics."""
    count = int(TOPICS * scale)
    with running(kind, metrics) as nodes:
        cluster = nodes.cluster
        time.sleep(2)
        idle_mb = nodes.memory_mb()
        names = [f"topic-{number}" for number in range(count)]
        begin = time.perf_counter()
        for start in range(0, count, TOPICS_AT_ONCE):
            create_topics(cluster, names[start : start + TOPICS_AT_ONCE])
        metrics.add(f"create {count} topics, s", time.perf_counter() - begin)
        wait_settled(cluster)
        metrics.add(f"create {count} topics until in sync, s", time.perf_counter() - begin)
        time.sleep(2)
        memory = nodes.memory_mb()
        metrics.add("memory, all nodes, MB", memory)
        replicas = count * PARTITIONS * len(cluster.nodes)
        metrics.add("memory per replica, KB", (memory - idle_mb) * 1024 / replicas)
        cpu, begin = nodes.cpu_s(), time.perf_counter()
        time.sleep(10)
        metrics.add(
            "CPU idle, % of one", (nodes.cpu_s() - cpu) / (time.perf_counter() - begin) * 100
        )
        measure_restarts(cluster, metrics)


def measure_restarts(cluster: Cluster, metrics: Metrics) -> None:
    """Kill the active controller, then a broker, then everything; time what comes after."""
    controller = cluster.controller()
    cluster.node(controller).kill9()
    begin = time.perf_counter()
    until(lambda: is_created(cluster, "after-controller"), "a topic can be created")
    metrics.add("controller killed until a topic is created, s", time.perf_counter() - begin)
    cluster.start_nodes(controller)
    wait_settled(cluster)
    other = cluster.others(cluster.controller())[0]
    begin = time.perf_counter()
    cluster.node(other).terminate()
    metrics.add("graceful stop of a node, s", time.perf_counter() - begin)
    begin = time.perf_counter()
    cluster.start_nodes(other)
    metrics.add("start of a node until ready, s", time.perf_counter() - begin)
    wait_settled(cluster)
    metrics.add("start of a node until all in sync, s", time.perf_counter() - begin)
    cluster.kill()
    begin = time.perf_counter()
    cluster.start_nodes(*cluster.nodes)
    metrics.add("start of all after kill -9 until ready, s", time.perf_counter() - begin)
    wait_settled(cluster)
    metrics.add("start of all after kill -9 until in sync, s", time.perf_counter() - begin)


def create_topics(cluster: Cluster, names: list[str]) -> None:
    """Create topics by one request."""
    response = cluster.ask(create_request(names))
    assert response is not None, "no answer"
    codes = {one.error_code for one in response.topics}
    assert codes == {ErrorCode.NONE}, codes


def create_request(names: list[str]) -> CreateTopicsRequest:
    """Make the request for topics on all three nodes."""
    topics = [
        CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000)


def is_created(cluster: Cluster, name: str) -> bool:
    """Try to create a topic once."""
    response = cluster.ask(create_request([name]))
    return response is not None and response.topics[0].error_code in (
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    )


def wait_settled(cluster: Cluster) -> None:
    """Wait until every node knows all partitions as led and in sync; asks less often than tests."""

    def settled() -> bool:
        for node in cluster.nodes.values():
            try:
                with node.client() as client:
                    response: Any = client.call(MetadataRequest(topics=None))
            except (OSError, ConnectionClosed):
                return False
            if len(response.brokers) < len(cluster.nodes):
                return False
            for topic in response.topics:
                for partition in topic.partitions:
                    if partition.leader_id < 0 or len(partition.isr_nodes) < 3:
                        return False
        return True

    until(settled, "all partitions are in sync")


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll until a condition is true."""
    deadline = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {READY_S:g} s: {what}"
        time.sleep(POLL_S)
