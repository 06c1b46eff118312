"""CreateTopics and CreatePartitions: decisions on the uncommitted image.

Behaviour: each topic succeeds or fails alone, with all of its records or none; validate_only
answers as the real thing would, without records, and counts as much for a client's quota. A request
that asks for more partitions than max_partitions_per_request is refused whole (POLICY_VIOLATION),
before anything is placed.
Version notes: CreateTopics v4 made counts optional (-1, KIP-464), v5 returns configs (KIP-525), v7
the topic id.

Called by: controller.py. Kafka's counterpart: ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraftrio.kraft_meta.controller.control import METADATA_TOPIC, ControllerResult, DecisionContext
from kraftrio.kraft_meta.controller.topics.replica_placement import ReplicaPlacer
from kraftrio.kraft_meta.metadata.directories import directories_of
from kraftrio.kraft_meta.metadata.image import TOPIC, MetadataImage
from kraftrio.kraft_meta.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftrio.wire.topic_names import (
    check_topic_name,
    collision_key,
    find_collision,
    has_collision_chars,
)


def create_topics(request: CreateTopicsRequest, context: DecisionContext) -> ControllerResult:
    """Decide on each topic of the request."""
    records: list[MetadataRecord] = []
    results: list[CreatableTopicResult] = []
    duplicates = _duplicates(topic.name for topic in request.topics)
    too_many = (
        _total_partitions(request.topics, context) > context.config.max_partitions_per_request
    )
    placer: ReplicaPlacer | None = None
    created: dict[str, str] = {}
    seen: dict[str, None] = {}
    for topic in request.topics:
        if topic.name in seen:
            continue
        seen[topic.name] = None
        try:
            if topic.name in duplicates:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if too_many:
                raise _too_many_partitions()
            _check_new_topic_name(topic.name, context.image, created)
            if placer is None:
                placer = ReplicaPlacer(context.image.brokers.values(), context.rng)
            topic_records, result = _create_topic(topic, context, placer)
        except KafkaError as error:
            results.append(_failed_topic(topic.name, error))
            continue
        created[collision_key(topic.name)] = topic.name
        records += topic_records
        results.append(result)
    if request.validate_only:
        records = []
    return ControllerResult(records, CreateTopicsResponse(topics=results))


def _failed_topic(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


def _check_new_topic_name(name: str, image: MetadataImage, created: dict[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )
    check_topic_name(name)
    if image.topic(name) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    collision = find_collision(name, image.topics_by_name)
    if collision is None and has_collision_chars(name):
        collision = created.get(collision_key(name))
    if collision is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {collision}",
        )


def _create_topic(
    topic: CreatableTopic, context: DecisionContext, placer: ReplicaPlacer
) -> tuple[list[MetadataRecord], CreatableTopicResult]:
    configs = _topic_configs(topic, context)
    if topic.assignments:
        placements = _manual_placements(topic, context.image)
    else:
        placements = _automatic_placements(topic, context, placer)
    context.mutations.take(len(placements))
    topic_id = context.new_uuid()
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(TOPIC, topic.name, key, value) for key, value in configs.items()]
    for index, replicas in enumerate(placements):
        is_manual = bool(topic.assignments)
        records.append(
            _new_partition(topic_id, index, replicas, context.image, is_manual=is_manual)
        )
    return records, CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(placements),
        replication_factor=len(placements[0]),
        configs=context.topic_configs.describe_topic_configs(configs),
    )


def _topic_configs(topic: CreatableTopic, context: DecisionContext) -> dict[str, str]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    context.validator.validate(TOPIC, topic.name, configs)
    return configs


def _automatic_placements(
    topic: CreatableTopic, context: DecisionContext, placer: ReplicaPlacer
) -> list[tuple[int, ...]]:
    count, replication_factor = topic.num_partitions, topic.replication_factor
    if replication_factor < -1 or replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < -1 or count == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if count == -1:
        count = context.config.num_partitions
    if replication_factor == -1:
        replication_factor = context.config.default_replication_factor
    return _place(placer, count, replication_factor)


def _place(placer: ReplicaPlacer, count: int, replication_factor: int) -> list[tuple[int, ...]]:
    try:
        return [placer.place(replication_factor) for _ in range(count)]
    except KafkaError as error:
        raise KafkaError(
            error.code,
            f"Unable to replicate the partition {replication_factor} time(s): {error.message}",
        ) from error


def _manual_placements(topic: CreatableTopic, image: MetadataImage) -> list[tuple[int, ...]]:
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set "
            "to -1.",
        )
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    placements: dict[int, tuple[int, ...]] = {}
    size: int | None = None
    for assignment in topic.assignments:
        if assignment.partition_index in placements:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Found multiple manual partition assignments for partition "
                f"{assignment.partition_index}",
            )
        size = check_manual_assignment(assignment.broker_ids, image, size)
        placements[assignment.partition_index] = tuple(assignment.broker_ids)
    if sorted(placements) != list(range(len(placements))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [placements[index] for index in sorted(placements)]


def check_manual_assignment(
    replicas: Sequence[int], image: MetadataImage, expected_size: int | None
) -> int:
    """Raise INVALID_REPLICA_ASSIGNMENT unless replicas may be assigned; return how many."""
    reason = None
    if not replicas:
        reason = "The manual partition assignment includes an empty replica list."
    else:
        previous = None
        for broker_id in sorted(replicas):
            if image.broker(broker_id) is None:
                reason = (
                    f"The manual partition assignment includes broker {broker_id}, "
                    "but no such broker is registered."
                )
                break
            if broker_id == previous:
                reason = (
                    f"The manual partition assignment includes the broker {broker_id} "
                    "more than once."
                )
                break
            previous = broker_id
    if reason is None and expected_size is not None and len(replicas) != expected_size:
        reason = (
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{expected_size} replica(s)."
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return len(replicas)


def _new_partition(
    topic_id: bytes, index: int, replicas: tuple[int, ...], image: MetadataImage, *, is_manual: bool
) -> PartitionRecord:
    isr = tuple(replica for replica in replicas if image.brokers[replica].is_active)
    if not isr:
        if is_manual:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown.",
            )
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {len(replicas)} time(s): All brokers are "
            "currently fenced or in controlled shutdown.",
        )
    directories = {replica: image.brokers[replica].default_directory for replica in replicas}
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        directories=directories_of(replicas, directories),
    )


def _total_partitions(topics: Sequence[CreatableTopic], context: DecisionContext) -> int:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += context.config.num_partitions
        else:
            total += max(topic.num_partitions, 0)
    return total


def _too_many_partitions() -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
    )


def _duplicates(names: Iterable[str]) -> dict[str, None]:
    seen: dict[str, None] = {}
    repeated: dict[str, None] = {}
    for name in names:
        if name in seen:
            repeated[name] = None
        seen[name] = None
    return repeated


def create_partitions(
    request: CreatePartitionsRequest, context: DecisionContext
) -> ControllerResult:
    """Decide on each topic that should get more partitions."""
    records: list[MetadataRecord] = []
    results: list[CreatePartitionsTopicResult] = []
    duplicates = _duplicates(topic.name for topic in request.topics)
    added = 0
    for topic in request.topics:
        image = context.image.topic(topic.name)
        if image is not None:
            added += max(topic.count - image.partition_count, 0)
    seen: dict[str, None] = {}
    for topic in request.topics:
        if topic.name in seen:
            continue
        seen[topic.name] = None
        try:
            if topic.name in duplicates:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if added > context.config.max_partitions_per_request:
                raise _too_many_partitions()
            records += _add_partitions(topic, context)
        except KafkaError as error:
            results.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=error.code, error_message=error.message
                )
            )
            continue
        results.append(CreatePartitionsTopicResult(name=topic.name))
    if request.validate_only:
        records = []
    return ControllerResult(records, CreatePartitionsResponse(results=results))


def _add_partitions(topic: CreatePartitionsTopic, context: DecisionContext) -> list[MetadataRecord]:
    image = context.image.topic(topic.name)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    count = image.partition_count
    if topic.count == count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if topic.count < count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {count} partition(s); "
            f"{topic.count} would not be an increase.",
        )
    additional = topic.count - count
    replication_factor = len(image.partitions[0].replicas)
    if topic.assignments is None:
        placer = ReplicaPlacer(context.image.brokers.values(), context.rng)
        placements = _place(placer, additional, replication_factor)
    else:
        if len(topic.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(topic.assignments)} assignment(s) were specified.",
            )
        placements = []
        for assignment in topic.assignments:
            check_manual_assignment(assignment.broker_ids, context.image, replication_factor)
            placements.append(tuple(assignment.broker_ids))
    context.mutations.take(additional)
    is_manual = topic.assignments is not None
    return [
        _new_partition(image.topic_id, count + index, replicas, context.image, is_manual=is_manual)
        for index, replicas in enumerate(placements)
    ]
