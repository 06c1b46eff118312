"""The tools that ask about the cluster itself: versions, features, quorum, elections."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.java_tools import KafkaTools

UUID = r"[A-Za-z0-9_-]{22}"


def test_broker_api_versions(kafka: KafkaTools, broker: Broker) -> None:
    """The broker is found under its address, and a current client can use what it offers."""
    lines = kafka.run("kafka-broker-api-versions").lines
    assert lines[0].startswith(f"{broker.address} (id: 1 rack: null")
    apis = dict(re.findall(r"(\w+)\(\d+\): (.*?),?$", "\n".join(lines), re.M))
    for name in ("Produce", "Fetch", "ListOffsets", "Metadata", "JoinGroup", "CreateTopics"):
        assert "usable" in apis[name], f"{name}: {apis.get(name)}"
    assert apis["Produce"].startswith("0 to "), "older librdkafka wants Produce from 0"


def test_protocols_of_groups_are_offered(kafka: KafkaTools) -> None:
    """Clients choose the new one by what is offered, and by group.version."""
    shown = kafka.run("kafka-broker-api-versions").stdout
    for api in ("JoinGroup", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"):
        assert re.search(rf"\b{api}\(\d+\): \d+ to \d+ \[usable: \d+\]", shown), api
    features = kafka.run("kafka-features", "describe").output
    assert re.search(r"Feature: group.version\s.*FinalizedVersionLevel: 1\s", features)


def test_cluster_tool(kafka: KafkaTools, broker: Broker) -> None:
    """The cluster's id and endpoints are shown; the id is the one in the data folder."""
    (line,) = kafka.run("kafka-cluster", "cluster-id").lines
    cluster_id = line.removeprefix("Cluster ID: ")
    assert re.fullmatch(UUID, cluster_id)
    (meta,) = broker.data_directory.rglob("meta.properties")
    assert f"cluster.id={cluster_id}" in meta.read_text().splitlines()
    (endpoint,) = kafka.run("kafka-cluster", "list-endpoints").rows("ID")
    assert (endpoint["ID"], endpoint["HOST"], endpoint["PORT"]) == (
        "1",
        broker.host,
        str(broker.port),
    )
    assert endpoint["STATE"] == "unfenced"


def test_unregister_unknown_broker(kafka: KafkaTools) -> None:
    """A broker that was never there can't be unregistered."""
    refused = kafka.run("kafka-cluster", "unregister", "--id", "77", check=False)
    assert refused.exit_code == 1
    assert "BrokerIdNotRegisteredException" in refused.output


def test_features(kafka: KafkaTools) -> None:
    """The features are listed, the metadata version among them."""
    lines = kafka.run("kafka-features", "describe").lines
    features = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", "\n".join(lines)))
    assert re.match(r"[34]\.\d-IV\d", features["metadata.version"])
    assert features["group.version"] == "1"
    assert features["share.version"] == "1"
    assert features["streams.version"] == "1"
    assert features["transaction.version"] == "2"


def test_transaction_version_goes_down_and_up(
    kafka: KafkaTools, topic: str, unique_name: Callable[[str], str]
) -> None:
    """A producer commits at each level; a level that no node supports is refused."""

    def change(command: str, level: int, *, succeeds: bool = True) -> str:
        feature = f"transaction.version={level}"
        done = kafka.run("kafka-features", command, "--feature", feature, check=succeeds)
        assert (done.exit_code == 0) is succeeds, done.describe()
        return done.output

    def commit(records: int) -> None:
        producer = ["--topic", topic, "--num-records", str(records), "--record-size", "10"]
        producer += ["--throughput", "-1", "--transactional-id", unique_name("txn")]
        kafka.run("kafka-producer-perf-test", *producer)

    assert "only supports versions 0-2" in change("upgrade", 3, succeeds=False)
    refused = change("upgrade", 1, succeeds=False)
    assert "Can't downgrade the version of this feature without setting the upgrade" in refused
    try:
        for level in (1, 0):
            assert f"transaction.version was downgraded to {level}." in change("downgrade", level)
            shown = kafka.run("kafka-features", "describe").stdout
            assert re.search(rf"transaction.version.*FinalizedVersionLevel: {level}\s", shown)
            commit(30)
        assert "Can't downgrade to a newer version." in change("downgrade", 2, succeeds=False)
    finally:
        assert "transaction.version was upgraded to 2." in change("upgrade", 2)
    commit(40)
    read = kafka.consume(topic, "--isolation-level", "read_committed", count=100)
    assert len(read) == 100


def test_quorum_status(kafka: KafkaTools) -> None:
    """The quorum has one voter, which leads; its high watermark grows with the metadata."""

    def status() -> dict[str, str]:
        lines = kafka.run("kafka-metadata-quorum", "describe", "--status").lines
        return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}

    before = status()
    assert re.fullmatch(UUID, before["ClusterId"])
    assert (before["LeaderId"], before["MaxFollowerLag"]) == ("1", "0")
    assert int(before["LeaderEpoch"]) >= 1
    assert before["CurrentObservers"] == "[]"
    (voter,) = json.loads(before["CurrentVoters"])
    assert voter["id"] == 1
    kafka.run("kafka-configs", "--alter", "--group", "quorum-test", "--add-config",
              "consumer.session.timeout.ms=50000")  # fmt: skip
    kafka.run("kafka-configs", "--alter", "--group", "quorum-test", "--delete-config",
              "consumer.session.timeout.ms")  # fmt: skip
    after = status()
    assert int(after["HighWatermark"]) >= int(before["HighWatermark"]) + 2


def test_quorum_replication(kafka: KafkaTools) -> None:
    """The replication view shows the one leader without lag."""
    (row,) = kafka.run("kafka-metadata-quorum", "describe", "--replication").rows("NodeId")
    assert (row["NodeId"], row["Lag"], row["Status"]) == ("1", "0", "Leader")
    assert int(row["LogEndOffset"]) > 0
    assert re.fullmatch(UUID, row["DirectoryId"])


@pytest.mark.parametrize("kind", ["preferred", "unclean"])
def test_leader_election(kafka: KafkaTools, topic: str, kind: str) -> None:
    """A partition with its preferred, live leader needs no election."""
    chosen = ["--election-type", kind, "--topic", topic, "--partition", "0"]
    done = kafka.run("kafka-leader-election", *chosen)
    assert done.lines == [f"Valid replica already elected for partitions {topic}-0"]


def test_leader_election_of_all_and_of_none(kafka: KafkaTools, topic: str) -> None:
    """All partitions at once are fine; a topic that is not there is an error."""
    kafka.run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    chosen = ["--election-type", "preferred", "--topic", f"{topic}-missing", "--partition", "0"]
    refused = kafka.run("kafka-leader-election", *chosen, check=False)
    assert refused.exit_code == 1
    assert "UnknownTopicOrPartitionException" in refused.output


def test_no_reassignments(kafka: KafkaTools) -> None:
    """No reassignment is under way in a cluster where none was asked for."""
    done = kafka.run("kafka-reassign-partitions", "--list")
    assert "No partition reassignments found." in done.output
