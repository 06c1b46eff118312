"""The log directories of a broker, as DescribeLogDirs reports them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence

from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.ports import FutureReplica, LogDirectory
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition


class LogDirectories:
    """Every directory of log.dirs.

    Args:
        futures_in: the replicas that are moving into a directory.
    """

    def __init__(
        self,
        log_manager: LogManager,
        futures_in: Callable[[LogDir], Mapping[TopicPartition, FutureReplica]],
    ) -> None:
        self._log_manager = log_manager
        self._futures_in = futures_in

    def log_directories(self) -> Sequence[LogDirectory]:
        """Describe each directory, with the sizes of its partitions."""
        return [self._describe(log_dir) for log_dir in self._log_manager.dirs]

    def _describe(self, log_dir: LogDir) -> LogDirectory:
        if not log_dir.is_online:
            return _unusable(log_dir, str(log_dir.failure))
        try:
            usage = shutil.disk_usage(log_dir.path)
        except OSError as error:  # the next write takes it offline
            return _unusable(log_dir, str(error))
        return LogDirectory(
            log_dir.path,
            {
                log.topic_partition: log.size_bytes
                for log in self._log_manager.logs()
                if self._log_manager.dir_of(log.topic_partition) is log_dir
            },
            usage.total,
            usage.free,
            futures=self._futures_in(log_dir),
        )


def _unusable(log_dir: LogDir, why: str) -> LogDirectory:
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
    return LogDirectory(log_dir.path, {}, error=error)
