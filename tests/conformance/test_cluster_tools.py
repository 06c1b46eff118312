"""The tools that look at a cluster of several nodes, while all is well and while a node is away."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools

UUID = r"[A-Za-z0-9_-]{22}"
PARTITION = re.compile(
    r"Topic: (?P<topic>\S+)\s+Partition: (?P<partition>\d+)\s+Leader: (?P<leader>\S+)"
    r"\s+Replicas: (?P<replicas>[\d,]+)\s+Isr: (?P<isr>[\d,]*)"
)


def partitions(kafka: KafkaTools, *options: str) -> list[dict[str, str]]:
    """Return the lines about partitions that kafka-topics --describe prints, by their columns."""
    lines = kafka.run("kafka-topics", "--describe", *options).lines
    return [found.groupdict() for line in lines if (found := PARTITION.match(line))]


def ids(text: str) -> list[int]:
    """Read a list of ids."""
    return [int(number) for number in text.split(",") if number]


def status(kafka: KafkaTools, *address: str) -> dict[str, str]:
    """Return what kafka-metadata-quorum describe --status prints."""
    lines = kafka.run("kafka-metadata-quorum", *address, "describe", "--status").lines
    return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}


@pytest.fixture(params=["server", "controller"])
def address(request: pytest.FixtureRequest, cluster: Cluster) -> list[str]:
    """The ways to the controller: through any broker, or to its own listener."""
    if request.param == "server":
        return ["--bootstrap-server", cluster.bootstrap]
    return ["--bootstrap-controller", cluster.controllers]


# -- kafka-topics ---------------------------------------------------------------------------------


def test_replicas_are_spread(
    cluster_tools: KafkaTools, cluster: Cluster, unique_topic: Callable[[], str]
) -> None:
    """Every node gets as many leaders as the others; the first replica leads; all are in sync."""
    topic = unique_topic()
    options = ["--topic", topic, "--partitions", "6", "--replication-factor", "3"]
    created = cluster_tools.run("kafka-topics", "--create", *options)
    assert created.lines == [f"Created topic {topic}."]
    cluster.wait_healthy(topic)
    shown = partitions(cluster_tools, "--topic", topic)
    assert [int(row["partition"]) for row in shown] == list(range(6))
    for row in shown:
        replicas = ids(row["replicas"])
        assert sorted(replicas) == sorted(ids(row["isr"])) == [1, 2, 3]
        assert int(row["leader"]) == replicas[0]
    assert sorted(row["leader"] for row in shown) == ["1", "1", "2", "2", "3", "3"]


def test_defaults_are_replicated(
    cluster_tools: KafkaTools, cluster: Cluster, unique_topic: Callable[[], str]
) -> None:
    """A topic made without options is on all three nodes, also one made on first use."""
    topic = cluster_tools.create_topic(unique_topic())
    on_use = unique_topic()
    cluster_tools.produce(on_use, ["first"])
    cluster.wait_healthy(topic, on_use)
    for name in (topic, on_use):
        (row,) = partitions(cluster_tools, "--topic", name)
        assert sorted(ids(row["isr"])) == [1, 2, 3]


def test_more_replicas_than_brokers(
    cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """Four replicas on three brokers are refused, and nothing is created."""
    topic = unique_topic()
    options = ["--topic", topic, "--partitions", "1", "--replication-factor", "4"]
    refused = cluster_tools.run("kafka-topics", "--create", *options, check=False)
    assert refused.exit_code == 1
    assert "InvalidReplicationFactorException" in refused.output
    assert topic not in cluster_tools.run("kafka-topics", "--list").lines


def test_partitions_are_added_and_spread(
    cluster_tools: KafkaTools, cluster: Cluster, unique_topic: Callable[[], str]
) -> None:
    """New partitions have as many replicas as the old ones."""
    topic = cluster_tools.create_topic(unique_topic(), partitions=1)
    cluster_tools.run("kafka-topics", "--alter", "--topic", topic, "--partitions", "4")
    cluster.wait_healthy(topic)
    shown = partitions(cluster_tools, "--topic", topic)
    assert [sorted(ids(row["isr"])) for row in shown] == [[1, 2, 3]] * 4


def test_created_while_a_broker_is_away(
    cluster_tools: KafkaTools, cluster: Cluster, unique_topic: Callable[[], str]
) -> None:
    """With a broker fenced, a topic of three replicas is made on all; two are in sync."""
    away = cluster.others(cluster.controller())[0]
    cluster.node(away).kill9()
    topic = unique_topic()
    probe = cluster_tools.create_topic(unique_topic())
    cluster.wait_until(
        lambda: (found := cluster.partition(probe)) and away not in found.isr_nodes,
        "the broker is fenced",
    )
    options = ["--topic", topic, "--partitions", "3", "--replication-factor", "3"]
    cluster_tools.run("kafka-topics", "--create", *options)
    for row in partitions(cluster_tools, "--topic", topic):
        assert sorted(ids(row["replicas"])) == [1, 2, 3]
        assert sorted(ids(row["isr"])) == cluster.others(away)
        assert int(row["leader"]) != away
    cluster.heal()
    for row in partitions(cluster_tools, "--topic", topic):
        assert sorted(ids(row["isr"])) == [1, 2, 3]


def test_what_is_missing_is_shown(
    cluster_tools: KafkaTools, cluster: Cluster, unique_topic: Callable[[], str]
) -> None:
    """--describe finds what is under-replicated, at or under min.insync.replicas, unavailable."""
    away = cluster.others(cluster.controller())[0]
    whole, strict, alone = (unique_topic() for _ in range(3))
    cluster_tools.create_topic(whole)
    cluster_tools.create_topic(strict, min_insync_replicas=3)
    create = ["--create", "--topic", alone, "--replica-assignment", str(away)]
    create += ["--config", "min.insync.replicas=1"]
    cluster_tools.run("kafka-topics", *create)

    def shown(option: str) -> set[str]:
        names = {row["topic"] for row in partitions(cluster_tools, option)}
        return names & {whole, strict, alone}

    options = ("--under-replicated-partitions", "--under-min-isr-partitions",
               "--unavailable-partitions")  # fmt: skip
    assert [shown(option) for option in options] == [set(), set(), set()]
    assert strict in shown("--at-min-isr-partitions")
    cluster.node(away).kill9()
    cluster.wait_isr(whole, set(cluster.others(away)))
    cluster.wait_isr(strict, set(cluster.others(away)))
    cluster.wait_leader(alone, -1)
    assert {whole, strict} <= shown("--under-replicated-partitions")
    assert strict in shown("--under-min-isr-partitions")
    assert shown("--at-min-isr-partitions") >= {whole}
    assert shown("--unavailable-partitions") == {alone}
    (row,) = partitions(cluster_tools, "--topic", alone)
    assert row["leader"] == "none"
    assert ids(row["replicas"]) == [away]
    assert ids(row["isr"]) in ([away], []), "empty where KIP-966 keeps it as an eligible leader"
    cluster.heal()
    assert [shown(option) for option in options] == [set(), set(), set()]


# -- kafka-metadata-quorum ------------------------------------------------------------------------


def test_quorum_status(cluster_tools: KafkaTools, cluster: Cluster, address: list[str]) -> None:
    """Three voters, one of which leads; the others are close behind."""
    shown = status(cluster_tools, *address)
    assert re.fullmatch(UUID, shown["ClusterId"])
    assert int(shown["LeaderId"]) == cluster.controller()
    assert int(shown["LeaderEpoch"]) >= 1
    assert int(shown["HighWatermark"]) > 0
    assert int(shown["MaxFollowerLag"]) < 100
    assert int(shown["MaxFollowerLagTimeMs"]) < 5000
    voters = json.loads(shown["CurrentVoters"])
    assert [voter["id"] for voter in voters] == [1, 2, 3]
    assert shown["CurrentObservers"] == "[]"


def test_quorum_replication(
    cluster_tools: KafkaTools, cluster: Cluster, address: list[str]
) -> None:
    """One leader and two followers, without lag once nothing changes."""

    def rows() -> list[dict[str, str]]:
        done = cluster_tools.run("kafka-metadata-quorum", *address, "describe", "--replication")
        return done.rows("NodeId")

    shown = rows()
    assert sorted(row["NodeId"] for row in shown) == ["1", "2", "3"]
    assert sorted(row["Status"] for row in shown) == ["Follower", "Follower", "Leader"]
    (leader,) = (row for row in shown if row["Status"] == "Leader")
    assert int(leader["NodeId"]) == cluster.controller()
    assert all(int(row["LogEndOffset"]) > 0 for row in shown)
    cluster.wait_until(lambda: all(int(row["Lag"]) <= 2 for row in rows()), "no follower lags")


def test_another_controller_takes_over(cluster_tools: KafkaTools, cluster: Cluster) -> None:
    """After the active controller is killed another is, in a later epoch; the dead one lags."""
    before = status(cluster_tools)
    dead = int(before["LeaderId"])
    cluster.node(dead).kill9()
    assert cluster.controller() != dead
    after = status(cluster_tools)
    assert int(after["LeaderId"]) in cluster.others(dead)
    assert int(after["LeaderEpoch"]) > int(before["LeaderEpoch"])
    # The first record of its epoch may not be committed yet.
    cluster.wait_until(
        lambda: int(status(cluster_tools)["HighWatermark"]) > int(before["HighWatermark"]),
        "the high watermark goes on",
    )
    cluster.heal()
    assert len(json.loads(status(cluster_tools)["CurrentVoters"])) == 3


# -- brokers --------------------------------------------------------------------------------------


def test_api_versions_of_every_broker(cluster_tools: KafkaTools, cluster: Cluster) -> None:
    """Each broker's versions are listed under its own address."""
    shown = cluster_tools.run("kafka-broker-api-versions").stdout
    heads = re.findall(r"^(\S+) \(id: (\d+) rack: null", shown, re.M)
    assert sorted((int(i), at) for at, i in heads) == [
        (i, node.address) for i, node in cluster.nodes.items()
    ]


