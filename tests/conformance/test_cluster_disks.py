"""One of a broker's two log directories fails under load: its replicas move, and nothing else.

Leaders there are replaced from the ISR at once; the broker's other partitions keep their leader
and its epoch, and nothing that was acknowledged is lost. Once the directory is back, or another
empty one in its place, a restart brings its replicas into sync again (KIP-112, KIP-858).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from kraftrio.broker.coordinator.partitioning import partition_for
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import MetadataResponsePartition
from tests.conformance.broker_process import KIND
from tests.conformance.cases.members import commit_code, commit_request, fetch_offset
from tests.conformance.cluster_load import ConfluentLoad, check_log, wait_for_more
from tests.conformance.cluster_process import Cluster, ClusterNode
from tests.conformance.java_tools import KafkaTools
from tests.integration.disks import FailingDisk

MIB = 1 << 20
# What node 1 leads: more than one of its directories gets, which is half of all; so that each of
# them has some.
LED_BY_1 = ("1:2:3", "1:3:2") * 4
PLACES = (*LED_BY_1, "2:3:1", "3:1:2", "2:1:3", "3:2:1")
PARTITIONS = len(PLACES)
RATE = 400
OFFSETS_TOPIC = "__consumer_offsets"
# One for each partition.
GROUPS = {
    partition_for(group, PARTITIONS): group
    for group in (f"group-{number}" for number in range(100))
}
META = "meta.properties"
FAST_CHECKPOINTS = {
    "log_flush_offset_checkpoint_interval_ms": 200,
    "replica_high_watermark_checkpoint_interval_ms": 200,
}


class Fault(Protocol):
    """A way for a log directory to fail and to come back."""

    directory: Path

    def fail(self) -> None: ...
    def repair(self) -> None: ...


class DiskFault:
    """Its file system meets an error and is read-only from then on; the same data is back."""

    def __init__(self, disk: FailingDisk) -> None:
        self._disk = disk
        self.directory = disk.path / "data"

    def fail(self) -> None:
        self._disk.fail()

    def repair(self) -> None:
        self._disk.repair()


class MovedFault:
    """A file stands where the directory was; that comes back, or an empty one."""

    def __init__(self, folder: Path, *, is_lost: bool) -> None:
        self.directory = folder / "data"
        self._aside = folder / "aside"
        self._is_lost = is_lost

    def fail(self) -> None:
        self.directory.rename(self._aside)
        self.directory.write_text("in the way")

    def repair(self) -> None:
        self.directory.unlink()
        if self._is_lost:
            self.directory.mkdir()
            if KIND == "apache":  # its directories are formatted by hand; it draws the new id
                lines = (self._aside / META).read_text().splitlines(keepends=True)
                kept = [line for line in lines if not line.startswith("directory.id")]
                (self.directory / META).write_text("".join(kept))
        else:
            self._aside.rename(self.directory)


@pytest.fixture(params=["disk", "moved", "replaced"])
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fault]:
    """What happens to the second log directory of node 1."""
    if request.param == "disk":
        with FailingDisk(tmp_path / "disk", tmp_path / "image", 128 * MIB) as disk:
            yield DiskFault(disk)
    else:
        folder = tmp_path / "second"
        folder.mkdir()
        yield MovedFault(folder, is_lost=request.param == "replaced")


@pytest.fixture
def directories(fault: Fault, tmp_path: Path) -> dict[int, Path]:
    """The second log directory of each node."""
    return {1: fault.directory, 2: tmp_path / "second-of-2", 3: tmp_path / "second-of-3"}


@pytest.fixture
def two_disks(directories: dict[int, Path], tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes with two log directories each; the metadata log is in the first."""
    folder = tmp_path / "cluster"

    def overrides(node_id: int, _ports: Mapping[int, int]) -> dict[str, str]:
        return {"log.dirs": f"{folder / f'node-{node_id}'},{directories[node_id]}"}

    settings: dict[str, Any] = {
        "offsets_topic_num_partitions": PARTITIONS,
        **FAST_CHECKPOINTS,
    }
    with Cluster(folder, 3, overrides, **settings) as made:
        yield made


def partitions_of(cluster: Cluster, topic: str) -> dict[int, MetadataResponsePartition]:
    """What some node knows of all partitions."""
    return {
        partition.partition_index: partition
        for found in cluster.topics(topic)
        for partition in found.partitions
    }


