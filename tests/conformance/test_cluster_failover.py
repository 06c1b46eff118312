"""Clients go on when a node dies or hangs: nothing is lost, doubled or out of order."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import DescribeGroupsRequest
from tests.conformance.clients.install import python_client
from tests.conformance.cluster_load import (
    ConfluentLoad,
    JavaLoad,
    check_log,
    check_replicas,
    log,
    wait_for_more,
)
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools

PARTITIONS = 3
RATE = 400


@pytest.fixture
def topic(cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]) -> str:
    """A topic on all nodes, each of which leads a partition."""
    made = cluster_tools.create_topic(unique_topic(), partitions=PARTITIONS)
    cluster.wait_healthy(made)
    return made


@pytest.fixture(params=["java", "confluent"])
def load(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    cluster_tools: KafkaTools,
    topic: str,
    tmp_path: Path,
) -> Iterator[JavaLoad | ConfluentLoad]:
    """A producer at work, which has got its first acknowledgements."""
    made: JavaLoad | ConfluentLoad
    if request.param == "java":
        made = JavaLoad(cluster_tools, topic, tmp_path, RATE)
    else:
        made = ConfluentLoad(cluster.bootstrap, topic, PARTITIONS, RATE)
    with made:
        wait_for_more(cluster, [made.acknowledged], 50)
        yield made


def finish(cluster: Cluster, topic: str, load: JavaLoad | ConfluentLoad) -> None:
    """Let the producer go on for a while, stop it, and check what the logs hold."""
    wait_for_more(cluster, [load.acknowledged], 200)
    load.stop()
    cluster.heal()
    check_log(cluster, topic, PARTITIONS, load.acknowledged)
    check_replicas(cluster, topic, PARTITIONS)


def test_leader_is_killed(cluster: Cluster, topic: str, load: JavaLoad | ConfluentLoad) -> None:
    """kill -9 of a leader, and of the next leader once the first is back."""
    for _ in range(2):
        leader = cluster.leader(topic)
        cluster.node(leader).kill9()
        assert cluster.leader(topic) != leader
        wait_for_more(cluster, [load.acknowledged], 200)
        cluster.heal()
    finish(cluster, topic, load)


def test_controller_is_killed(cluster: Cluster, topic: str, load: JavaLoad | ConfluentLoad) -> None:
    """kill -9 of the active controller, which leads a partition as well."""
    dead = cluster.controller()
    cluster.node(dead).kill9()
    wait_for_more(cluster, [load.acknowledged], 200)
    assert cluster.controller() != dead
    finish(cluster, topic, load)


def test_every_node_is_restarted(
    cluster: Cluster, topic: str, load: JavaLoad | ConfluentLoad
) -> None:
    """A rolling restart, each node once the one before is back in sync."""
    for node in cluster.nodes.values():
        node.restart()
        cluster.wait_healthy()
    finish(cluster, topic, load)


def test_leader_hangs(cluster: Cluster, topic: str, load: JavaLoad | ConfluentLoad) -> None:
    """A leader that is stopped (SIGSTOP) is replaced, and follows once it runs again."""
    leader = cluster.leader(topic)
    cluster.node(leader).pause()
    assert cluster.leader(topic) != leader
    time.sleep(2)
    cluster.node(leader).resume()
    finish(cluster, topic, load)


def test_all_nodes_are_killed(cluster: Cluster, topic: str, load: JavaLoad | ConfluentLoad) -> None:
    """kill -9 of all nodes, one right after the other, and a start of all."""
    for node in cluster.nodes.values():
        node.kill9()
    cluster.heal()
    finish(cluster, topic, load)


def test_disk_is_replaced(
    cluster: Cluster,
    cluster_tools: KafkaTools,
    topic: str,
    unique_topic: Callable[[], str],
    load: JavaLoad | ConfluentLoad,
) -> None:
    """A node that comes back with empty disks gets everything from the others, metadata too.

    Partitions that only this node had are empty, and can be written to again.
    """
    leader = cluster.leader(topic)
    node, alone = cluster.node(leader), unique_topic()
    cluster_tools.run(
        "kafka-topics", "--create", "--topic", alone, "--replica-assignment", str(leader)
    )
    cluster_tools.produce(alone, ["lost"])
    node.terminate()
    shutil.rmtree(node.data_directory)
    cluster.heal()
    cluster_tools.produce(alone, ["new"])
    assert cluster_tools.consume(alone, count=1) == ["new"]
    finish(cluster, topic, load)


# -- consumers ------------------------------------------------------------------------------------


def test_consumer_reads_on(
    cluster: Cluster, cluster_tools: KafkaTools, topic: str, tmp_path: Path
) -> None:
    """A consumer without a group gets every record once, in order, over two failovers."""
    count = 3000
    options = ["--topic", topic, "--from-beginning", "--max-messages", str(count)]
    with (
        JavaLoad(cluster_tools, topic, tmp_path, 150, count) as load,
        cluster_tools.start("kafka-console-consumer", *options, "--timeout-ms", "60000") as reader,
    ):
        wait_for_more(cluster, [load.acknowledged], 50)
        for _ in range(2):
            cluster.node(cluster.leader(topic)).kill9()
            cluster.leader(topic)
            cluster.heal()
        load.wait()
        read = reader.wait().lines
    assert len(read) == len(set(read)) == count
    log_of = check_log(cluster, topic, PARTITIONS, load.acknowledged)
    assert set(read) == set(log_of.values())


class Member:
    """A member of a classic group, by confluent-kafka, which the test polls by hand."""

    def __init__(self, cluster: Cluster, topic: str, group: str, **settings: object) -> None:
        self.library = python_client("confluent_kafka")
        self.generations = 0
        self.partitions: set[int] = set()
        self.read: list[tuple[int, int]] = []
        chosen = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "session.timeout.ms": 60_000,  # longer than a node is paused on a busy machine
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            "socket.timeout.ms": 3000,  # a coordinator that hangs is given up by the client
            "logger": log,
        }
        chosen |= {name.replace("_", "."): value for name, value in settings.items()}
        self.consumer: Any = self.library.Consumer(chosen)
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self.generations += 1
        self.partitions |= {one.partition for one in partitions}

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self.partitions -= {one.partition for one in partitions}

    def poll(self) -> None:
        """Take the records that have come."""
        for message in self.consumer.consume(100, 0.1):
            if message.error() is None:
                self.read.append((message.partition(), message.offset()))

    def commit(self) -> None:
        """Commit the position, repeatedly until the coordinator takes it."""
        deadline = time.monotonic() + 30
        while True:
            try:
                self.consumer.commit(asynchronous=False)
                return
            except self.library.KafkaException as failure:
                error = failure.args[0]
                if error.code() == self.library.KafkaError._NO_OFFSET:
                    return  # nothing was read since the last commit
                assert error.retriable() or error.code() in PASSING, error
                assert time.monotonic() < deadline, error
                self.poll()


# Errors of a commit while the coordinator moves, which librdkafka does not call retriable.
PASSING = {
    int(ErrorCode.NOT_COORDINATOR),
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    -195,  # the connection broke
    -185,  # no answer in time
    -180,  # wait for the coordinator
}


@pytest.fixture
def members(
    cluster: Cluster, topic: str, unique_group: Callable[[], str]
) -> Iterator[tuple[str, list[Member]]]:
    """A group of two members that have shared the partitions."""
    group = unique_group()
    made = [
        Member(cluster, topic, group, group_instance_id=f"instance-{number}") for number in (1, 2)
    ]

    def settled() -> bool:
        for member in made:
            member.poll()
        return sorted(len(member.partitions) for member in made) == [1, 2]

    cluster.wait_until(settled, "the group is settled")
    yield group, made
    for member in made:
        member.consumer.close()


def described(cluster: Cluster, group: str) -> Any:
    """Return the description of a group by its coordinator."""
    with cluster.node(cluster.coordinator(group)).client() as client:
        (found,) = client.call(DescribeGroupsRequest(groups=[group]), 5).groups
    return found


def test_group_outlives_its_coordinator(
    cluster: Cluster,
    cluster_tools: KafkaTools,
    topic: str,
    members: tuple[str, list[Member]],
) -> None:
    """The group is the same at the next coordinator: no rebalance, no commit lost, no repetition.

    The same holds when the first coordinator hangs, and still thinks that it is one.
    """
    group, made = members
    before = {one.member_id: one.member_assignment for one in described(cluster, group).members}
    generations = [member.generations for member in made]
    sent = 0
    for stop in ("kill9", "pause", "terminate"):
        coordinator = cluster.coordinator(group)
        cluster_tools.produce(topic, [f"{sent + i}" for i in range(30)],
                              "--request-required-acks", "all")  # fmt: skip
        sent += 30
        cluster.wait_until(partial(_read_all, made, sent), "all records are read")
        for member in made:
            member.commit()
        getattr(cluster.node(coordinator), stop)()
        assert cluster.coordinator(group) != coordinator
        cluster_tools.produce(topic, [f"{sent + i}" for i in range(30)],
                              "--request-required-acks", "all")  # fmt: skip
        sent += 30
        cluster.wait_until(partial(_read_all, made, sent), "all records are read")
        for member in made:
            member.commit()
        found = described(cluster, group)
        assert found.group_state == "Stable"
        assert {one.member_id: one.member_assignment for one in found.members} == before
        cluster.heal()
    assert [member.generations for member in made] == generations, "no rebalance was needed"
    read = [place for member in made for place in member.read]
    assert len(read) == len(set(read)) == sent
    rows = cluster_tools.run("kafka-consumer-groups", "--describe", "--group", group).rows("GROUP")
    assert {row["LAG"] for row in rows} <= {"0", "-"}


def _read_all(members: list[Member], count: int) -> bool:
    for member in members:
        member.poll()
    return sum(len(member.read) for member in members) >= count