def test_endpoints(cluster_tools: KafkaTools, cluster: Cluster) -> None:
    """Brokers, and controllers at their own listeners, are listed with their addresses."""
    rows = cluster_tools.run("kafka-cluster", "list-endpoints").rows("ID")
    assert sorted((row["ID"], row["PORT"], row["STATE"]) for row in rows) == [
        (str(i), str(node.port), "unfenced") for i, node in cluster.nodes.items()
    ]
    at = ["--bootstrap-controller", cluster.controllers]
    rows = cluster_tools.run("kafka-cluster", "list-endpoints", *at).rows("ID")
    assert sorted((row["ID"], row["PORT"], row["ENDPOINT_TYPE"]) for row in rows) == [
        (str(i), str(node.port + 1), "controller") for i, node in cluster.nodes.items()
    ]


def test_cluster_id_is_the_same_everywhere(cluster_tools: KafkaTools, cluster: Cluster) -> None:
    """Every broker and controller names the id that is in every data folder."""
    shown = set()
    for node in cluster.nodes.values():
        at = ["--bootstrap-server", node.address]
        shown.add(cluster_tools.run("kafka-cluster", "cluster-id", *at).lines[0])
    at = ["--bootstrap-controller", cluster.controllers]
    shown.add(cluster_tools.run("kafka-cluster", "cluster-id", *at).lines[0])
    (line,) = shown
    cluster_id = line.removeprefix("Cluster ID: ")
    for node in cluster.nodes.values():
        (meta,) = node.data_directory.rglob("meta.properties")
        assert f"cluster.id={cluster_id}" in meta.read_text().splitlines()


