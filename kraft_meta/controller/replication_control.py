"""Leaders and in-sync replicas: AlterPartition, ElectLeaders, and what changes of brokers entail.

Behaviour: an ISR change names the partition epoch that it was made from, and is refused when that
is not the present one; a leader's proposal counts only in its own epoch, and a replica that is
fenced, shutting down, of another incarnation or in a log directory that is offline may not join
(KIP-841, KIP-903, KIP-858); nor may the latter lead. When a broker is fenced, leaves or comes back,
every partition that it affects gets its change in the same batch; periodic work (preferred leaders,
unclean elections) comes in bounded batches.

Called by: controller.py (requests, deadlines) and cluster_control.py (changes of brokers). Kafka's
counterpart: ReplicationControlManager. Eligible leader replicas (KIP-966) are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraftrio.kraft_meta.controller.control import (
    ControllerConfig,
    ControllerResult,
    DecisionContext,
    check_broker_epoch,
    is_unclean_election_enabled,
)
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.partition_change import Election, PartitionChange
from kraftrio.kraft_meta.controller.partition_index import Located, PartitionIndex
from kraftrio.kraft_meta.metadata.directories import LOST
from kraftrio.kraft_meta.metadata.image import (
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kraftrio.kraft_meta.metadata.records import (
    LEADER_RECOVERED,
    LEADER_RECOVERING,
    NO_LEADER,
    MetadataRecord,
    PartitionChangeRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kraftrio.wire.messages.quorum import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

_PREFERRED_ELECTION = 0
_UNCLEAN_ELECTION = 1
_ISR_EPOCHS_VERSION = 3
MAX_ELECTIONS_AT_ONCE = 1000


def leader_check(
    image: MetadataImage,
    partition: PartitionImage,
    *,
    gone: int | None = None,
    back: int | None = None,
) -> Callable[[int], bool]:
    """Return the test whether a replica of a partition may lead, were it in sync.

    Args:
        gone: a broker whose replica may not, whatever the image says.
        back: a broker that is about to be active.
    """

    def may_lead(replica: int) -> bool:
        broker = image.brokers.get(replica)
        if broker is None or replica == gone:
            return False
        return (broker.is_active or replica == back) and _is_online(broker, partition)

    return may_lead


def allow_unclean(
    change: PartitionChange,
    image: MetadataImage,
    *,
    gone: int | None = None,
    back: int | None = None,
) -> None:
    """Let a change lose records rather than leave its partition without a leader.

    Args: see `leader_check`.
    """

    def may_start_empty(replica: int) -> bool:
        broker = image.brokers.get(replica)
        if broker is None or replica == gone or not (broker.is_active or replica == back):
            return False
        return change.directories.get(replica) == LOST

    change.election = Election.UNCLEAN
    change.may_start_empty = may_start_empty


def _is_online(broker: BrokerImage, partition: PartitionImage) -> bool:
    return broker.has_online(partition.directory(broker.broker_id))


def changes_when_broker_leaves(
    config: ControllerConfig, image: MetadataImage, index: PartitionIndex, broker_id: int
) -> list[MetadataRecord]:
    """Take a broker (fenced, shutting down, gone) out of ISRs and leaderships."""
    return changes_without_replicas(config, image, broker_id, index.in_isr_of(image, broker_id))


def changes_without_replicas(
    config: ControllerConfig, image: MetadataImage, broker_id: int, located: Iterable[Located]
) -> list[MetadataRecord]:
    """Take a broker's replicas out of the ISRs and leaderships of these partitions."""
    records: list[MetadataRecord] = []
    for topic, number, partition in located:
        change = change_without_replica(config, image, broker_id, topic, number, partition)
        _append_if_changed(records, change)
    return records


def change_without_replica(
    config: ControllerConfig,
    image: MetadataImage,
    broker_id: int,
    topic: TopicImage,
    number: int,
    partition: PartitionImage,
) -> PartitionChange:
    """Begin a change of a partition in which a broker's replica neither leads nor is in sync."""
    change = PartitionChange(
        topic.topic_id, number, partition, leader_check(image, partition, gone=broker_id)
    )
    change.isr = tuple(replica for replica in partition.isr if replica != broker_id)
    if is_unclean_election_enabled(config, image, topic.name):
        allow_unclean(change, image, gone=broker_id)
    return change


