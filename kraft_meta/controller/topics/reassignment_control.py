"""AlterPartitionReassignments and ListPartitionReassignments: moving replicas between brokers.

Behaviour, as Kafka's (KIP-455): a reassignment adds the new replicas to the assignment, waits until
they are in the ISR and then takes the old ones out (partition_change.py decides when). Each
partition succeeds or fails alone. Null replicas cancel: what was being added goes, what was being
removed stays; where only replicas being added are in sync, that needs unclean elections allowed.
A second reassignment of a partition replaces the first; replicas that the first was adding stay
"adding" while they are wanted, so that a cancellation still comes back to the original ones (Kafka
forgets that they were added).
Version notes: 1 may refuse to change the replication factor (KIP-860).

Called by: controller.py. Kafka's counterpart: ReplicationControlManager.
"""

from __future__ import annotations

from kraftrio.kraft_meta.controller.control import (
    ControllerResult,
    DecisionContext,
    is_unclean_election_enabled,
)
from kraftrio.kraft_meta.controller.partition_change import Election, PartitionChange
from kraftrio.kraft_meta.controller.replication_control import leader_check
from kraftrio.kraft_meta.controller.topics.topic_control import check_manual_assignment
from kraftrio.kraft_meta.metadata.image import MetadataImage, PartitionImage, TopicImage
from kraftrio.kraft_meta.metadata.records import MetadataRecord, PartitionChangeRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: DecisionContext
) -> ControllerResult:
    """Start, replace or cancel the reassignment of each partition named."""
    records: list[MetadataRecord] = []
    responses: list[ReassignableTopicResponse] = []
    # A partition named twice: the second is decided on what the first made of it.
    changed: dict[tuple[bytes, int], PartitionImage] = {}
    may_resize = request.allow_replication_factor_change
    for topic in request.topics:
        response = ReassignableTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            result = ReassignablePartitionResponse(
                partition_index=wanted.partition_index, error_message=None
            )
            response.partitions.append(result)
            try:
                image, partition = _find(topic.name, wanted.partition_index, context)
                key = (image.topic_id, wanted.partition_index)
                partition = changed.get(key, partition)
                record = _alter_one(image, partition, wanted, context, may_resize=may_resize)
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = error.message
                continue
            if record is not None:
                records.append(record)
                changed[key] = partition.merge(record)
        responses.append(response)
    return ControllerResult(
        records,
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_resize, error_message=None, responses=responses
        ),
    )


def _find(name: str, index: int, context: DecisionContext) -> tuple[TopicImage, PartitionImage]:
    topic = context.image.topic(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        )
    return topic, partition


def _alter_one(
    topic: TopicImage,
    partition: PartitionImage,
    wanted: ReassignablePartition,
    context: DecisionContext,
    *,
    may_resize: bool,
) -> PartitionChangeRecord | None:
    change = PartitionChange(
        topic.topic_id, wanted.partition_index, partition, leader_check(context.image, partition)
    )
    if wanted.replicas is None:
        _cancel(change, topic, partition, context)
    else:
        check_manual_assignment(wanted.replicas, context.image, None)
        if not may_resize:
            _check_same_size(partition, len(wanted.replicas))
        _reassign(change, partition, wanted.replicas, context.image)
    return change.build()


def _reassign(
    change: PartitionChange, partition: PartitionImage, target: list[int], image: MetadataImage
) -> None:
    removing = tuple(sorted(r for r in partition.replicas if r not in target))
    change.replicas = (*target, *removing)
    change.removing_replicas = removing
    change.adding_replicas = tuple(
        sorted(r for r in target if r not in original_replicas(partition))
    )
    for replica in target:
        if replica not in partition.replicas:
            change.directories[replica] = image.brokers[replica].default_directory


def _cancel(
    change: PartitionChange, topic: TopicImage, partition: PartitionImage, context: DecisionContext
) -> None:
    if not partition.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    replicas = original_replicas(partition)
    isr = tuple(r for r in partition.isr if r not in partition.adding_replicas)
    may_be_unclean = is_unclean_election_enabled(context.config, context.image, topic.name)
    if not isr:
        if not replicas:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        if not may_be_unclean:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:"
                f"{change.partition_id} because it would require an unclean leader election.",
            )
        isr = replicas[:1]
    if may_be_unclean:
        change.election = Election.UNCLEAN
    change.replicas, change.isr = replicas, isr
    change.adding_replicas = change.removing_replicas = ()


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas from before the reassignment, in the present order."""
    return tuple(r for r in partition.replicas if r not in partition.adding_replicas)


def _check_same_size(partition: PartitionImage, wanted: int) -> None:
    size = sum(replica not in partition.removing_replicas for replica in partition.replicas)
    if size != wanted:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {size} to {wanted}",
        )


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: DecisionContext
) -> ControllerResult:
    """List the reassignments under way: all (null), or those of the partitions named."""
    ongoing: dict[str, list[OngoingPartitionReassignment]] = {}
    if request.topics is None:
        for topic, index, partition in context.index.reassigning(context.image):
            ongoing.setdefault(topic.name, []).append(_ongoing(index, partition))
    else:
        for wanted in request.topics:
            for index in dict.fromkeys(wanted.partition_indexes):
                found = context.image.partition(wanted.name, index)
                if found is not None and found.is_reassigning:
                    ongoing.setdefault(wanted.name, []).append(_ongoing(index, found))
    topics = [
        OngoingTopicReassignment(name=name, partitions=partitions)
        for name, partitions in ongoing.items()
    ]
    return ControllerResult(
        [], ListPartitionReassignmentsResponse(error_message=None, topics=topics)
    )


def _ongoing(index: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
