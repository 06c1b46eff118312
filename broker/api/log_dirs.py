"""DescribeLogDirs, AlterReplicaLogDirs: what the log directories hold, and moves between them.

Behaviour (Kafka's)
- DescribeLogDirs: null topics = all, and only partitions that lie here are answered. A replica that
  moves is in both directories, in the new one as a future replica with its lag.
- AlterReplicaLogDirs is answered at once, the move goes on; each partition has its own error. One
  named under two directories goes by the last of them.
Version notes
- DescribeLogDirs 3: top-level error, 4: sizes of the volume (KIP-827), 5: cordoned directories.
"""

from __future__ import annotations

from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.ports import LogDirectory, LogDirsPort, ReplicaMovesPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey


class LogDirHandlers:
    """Serves the APIs about the log directories of one broker."""

    def __init__(
        self, dynamic: DynamicConfig, log_dirs: LogDirsPort, moves: ReplicaMovesPort
    ) -> None:
        self._dynamic = dynamic
        self._log_dirs = log_dirs
        self._moves = moves

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
            ApiKey.ALTER_REPLICA_LOG_DIRS: self.alter_replica_log_dirs,
        }

    def describe_log_dirs(
        self, request: DescribeLogDirsRequest, _context: RequestContext
    ) -> Work[DescribeLogDirsResponse]:
        """Describe each log directory and the requested partitions in it."""
        directories = self._log_dirs.log_directories()
        wanted: set[TopicPartition] | None = None
        if request.topics is not None:
            wanted = set()
            for topic in request.topics:
                for index in topic.partitions:
                    topic_partition = TopicPartition(topic.topic, index)
                    if any(one.has(topic_partition) for one in directories):
                        wanted.add(topic_partition)
                    yield None
                yield None
        cordoned = self._dynamic.current.cordoned_log_dirs
        return DescribeLogDirsResponse(
            results=[
                _describe_directory(
                    directory, wanted, directory.path in cordoned or cordoned == ["*"]
                )
                for directory in directories
            ]
        )

    def alter_replica_log_dirs(
        self, request: AlterReplicaLogDirsRequest, _context: RequestContext
    ) -> Work[AlterReplicaLogDirsResponse]:
        """Start the requested moves."""
        asked: dict[TopicPartition, str] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    asked[TopicPartition(topic.name, index)] = directory.path
                    yield None
                yield None
            yield None
        codes: dict[str, list[tuple[int, ErrorCode]]] = {}
        for topic_partition, path in asked.items():
            code = self._moves.alter(topic_partition, path)
            codes.setdefault(topic_partition.topic, []).append((topic_partition.partition, code))
            yield None
        return AlterReplicaLogDirsResponse(
            results=each(
                lambda topic: AlterReplicaLogDirTopicResult(
                    topic_name=topic[0], partitions=each(_move_result, topic[1])
                ),
                codes.items(),
            )
        )


def _move_result(move: tuple[int, ErrorCode]) -> AlterReplicaLogDirPartitionResult:
    return AlterReplicaLogDirPartitionResult(partition_index=move[0], error_code=move[1])


def _describe_directory(
    directory: LogDirectory, wanted: set[TopicPartition] | None, is_cordoned: bool
) -> DescribeLogDirsResult:
    if directory.error is not None:
        return DescribeLogDirsResult(error_code=directory.error.code, log_dir=directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic_partition, size_bytes in sorted(directory.partitions.items()):
        if wanted is None or topic_partition in wanted:
            topics.setdefault(topic_partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=topic_partition.partition, partition_size=size_bytes
                )
            )
    for topic_partition, future in sorted(directory.futures.items()):
        if wanted is None or topic_partition in wanted:
            topics.setdefault(topic_partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=topic_partition.partition,
                    partition_size=future.size_bytes,
                    offset_lag=future.offset_lag,
                    is_future_key=True,
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