def changes_when_broker_returns(
    config: ControllerConfig, image: MetadataImage, index: PartitionIndex, broker_id: int
) -> list[MetadataRecord]:
    """Give leaders to partitions that have none and that this broker may lead."""
    records: list[MetadataRecord] = []
    for topic, number, partition in index.leaderless(image):
        if broker_id not in partition.replicas:
            continue
        change = PartitionChange(
            topic.topic_id, number, partition, leader_check(image, partition, back=broker_id)
        )
        if is_unclean_election_enabled(config, image, topic.name):
            allow_unclean(change, image, back=broker_id)
        _append_if_changed(records, change)
    return records


def balance_leaders(image: MetadataImage, index: PartitionIndex) -> list[MetadataRecord]:
    """Move leaders back to the preferred replicas that can lead, a bounded number at a time."""
    return _elect_where_possible(image, index.imbalanced(image), Election.PREFERRED)


def elect_unclean_leaders(
    config: ControllerConfig, image: MetadataImage, index: PartitionIndex
) -> list[MetadataRecord]:
    """Give leaders to leaderless partitions that may lose records, a bounded number at a time."""
    candidates = (
        located
        for located in index.leaderless(image)
        if is_unclean_election_enabled(config, image, located[0].name)
    )
    return _elect_where_possible(image, candidates, Election.UNCLEAN)


def _elect_where_possible(
    image: MetadataImage, candidates: Iterable[Located], election: Election
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for topic, number, partition in candidates:
        if len(records) >= MAX_ELECTIONS_AT_ONCE:
            break
        change = PartitionChange(topic.topic_id, number, partition, leader_check(image, partition))
        if election is Election.UNCLEAN:
            allow_unclean(change, image)
        else:
            change.election = election
        _append_if_changed(records, change)
    return records


def _append_if_changed(records: list[MetadataRecord], change: PartitionChange) -> None:
    record = change.build()
    if record is not None:
        records.append(record)


# ---- ElectLeaders


def elect_leaders(request: ElectLeadersRequest, context: DecisionContext) -> ControllerResult:
    """Elect leaders for the partitions named, or for all (null) that need it."""
    if request.election_type not in (_PREFERRED_ELECTION, _UNCLEAN_ELECTION):
        message = f"Unknown election type {request.election_type}"
        return ControllerResult([], error_response(request, ErrorCode.INVALID_REQUEST, message))
    is_unclean = request.election_type == _UNCLEAN_ELECTION
    records: list[MetadataRecord] = []
    results: list[ReplicaElectionResult] = []
    if request.topic_partitions is None:
        wanted = [
            (topic.name, sorted(topic.partitions)) for topic in _topics_in_order(context.image)
        ]
    else:
        wanted = [(topic.topic, list(topic.partitions)) for topic in request.topic_partitions]
    seen: dict[tuple[str, int], None] = {}
    for name, indexes in wanted:
        result = ReplicaElectionResult(topic=name)
        for index in indexes:
            if (name, index) in seen:
                continue
            seen[name, index] = None
            try:
                records.append(_elect_leader(context.image, name, index, is_unclean=is_unclean))
            except KafkaError as error:
                # Asked about all, the answer lists only those that needed a leader.
                if request.topic_partitions is None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                result.partition_result.append(
                    PartitionResult(
                        partition_id=index,
                        error_code=error.code,
                        error_message=error.message or error.code.sentence,
                    )
                )
                continue
            result.partition_result.append(PartitionResult(partition_id=index, error_message=None))
        results.append(result)
    return ControllerResult(records, ElectLeadersResponse(replica_election_results=results))


def _topics_in_order(image: MetadataImage) -> list[TopicImage]:
    return [image.topics_by_name[name] for name in sorted(image.topics_by_name)]


def _elect_leader(
    image: MetadataImage, name: str, index: int, *, is_unclean: bool
) -> PartitionChangeRecord:
    topic = image.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        )
    if is_unclean:
        is_not_needed = partition.leader != NO_LEADER
    else:
        is_not_needed = partition.leader == partition.preferred_leader
    if is_not_needed:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, None)
    change = PartitionChange(topic.topic_id, index, partition, leader_check(image, partition))
    if is_unclean:
        allow_unclean(change, image)
    else:
        change.election = Election.PREFERRED
    record = change.build()
    if record is None:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            if is_unclean
            else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            None,
        )
    return record