def test_unregister_a_broker(cluster_tools: KafkaTools, cluster: Cluster) -> None:
    """A broker that is away can be removed; when it starts again it is back."""
    away = cluster.others(cluster.controller())[0]
    cluster.node(away).terminate()

    def states() -> dict[str, str]:
        listed = cluster_tools.run("kafka-cluster", "list-endpoints", "--include-fenced-brokers")
        return {row["ID"]: row["STATE"] for row in listed.rows("ID")}

    cluster.wait_until(lambda: states().get(str(away)) == "fenced", "the broker is fenced")
    done = cluster_tools.run("kafka-cluster", "unregister", "--id", str(away))
    assert f"Broker {away} is no longer registered." in done.stdout
    cluster.wait_until(lambda: str(away) not in states(), "the broker is gone")
    cluster.heal()
    assert states() == {"1": "unfenced", "2": "unfenced", "3": "unfenced"}


def test_features(cluster_tools: KafkaTools, address: list[str]) -> None:
    """All nodes report the same metadata version."""
    lines = cluster_tools.run("kafka-features", *address, "describe").lines
    features = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", "\n".join(lines)))
    assert re.match(r"[34]\.\d-IV\d", features["metadata.version"])


def test_configs_through_the_controller(cluster_tools: KafkaTools, cluster: Cluster) -> None:
    """Settings of brokers can be changed and read where only controllers are reached."""
    at = ["--bootstrap-controller", cluster.controllers, "--entity-type", "brokers"]
    one = [*at, "--entity-name", "2"]
    name = "log.cleaner.backoff.ms"
    cluster_tools.run("kafka-configs", *one, "--alter", "--add-config", f"{name}=14000")
    assert f"{name}=14000" in cluster_tools.run("kafka-configs", *one, "--describe").stdout
    through_broker = ["--entity-type", "brokers", "--entity-name", "2", "--describe"]
    cluster.wait_until(
        lambda: f"{name}=14000" in cluster_tools.run("kafka-configs", *through_broker).stdout,
        "the broker knows its setting",
    )
    cluster_tools.run("kafka-configs", *one, "--alter", "--delete-config", name)
    assert name not in cluster_tools.run("kafka-configs", *one, "--describe").stdout


