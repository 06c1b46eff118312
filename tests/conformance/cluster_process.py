"""A cluster of several nodes, each a process of its own that a test may kill, pause and restart.

`Cluster` is the whole; its nodes are `ClusterNode`s (ours, by `kraftrio start --config`) or
`ApacheNode`s (Apache Kafka in combined mode), which TEST_BROKER decides as for single brokers. Both
get the same properties from `broker/node/local/cluster_layout`, so a test of failover is right
only if it passes against both. Questions about the state of a cluster go over raw frames to
whichever node answers (`ask`). After every fault `wait_healthy` waits until all nodes run, all
brokers are unfenced, and every replica is in sync.
"""

from __future__ import annotations

import contextlib
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.node.local.cluster_layout import free_ports, node_properties, plan_cluster
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftrio.wire.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.broker_process import KIND, ApacheBroker, Broker
from tests.conformance.cases.raw_client import ConnectionClosed, RawClient

NODES = 3
HOST = "127.0.0.1"
CLUSTER_DEADLINE_S = 60.0
HEALTHY_DEADLINE_S = 40.0
APACHE_STOP_S = 15.0
SETTLE_S = 1.0

# A cluster for tests notices failures in seconds, and elects only when it has to.
CLUSTER_CONFIG = {
    "auto.leader.rebalance.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "replica.lag.time.max.ms": "4000",
    "transaction.state.log.num.partitions": "4",
}

Properties = dict[str, str]


class ClusterNode(Broker):
    """One node of ours in a cluster."""

    def __init__(self, directory: Path, node_id: int, port: int, properties: Properties) -> None:
        super().__init__(directory)
        self.node_id = node_id
        self.host = HOST
        self.port = port
        self.config = properties
        self.is_paused = False
        self.options: list[str] = []
        self.log_path = directory.with_name(f"{directory.name}.log")

    @property
    def controller_address(self) -> str:
        """HOST:PORT of the node's controller."""
        return f"{self.host}:{self.port + 1}"

    @property
    def data_directory(self) -> Path:
        """The folder with one folder per partition."""
        return self.directory

    @property
    def is_broker(self) -> bool:
        """Whether the node serves clients."""
        return "broker" in self.config["process.roles"]

    @property
    def is_controller(self) -> bool:
        """Whether the node is a voter of the metadata quorum."""
        return "controller" in self.config["process.roles"]

    @property
    def is_reachable(self) -> bool:
        """Whether the node can answer, as far as the test has not prevented it."""
        return self.process is not None and self.process.poll() is None and not self.is_paused

    def write_properties(self) -> Path:
        """Write the node's server.properties."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.config.items()))
        return path

    def command(self) -> list[str]:
        """Return the command line that runs this node alone."""
        return [*self.python_command(), "--config", str(self.write_properties()), *self.options]

    def wait_ready(self, deadline: float) -> None:
        """Wait for the ready line."""
        line = self.read_line(deadline)
        address = self.address if self.is_broker else self.controller_address
        wanted = rf"kraftrio ready {re.escape(address)} node={self.node_id} data="
        assert re.match(wanted, line), f"not the ready line: {line!r}\n{self.log_tail()}"

    def pause(self) -> None:
        """Stop the process where it is (SIGSTOP); its sockets stay open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let a paused process go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def kill9(self) -> None:
        """Kill at once, also while paused."""
        super().kill9()
        self.is_paused = False

    def client(self) -> RawClient:
        """Open a connection to this node."""
        return RawClient(self.address)

    def controller_client(self) -> RawClient:
        """Open a connection to this node's controller."""
        return RawClient(self.controller_address)


