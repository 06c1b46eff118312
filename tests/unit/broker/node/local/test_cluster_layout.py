"""The layout of a cluster on one machine: properties, ports, ids, and what is never changed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.node.local.cluster_layout import (
    ClusterError,
    PlannedNode,
    free_ports,
    plan_cluster,
)


def plan(directory: Path, **options: object) -> list[PlannedNode]:
    """Plan with a fixed seed."""
    return plan_cluster(OsFileSystem(), str(directory), random.Random(1), **options)  # type: ignore[arg-type]


def config_of(node: PlannedNode) -> BrokerConfig:
    """Read a node's own file as `kraftrio start --config` does."""
    return BrokerConfig.load(node.config_file, {}, {})


def cluster_ids(nodes: list[PlannedNode]) -> set[str]:
    """Return the cluster ids in the nodes' folders."""
    texts = [(Path(node.directory) / "meta.properties").read_text() for node in nodes]
    return {line for text in texts for line in text.splitlines() if line.startswith("cluster.id=")}


def test_new_cluster(tmp_path: Path) -> None:
    """Three nodes from port 9092 on, each with a controller above, all voters, one cluster id."""
    nodes = plan(tmp_path / "data")
    assert [(node.node_id, node.port) for node in nodes] == [(1, 9092), (2, 9094), (3, 9096)]
    assert len(cluster_ids(nodes)) == 1
    for node in nodes:
        assert node.directory == str(tmp_path / "data" / f"node-{node.node_id}")
        config = config_of(node)
        assert config.warnings == []
        assert (config.node_id, config.log_dirs) == (node.node_id, [node.directory])
        assert config.is_broker
        assert config.is_controller
        assert [one.port for one in config.broker_listeners] == [node.port]
        assert [one.port for one in config.controller_listeners] == [node.port + 1]
        assert [(one.node_id, one.port) for one in config.controller_quorum_voters] == [
            (1, 9093),
            (2, 9095),
            (3, 9097),
        ]


@pytest.mark.parametrize(
    ("count", "replicas", "min_insync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)]
)
def test_replication(tmp_path: Path, count: int, replicas: int, min_insync: int) -> None:
    """Up to three replicas; with three, acks=all means two of them."""
    for node in plan(tmp_path, nodes=count, base_port=20_000):
        config = config_of(node)
        assert config.default_replication_factor == replicas
        assert config.value("offsets.topic.replication.factor") == replicas
        assert config.min_insync_replicas == min_insync


def test_second_plan_changes_nothing(tmp_path: Path) -> None:
    """Ports, ids and edited settings stay as they are, whatever free ports were picked at first."""
    nodes = plan(tmp_path, nodes=3, base_port=0, settings={"num.partitions": "4"})
    edited = Path(nodes[1].config_file)
    edited.write_text(edited.read_text() + "log.retention.hours=5\n")
    before = {node.node_id: Path(node.config_file).read_text() for node in nodes}
    ids = cluster_ids(nodes)
    for options in ({}, {"nodes": 3}, {"base_port": 0}, {"settings": {"num.partitions": "9"}}):
        assert plan(tmp_path, **options) == nodes
        assert {node.node_id: Path(node.config_file).read_text() for node in nodes} == before
    assert cluster_ids(nodes) == ids
    assert config_of(nodes[0]).num_partitions == 4


def test_lost_folder_is_laid_out_again(tmp_path: Path) -> None:
    """A node whose disk was replaced comes back as itself: its ports and its cluster's id."""
    nodes = plan(tmp_path, nodes=3, base_port=0)
    ids = cluster_ids(nodes)
    for file in Path(nodes[1].directory).iterdir():
        file.unlink()
    Path(nodes[1].directory).rmdir()
    (Path(nodes[2].directory) / "meta.properties").unlink()
    assert plan(tmp_path) == nodes
    assert cluster_ids(nodes) == ids
    assert config_of(nodes[1]).controller_listeners[0].port == nodes[1].port + 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nodes": 0}, "a cluster of 0 nodes: it must have at least 1"),
        ({"base_port": 65_533}, "the ports 65533 to 65538 are not all between 1 and 65535"),
        ({"base_port": -5}, "the ports -5 to 0 are not all"),
    ],
)
def test_impossible_clusters(tmp_path: Path, options: dict[str, int], sentence: str) -> None:
    """What cannot be is refused before anything is written."""
    with pytest.raises(ClusterError, match=sentence):
        plan(tmp_path / "data", **options)
    assert not (tmp_path / "data").exists()


def test_contradictions(tmp_path: Path) -> None:
    """A cluster that is there keeps its size and its ports, and says so."""
    plan(tmp_path, nodes=3, base_port=9092)
    with pytest.raises(ClusterError, match="holds a cluster of 3 nodes, not 5"):
        plan(tmp_path, nodes=5)
    with pytest.raises(ClusterError, match="has the ports 9092, 9094, 9096: start it without"):
        plan(tmp_path, base_port=19_092)
    (tmp_path / "node-2" / "server.properties").write_text("listeners=PLAINTEXT\n")
    with pytest.raises(ClusterError, match="cannot understand"):
        plan(tmp_path)


def test_no_folder_can_be_made(tmp_path: Path) -> None:
    """A file where the folder should be is refused in one sentence."""
    (tmp_path / "data").write_text("")
    with pytest.raises(ClusterError, match="cannot use"):
        plan(tmp_path / "data" / "cluster")


def test_free_ports_come_in_pairs() -> None:
    """Each node gets two neighbouring ports below those of outgoing connections."""
    ports = free_ports(5, "127.0.0.1", random.Random(3))
    assert len(set(ports)) == 5
    assert all(20_000 <= port < 32_766 and port % 2 == 0 for port in ports)
