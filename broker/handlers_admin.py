"""CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments,
ListPartitionReassignments, DescribeLogDirs.

Behaviour (Kafka's)
- What changes the cluster is decided by the active controller; its answer comes when the change is
  committed. When it takes longer than the request's timeout_ms every item is answered
  REQUEST_TIMED_OUT, though the change may still happen.
- DescribeLogDirs: null topics = all, and only partitions that lie here are answered.
Version notes
- DescribeLogDirs 3: top-level error, 4: sizes of the volume (KIP-827), 5: cordoned folders.
- AlterPartitionReassignments 1: allow_replication_factor_change (KIP-860).
"""

from __future__ import annotations

from collections.abc import Callable
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
from kraftrio.wire.api import ApiKey
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.fitting import fit_version
from kraftrio.wire.messages.admin import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
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
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.forward,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.forward,
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
        }

    def forward(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """Let the active controller decide, for as long as the client waits."""
        return decide_in_time(self._controller, self._scheduler, request, context.api_version)

    def elect_leaders(
        self, request: ElectLeadersRequest, context: RequestContext
    ) -> Deferred[ElectLeadersResponse]:
        """Forward; version 0 tells an error of the whole request by its partitions alone."""
        return self.forward(request, context).map(
            lambda decided: fit_version(decided, context.api_version)
        )

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


def decide_in_time(
    controller: ControllerPort, scheduler: SchedulerPort, request: Any, api_version: int
) -> Deferred[Any]:
    """Let the active controller decide; REQUEST_TIMED_OUT when it takes longer than timeout_ms."""
    decision = controller.submit(request, api_version=api_version)
    if decision.done or request.timeout_ms <= 0:  # Kafka does not cut such requests short
        return decision
    answer: Deferred[Any] = Deferred()

    def on_timeout() -> None:
        if not answer.done:
            answer.complete(error_response(request, ErrorCode.REQUEST_TIMED_OUT))

    timer = scheduler.schedule(request.timeout_ms, on_timeout)

    def on_decision(response: Any) -> None:
        if not answer.done:
            timer.cancel()
            answer.complete(response)

    decision.then(on_decision)
    return answer
