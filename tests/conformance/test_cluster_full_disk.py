"""The disk of one of three brokers is full under load: its partitions go on at the other two.

Nothing that was acknowledged is lost, producers wait for a moment only, and once there is room the
broker is in sync again and may lead.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
LONGEST_WAIT_S = 15.0  # of a machine under load; replica.lag.time.max.ms alone is 30 s


def leaders(cluster: Cluster) -> set[int]:
    return {one.leader_id for topic in cluster.topics(TOPIC) for one in topic.partitions}


def in_sync(cluster: Cluster, broker_id: int) -> list[bool]:
    return [broker_id in one.isr_nodes for t in cluster.topics(TOPIC) for one in t.partitions]


def test_a_full_disk_moves_what_is_led_there(tmp_path: Path) -> None:
    """See the module."""
    disk = SmallDisk(tmp_path / "small", 24 * MIB)

    def overrides(node_id: int, _ports: Mapping[int, int]) -> dict[str, str]:
        home = tmp_path / f"node-{node_id}"
        place = disk.path / "data" if node_id == 1 else home
        return {"log.dirs": str(place), "metadata.log.dir": str(home / "metadata")}

    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2, 3])
        for index in range(PARTITIONS)
    ]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments
            )
        ],
        timeout_ms=10_000,
    )
    settings: dict[str, Any] = {"min_insync_replicas": 2, "replica_lag_time_max_ms": 30_000}
    with disk, Cluster(tmp_path, 3, overrides, **settings) as cluster:
        assert cluster.ask(request).topics[0].error_code == 0
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