def test_default_config_of_all_brokers(cluster_tools: KafkaTools, cluster: Cluster) -> None:
    """A default for all brokers is in force at each of them."""
    everywhere = ["--entity-type", "brokers", "--entity-default"]
    name = "log.cleaner.backoff.ms"
    cluster_tools.run("kafka-configs", *everywhere, "--alter", "--add-config", f"{name}=13000")

    def in_force(node_id: int) -> bool:
        one = ["--bootstrap-server", cluster.node(node_id).address, "--entity-type", "brokers"]
        done = cluster_tools.run("kafka-configs", *one, "--entity-name", str(node_id), "--describe",
                                 "--all")  # fmt: skip
        return f"{name}=13000" in done.stdout

    for node_id in cluster.nodes:
        cluster.wait_until(partial(in_force, node_id), f"in force at {node_id}")
    cluster_tools.run("kafka-configs", *everywhere, "--alter", "--delete-config", name)


# -- replicas -------------------------------------------------------------------------------------


def replicas_by_broker(kafka: KafkaTools, topic: str, *options: str) -> dict[int, dict[str, Any]]:
    """Return what kafka-log-dirs says about partition 0 of a topic, by broker."""
    done = kafka.run("kafka-log-dirs", "--describe", "--topic-list", topic, *options)
    (text,) = (line for line in done.lines if line.startswith("{"))
    return {
        broker["broker"]: found
        for broker in json.loads(text)["brokers"]
        for folder in broker["logDirs"]
        for found in folder["partitions"]
        if found["partition"] == f"{topic}-0"
    }


def test_log_dirs(
    cluster_tools: KafkaTools, cluster: Cluster, unique_topic: Callable[[], str]
) -> None:
    """Every broker reports the size of its replica: all have the same bytes and no lag."""
    topic = cluster_tools.create_topic(unique_topic())
    cluster_tools.produce(topic, ["x" * 100] * 50, "--request-required-acks", "all")
    cluster.wait_healthy(topic)
    found = replicas_by_broker(cluster_tools, topic)
    assert sorted(found) == [1, 2, 3]
    assert len({replica["size"] for replica in found.values()}) == 1
    assert found[1]["size"] > 500
    assert all(one["offsetLag"] == 0 and not one["isFuture"] for one in found.values())
    assert sorted(replicas_by_broker(cluster_tools, topic, "--broker-list", "1,3")) == [1, 3]