class ApacheNode(ClusterNode, ApacheBroker):
    """One node of Apache Kafka in a cluster."""

    crash_marks = ApacheBroker.crash_marks
    clean_exit_code = ApacheBroker.clean_exit_code

    @property
    def data_directory(self) -> Path:
        """The folder with one folder per partition."""
        return self.directory / "data"

    def command(self) -> list[str]:
        """Write the properties, format the storage once and return java's command line."""
        further = self.config["log.dirs"].split(",")[1:]
        own = {"log.dirs": ",".join([str(self.data_directory), *further])}
        for topic in ("transaction.state.log", "share.coordinator.state.topic"):
            own[f"{topic}.replication.factor"] = self.config["offsets.topic.replication.factor"]
            own[f"{topic}.min.isr"] = self.config["transaction.state.log.min.isr"]
        settings = [f"{name}={value}" for name, value in (self.config | own).items()]
        command: list[str] = apache_kafka().broker_command(self.directory, self.port, settings)
        return command

    def wait_ready(self, deadline: float) -> None:
        """Ask for the API versions until there is an answer: the log has no ready line."""
        if self.is_broker:
            ApacheBroker.wait_ready(self, deadline)

    def log_tail(self) -> str:
        """Return only the end of the log, which is full of warnings about nodes that are away."""
        return super().log_tail()[-500:]

    def wait_stopped(self) -> int:
        """Wait for the end; a broker without a quorum would wait minutes for its controller."""
        assert self.process is not None
        try:
            self.process.wait(APACHE_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill9()
            return self.clean_exit_code
        return super().wait_stopped()


class Cluster:
    """Some nodes with one quorum. Use as a context manager, or call `start` and `close`.

    Args:
        node_overrides: returns further properties of one node, by its id and all client ports.
        kind: whose nodes, `kraftrio` or `apache`.
        defaults: settings for tests; config goes over them.
        config: settings of all nodes, with _ for Kafka's dots.
    """

    def __init__(
        self,
        directory: Path,
        count: int = NODES,
        node_overrides: Callable[[int, Mapping[int, int]], Properties] | None = None,
        *,
        kind: str = KIND,
        defaults: Properties = CLUSTER_CONFIG,
        **config: object,
    ) -> None:
        self.directory = directory
        self.kind = kind
        settings = defaults | {k.replace("_", "."): str(v) for k, v in config.items()}
        ports = dict(enumerate(free_ports(count, HOST, random.SystemRandom()), start=1))
        places = {node_id: (HOST, port) for node_id, port in ports.items()}
        node_class = {"kraftrio": ClusterNode, "apache": ApacheNode}[kind]
        self.nodes: dict[int, ClusterNode] = {}
        for node_id, port in ports.items():
            home = directory / f"node-{node_id}"
            properties = node_properties(node_id, places, str(home)) | settings
            if node_overrides is not None:
                properties |= node_overrides(node_id, ports)
            self.nodes[node_id] = node_class(home, node_id, port, properties)

    # Addresses

    @property
    def bootstrap(self) -> str:
        """All brokers, as clients take them."""
        return ",".join(node.address for node in self.nodes.values() if node.is_broker)

    @property
    def controllers(self) -> str:
        """All controllers, as --bootstrap-controller takes them."""
        return ",".join(
            node.controller_address for node in self.nodes.values() if node.is_controller
        )

    @property
    def brokers(self) -> list[ClusterNode]:
        """The nodes that serve clients."""
        return [node for node in self.nodes.values() if node.is_broker]

    def node(self, node_id: int) -> ClusterNode:
        """Return a node by its id."""
        return self.nodes[node_id]

    def others(self, *node_ids: int) -> list[int]:
        """Return the ids of all other nodes."""
        return [node_id for node_id in self.nodes if node_id not in node_ids]

    # Life

    def start(self) -> Self:
        """Start all nodes and wait until all are in sync."""
        try:
            self.start_nodes(*self.nodes)
            self.wait_healthy()
        except BaseException:
            self.kill()
            raise
        return self

    def start_nodes(self, *node_ids: int) -> None:
        """Start nodes that do not run, all at once, and wait until each serves clients."""
        if self.kind == "kraftrio":  # Apache's are formatted one by one
            for node in self.nodes.values():
                node.write_properties()
            plan_cluster(OsFileSystem(), str(self.directory), random.SystemRandom())
        for node_id in node_ids:
            self.nodes[node_id].launch()
        deadline = time.monotonic() + CLUSTER_DEADLINE_S
        for node_id in node_ids:
            self.nodes[node_id].wait_ready(deadline)

    def heal(self) -> None:
        """Let every node run again, and check that none ended by itself."""
        paused = [node for node in self.nodes.values() if node.is_paused]
        for node in self.nodes.values():
            if node.process is not None:
                code = node.process.poll()
                assert code is None, f"node {node.node_id} ended with {code}\n{node.log_tail()}"
                if node.is_paused:
                    node.resume()
        self.start_nodes(*(i for i, node in self.nodes.items() if node.process is None))
        if paused:
            # What was decided without them may be committed, and known to them, only now.
            time.sleep(SETTLE_S)
        self.wait_healthy()

    def kill(self) -> None:
        """End everything at once."""
        for node in self.nodes.values():
            if node.process is not None:
                node.kill9()

    def close(self) -> None:
        """Stop all nodes gracefully, and check that each was healthy to its end."""
        running = [node for node in self.nodes.values() if node.process is not None]
        try:
            for node in running:
                assert node.process is not None
                code = node.process.poll()
                assert code is None, f"node {node.node_id} ended with {code}\n{node.log_tail()}"
                node.process.send_signal(signal.SIGTERM)
                if node.is_paused:
                    node.resume()
            for node in running:
                code = node.wait_stopped()
                assert code == node.clean_exit_code, f"exit code {code}\n{node.log_tail()}"
        finally:
            self.kill()
        self.check_logs()

    def check_logs(self) -> None:
        """Assert that no log has a sign of a crash."""
        for node in self.nodes.values():
            node.check_log()

    def log_tails(self) -> str:
        """Return the ends of all logs, for the message of a failed assertion."""
        return "\n".join(
            f"-- node {node_id}{' (away)' if not node.is_reachable else ''}\n{node.log_tail()}"
            for node_id, node in self.nodes.items()
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()

    # Questions

    def reachable(self) -> list[ClusterNode]:
        """Return the brokers that can answer."""
        return [node for node in self.brokers if node.is_reachable]

    @contextlib.contextmanager
    def any_client(self) -> Iterator[RawClient]:
        """Open a connection to some node that can answer."""
        with self.reachable()[0].client() as client:
            yield client

    def ask(self, request: Any, version: int | None = None, *, node_id: int | None = None) -> Any:
        """Return the answer of one node, or of the first that gives one; None if none does."""
        for node in self.reachable() if node_id is None else [self.nodes[node_id]]:
            with contextlib.suppress(OSError, ConnectionClosed), node.client() as client:
                return client.call(request, version, timeout_s=5.0)
        return None

    def topics(self, *names: str, node_id: int | None = None) -> list[MetadataResponseTopic]:
        """Return the metadata of topics, of all without names, as some or one node knows it."""
        asked = [MetadataRequestTopic(name=name) for name in names] if names else None
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response = self.ask(request, node_id=node_id)
        return [] if response is None else list(response.topics)

    def partition(
        self, topic: str, partition: int = 0, *, node_id: int | None = None
    ) -> MetadataResponsePartition | None:
        """Return what some or one node knows about a partition; None when it says nothing."""
        for found in self.topics(topic, node_id=node_id):
            for one in found.partitions:
                if one.partition_index == partition:
                    return one
        return None

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition, once there is one that can answer."""
        ids = {node.node_id for node in self.reachable()}

        def led() -> MetadataResponsePartition | None:
            found = self.partition(topic, partition)
            return found if found is not None and found.leader_id in ids else None

        found = self.wait_until(led, f"{topic}-{partition} has a leader")
        return int(found.leader_id)

    def controller(self) -> int:
        """Return the active controller, once there is one that can answer."""
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(
            topic_name="__cluster_metadata", partitions=[partition]
        )
        request = DescribeQuorumRequest(topics=[topic])
        ids = {node.node_id for node in self.nodes.values() if node.is_reachable}

        def active() -> int:
            response = self.ask(request)
            if response is None or response.error_code != ErrorCode.NONE:
                return 0
            described = response.topics[0].partitions[0]
            return int(described.leader_id) if described.leader_id in ids else 0

        return int(self.wait_until(active, "there is an active controller"))

    def coordinator(self, group: str) -> int:
        """Return the coordinator of a group, once there is one that can answer."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        ids = {node.node_id for node in self.reachable()}

        def found() -> int:
            response = self.ask(request)
            if response is None or response.coordinators[0].error_code != ErrorCode.NONE:
                return 0
            node_id = int(response.coordinators[0].node_id)
            return node_id if node_id in ids else 0

        return int(self.wait_until(found, f"{group} has a coordinator"))

    # Waiting

    def wait_until(
        self, condition: Callable[[], Any], what: str, deadline_s: float = HEALTHY_DEADLINE_S
    ) -> Any:
        """Poll a condition until it is true; fail with its name and all logs at the deadline."""
        deadline = time.monotonic() + deadline_s
        while True:
            result = condition()
            if result:
                return result
            if time.monotonic() > deadline:
                raise AssertionError(f"not in {deadline_s:g} s: {what}\n{self.log_tails()}")
            time.sleep(0.05)

    def wait_healthy(self, *topics: str) -> None:
        """Wait until each node knows all brokers and the same topics, all replicas in sync.

        Args:
            topics: must be among them, as when they have just been made.
        """
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)

        def all_is_well() -> bool:
            answers = []
            for node in self.brokers:
                with contextlib.suppress(OSError, ConnectionClosed), node.client() as client:
                    answers.append(client.call(request, timeout_s=5.0))
            known = [{topic.name for topic in answer.topics} for answer in answers]
            return (
                len(answers) == len(self.brokers)
                and all(map(self._is_whole, answers))
                and known.count(known[0]) == len(known)
                and known[0].issuperset(topics)
            )

        self.wait_until(all_is_well, "the cluster is healthy")

    def _is_whole(self, response: MetadataResponse) -> bool:
        return len(response.brokers) == len(self.brokers) and all(
            partition.leader_id in self.nodes
            and sorted(partition.isr_nodes) == sorted(partition.replica_nodes)
            for topic in response.topics
            for partition in topic.partitions
        )

    def wait_isr(self, topic: str, wanted: set[int], partition: int = 0) -> None:
        """Wait until a partition's in-sync replicas are these, and its leader knows it."""

        def is_so() -> bool:
            found = self.partition(topic, partition)
            if found is not None and found.leader_id != -1:
                found = self.partition(topic, partition, node_id=found.leader_id)
            return found is not None and set(found.isr_nodes) == wanted

        self.wait_until(is_so, f"{topic}-{partition} has the in-sync replicas {wanted}")

    def wait_leader(self, topic: str, wanted: int, partition: int = 0) -> None:
        """Wait until a partition is led by this node."""

        def is_so() -> bool:
            found = self.partition(topic, partition)
            return found is not None and found.leader_id == wanted

        self.wait_until(is_so, f"{topic}-{partition} is led by {wanted}")
