"""Nodes with one role each: controllers that serve no clients, brokers that do not vote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conformance.cluster_load import JavaLoad, check_log, check_replicas, wait_for_more
from tests.conformance.cluster_process import HOST, Cluster
from tests.conformance.java_tools import KafkaTools, ToolRunner

CONTROLLERS, BROKERS = (1, 2, 3), (4, 5)


def roles(node_id: int, ports: Mapping[int, int]) -> dict[str, str]:
    """Give three nodes the role of a controller and two that of a broker."""
    voters = ",".join(f"{one}@{HOST}:{ports[one] + 1}" for one in CONTROLLERS)
    common = {
        "controller.quorum.voters": voters,
        "default.replication.factor": "2",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
    }
    port = ports[node_id]
    if node_id in CONTROLLERS:
        own = {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{HOST}:{port + 1}",
            "advertised.listeners": f"CONTROLLER://{HOST}:{port + 1}",
        }
    else:
        own = {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        }
    return common | own


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three controllers and two brokers."""
    with Cluster(tmp_path_factory.mktemp("roles"), 5, roles) as cluster:
        yield cluster


@pytest.fixture
def kafka(parted: Cluster, tool_runner: ToolRunner) -> KafkaTools:
    """Apache's tools, pointed at the brokers."""
    return KafkaTools(parted.bootstrap, tool_runner)


def test_who_is_what(parted: Cluster, kafka: KafkaTools) -> None:
    """Controllers vote, brokers observe; clients see brokers alone."""
    rows = kafka.run("kafka-metadata-quorum", "describe", "--replication").rows("NodeId")
    states = {int(row["NodeId"]): row["Status"] for row in rows}
    assert sorted(states) == [1, 2, 3, 4, 5]
    leader = parted.controller()
    assert states == {
        **dict.fromkeys(CONTROLLERS, "Follower"),
        **dict.fromkeys(BROKERS, "Observer"),
        leader: "Leader",
    }
    done = kafka.run("kafka-metadata-quorum", "describe", "--status").lines
    shown = {name: value.strip() for name, value in (line.split(":", 1) for line in done)}
    assert [one["id"] for one in json.loads(shown["CurrentVoters"])] == [1, 2, 3]
    assert sorted(one["id"] for one in json.loads(shown["CurrentObservers"])) == [4, 5]
    brokers = kafka.run("kafka-cluster", "list-endpoints").rows("ID")
    assert sorted(int(row["ID"]) for row in brokers) == [4, 5]
    at = ["--bootstrap-controller", parted.controllers]
    controllers = kafka.run("kafka-cluster", "list-endpoints", *at).rows("ID")
    assert sorted(int(row["ID"]) for row in controllers) == [1, 2, 3]


def test_data_flows_while_controllers_change(
    parted: Cluster, kafka: KafkaTools, tmp_path: Path
) -> None:
    """Producers notice neither the end of the active controller nor that of two of three."""
    kafka.create_topic("flow", 2)
    parted.wait_healthy("flow")
    with JavaLoad(kafka, "flow", tmp_path, 300) as load:
        wait_for_more(parted, [load.acknowledged], 50)
        first = parted.controller()
        parted.node(first).kill9()
        second = parted.controller()
        assert second in CONTROLLERS
        wait_for_more(parted, [load.acknowledged], 100)
        kafka.create_topic("while-two-vote")
        parted.node(second).kill9()
        wait_for_more(parted, [load.acknowledged], 100)  # no quorum, but the leaders lead
        parted.heal()
        kafka.create_topic("after")
        load.stop()
    check_log(parted, "flow", 2, load.acknowledged)
    check_replicas(parted, "flow", 2)


def test_broker_dies(parted: Cluster, kafka: KafkaTools, tmp_path: Path) -> None:
    """The other broker leads, alone in sync; everything is copied once the first is back."""
    kafka.create_topic("dies", 2)
    parted.wait_healthy()
    with JavaLoad(kafka, "dies", tmp_path, 300) as load:
        wait_for_more(parted, [load.acknowledged], 50)
        dead = parted.leader("dies")
        (other,) = set(BROKERS) - {dead}
        parted.node(dead).kill9()
        parted.wait_leader("dies", other)
        wait_for_more(parted, [load.acknowledged], 100)
        parted.heal()
        load.stop()
    check_log(parted, "dies", 2, load.acknowledged)
    check_replicas(parted, "dies", 2)


def test_all_controllers_restart(parted: Cluster, kafka: KafkaTools) -> None:
    """Brokers wait for their controllers, and register with what they find."""
    kafka.create_topic("kept", 3)
    for node_id in CONTROLLERS:
        parted.node(node_id).kill9()
    parted.heal()
    assert "kept" in kafka.run("kafka-topics", "--list").lines
    kafka.produce("kept", ["first"], "--request-required-acks", "all")
    assert kafka.consume("kept", count=1, timeout_ms=40_000) == ["first"]
