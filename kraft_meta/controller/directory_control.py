"""Log directories of brokers: where replicas lie (AssignReplicasToDirs), and which have failed.

Behaviour, as Kafka's (KIP-858): a broker reports where each replica lies whose directory the
controller did not choose, and the image keeps it. A directory that a heartbeat reports offline
leaves the registration, and the broker's replicas in it leave ISRs and leaderships in the same
batch; so does a replica that is reported LOST or in a directory that is not registered. The rest of
the broker goes on. It registers with its directories again when it restarts: a replica in one that
is back may lead and join the ISR again. A broker that came back with other directories, all online,
has replaced its disks: what it does not find it reports LOST where it is the last of an ISR, so
that an empty log leads only by an unclean election. (Kafka creates the log again and elects it.)

Called by: controller.py (requests) and cluster_control.py (heartbeats, registrations). Kafka's
counterpart: ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kraftrio.kraft_meta.controller.control import (
    ControllerConfig,
    ControllerResult,
    DecisionContext,
    check_broker_epoch,
)
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.partition_change import Election, PartitionChange
from kraftrio.kraft_meta.controller.partition_index import PartitionIndex
from kraftrio.kraft_meta.controller.replication_control import (
    allow_unclean,
    change_without_replica,
    changes_without_replicas,
    leader_check,
)
from kraftrio.kraft_meta.metadata.directories import (
    LOST,
    MIGRATING,
    UNASSIGNED,
    directories_of,
    placement,
)
from kraftrio.kraft_meta.metadata.image import (
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.quorum import (
    AssignReplicasResponseDirectoryData,
    AssignReplicasResponsePartitionData,
    AssignReplicasResponseTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

_Key = tuple[bytes, int]


def changes_when_directories_fail(
    config: ControllerConfig,
    image: MetadataImage,
    index: PartitionIndex,
    broker: BrokerImage,
    failed: Collection[bytes],
) -> list[MetadataRecord]:
    """Take a broker's replicas in these directories out of ISRs and leaderships."""
    located = [
        one
        for one in index.in_isr_of(image, broker.broker_id)
        if one[2].directory(broker.broker_id) in failed
    ]
    return changes_without_replicas(config, image, broker.broker_id, located)


def registration_without(
    broker: BrokerImage, failed: Collection[bytes]
) -> BrokerRegistrationChangeRecord:
    """Return the record that removes these directories from a broker."""
    return BrokerRegistrationChangeRecord(
        broker.broker_id,
        broker.broker_epoch,
        log_dirs=tuple(directory for directory in broker.log_dirs if directory not in failed),
    )


def assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, context: DecisionContext
) -> ControllerResult:
    """Record where a broker's replicas lie."""
    try:
        check_broker_epoch(context.image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return ControllerResult([], error_response(request, error.code))
    broker = context.image.brokers[request.broker_id]
    records: list[MetadataRecord] = []
    response = AssignReplicasToDirsResponse()
    # A replica named twice: the second is decided on what the first made of it.
    changed: dict[_Key, PartitionImage] = {}
    for directory in request.directories:
        directory_result = AssignReplicasResponseDirectoryData(id=directory.id)
        response.directories.append(directory_result)
        for topic in directory.topics:
            topic_result = AssignReplicasResponseTopicData(topic_id=topic.topic_id)
            directory_result.topics.append(topic_result)
            for data in topic.partitions:
                index, code = data.partition_index, ErrorCode.NONE
                try:
                    image, partition = _find(topic.topic_id, index, broker.broker_id, context)
                except KafkaError as error:
                    code = error.code
                else:
                    partition = changed.get((topic.topic_id, index), partition)
                    record = _assign_one(broker, image, index, partition, directory.id, context)
                    if record is not None:
                        records.append(record)
                        changed[topic.topic_id, index] = partition.merge(record)
                topic_result.partitions.append(
                    AssignReplicasResponsePartitionData(partition_index=index, error_code=code)
                )
    return ControllerResult(records, response)


def _find(
    topic_id: bytes, index: int, broker_id: int, context: DecisionContext
) -> tuple[TopicImage, PartitionImage]:
    topic = context.image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, None)
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    if broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    return topic, partition


def _assign_one(
    broker: BrokerImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    directory: bytes,
    context: DecisionContext,
) -> PartitionChangeRecord | None:
    placed = placement(partition.replicas, partition.directories)
    placed[broker.broker_id] = directory
    moved = replace(partition, directories=directories_of(partition.replicas, placed))
    if not broker.has_online(directory):
        change = change_without_replica(
            context.config, context.image, broker.broker_id, topic, index, partition
        )
        was_placed = partition.directory(broker.broker_id) not in (MIGRATING, UNASSIGNED)
        if directory == LOST and was_placed and change.election is Election.UNCLEAN:
            allow_unclean(change, context.image)  # it may begin with an empty log at once
    else:
        may_lead = leader_check(context.image, moved)
        change = PartitionChange(topic.topic_id, index, partition, may_lead)
    change.directories = placed
    return change.build()
