"""kafka-leader-election and ElectLeaders: preferred and unclean, what is needed and what is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import ElectLeadersRequest, TopicPartitions
from kraftrio.wire.messages.cluster import MetadataResponsePartition
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools

PREFERRED, UNCLEAN = 0, 1


def create(kafka: KafkaTools, topic: str, assignment: str, **config: object) -> str:
    """Create a topic with its replicas where they are wanted."""
    options = [f"--config={k.replace('_', '.')}={v}" for k, v in config.items()]
    kafka.run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", assignment,
              *options)  # fmt: skip
    return topic


def found(cluster: Cluster, topic: str, partition: int = 0) -> MetadataResponsePartition:
    """Return what the metadata says about a partition that is there."""
    one = cluster.partition(topic, partition)
    assert one is not None
    return one


def elect(
    cluster: Cluster, kind: int, topic: str | None, partition: int = 0, node_id: int | None = None
) -> dict[tuple[str, int], int]:
    """Ask for an election, of all partitions when the topic is None; return the error codes."""
    asked = None if topic is None else [TopicPartitions(topic=topic, partitions=[partition])]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=10_000)
    node = cluster.reachable()[0] if node_id is None else cluster.node(node_id)
    with node.client() as client:
        response = client.call(request)
    assert response.error_code == ErrorCode.NONE
    return {
        (result.topic, one.partition_id): one.error_code
        for result in response.replica_election_results
        for one in result.partition_result
    }


@pytest.fixture
def moved(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> tuple[str, int]:
    """A topic that is not led by its preferred replica, although that is back; and its id."""
    preferred = cluster.others(cluster.controller())[0]
    second, third = cluster.others(preferred)
    topic = create(cluster_tools, unique_topic(), f"{preferred}:{second}:{third}")
    cluster_tools.produce(topic, ["before"], "--request-required-acks", "all")
    assert cluster.leader(topic) == preferred
    cluster.node(preferred).terminate()
    cluster.wait_leader(topic, second)
    cluster.heal()
    assert cluster.leader(topic) == second, "nobody asked for another election yet"
    return topic, preferred


def test_preferred_election(
    cluster: Cluster, cluster_tools: KafkaTools, moved: tuple[str, int]
) -> None:
    """The preferred replica leads again, one epoch later; asked again there is nothing to do."""
    topic, preferred = moved
    epoch = found(cluster, topic).leader_epoch
    chosen = ["--election-type", "preferred", "--topic", topic, "--partition", "0"]
    done = cluster_tools.run("kafka-leader-election", *chosen)
    assert done.lines == [
        f"Successfully completed leader election (PREFERRED) for partitions {topic}-0"
    ]
    cluster.wait_leader(topic, preferred)
    assert found(cluster, topic).leader_epoch == epoch + 1
    done = cluster_tools.run("kafka-leader-election", *chosen)
    assert done.lines == [f"Valid replica already elected for partitions {topic}-0"]
    cluster_tools.produce(topic, ["after"], "--request-required-acks", "all")
    assert cluster_tools.consume(topic, count=2) == ["before", "after"]


def test_preferred_election_of_all(cluster: Cluster, moved: tuple[str, int]) -> None:
    """A null list means every partition; those that need no election are not in the answer."""
    topic, preferred = moved
    codes = elect(cluster, PREFERRED, None)
    assert codes[topic, 0] == ErrorCode.NONE
    cluster.wait_leader(topic, preferred)
    assert (topic, 0) not in elect(cluster, PREFERRED, None)


def test_preferred_election_by_file(
    cluster: Cluster, cluster_tools: KafkaTools, moved: tuple[str, int], tmp_path: Path
) -> None:
    """The partitions may come from a file."""
    topic, preferred = moved
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    chosen = ["--election-type", "preferred", "--path-to-json-file", str(file)]
    cluster_tools.run("kafka-leader-election", *chosen)
    cluster.wait_leader(topic, preferred)


def test_leader_is_already_elected(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """ELECTION_NOT_NEEDED where the preferred replica leads, or for unclean where anyone does."""
    topic = create(cluster_tools, unique_topic(), "1:2:3")
    cluster.wait_healthy(topic)
    for node_id in cluster.nodes:
        for kind in (PREFERRED, UNCLEAN):
            codes = elect(cluster, kind, topic, node_id=node_id)
            assert codes == {(topic, 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_preferred_replica_is_away(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """PREFERRED_LEADER_NOT_AVAILABLE, and the present leader stays."""
    preferred = cluster.others(cluster.controller())[0]
    second, third = cluster.others(preferred)
    topic = create(cluster_tools, unique_topic(), f"{preferred}:{second}:{third}")
    cluster.wait_healthy(topic)
    cluster.node(preferred).kill9()
    cluster.wait_leader(topic, second)
    codes = elect(cluster, PREFERRED, topic)
    assert codes == {(topic, 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    chosen = ["--election-type", "preferred", "--topic", topic, "--partition", "0"]
    refused = cluster_tools.run("kafka-leader-election", *chosen, check=False)
    assert refused.exit_code == 1
    assert "PreferredLeaderNotAvailableException" in refused.output
    assert cluster.leader(topic) == second


def test_unclean_election_where_nobody_is_left(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """ELIGIBLE_LEADERS_NOT_AVAILABLE when every replica is away."""
    alone = cluster.others(cluster.controller())[0]
    topic = create(cluster_tools, unique_topic(), str(alone))
    cluster.wait_healthy(topic)
    cluster.node(alone).kill9()
    cluster.wait_leader(topic, -1)
    codes = elect(cluster, UNCLEAN, topic)
    assert codes == {(topic, 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    codes = elect(cluster, PREFERRED, topic)
    assert codes == {(topic, 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    cluster.heal()
    assert cluster.leader(topic) == alone


def test_unclean_election(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """Without a replica in sync there is no leader until an unclean election is asked for.

    What only the lost leader had is then lost, and it truncates its own log when it is back.
    """
    leader, late = cluster.others(cluster.controller())
    topic = create(cluster_tools, unique_topic(), f"{leader}:{late}", min_insync_replicas=1)
    cluster_tools.produce(topic, ["both"], "--request-required-acks", "all")
    cluster.wait_healthy(topic)
    cluster.node(late).kill9()
    cluster.wait_isr(topic, {leader})
    cluster_tools.produce(topic, ["one", "alone"], "--request-required-acks", "all")
    cluster.node(leader).kill9()
    cluster.start_nodes(late)
    cluster.wait_leader(topic, -1)
    assert elect(cluster, PREFERRED, topic)[topic, 0] == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    epoch = found(cluster, topic).leader_epoch

    def eligible() -> bool:  # once the late one has registered and is unfenced
        return elect(cluster, UNCLEAN, topic)[topic, 0] == ErrorCode.NONE

    cluster.wait_until(eligible, "an unclean election was made")
    cluster.wait_leader(topic, late)
    assert found(cluster, topic).leader_epoch > epoch
    assert cluster_tools.consume(topic, count=1) == ["both"]
    cluster_tools.produce(topic, ["instead"], "--request-required-acks", "all")
    cluster.heal()
    cluster.wait_isr(topic, {leader, late})
    chosen = ["--election-type", "preferred", "--topic", topic, "--partition", "0"]
    cluster_tools.run("kafka-leader-election", *chosen)
    cluster.wait_leader(topic, leader)
    assert cluster_tools.consume(topic, count=2) == ["both", "instead"]


def test_unclean_election_by_setting(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """With unclean.leader.election.enable a replica that is not in sync leads without asking."""
    leader, late = cluster.others(cluster.controller())
    topic = create(cluster_tools, unique_topic(), f"{leader}:{late}", min_insync_replicas=1,
                   unclean_leader_election_enable="true")  # fmt: skip
    cluster_tools.produce(topic, ["both"], "--request-required-acks", "all")
    cluster.wait_healthy(topic)
    cluster.node(late).kill9()
    cluster.wait_isr(topic, {leader})
    cluster.node(leader).kill9()
    cluster.start_nodes(late)
    cluster.wait_leader(topic, late)
    cluster_tools.produce(topic, ["more"], "--request-required-acks", "all")
    assert cluster_tools.consume(topic, count=2) == ["both", "more"]


def test_unknown_partitions(
    cluster: Cluster, cluster_tools: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """A topic or partition that does not exist is answered as unknown; the others are elected."""
    topic = create(cluster_tools, unique_topic(), "1:2:3")
    cluster.wait_healthy(topic)
    missing = elect(cluster, PREFERRED, f"{topic}-missing")
    assert missing == {(f"{topic}-missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    missing = elect(cluster, PREFERRED, topic, 7)
    assert missing == {(topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_leaders_are_rebalanced_by_themselves(
    make_cluster: Callable[..., Cluster],
    tools_at: Callable[[Cluster], KafkaTools],
) -> None:
    """With auto.leader.rebalance.enable a broker that is back soon leads its partitions again."""
    cluster = make_cluster(
        auto_leader_rebalance_enable="true", leader_imbalance_check_interval_seconds=1
    )
    preferred = cluster.others(cluster.controller())[0]
    second, third = cluster.others(preferred)
    kafka = tools_at(cluster)
    topic = create(kafka, "balanced", f"{preferred}:{second}:{third}")
    cluster.wait_healthy(topic)
    cluster.node(preferred).terminate()
    cluster.wait_leader(topic, second)
    cluster.heal()
    cluster.wait_leader(topic, preferred)
