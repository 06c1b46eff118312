"""CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments,
ListPartitionReassignments, DescribeLogDirs.

Behaviour (Kafka's)
- What changes the cluster is decided by the active controller; its answer comes when the change is
  committed. When it takes longer than the request's timeout_ms every item is answered
  REQUEST_TIMED_OUT, though the change may still happen.
- Reassignments are listed from the image. Moving replicas to other brokers is not supported yet:
  what needs no move is answered as Kafka does (so kafka-reassign-partitions works on one node), a
  move is refused with POLICY_VIOLATION.
- DescribeLogDirs: null topics = all, and only partitions that lie here are answered.
Version notes
- DescribeLogDirs 3: top-level error, 4: sizes of the volume (KIP-827), 5: cordoned folders.
- AlterPartitionReassignments 1: allow_replication_factor_change (KIP-860).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraftrio.broker.context import RequestContext
from kraftrio.broker.dynamic_config import DynamicConfig
from kraftrio.broker.ports import (
    ControllerPort,
    LogDirectory,
    LogDirsPort,
    MetadataPort,
    SchedulerPort,
)
from kraftrio.kraft_meta.deferred import Deferred
from kraftrio.kraft_meta.error_responses import error_response
from kraftrio.kraft_meta.image import MetadataImage, PartitionImage
from kraftrio.wire.api import ApiKey
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kraftrio.wire.primitives import TopicPartition

Handler = Callable[[Any, RequestContext], Any]


class AdminHandlers:
    """Serves the admin APIs of one broker."""

    def __init__(
        self,
        dynamic: DynamicConfig,
        metadata: MetadataPort,
        controller: ControllerPort,
        scheduler: SchedulerPort,
        log_dirs: LogDirsPort,
    ) -> None:
        self._dynamic = dynamic
        self._metadata = metadata
        self._controller = controller
        self._scheduler = scheduler
        self._log_dirs = log_dirs

    def table(self) -> dict[ApiKey, Handler]:
        """The handlers by API."""
        return {
            ApiKey.CREATE_TOPICS: self.forward,
            ApiKey.DELETE_TOPICS: self.forward,
            ApiKey.CREATE_PARTITIONS: self.forward,
            ApiKey.ELECT_LEADERS: self.elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.alter_partition_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.list_partition_reassignments,
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
        }

    def forward(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """Let the active controller decide, for as long as the client waits."""
        decision = self._controller.submit(request, api_version=context.api_version)
        if decision.done or request.timeout_ms <= 0:  # Kafka does not cut such requests short
            return decision
        answer: Deferred[Any] = Deferred()

        def on_timeout() -> None:
            if not answer.done:
                answer.complete(error_response(request, ErrorCode.REQUEST_TIMED_OUT))

        timer = self._scheduler.schedule(request.timeout_ms, on_timeout)

        def on_decision(response: Any) -> None:
            if not answer.done:
                timer.cancel()
                answer.complete(response)

        decision.then(on_decision)
        return answer

    def elect_leaders(
        self, request: ElectLeadersRequest, context: RequestContext
    ) -> Deferred[ElectLeadersResponse]:
        """Forward; version 0 tells an error of the whole request by its partitions alone."""
        decision = self.forward(request, context)
        if context.api_version > 0:
            return decision
        answer: Deferred[ElectLeadersResponse] = Deferred()

        def on_decision(response: ElectLeadersResponse) -> None:
            response.error_code = ErrorCode.NONE
            answer.complete(response)

        decision.then(on_decision)
        return answer

    # --- reassignments ---

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, _context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        """Answer what needs no move; refuse the rest."""
        image = self._metadata.image
        responses = []
        for topic in request.topics:
            results = []
            for partition in topic.partitions:
                result = ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_message=None
                )
                try:
                    _check_reassignment(image, topic.name, partition)
                except KafkaError as error:
                    result.error_code = error.code
                    result.error_message = error.message
                results.append(result)
            responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=responses,
        )

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, _context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        """List the reassignments under way."""
        image = self._metadata.image
        if request.topics is None:
            asked: list[tuple[str, Sequence[int] | None]] = [
                (name, None) for name in sorted(image.topics_by_name)
            ]
        else:
            asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
        topics = []
        for name, wanted in asked:
            partitions = _ongoing(image, name, wanted)
            if partitions:
                topics.append(OngoingTopicReassignment(name=name, partitions=partitions))
        return ListPartitionReassignmentsResponse(error_message=None, topics=topics)

    # --- log folders ---

    def describe_log_dirs(
        self, request: DescribeLogDirsRequest, _context: RequestContext
    ) -> DescribeLogDirsResponse:
        """Describe each log folder and the partitions in it that are asked for."""
        wanted: set[TopicPartition] | None = None
        if request.topics is not None:
            wanted = {
                TopicPartition(topic.topic, index)
                for topic in request.topics
                for index in topic.partitions
            }
        cordoned = self._dynamic.current.cordoned_log_dirs
        return DescribeLogDirsResponse(
            results=[
                _describe_directory(
                    directory, wanted, directory.path in cordoned or cordoned == ["*"]
                )
                for directory in self._log_dirs.log_directories()
            ]
        )


def _describe_directory(
    directory: LogDirectory, wanted: set[TopicPartition] | None, is_cordoned: bool
) -> DescribeLogDirsResult:
    if directory.error is not None:
        return DescribeLogDirsResult(error_code=directory.error.code, log_dir=directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic_partition in sorted(directory.partitions):
        if wanted is None or topic_partition in wanted:
            topics.setdefault(topic_partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=topic_partition.partition,
                    partition_size=directory.partitions[topic_partition],
                )
            )
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=directory.path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
        is_cordoned=is_cordoned,
    )


def _check_reassignment(image: MetadataImage, topic: str, wanted: ReassignablePartition) -> None:
    """Raise KafkaError unless the partition already is as it is wanted."""
    if image.topic(topic) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
        )
    partition = image.partition(topic, wanted.partition_index)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {topic}:{wanted.partition_index}.",
        )
    if wanted.replicas is None:
        if not partition.is_reassigning:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    else:
        _check_assignment(image, wanted.replicas)
        if list(partition.replicas) == wanted.replicas and not partition.is_reassigning:
            return
    raise KafkaError(ErrorCode.POLICY_VIOLATION, "Replicas cannot be moved between brokers yet.")


def _check_assignment(image: MetadataImage, replicas: list[int]) -> None:
    problem = None
    if not replicas:
        problem = "an empty replica list"
    for position, broker_id in enumerate(replicas):
        if problem is None and broker_id in replicas[:position]:
            problem = f"the broker {broker_id} more than once"
        elif problem is None and image.broker(broker_id) is None:
            problem = f"broker {broker_id}, but no such broker is registered"
    if problem is not None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {problem}.",
        )


def _ongoing(
    image: MetadataImage, name: str, wanted: Sequence[int] | None
) -> list[OngoingPartitionReassignment]:
    topic = image.topic(name)
    if topic is None:
        return []
    indexes = sorted(topic.partitions) if wanted is None else dict.fromkeys(wanted)
    found = []
    for index in indexes:
        partition: PartitionImage | None = topic.partitions.get(index)
        if partition is not None and partition.is_reassigning:
            found.append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
            )
    return found
