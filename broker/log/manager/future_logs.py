"""Logs on their way into another log directory: `<topic>-<partition>.<id>-future` (KIP-113).

Owns: `FutureLogs`, the copies that will take the place of logs in service. Rules:
1. A future log is a whole log that only its mover reads, cleans or retains; there is at most
   one for a partition, in another directory than the partition's log.
2. `promote` makes it the partition's log by two renames: first it gets the plain name, then the
   log that was in service gets the name of a deleted one. A crash in between leaves two logs with
   the plain name; the metadata names the new directory by then, and `duplicate_logs` goes by it.
3. One that fails is dropped; the log in service is not touched before `promote`.

Called by: replica/moves.py, which decides when. Kafka's counterpart: LogManager's futureLogs.
"""

from __future__ import annotations

import logging
import posixpath
from typing import NamedTuple

from kraftrio.base.no_room import NO_ROOM
from kraftrio.broker.log.manager.directories import (
    delete_directory_name,
    directory_name,
    future_directory_name,
    parse_future_name,
)
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

_logger = logging.getLogger(__name__)


class FutureLog(NamedTuple):
    """A copy in the making, and the directory it will serve from."""

    log: PartitionLog
    log_dir: LogDir


class FutureLogs:
    """See the module; one per broker, beside its `LogManager`."""

    def __init__(self, log_manager: LogManager) -> None:
        self._log_manager = log_manager
        self._futures: dict[TopicPartition, FutureLog] = {}
        self._abandoned: set[TopicPartition] = set()

    def get(self, topic_partition: TopicPartition) -> FutureLog | None:
        """The partition's future log, if it has one."""
        return self._futures.get(topic_partition)

    def all(self) -> list[FutureLog]:
        """Every future log."""
        return list(self._futures.values())

    def load(self, now_ms: int) -> None:
        """Open the future logs that an earlier process left; may run in a worker thread.

        One whose partition has no log in service, or one of another topic or in the same directory,
        is removed. That of a compacted topic begins again, since nothing shows which of its records
        compaction removed meanwhile. But while a directory is offline the partition's log may be in
        that one: then it is left where it is (`is_abandoned`).
        """
        for log_dir in self._log_manager.dirs:
            if log_dir.is_online:
                try:
                    self._load_directory(log_dir, now_ms)
                except OSError as error:
                    self._log_manager.fail_dir(log_dir, error)

    def _load_directory(self, log_dir: LogDir, now_ms: int) -> None:
        fs = self._log_manager.fs
        for name in fs.list_directory(log_dir.path):
            topic_partition = parse_future_name(name)
            path = posixpath.join(log_dir.path, name)
            if topic_partition is None or not fs.is_directory(path):
                continue
            current = self._log_manager.get_log(topic_partition)
            if current is None and not all(one.is_online for one in self._log_manager.dirs):
                self._abandoned.add(topic_partition)
                continue
            future = None if current is None else self._open(path, current, log_dir, now_ms)
            if future is None:
                _logger.warning("future log without use removed: %s", path)
                fs.remove_directory(path)
            else:
                self._futures[topic_partition] = future

    def _open(
        self, path: str, current: PartitionLog, log_dir: LogDir, now_ms: int
    ) -> FutureLog | None:
        """Open one that was found; None if it is of no use."""
        topic_partition = current.topic_partition
        if topic_partition in self._futures or (
            self._log_manager.dir_of(topic_partition) is log_dir
        ):
            return None
        log = self._log_manager.factory.open(
            path,
            topic_partition,
            current.config,
            CheckpointedOffsets(),
            clean_shutdown=log_dir.clean_shutdown,
            now_ms=now_ms,
        )
        if log.topic_id != current.topic_id:
            log.close_files()
            return None
        if current.config.compact:
            log.truncate_fully_and_start_at(current.log_start_offset, now_ms)
        return FutureLog(log, log_dir)

    def is_abandoned(self, topic_partition: TopicPartition) -> bool:
        """Whether a future log was found whose partition's log may be in a directory that is
        offline.

        Then no empty log may take its place, though the metadata may name an online directory.
        """
        return topic_partition in self._abandoned

    def create(self, current: PartitionLog, log_dir: LogDir, now_ms: int) -> FutureLog:
        """Begin a future log where the log in service starts.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: the directory fails, or has no room.
        """
        topic_partition = current.topic_partition
        assert topic_partition not in self._futures, topic_partition
        name = future_directory_name(topic_partition, self._log_manager.new_id())
        path = posixpath.join(log_dir.path, name)
        try:
            log = self._log_manager.factory.open(
                path,
                topic_partition,
                current.config,
                CheckpointedOffsets(log_start_offset=current.log_start_offset),
                topic_id=current.topic_id,
                clean_shutdown=True,
                now_ms=now_ms,
            )
        except OSError as error:
            self._log_manager.fail_dir(log_dir, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot create {path}: {error.strerror}"
            ) from error
        future = FutureLog(log, log_dir)
        self._futures[topic_partition] = future
        return future

    def promote(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Serve from the future log from now on; the other one is deleted after its delay (rule 2).

        Raises:
            OSError: the future log is not in place; the log in service still is.
        """
        future = self._futures[topic_partition]
        fs = self._log_manager.fs
        path = posixpath.join(future.log_dir.path, directory_name(topic_partition))
        future.log_dir.checkpoints.forget(topic_partition)  # of a former stay there
        fs.rename(future.log.directory, path)
        future.log.moved(path)
        fs.sync_directory(future.log_dir.path)
        del self._futures[topic_partition]
        self._log_manager.delete_log(topic_partition, now_ms)
        self._log_manager.put_in_service(future.log, future.log_dir)

    def drop(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Give up a future log: its directory is removed after the delay of deleted logs."""
        future = self._futures.pop(topic_partition, None)
        if future is None:
            return
        log, log_dir = future
        if not log_dir.is_online:
            log.close_files()
            return  # what is left there is dropped by a later start
        name = delete_directory_name(topic_partition, self._log_manager.new_id())
        due_ms = now_ms + log.config.file_delete_delay_ms
        self._log_manager.move_away(log, log_dir, name, due_ms)

    def fail(self, future: FutureLog, error: OSError) -> None:
        """The disk of a future log fails: its directory goes offline unless it only lacks room."""
        if error.errno not in NO_ROOM:
            self._log_manager.fail_dir(future.log_dir, error)

    def close(self) -> None:
        """Stop cleanly; what is copied so far goes on from there at the next start."""
        for future in self._futures.values():
            try:
                future.log.close()
            except OSError as error:
                self.fail(future, error)
        self._futures.clear()