def replica_bytes(node: ClusterNode, second: Path, topic: str, partition: int) -> bytes:
    """All bytes of a partition's log on a node's disks."""
    folders = [place / f"{topic}-{partition}" for place in (node.data_directory, second)]
    [folder] = [one for one in folders if one.exists()]
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))


def log_dir_errors(kafka: KafkaTools, broker_id: int) -> dict[str, str | None]:
    """What kafka-log-dirs says is wrong with each log directory of a broker."""
    done = kafka.run("kafka-log-dirs", "--describe", "--broker-list", str(broker_id))
    [answer] = [json.loads(line) for line in done.lines if line.startswith("{")]
    [broker] = answer["brokers"]
    return {one["logDir"]: one["error"] for one in broker["logDirs"]}


def described(kafka: KafkaTools, topic: str, *options: str) -> dict[int, str]:
    """The lines of kafka-topics --describe by partition."""
    done = kafka.run("kafka-topics", "--describe", "--topic", topic, *options)
    lines = [line for line in done.lines if "\tPartition: " in line]
    return {int(line.split("\tPartition: ")[1].split()[0]): line for line in lines}


@pytest.mark.timeout(240)
def test_only_the_replicas_of_a_failed_directory_move(
    two_disks: Cluster,
    directories: dict[int, Path],
    fault: Fault,
    tools_at: Callable[[Cluster], KafkaTools],
) -> None:
    """Only leaders and ISRs of that directory change; a restart brings them back into sync."""
    cluster, kafka, topic = two_disks, tools_at(two_disks), "disks"
    kafka.run(
        "kafka-topics", "--create", "--topic", topic, "--replica-assignment", ",".join(PLACES),
        "--config", "min.insync.replicas=2",
    )  # fmt: skip
    cluster.wait_until(
        lambda: len(partitions_of(cluster, topic)) == PARTITIONS, "a node knows the topic"
    )
    cluster.wait_healthy(topic)
    before = partitions_of(cluster, topic)
    assert [before[index].leader_id for index in range(len(LED_BY_1))] == [1] * len(LED_BY_1)
    with ConfluentLoad(cluster.bootstrap, topic, PARTITIONS, RATE) as load:
        wait_for_more(cluster, [load.acknowledged], 200)
        lost = {n for n in before if (fault.directory / f"{topic}-{n}").exists()}
        led_there = {n for n in lost if before[n].leader_id == 1}
        kept = set(before) - lost
        assert led_there
        assert any(before[n].leader_id == 1 for n in kept)
        fault.fail()

        def have_moved() -> bool:
            now = partitions_of(cluster, topic)
            return all(1 not in now[n].isr_nodes and now[n].offline_replicas == [1] for n in lost)

        cluster.wait_until(have_moved, f"the replicas of {sorted(lost)} have left their ISRs")
        wait_for_more(cluster, [load.acknowledged], 400)
        check_moved(before, partitions_of(cluster, topic), lost)
        process = cluster.node(1).process
        assert process is not None and process.poll() is None
        check_tools(cluster, kafka, topic, lost, led_there, fault)
        cluster.node(1).restart()
        cluster.wait_until(
            lambda: in_sync(cluster, topic) == kept, "the others are back after a restart"
        )
        wait_for_more(cluster, [load.acknowledged], 200)
        assert in_sync(cluster, topic) == kept
        cluster.node(1).terminate()
        fault.repair()
        cluster.heal()
        assert in_sync(cluster, topic) == set(before)
        wait_for_more(cluster, [load.acknowledged], 200)
        load.stop()
    check_log(cluster, topic, PARTITIONS, load.acknowledged)
    assert set(log_dir_errors(kafka, 1).values()) == {None}
    check_same(cluster, directories, topic)
    kafka.run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    for n in led_there:
        cluster.wait_leader(topic, 1, n)


Partitions = Mapping[int, MetadataResponsePartition]


def check_moved(before: Partitions, after: Partitions, lost: set[int]) -> None:
    """Others lead what was in the failed directory, and nothing else has changed."""
    for n, was in before.items():
        now = after[n]
        if n in lost and was.leader_id == 1:
            assert now.leader_id in (2, 3)
            assert now.leader_epoch > was.leader_epoch
        else:
            assert (now.leader_id, now.leader_epoch) == (was.leader_id, was.leader_epoch), n
        assert now.offline_replicas == ([1] if n in lost else [])
        assert sorted(now.isr_nodes) == ([2, 3] if n in lost else [1, 2, 3])


