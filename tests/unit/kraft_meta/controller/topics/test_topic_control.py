"""CreateTopics, DeleteTopics, CreatePartitions: every refusal, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.kraft_meta.metadata.image import TOPIC
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from kraftrio.wire.primitives import ZERO_UUID
from tests.unit.kraft_meta.controller.context import ControllerContext, three_brokers, topic


def create(context: ControllerContext, *topics: CreatableTopic, **options: Any) -> list[Any]:
    response = context.send(CreateTopicsRequest(topics=list(topics), **options), api_version=7)
    return list(response.topics)


def test_a_topic_is_created_as_asked() -> None:
    """Records, leader, epochs and the response of a plain creation fit together."""
    context = three_brokers()
    (result,) = create(context, topic("a", 3, 2, configs={"retention.ms": "5"}))
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (3, 2)
    assert [(c.name, c.value) for c in result.configs] == [("retention.ms", "5")]
    image = context.image.topic("a")
    assert image is not None
    assert result.topic_id == image.topic_id != ZERO_UUID
    for index in range(3):
        partition = image.partitions[index]
        assert len(partition.replicas) == 2
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert dict(context.image.config(TOPIC, "a")) == {"retention.ms": "5"}


def test_counts_of_minus_one_are_the_defaults() -> None:
    """-1 partitions and replicas mean num.partitions and default.replication.factor."""
    context = three_brokers(num_partitions=4, default_replication_factor=3)
    (result,) = create(context, topic("a", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 3)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "é", "a:b", "a\n"])
def test_illegal_names_are_refused(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION, and nothing is created."""
    context = three_brokers()
    (result,) = create(context, topic(name, 1, 1))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not context.image.topics_by_name


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    """Against existing topics, and within one request."""
    context = three_brokers()
    create(context, topic("a.b", 1, 1))
    results = create(context, topic("a_b", 1, 1), topic("c_d", 1, 1), topic("c.d", 1, 1))
    assert [r.error_code for r in results] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert results[0].error_message == "Topic 'a_b' collides with existing topic: a.b"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
        (topic("old", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("t", 1, 1, configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, 1, configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, -1, assignments=[[1]]), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, 1, assignments=[[1]]), ErrorCode.INVALID_REQUEST),
        (topic("t", assignments=[[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments=[[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments=[[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments=[[1, 2], [3]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refusals_record_nothing(wanted: CreatableTopic, code: ErrorCode) -> None:
    """Each wrong wish has its code, and neither topic nor configuration is recorded."""
    context = three_brokers()
    context.create("old")
    (result,) = create(context, wanted)
    assert result.error_code == code
    assert result.error_message
    assert (result.topic_id, result.configs) == (ZERO_UUID, [])
    assert context.last_records == []
    assert list(context.image.topics_by_name) == ["old"]


@pytest.mark.parametrize("indexes", [[0, 2], [1, 2], [0, 0]])
def test_manual_assignments_number_partitions_from_zero(indexes: list[int]) -> None:
    """Gaps and repetitions are INVALID_REPLICA_ASSIGNMENT."""
    context = three_brokers()
    wanted = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in indexes
        ],
    )
    (result,) = create(context, wanted)
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_manual_assignments_come_in_any_order() -> None:
    """Partition n gets the replicas that its number names."""
    context = three_brokers()
    wanted = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=1, broker_ids=[3, 1]),
            CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 3]),
        ],
    )
    (result,) = create(context, wanted)
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert context.partition("t", 0).replicas == (2, 3)
    assert context.partition("t", 1).replicas == (3, 1)


def test_one_topic_fails_alone() -> None:
    """The others of a request are created; answers come in the order of the request."""
    context = three_brokers()
    results = create(context, topic("bad", 0, 1), topic("good", 1, 1))
    assert [(r.name, r.error_code) for r in results] == [
        ("bad", ErrorCode.INVALID_PARTITIONS),
        ("good", ErrorCode.NONE),
    ]
    assert list(context.image.topics_by_name) == ["good"]


def test_a_name_twice_in_a_request_is_refused() -> None:
    """INVALID_REQUEST once per name; other topics are created."""
    context = three_brokers()
    results = create(context, topic("a", 1, 1), topic("b", 1, 1), topic("a", 2, 1))
    assert [(r.name, r.error_code) for r in results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]


def test_validate_only_answers_but_creates_nothing() -> None:
    """Counts are answered, an existing topic is still 36, and nothing is recorded."""
    context = three_brokers()
    context.create("old")
    results = create(context, topic("new", 3, 2), topic("old", 1, 1), validate_only=True)
    assert [r.error_code for r in results] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert (results[0].num_partitions, results[0].replication_factor) == (3, 2)
    assert context.image.topic("new") is None


def test_a_request_of_too_many_partitions_is_refused_whole() -> None:
    """POLICY_VIOLATION up front, for every topic of the request."""
    context = three_brokers()
    results = create(context, topic("a", 9_999, 1), topic("b", 2, 1))
    assert [r.error_code for r in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert not context.image.topics_by_name
    (result,) = create(context, topic("a", 20_000_000, 1))
    assert result.error_code == ErrorCode.POLICY_VIOLATION


def test_without_live_brokers_nothing_is_placed() -> None:
    """All fenced: INVALID_REPLICATION_FACTOR, or 39 with a manual assignment."""
    context = ControllerContext()
    context.register(1)
    (result,) = create(context, topic("t", 1, 1))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "fenced" in result.error_message
    (result,) = create(context, topic("t", assignments=[[1]]))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_fenced_replica_starts_outside_of_the_isr() -> None:
    """Assigned replicas that are fenced do not lead and are not in sync."""
    context = three_brokers()
    context.fence(1)
    context.create("t", [1, 2, 3])
    partition = context.partition("t")
    assert partition.isr == (2, 3)
    assert partition.leader == 2


# ---- CreatePartitions


def add(context: ControllerContext, *topics: CreatePartitionsTopic, **options: Any) -> list[Any]:
    response = context.send(CreatePartitionsRequest(topics=list(topics), **options), api_version=3)
    return list(response.results)


def test_partitions_are_added_with_the_topics_replication_factor() -> None:
    """The old ones stay as they are."""
    context = three_brokers()
    context.create("a", [1, 2])
    before = context.partition("a", 0)
    (result,) = add(context, CreatePartitionsTopic(name="a", count=3, assignments=None))
    assert result.error_code == ErrorCode.NONE
    image = context.image.topic("a")
    assert image is not None
    assert sorted(image.partitions) == [0, 1, 2]
    assert image.partitions[0] == before
    assert len(image.partitions[2].replicas) == 2


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (CreatePartitionsTopic(name="x", count=3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (CreatePartitionsTopic(name="a", count=2), ErrorCode.INVALID_PARTITIONS),
        (CreatePartitionsTopic(name="a", count=1), ErrorCode.INVALID_PARTITIONS),
        (CreatePartitionsTopic(name="a", count=-1), ErrorCode.INVALID_PARTITIONS),
        (CreatePartitionsTopic(name="a", count=20_000), ErrorCode.POLICY_VIOLATION),
        (
            CreatePartitionsTopic(name="a", count=3, assignments=[]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatePartitionsTopic(
                name="a", count=3, assignments=[CreatePartitionsAssignment(broker_ids=[1])]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatePartitionsTopic(
                name="a", count=3, assignments=[CreatePartitionsAssignment(broker_ids=[1, 9])]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_refused_additions(wanted: CreatePartitionsTopic, code: ErrorCode) -> None:
    """Each wrong wish has its code and records nothing."""
    context = three_brokers()
    context.create("a", [1, 2], [2, 3])
    (result,) = add(context, wanted)
    assert result.error_code == code
    assert context.last_records == []


def test_added_partitions_may_be_assigned_by_hand_and_only_validated() -> None:
    """validate_only records nothing; the same request then adds."""
    context = three_brokers()
    context.create("a", [1, 2])
    wanted = CreatePartitionsTopic(
        name="a", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[3, 1])]
    )
    (result,) = add(context, wanted, validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert context.last_records == []
    add(context, wanted)
    assert context.partition("a", 1).replicas == (3, 1)


def test_a_topic_twice_in_an_addition_is_refused() -> None:
    """INVALID_REQUEST once."""
    context = three_brokers()
    context.create("a")
    results = add(
        context,
        CreatePartitionsTopic(name="a", count=2, assignments=None),
        CreatePartitionsTopic(name="a", count=3, assignments=None),
    )
    assert [(r.name, r.error_code) for r in results] == [("a", ErrorCode.INVALID_REQUEST)]