def test_replica_verification(
    cluster_tools: KafkaTools, cluster: Cluster, unique_topic: Callable[[], str]
) -> None:
    """The tool that reads every replica and compares them finds no difference and no lag."""
    topic = cluster_tools.create_topic(unique_topic(), partitions=3)
    cluster_tools.produce(topic, [f"record {i}" for i in range(300)], "--request-required-acks",
                          "all")  # fmt: skip
    options = ["--broker-list", cluster.bootstrap, "--topics-include", topic]
    options += ["--report-interval-ms", "500"]
    with cluster_tools.start("kafka-replica-verification", *options) as tool:
        assert tool.process.stdout is not None
        deadline = time.monotonic() + 40
        reports: list[str] = []
        while len(reports) < 4 and time.monotonic() < deadline:
            line = tool.process.stdout.readline()
            assert "different" not in line.lower(), line
            if "max lag is" in line:
                reports.append(line)
    assert "max lag is 0 for partition" in reports[-1], reports


def test_get_offsets_at_every_leader(
    cluster_tools: KafkaTools, cluster: Cluster, unique_topic: Callable[[], str]
) -> None:
    """Offsets of partitions that different brokers lead, also while one of these is away."""
    topic = cluster_tools.create_topic(unique_topic(), partitions=3)
    cluster.wait_healthy(topic)
    for partition in range(3):
        lines = [f"{partition}:{i}" for i in range(partition + 1)]
        cluster_tools.produce(topic, lines, "--property", "parse.key=true", "--property",
                              "key.separator=:")  # fmt: skip
    asked = ["kafka-get-offsets", "--topic", topic]
    before = cluster_tools.run(*asked).lines
    assert sum(int(line.rsplit(":", 1)[1]) for line in before) == 6
    away = cluster.leader(topic, 0)
    cluster.node(away).kill9()
    for partition in range(3):
        cluster.leader(topic, partition)
    assert cluster_tools.run(*asked).lines == before


# -- groups ---------------------------------------------------------------------------------------


def test_group_outlives_its_coordinator(
    cluster_tools: KafkaTools,
    cluster: Cluster,
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
) -> None:
    """Offsets of a group are shown, and can be reset, when its coordinator is another broker."""
    topic, group = cluster_tools.create_topic(unique_topic()), unique_group()
    cluster_tools.produce(topic, [str(i) for i in range(100)], "--request-required-acks", "all")
    read = cluster_tools.consume(topic, "--group", group, "--from-beginning", count=60)
    assert len(read) == 60

    def offsets() -> list[tuple[str, str]]:
        done = cluster_tools.run("kafka-consumer-groups", "--describe", "--group", group)
        return [(row["CURRENT-OFFSET"], row["LAG"]) for row in done.rows("GROUP")]

    assert offsets() == [("60", "40")]
    for _ in range(2):
        dead = cluster.coordinator(group)
        cluster.node(dead).kill9()
        assert cluster.coordinator(group) != dead
        assert offsets() == [("60", "40")]
        state = cluster_tools.run("kafka-consumer-groups", "--describe", "--group", group,
                                  "--state")  # fmt: skip
        (row,) = state.rows("GROUP")
        assert f"({dead})" not in row["COORDINATOR"]
        assert "Empty" in state.stdout
        cluster.heal()
    reset = ["--reset-offsets", "--to-offset", "10", "--topic", topic, "--execute"]
    cluster_tools.run("kafka-consumer-groups", "--group", group, *reset)
    assert offsets() == [("10", "90")]
    assert cluster_tools.consume(topic, "--group", group, count=90) == [
        str(i) for i in range(10, 100)
    ]


def test_consumer_goes_on_when_its_coordinator_dies(
    cluster_tools: KafkaTools,
    cluster: Cluster,
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
) -> None:
    """A consumer in a group reads on, each record once, while its coordinator is killed."""
    topic, group = cluster_tools.create_topic(unique_topic()), unique_group()
    cluster_tools.produce(topic, ["before"], "--request-required-acks", "all")
    options = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "2"]
    with cluster_tools.start("kafka-console-consumer", *options, "--timeout-ms", "40000") as one:
        assert one.process.stdout is not None
        assert one.process.stdout.readline() == "before\n"
        cluster.node(cluster.coordinator(group)).kill9()
        with contextlib.suppress(AssertionError):
            cluster.leader(topic)
        cluster_tools.produce(topic, ["after"], "--request-required-acks", "all")
        assert one.wait().lines == ["after"]