def in_sync(cluster: Cluster, topic: str) -> set[int]:
    """The partitions all of whose replicas are online and in sync."""
    return {
        n
        for n, now in partitions_of(cluster, topic).items()
        if now.offline_replicas == [] and sorted(now.isr_nodes) == [1, 2, 3]
    }


def check_tools(
    cluster: Cluster, kafka: KafkaTools, topic: str, lost: set[int], led: set[int], fault: Fault
) -> None:
    """What Apache's tools show meanwhile."""
    assert set(described(kafka, topic, "--under-replicated-partitions")) == lost
    lines = described(kafka, topic)
    assert len(lines) == PARTITIONS
    assert all("Leader: 1\t" not in lines[n] for n in led)
    errors = log_dir_errors(kafka, 1)
    failed = {path for path, error in errors.items() if error is not None}
    assert failed == {str(fault.directory)}
    assert "KafkaStorageException" in str(errors[str(fault.directory)])
    assert set(log_dir_errors(kafka, 2).values()) == {None}


def check_same(cluster: Cluster, directories: dict[int, Path], topic: str) -> None:
    """All replicas have the same bytes, the newest included."""
    for partition in range(PARTITIONS):

        def same(partition: int = partition) -> bool:
            found = {
                replica_bytes(node, directories[node.node_id], topic, partition)
                for node in cluster.nodes.values()
            }
            return len(found) == 1

        cluster.wait_until(same, f"the replicas of {topic}-{partition} are identical", 15)


# What a coordinator that moves may answer meanwhile; clients look for it again.
MOVING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def commit(cluster: Cluster, group: str, offset: int) -> int:
    """Commit an offset of a group, wherever it is; return its coordinator."""

    def committed() -> int:
        coordinator = cluster.coordinator(group)
        with cluster.node(coordinator).client() as client:
            code = commit_code(client, commit_request(group, "t", offset))
        assert code in {ErrorCode.NONE, *MOVING}, ErrorCode(code)
        return coordinator if code == ErrorCode.NONE else 0

    return int(cluster.wait_until(committed, f"{group} commits {offset}"))


@pytest.mark.parametrize("fault", ["disk", "moved"], indirect=True)
def test_groups_move_with_their_directory(
    two_disks: Cluster, fault: Fault, tools_at: Callable[[Cluster], KafkaTools]
) -> None:
    """Only the coordinators of that directory move, with everything that was committed."""
    cluster, kafka = two_disks, tools_at(two_disks)
    kafka.create_topic("t")
    kafka.run(
        "kafka-topics", "--create", "--topic", OFFSETS_TOPIC, "--replica-assignment",
        ",".join(PLACES), "--config", "cleanup.policy=compact",
    )  # fmt: skip
    assert len(GROUPS) == PARTITIONS
    before = {n: commit(cluster, group, 1) for n, group in GROUPS.items()}
    cluster.wait_healthy()
    partitions = partitions_of(cluster, OFFSETS_TOPIC)
    lost = {n for n in partitions if (fault.directory / f"{OFFSETS_TOPIC}-{n}").exists()}
    leaving = {n for n in lost if partitions[n].leader_id == 1}
    assert leaving
    assert {n for n in partitions if partitions[n].leader_id == 1} - leaving
    fault.fail()
    offset = 1

    def have_moved() -> bool:
        nonlocal offset
        offset += 1
        for group in GROUPS.values():
            commit(cluster, group, offset)
        return all(partitions_of(cluster, OFFSETS_TOPIC)[n].leader_id != 1 for n in leaving)

    cluster.wait_until(have_moved, f"the coordinators of {sorted(leaving)} have moved")
    for n, group in GROUPS.items():
        coordinator = commit(cluster, group, offset)
        assert (coordinator != before[n]) == (n in leaving), group
        with cluster.node(coordinator).client() as client:
            assert fetch_offset(client, group, "t").committed_offset == offset
    cluster.node(1).terminate()
    fault.repair()
    cluster.heal()
    for group in GROUPS.values():
        with cluster.node(commit(cluster, group, offset + 1)).client() as client:
            assert fetch_offset(client, group, "t").committed_offset == offset + 1
