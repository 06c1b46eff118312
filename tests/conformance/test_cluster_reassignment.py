"""Moving replicas: kafka-reassign-partitions, and AlterPartitionReassignments by raw frames."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.conformance.cluster_load import ConfluentLoad, JavaLoad, wait_for_more
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import Completed, KafkaTools

TOOL = "kafka-reassign-partitions"
Moves = dict[tuple[str, int], Sequence[int]]


class Reassigner:
    """The tool, with its plans as files."""

    def __init__(self, kafka: KafkaTools, folder: Path) -> None:
        self._kafka = kafka
        self._folder = folder

    def run(self, moves: Moves, *options: str, check: bool = True) -> Completed:
        """Run the tool with a plan."""
        file = self._folder / "plan.json"
        plan = [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in moves.items()
        ]
        file.write_text(json.dumps({"version": 1, "partitions": plan}))
        return self._kafka.run(TOOL, "--reassignment-json-file", str(file), *options, check=check)

    def wait_done(self, moves: Moves, deadline_s: float = 40.0) -> Completed:
        """Verify again and again until everything is moved; return the last answer."""
        deadline = time.monotonic() + deadline_s
        while True:
            done = self.run(moves, "--verify")
            if done.stdout.count("is completed.") == len(moves):
                return done
            assert time.monotonic() < deadline, done.describe()
            time.sleep(0.3)

    def listed(self) -> str:
        """Return what --list prints."""
        return self._kafka.run(TOOL, "--list").stdout


@pytest.fixture
def reassign(cluster_tools: KafkaTools, tmp_path: Path) -> Reassigner:
    """The tool at the shared cluster."""
    return Reassigner(cluster_tools, tmp_path)


@pytest.fixture
def create(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> Callable[..., str]:
    """Create topics with their replicas where a test wants them: create("1:2", "2:3")."""

    def made(*assignments: str, **config: object) -> str:
        topic = unique_topic()
        options = [f"--config={k.replace('_', '.')}={v}" for k, v in config.items()]
        cluster_tools.run("kafka-topics", "--create", "--topic", topic, "--replica-assignment",
                          ",".join(assignments), *options)  # fmt: skip
        cluster.wait_healthy(topic)
        return topic

    return made


def replicas(cluster: Cluster, topic: str, partition: int = 0) -> list[int]:
    """Return the replicas of a partition in their order."""
    found = cluster.partition(topic, partition)
    assert found is not None
    return list(found.replica_nodes)


def has_log(cluster: Cluster, node_id: int, topic: str, partition: int = 0) -> bool:
    """Return whether a node keeps a log of the partition."""
    return (cluster.node(node_id).data_directory / f"{topic}-{partition}").is_dir()


def alter(cluster: Cluster, topic: str, target: list[int] | None, **options: Any) -> int:
    """Ask for a reassignment of partition 0, None to cancel it; return the error code."""
    partition = ReassignablePartition(partition_index=0, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])],
        timeout_ms=10_000,
        **options,
    )
    with cluster.any_client() as client:
        response = client.call(request)
    assert response.error_code == ErrorCode.NONE
    return int(response.responses[0].partitions[0].error_code)


def ongoing(cluster: Cluster) -> dict[tuple[str, int], OngoingPartitionReassignment]:
    """Return the reassignments that are under way."""
    with cluster.any_client() as client:
        response = client.call(ListPartitionReassignmentsRequest(topics=None, timeout_ms=10_000))
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.name, partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }


# -- the tool -------------------------------------------------------------------------------------


def test_generate(cluster_tools: KafkaTools, create: Callable[..., str], tmp_path: Path) -> None:
    """The tool proposes an assignment to the brokers that it is given, and shows the present."""
    topic = create("1:2", "2:3", "3:1")
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    options = ["--topics-to-move-json-file", str(file), "--broker-list", "1,2", "--generate"]
    lines = cluster_tools.run(TOOL, *options).lines
    current, proposed = (json.loads(line) for line in lines if line.startswith("{"))
    assert [one["replicas"] for one in current["partitions"]] == [[1, 2], [2, 3], [3, 1]]
    assert len(proposed["partitions"]) == 3
    assert all(sorted(one["replicas"]) == [1, 2] for one in proposed["partitions"])


def test_move(
    cluster: Cluster,
    cluster_tools: KafkaTools,
    create: Callable[..., str],
    reassign: Reassigner,
) -> None:
    """Replicas move with their records; the leader moves when it must; old logs are deleted."""
    topic = create("1:2", "2:1", min_insync_replicas=1)
    lines = [f"record {i}" for i in range(500)]
    cluster_tools.produce(topic, lines, "--request-required-acks", "all")
    moves: Moves = {(topic, 0): [3, 2], (topic, 1): [3, 1]}
    started = reassign.run(moves, "--execute")
    assert "Current partition replica assignment" in started.stdout
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started.stdout
    done = reassign.wait_done(moves)
    for partition, wanted in enumerate(([3, 2], [3, 1])):
        assert f"Reassignment of partition {topic}-{partition} is completed." in done.stdout
        assert replicas(cluster, topic, partition) == wanted
        cluster.wait_isr(topic, set(wanted), partition)
    assert cluster.leader(topic, 0) in (3, 2)
    assert sorted(cluster_tools.consume(topic, count=500)) == sorted(lines)
    cluster.wait_until(lambda: not has_log(cluster, 1, topic, 0), "the old log is deleted")
    cluster.wait_until(lambda: not has_log(cluster, 2, topic, 1), "the old log is deleted")
    assert has_log(cluster, 3, topic, 0)
    assert (topic, 0) not in ongoing(cluster)


def test_more_and_fewer_replicas(
    cluster: Cluster, create: Callable[..., str], reassign: Reassigner
) -> None:
    """The number of replicas of a partition can be raised and lowered."""
    topic = create("1")
    moves: Moves = {(topic, 0): [2, 1, 3]}
    reassign.run(moves, "--execute")
    reassign.wait_done(moves)
    assert replicas(cluster, topic) == [2, 1, 3]
    cluster.wait_isr(topic, {1, 2, 3})
    moves = {(topic, 0): [3, 2]}
    reassign.run(moves, "--execute")
    reassign.wait_done(moves)
    assert replicas(cluster, topic) == [3, 2]
    assert cluster.leader(topic) in (2, 3)


@pytest.mark.measures
def test_throttled_move(
    cluster: Cluster,
    cluster_tools: KafkaTools,
    create: Callable[..., str],
    reassign: Reassigner,
) -> None:
    """--throttle slows the copying down to its rate, and nothing else; --verify removes it."""
    topic = create("1")
    size_bytes, rate = 4_000_000, 400_000
    lines = ["x" * 1000] * (size_bytes // 1000)
    cluster_tools.produce(topic, lines, "--request-required-acks", "all")
    moves: Moves = {(topic, 0): [2]}
    begin = time.monotonic()
    started = reassign.run(moves, "--execute", "--throttle", str(rate))
    assert f"The inter-broker throttle limit was set to {rate} B/s" in started.stdout
    described = ["kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--describe"]
    shown = cluster_tools.run(*described).stdout
    assert "leader.replication.throttled.replicas=0:1" in shown
    assert "follower.replication.throttled.replicas=0:2" in shown
    assert (topic, 0) in ongoing(cluster)
    again = reassign.run(moves, "--execute", check=False)
    assert again.exit_code == 1
    assert "Cannot execute because there is an existing partition assignment." in again.output
    free = time.monotonic()
    assert len(cluster_tools.consume(topic, count=len(lines))) == len(lines)
    free = time.monotonic() - free
    done = reassign.wait_done(moves, 60)
    took = time.monotonic() - begin
    assert size_bytes / rate / 3 < took, f"copied in {took:.1f} s"
    assert free < size_bytes / rate / 2, f"a consumer is not throttled, but took {free:.1f} s"
    assert f"Clearing topic-level throttles on topic {topic}" in done.stdout
    assert "throttled.replicas" not in cluster_tools.run(*described).stdout
    brokers = ["--entity-type", "brokers", "--entity-name", "2", "--describe"]
    assert "throttled.rate" not in cluster_tools.run("kafka-configs", *brokers).stdout
    assert len(cluster_tools.consume(topic, count=len(lines))) == len(lines)


def test_list_and_cancel(
    cluster: Cluster,
    cluster_tools: KafkaTools,
    create: Callable[..., str],
    reassign: Reassigner,
) -> None:
    """A move to a broker that is away goes on until it is cancelled; all is as before then."""
    away = cluster.others(cluster.controller())[0]
    first, second = cluster.others(away)
    topic = create(f"{first}:{second}", min_insync_replicas=1)
    cluster_tools.produce(topic, ["kept"], "--request-required-acks", "all")
    cluster.node(away).kill9()
    moves: Moves = {(topic, 0): [away, second]}
    # By hand: the tool starts no move to a broker that it knows to be away.
    assert alter(cluster, topic, [away, second]) == ErrorCode.NONE
    shown = f"{topic}-0: replicas: {away},{second},{first}. adding: {away}. removing: {first}."
    assert shown in reassign.listed()
    assert (
        f"Reassignment of partition {topic}-0 is still in progress."
        in reassign.run(moves, "--verify").stdout
    )
    found = ongoing(cluster)[topic, 0]
    assert (found.adding_replicas, found.removing_replicas) == ([away], [first])
    cluster_tools.produce(topic, ["meanwhile"], "--request-required-acks", "all")
    # Taking throttles away as well would ask the broker that is away, and wait for it.
    done = reassign.run(moves, "--cancel", "--preserve-throttles")
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in done.stdout
    assert sorted(replicas(cluster, topic)) == [first, second]
    assert topic not in reassign.listed()
    none = reassign.run(moves, "--cancel", "--preserve-throttles")
    assert "None of the specified partition moves are active" in none.stdout
    assert cluster_tools.consume(topic, count=2) == ["kept", "meanwhile"]


def test_move_survives_its_controller_and_leader(
    cluster: Cluster,
    cluster_tools: KafkaTools,
    create: Callable[..., str],
) -> None:
    """A move that is under way when the active controller dies is finished by the next one."""
    controller = cluster.controller()
    first, target = cluster.others(controller)
    topic = create(f"{first}", min_insync_replicas=1)
    lines = ["x" * 1000] * 2000
    cluster_tools.produce(topic, lines, "--request-required-acks", "all")
    cluster.node(target).pause()
    assert alter(cluster, topic, [target]) == ErrorCode.NONE
    cluster.node(target).resume()
    cluster.node(controller).kill9()
    cluster.controller()
    cluster.wait_until(lambda: replicas(cluster, topic) == [target], "moved")
    assert cluster.leader(topic) == target
    assert len(cluster_tools.consume(topic, count=2000)) == 2000


# -- raw ------------------------------------------------------------------------------------------


def test_nothing_to_cancel(cluster: Cluster, create: Callable[..., str]) -> None:
    """Cancelling where nothing is under way is NO_REASSIGNMENT_IN_PROGRESS."""
    topic = create("1:2")
    assert alter(cluster, topic, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    missing = f"{topic}-missing"
    assert alter(cluster, missing, [1]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(cluster, missing, None) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("target", [[], [1, 1], [1, 77], [-1, 2]])
def test_impossible_targets(
    cluster: Cluster, create: Callable[..., str], target: list[int]
) -> None:
    """No replicas, one twice, and brokers that do not exist are INVALID_REPLICA_ASSIGNMENT."""
    topic = create("1:2")
    assert alter(cluster, topic, target) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert replicas(cluster, topic) == [1, 2]
    assert (topic, 0) not in ongoing(cluster)


def test_same_replicas_in_another_order(cluster: Cluster, create: Callable[..., str]) -> None:
    """Nothing has to be copied: the order is the new one at once, and the leader stays."""
    topic = create("1:2:3")
    assert alter(cluster, topic, [3, 1, 2]) == ErrorCode.NONE
    cluster.wait_until(lambda: replicas(cluster, topic) == [3, 1, 2], "the new order")
    assert (topic, 0) not in ongoing(cluster)
    assert cluster.leader(topic) == 1


def test_replication_factor_may_be_pinned(cluster: Cluster, create: Callable[..., str]) -> None:
    """A request that does not allow another number of replicas is refused one (KIP-860)."""
    topic = create("1:2")
    refused = alter(cluster, topic, [1, 2, 3], allow_replication_factor_change=False)
    assert refused == ErrorCode.INVALID_REPLICATION_FACTOR
    assert alter(cluster, topic, [1, 3], allow_replication_factor_change=False) == ErrorCode.NONE
    cluster.wait_until(lambda: replicas(cluster, topic) == [1, 3], "moved")


def test_target_changes_on_the_way(
    cluster: Cluster, cluster_tools: KafkaTools, create: Callable[..., str]
) -> None:
    """A second reassignment replaces the first."""
    away = cluster.others(cluster.controller())[0]
    first, second = cluster.others(away)
    topic = create(f"{first}")
    cluster_tools.produce(topic, ["kept"], "--request-required-acks", "all")
    cluster.node(away).kill9()
    assert alter(cluster, topic, [away]) == ErrorCode.NONE
    assert (topic, 0) in ongoing(cluster)
    assert alter(cluster, topic, [second]) == ErrorCode.NONE
    cluster.wait_until(lambda: replicas(cluster, topic) == [second], "moved to the second target")
    assert (topic, 0) not in ongoing(cluster)
    assert cluster.leader(topic) == second
    assert cluster_tools.consume(topic, count=1) == ["kept"]


def test_consumer_and_producer_follow_the_move(
    cluster: Cluster,
    cluster_tools: KafkaTools,
    create: Callable[..., str],
    reassign: Reassigner,
    tmp_path: Path,
) -> None:
    """Clients that work all the time see every record once, in order, over two moves."""
    topic = create("1:2")
    count = 3000
    consume = ["--topic", topic, "--from-beginning", "--max-messages", str(count)]
    with (
        cluster_tools.start("kafka-console-consumer", *consume, "--timeout-ms", "60000") as reader,
        JavaLoad(cluster_tools, topic, tmp_path, 300, count) as load,
    ):
        for target in ([3, 1], [2, 3]):
            moves: Moves = {(topic, 0): target}
            reassign.run(moves, "--execute")
            reassign.wait_done(moves)
            time.sleep(1)
        load.wait()
        assert load.acknowledged.count == count
        assert not load.acknowledged.failures
        assert reader.wait().lines == [f"{load.prefix}.{i}" for i in range(count)]


@pytest.mark.measures
def test_a_throttled_move_holds_up_no_producer(
    cluster: Cluster,
    cluster_tools: KafkaTools,
    create: Callable[..., str],
    reassign: Reassigner,
) -> None:
    """Once a replica that was moved slowly is in the ISR it is not slowed down any more."""
    topic = create("1:2")
    rate = 500_000
    lines = ["x" * 1000] * 1500
    cluster_tools.produce(topic, lines, "--request-required-acks", "all")
    moves: Moves = {(topic, 0): [3, 1]}
    with ConfluentLoad(cluster.bootstrap, topic, 1, 200, padding_bytes=1000) as load:
        reassign.run(moves, "--execute", "--throttle", str(rate))
        cluster.wait_until(lambda: (topic, 0) not in ongoing(cluster), "the replica has moved", 60)
        # The throttles are still set, and much was moved lately. Now others lead, in new epochs.
        moves = {(topic, 0): [1, 3]}
        reassign.run(moves, "--execute", "--additional", "--throttle", str(rate))
        cluster_tools.run(
            "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions"
        )
        wait_for_more(cluster, [load.acknowledged], 800)
        load.stop()
    gap_s = load.acknowledged.longest_gap_s
    assert gap_s < 4, f"a producer waited for {gap_s:.1f} s"
    reassign.wait_done(moves, 60)