# ---- AlterPartition


def alter_partition(request: AlterPartitionRequest, context: DecisionContext) -> ControllerResult:
    """Decide on the ISR changes that a leader proposes."""
    try:
        check_broker_epoch(context.image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return ControllerResult([], AlterPartitionResponse(error_code=error.code))
    records: list[MetadataRecord] = []
    topics: list[AlterPartitionResponseTopicData] = []
    for topic_data in request.topics:
        topic = context.image.topic_by_id(topic_data.topic_id)
        result = AlterPartitionResponseTopicData(topic_id=topic_data.topic_id)
        for data in topic_data.partitions:
            try:
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, None)
                record, answer = _alter_one(topic, data, request.broker_id, context)
            except KafkaError as error:
                answer = AlterPartitionResponsePartitionData(
                    partition_index=data.partition_index, error_code=error.code
                )
            else:
                if record is not None:
                    records.append(record)
            result.partitions.append(answer)
        topics.append(result)
    return ControllerResult(records, AlterPartitionResponse(topics=topics))


def _alter_one(
    topic: TopicImage,
    data: AlterPartitionRequestPartitionData,
    broker_id: int,
    context: DecisionContext,
) -> tuple[PartitionChangeRecord | None, AlterPartitionResponsePartitionData]:
    partition = topic.partitions.get(data.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    has_epochs = context.api_version >= _ISR_EPOCHS_VERSION
    new_isr = (
        [state.broker_id for state in data.new_isr_with_epochs] if has_epochs else data.new_isr
    )
    _check_alter_partition(partition, data, new_isr, broker_id)
    for position, replica in enumerate(new_isr):
        broker = context.image.broker(replica)
        epoch = data.new_isr_with_epochs[position].broker_epoch if has_epochs else -1
        if (
            broker is None
            or not broker.is_active
            or (epoch != -1 and epoch != broker.broker_epoch)
            or not _is_online(broker, partition)
        ):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, None)
    change = PartitionChange(
        topic.topic_id, data.partition_index, partition, leader_check(context.image, partition)
    )
    change.isr = tuple(new_isr)
    change.leader_recovery_state = data.leader_recovery_state
    if is_unclean_election_enabled(context.config, context.image, topic.name):
        allow_unclean(change, context.image)
    record = change.build()
    after = partition if record is None else partition.merge(record)
    # The proposer no longer leads (a reassignment took it away): it will learn of its successor.
    error = ErrorCode.NONE if after.leader == broker_id else ErrorCode.NEW_LEADER_ELECTED
    return record, AlterPartitionResponsePartitionData(
        partition_index=data.partition_index,
        error_code=error,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )


def _check_alter_partition(
    partition: PartitionImage,
    data: AlterPartitionRequestPartitionData,
    new_isr: list[int],
    broker_id: int,
) -> None:
    # Epochs that this controller does not know of come from a newer one.
    if (
        data.leader_epoch > partition.leader_epoch
        or data.partition_epoch > partition.partition_epoch
    ):
        raise KafkaError(ErrorCode.NOT_CONTROLLER, None)
    if data.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, None)
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, None)
    if data.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, None)
    # One without the proposer lets another member lead: its disk is full, say (no KIP).
    candidates = partition.replicas if broker_id in new_isr else partition.isr
    is_valid_isr = (
        len(new_isr) > 0
        and len(frozenset(new_isr)) == len(new_isr)
        and all(replica in candidates for replica in new_isr)
    )
    if not is_valid_isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST, None)
    is_recovering = data.leader_recovery_state == LEADER_RECOVERING
    if data.leader_recovery_state not in (LEADER_RECOVERED, LEADER_RECOVERING) or (
        is_recovering and (len(new_isr) > 1 or partition.leader_recovery_state == LEADER_RECOVERED)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, None)
