"""Topic administration, elections, reassignments."""

from __future__ import annotations

from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import ClusterContext, context, create


def test_topic_is_created_and_described() -> None:
    """The answer of the controller names every setting of the new topic (KIP-525)."""
    cluster = ClusterContext({"log.retention.ms": "9"})
    response = finish(cluster.admin.forward(create("t"), context(7))).value
    (topic,) = response.topics
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 1, 1)
    settings = {one.name: (one.value, one.config_source) for one in topic.configs}
    assert settings["retention.ms"] == ("9", 4)
    assert len(settings) == 33
    encode(response, 7)


def test_other_requests_are_forwarded() -> None:
    """Deleting, growing and electing are the controller's decisions."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=100
    )
    assert finish(cluster.admin.forward(grow, context(3))).value.results[0].error_code == 0
    elect = ElectLeadersRequest(topic_partitions=None, timeout_ms=100)
    assert finish(cluster.admin.forward(elect, context(2))).value.error_code == 0
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=100)
    assert finish(cluster.admin.forward(delete, context(6))).value.responses[0].error_code == 0
    assert cluster.metadata.topic("t") is None


def test_reassignments_are_the_controllers_decision() -> None:
    """Replicas move, what moves is listed, and what cannot is refused there."""
    cluster = ClusterContext(brokers={1: True, 2: True})
    cluster.create_topic("t")
    before = cluster.metadata.image.topics_by_name["t"].partitions[0]
    (old,) = before.replicas
    new = 3 - old

    def move(replicas: list[int] | None) -> int:
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[partition])]
        )
        response = finish(cluster.admin.forward(request, context(1))).value
        encode(response, 1)
        code: int = response.responses[0].partitions[0].error_code
        return code

    def listed() -> list[tuple[str, list[int]]]:
        request = ListPartitionReassignmentsRequest(topics=None)
        response = finish(cluster.admin.forward(request, context(0))).value
        encode(response, 0)
        return [(topic.name, topic.partitions[0].adding_replicas) for topic in response.topics]

    assert move(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert listed() == []
    assert move([new]) == ErrorCode.NONE
    assert listed() == [("t", [new])]
    assert move(None) == ErrorCode.NONE
    assert listed() == []


def test_clients_that_create_or_delete_are_named_to_the_controller() -> None:
    """It may have to count what they change; for other requests nobody is named."""
    cluster = ClusterContext()
    finish(cluster.admin.forward(create("a"), context(7)))
    elect = ElectLeadersRequest(topic_partitions=None, timeout_ms=100)
    finish(cluster.admin.forward(elect, context(2)))
    finish(cluster.admin.forward(DeleteTopicsRequest(topic_names=["a"]), context(5)))
    assert cluster.senders == [RequestSender("ANONYMOUS", "client", "127.0.0.1")] * 2
