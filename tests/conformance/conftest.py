"""Fixtures of the conformance tests: unmodified clients and tools against a broker's process.

One broker serves the whole session, and tests keep apart by fresh names of topics and groups;
a test that kills, restarts or configures its broker makes its own with `make_broker`. One cluster
of three serves all tests that want one; they may break it, since it is healed after each.
TEST_BROKER=apache runs the same tests against Apache Kafka, to check the tests.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.cluster_calls import Connect, NewTopic, create, wait_served
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import Completed, KafkaTools, ToolRunner

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that all tests share; its log is checked when the session ends."""
    shared = start_broker(tmp_path_factory.mktemp("broker"))
    yield shared
    shared.close()


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    """The shared broker's HOST:PORT; the test fails if that broker crashed during it."""
    assert broker.process is not None
    assert broker.process.poll() is None, f"the shared broker is gone\n{broker.log_tail()}"
    return broker.address


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Start brokers of the test's own: make_broker(log_retention_ms=1000); they end with it."""
    numbers = itertools.count(1)
    with contextlib.ExitStack() as started:

        def make(**config: object) -> Broker:
            made = start_broker(tmp_path / f"broker-{next(numbers)}", **config)
            started.callback(made.close)
            return made

        yield make


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    """Hold the cluster that all tests share, once a test has asked for it."""
    started: list[Cluster] = []
    yield started
    for cluster in started:
        cluster.close()


@pytest.fixture
def cluster(clusters: list[Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, all in sync, which the test may kill and pause as it likes.

    The cluster is healed after the test; if that is not possible, the report of the test says so.
    """
    if not clusters:
        clusters.append(Cluster(tmp_path_factory.mktemp("cluster")).start())
    shared = clusters[0]
    try:
        yield shared
        shared.heal()
        shared.check_logs()
    except BaseException:
        clusters.remove(shared)
        shared.kill()
        raise


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Start clusters of the test's own: make_cluster(count=3, min_insync_replicas=1)."""
    numbers = itertools.count(1)
    with contextlib.ExitStack() as started:

        def make(count: int = 3, **config: Any) -> Cluster:
            folder = tmp_path / f"cluster-{next(numbers)}"
            return started.enter_context(Cluster(folder, count, **config))

        yield make


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Connect]:
    """Open connections to nodes; they are closed with the test."""
    with contextlib.ExitStack() as opened:
        yield lambda node_id: opened.enter_context(cluster.node(node_id).client())


@pytest.fixture
def new_topic(cluster: Cluster, unique_topic: Callable[[], str]) -> NewTopic:
    """Create topics with their replicas where they are wanted: new_topic([1, 2], [2, 3])."""

    def made(*assignments: list[int], **configs: object) -> str:
        name = unique_topic()
        code = create(cluster.reachable()[0].client, name, *assignments, **configs)
        assert code == ErrorCode.NONE
        for partition, replicas in enumerate(assignments):
            cluster.wait_isr(name, set(replicas), partition)
            wait_served(cluster, name, partition)
        return name

    return made


@pytest.fixture
def tools_at(tool_runner: ToolRunner) -> Callable[[Cluster], KafkaTools]:
    """Point Apache's tools at another cluster: tools_at(make_cluster()).run(...)."""
    return lambda other: KafkaTools(other.bootstrap, tool_runner)


@pytest.fixture
def cluster_tools(cluster: Cluster, tool_runner: ToolRunner) -> KafkaTools:
    """Apache's tools, pointed at the brokers of the shared cluster."""
    return KafkaTools(cluster.bootstrap, tool_runner)


@pytest.fixture(scope="session")
def tool_runner() -> Iterator[ToolRunner]:
    """The JVM that runs Apache's tools for all tests."""
    runner = ToolRunner()
    yield runner
    runner.close()


@pytest.fixture
def kafka(bootstrap: str, tool_runner: ToolRunner) -> KafkaTools:
    """Apache's tools, pointed at the shared broker."""
    return KafkaTools(bootstrap, tool_runner)


@pytest.fixture
def run_tool(kafka: KafkaTools) -> Callable[..., Completed]:
    """Run one of Apache's tools: run_tool("kafka-topics", "--list", input=None, check=True)."""
    return kafka.run


@pytest.fixture
def tools_for(tool_runner: ToolRunner) -> Callable[[Broker], KafkaTools]:
    """Point Apache's tools at another broker: tools_for(make_broker()).run(...)."""
    return lambda other: KafkaTools(other.address, tool_runner)


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make names that no other test uses: unique_name("txn")."""
    test = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_"))
    return lambda prefix: f"{prefix}-{test.strip('-')[:60]}-{next(_numbers)}"


@pytest.fixture
def unique_topic(unique_name: Callable[[str], str]) -> Callable[[], str]:
    """Make topic names that no other test uses; the topic itself is not created."""
    return lambda: unique_name("topic")


@pytest.fixture
def unique_group(unique_name: Callable[[str], str]) -> Callable[[], str]:
    """Make group ids that no other test uses."""
    return lambda: unique_name("group")


@pytest.fixture
def topic(kafka: KafkaTools, unique_topic: Callable[[], str]) -> str:
    """A fresh topic with one partition."""
    return kafka.create_topic(unique_topic())
