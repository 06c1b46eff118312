"""What tests of a cluster by raw frames share: topics on chosen nodes, epochs, ends of logs."""

from __future__ import annotations

import time
from collections.abc import Callable

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    ElectLeadersRequest,
    TopicPartitions,
)
from kraftrio.wire.messages.data import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.conformance.cases.calls import (
    LATEST,
    batch_of,
    list_offset,
    produce,
)
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cluster_process import Cluster

Connect = Callable[[int], RawClient]
NewTopic = Callable[..., str]

# Errors that a client may get while a partition changes its leader: all are retriable.
PASSING = {
    ErrorCode.NONE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


def create(
    client_of: Callable[[], RawClient], name: str, *assignments: list[int], **configs: object
) -> int:
    """Create a topic with given replicas; return the error code."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignments)
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ],
    )
    with client_of() as client:
        (result,) = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
    return int(result.error_code)


def wait_served(cluster: Cluster, topic: str, partition: int = 0) -> None:
    """Wait until the leader of a partition answers for it."""

    def served() -> bool:
        with cluster.node(cluster.leader(topic, partition)).client() as client:
            return list_offset(client, topic, LATEST, partition).error_code == ErrorCode.NONE

    cluster.wait_until(served, f"{topic}-{partition} is served")


def append(client: RawClient, topic: str, *values: bytes) -> int:
    """Produce a batch with acks=all, again while the partition settles; return its offset."""
    deadline = time.monotonic() + 20
    while True:
        answer = produce(client, topic, batch_of(*values))
        if answer.error_code == ErrorCode.NONE:
            return int(answer.base_offset)
        assert answer.error_code in PASSING, ErrorCode(answer.error_code)
        assert time.monotonic() < deadline, ErrorCode(answer.error_code)
        time.sleep(0.1)


def end_of_epoch(
    client: RawClient, topic: str, epoch: int, current_leader_epoch: int = -1
) -> EpochEndOffset:
    """Ask where an epoch ends in partition 0."""
    asked = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current_leader_epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    ((answer,),) = [one.partitions for one in client.call(request).topics]
    assert isinstance(answer, EpochEndOffset)
    return answer


def epoch_of(cluster: Cluster, topic: str) -> int:
    """Return the leader epoch of partition 0."""
    found = cluster.partition(topic)
    assert found is not None
    return int(found.leader_epoch)


def elect_preferred(cluster: Cluster, topic: str) -> None:
    """Give partition 0 back to its first replica."""
    asked = [TopicPartitions(topic=topic, partitions=[0])]
    request = ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=10_000)
    with cluster.any_client() as client:
        response = client.call(request)
    assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE


def spare(cluster: Cluster) -> tuple[int, int, int]:
    """Return two nodes that may fail without a change of the controller, and the controller."""
    controller = cluster.controller()
    first, second = cluster.others(controller)
    return first, second, controller


def elect_when_back(cluster: Cluster, topic: str) -> None:
    """Have the preferred replica lead again once it is in sync."""
    cluster.wait_healthy()
    wanted = cluster.partition(topic)
    assert wanted is not None
    if wanted.leader_id != wanted.replica_nodes[0]:
        elect_preferred(cluster, topic)
    cluster.wait_leader(topic, wanted.replica_nodes[0])
    wait_served(cluster, topic)
