"""Opening and making the folders of logs, with what all logs of a broker share.

Owned by `log_manager`, which puts what is made in service; `future_logs` opens its copies here.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable

from kraftrio.base.no_room import NO_ROOM
from kraftrio.broker.log.checkpoints import read_topic_id
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.directories import directory_name, stray_directory_name
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.removed_logs import RemovedLogs
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets, LogResources
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.partition.recovery import open_log
from kraftrio.wire.primitives import TopicPartition

_logger = logging.getLogger(__name__)


class LogFactory:
    """See the module."""

    def __init__(
        self, resources: LogResources, removed: RemovedLogs, new_id: Callable[[], bytes]
    ) -> None:
        self.resources = resources
        self._fs = resources.fs
        self._removed = removed
        self._new_id = new_id

    def open(
        self,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        checkpointed: CheckpointedOffsets,
        *,
        topic_id: bytes | None = None,
        clean_shutdown: bool,
        now_ms: int,
    ) -> PartitionLog:
        """Open or make a log in that folder, not in service yet. Raises OSError. Any thread."""
        return open_log(
            self.resources,
            path,
            topic_partition,
            config,
            checkpointed,
            topic_id=topic_id,
            clean_shutdown=clean_shutdown,
            now_ms=now_ms,
        )

    def create(
        self,
        log_dir: LogDir,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        now_ms: int,
    ) -> PartitionLog:
        """Make an empty log under the partition's name. Raises OSError."""
        path = posixpath.join(log_dir.path, directory_name(topic_partition))
        self._clear_path(log_dir, path, topic_partition, topic_id)
        is_new = not self._fs.is_directory(path)
        try:
            return self.open(
                path,
                topic_partition,
                config,
                CheckpointedOffsets(),
                topic_id=topic_id,
                clean_shutdown=is_new,
                now_ms=now_ms,
            )
        except OSError as error:
            if is_new and error.errno in NO_ROOM:
                self._removed.remove_unused(path)
            raise

    def _clear_path(
        self, log_dir: LogDir, path: str, topic_partition: TopicPartition, topic_id: bytes
    ) -> None:
        """Remove or rename what an earlier topic of that name left. Raises OSError."""
        self._removed.clear_way(path)
        log_dir.checkpoints.forget(topic_partition)
        stored_id = read_topic_id(self._fs, path)
        if stored_id is not None and stored_id != topic_id:
            # It was to be set aside, or deleted, and could not be.
            name = stray_directory_name(topic_partition, self._new_id())
            stray_path = posixpath.join(log_dir.path, name)
            self._fs.rename(path, stray_path)
            _logger.warning("log of another topic kept as %s", stray_path)
