"""A disk of one of three nodes is full: everything goes on at the other two.

With data, under load: nothing that was acknowledged is lost, producers wait for a moment only, and
once there is room the broker is in sync again and may lead. With the metadata log: another node
becomes the controller, and the full one neither ends nor votes before it can note what it does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.conformance.cluster_load import ConfluentLoad, check_log, wait_for_more
from tests.conformance.cluster_process import Cluster
from tests.integration.disks import SmallDisk

MIB = 1 << 20
TOPIC = "full"
PARTITIONS = 6
RATE = 300
NO_ROOM = "metadata log cannot be written now"
LONGEST_WAIT_S = 15.0  # of a machine under load; replica.lag.time.max.ms alone is 30 s


def leaders(cluster: Cluster) -> set[int]:
    return {one.leader_id for topic in cluster.topics(TOPIC) for one in topic.partitions}


def in_sync(cluster: Cluster, broker_id: int) -> list[bool]:
    return [broker_id in one.isr_nodes for t in cluster.topics(TOPIC) for one in t.partitions]


def create(cluster: Cluster, topic: str, partitions: int) -> int:
    """Create a topic whose preferred leader is node 1; return the error code."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2, 3])
        for index in range(partitions)
    ]
    made = CreatableTopic(
        name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    answer = cluster.ask(CreateTopicsRequest(topics=[made], timeout_ms=4_000))
    return int(answer.topics[0].error_code)


def test_a_full_disk_moves_what_is_led_there(tmp_path: Path) -> None:
    """See the module."""
    disk = SmallDisk(tmp_path / "small", 24 * MIB)

    def overrides(node_id: int, _ports: Mapping[int, int]) -> dict[str, str]:
        home = tmp_path / f"node-{node_id}"
        place = disk.path / "data" if node_id == 1 else home
        return {"log.dirs": str(place), "metadata.log.dir": str(home / "metadata")}

    settings: dict[str, Any] = {"min_insync_replicas": 2, "replica_lag_time_max_ms": 30_000}
    with disk, Cluster(tmp_path, 3, overrides, **settings) as cluster:
        assert create(cluster, TOPIC, PARTITIONS) == ErrorCode.NONE
        cluster.wait_until(lambda: leaders(cluster) == {1}, "node 1 leads")
        cluster.wait_healthy(TOPIC)
        with ConfluentLoad(cluster.bootstrap, TOPIC, PARTITIONS, RATE, padding_bytes=2000) as load:
            wait_for_more(cluster, [load.acknowledged], 200)
            disk.fill_up("ballast")
            filled_s = time.monotonic()
            cluster.wait_until(lambda: leaders(cluster) == {2}, "node 2 leads all")
            wait_for_more(cluster, [load.acknowledged], 2 * RATE)
            assert time.monotonic() - filled_s < LONGEST_WAIT_S
            assert not any(in_sync(cluster, 1))
            (disk.path / "ballast").unlink()
            cluster.wait_until(lambda: all(in_sync(cluster, 1)), "node 1 is in sync again")
            wait_for_more(cluster, [load.acknowledged], RATE)
            load.stop()
        check_log(cluster, TOPIC, PARTITIONS, load.acknowledged)


def test_a_full_metadata_disk_moves_the_controller(tmp_path: Path) -> None:
    """See the module."""
    disks = {node_id: SmallDisk(tmp_path / f"small-{node_id}", 24 * MIB) for node_id in (1, 2, 3)}

    def overrides(node_id: int, _ports: Mapping[int, int]) -> dict[str, str]:
        metadata = disks[node_id].path / "metadata"
        return {"log.dirs": str(tmp_path / f"node-{node_id}"), "metadata.log.dir": str(metadata)}

    with ExitStack() as stack:
        for disk in disks.values():
            stack.enter_context(disk)
        cluster = stack.enter_context(Cluster(tmp_path, 3, overrides))

        # What is left of the last block of a log takes a few topics, but no vote.
        first = cluster.controller()
        full, _ = cluster.others(first)
        disks[full].fill_up("ballast")
        cluster.node(first).kill9()
        log_path = cluster.node(full).log_path
        cluster.wait_until(lambda: NO_ROOM in log_path.read_text(), f"node {full} has no room")
        (disks[full].path / "ballast").unlink()
        cluster.heal()

        full = cluster.controller()
        disks[full].fill_up("ballast")
        made: list[str] = []

        def has_moved() -> bool:
            name = f"topic-{len(made)}"
            if create(cluster, name, 1) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                made.append(name)
            return cluster.controller() != full

        cluster.wait_until(has_moved, f"a node other than {full} is the controller")
        assert create(cluster, "meanwhile", 1) == ErrorCode.NONE
        (disks[full].path / "ballast").unlink()
        cluster.heal()
        assert {topic.name for topic in cluster.topics()} == {"meanwhile", *made}
