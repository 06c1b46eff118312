"""All logs of a broker in its log directories (log.dirs): load, create, delete, fail, stop.

Rules:
1. A directory whose disk fails goes offline as a whole: its logs are reported and not served; the
   other directories go on (KIP-112).
2. Nothing here waits by itself: the owner's timers call `retain`, ask `flushes` and `checkpoints`
   what to do, and run the slow parts (`load_log`, `flush` of a log) in worker threads.
3. Deletion renames to `<topic>-<partition>.<id>-delete` at once and removes after
   file.delete.delay.ms (`remove_deleted`).

`node` and the parts of `replica/` call it.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping

from kraftrio.base.no_room import NO_ROOM
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.checkpoint_writer import CheckpointWriter
from kraftrio.broker.log.manager.directories import (
    METADATA_DIRECTORY,
    delete_directory_name,
    directory_name,
    is_deleted_name,
    parse_directory_name,
    stray_directory_name,
)
from kraftrio.broker.log.manager.flush_schedule import FlushSchedule
from kraftrio.broker.log.manager.log_dir import LogDir, PendingLog
from kraftrio.broker.log.manager.log_dirs import LogDirError, LogDirs
from kraftrio.broker.log.manager.log_factory import LogFactory
from kraftrio.broker.log.manager.log_registry import LogRegistry
from kraftrio.broker.log.manager.removed_logs import RemovedLogs
from kraftrio.broker.log.partition.log_parts import LogResources
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.producers.producer_state import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

_logger = logging.getLogger(__name__)


class LogManager:
    """See the module.

    Args:
        new_id: makes the unique ids of directories and deletions (simulations inject theirs).

    Attributes:
        dirs: the log directories.
        checkpoints: writes their offset checkpoints.
        flushes: which logs are to be flushed.
        factory: opens logs that are not in service.
        on_lost: called on the event loop with the partitions that went with their directory.
        on_failed: called after `on_lost`, when a directory has failed.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dirs: Iterable[str],
        *,
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
        new_id: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
    ) -> None:
        self.fs = fs
        self.new_id = new_id
        self.dirs = LogDirs(fs, log_dirs, new_id)
        self._registry = LogRegistry()
        self._removed = RemovedLogs(fs)
        resources = LogResources(fs, producer_id_expiration_ms=producer_id_expiration_ms)
        self.factory = LogFactory(resources, self._removed, new_id)
        self.checkpoints = CheckpointWriter(self.dirs, self._registry)
        self.flushes = FlushSchedule(self._registry)
        self.on_lost: Callable[[list[TopicPartition]], None] | None = None
        self.on_failed: Callable[[], None] | None = None

    # -- start ----------------------------------------------------------------------------------

    def start(
        self, cluster_id: str, node_id: int, known_ids: Mapping[str, bytes] | None = None
    ) -> list[PendingLog]:
        """Open the directories (see `LogDirs.open`); return the partition folders to load.

        The caller passes each result to `load_log` (from several threads if it likes) and then
        calls `dirs.finish_loading`.

        Raises:
            LogDirError: a directory is locked by another process or belongs to another node, or
                none is usable.
        """
        self.dirs.open(cluster_id, node_id, known_ids or {})
        pending: list[PendingLog] = []
        for log_dir in self.dirs.online():
            try:
                pending += self._find_logs(log_dir)
            except OSError as error:
                log_dir.failure = error
        self.dirs.check_usable()
        return pending

    def _find_logs(self, log_dir: LogDir) -> list[PendingLog]:
        pending: list[PendingLog] = []
        for name in self.fs.list_directory(log_dir.path):
            path = posixpath.join(log_dir.path, name)
            if is_deleted_name(name) and self.fs.is_directory(path):
                self._removed.found(path)
                continue
            topic_partition = parse_directory_name(name)
            if (
                topic_partition is not None
                and name != METADATA_DIRECTORY
                and self.fs.is_directory(path)
            ):
                pending.append(PendingLog(log_dir, topic_partition))
        return pending

    def load_log(self, pending: PendingLog, config: LogConfig, now_ms: int) -> PartitionLog | None:
        """Open one found log, recovering it if needed; None if its directory went offline.

        Several threads may call this for different partitions.
        """
        log_dir, topic_partition = pending
        checkpointed = log_dir.checkpoints.of(topic_partition)
        if not log_dir.is_online:
            return None
        try:
            log = self.factory.open(
                pending.path,
                topic_partition,
                config,
                checkpointed,
                clean_shutdown=log_dir.clean_shutdown,
                now_ms=now_ms,
            )
        except OSError as error:
            if error.errno in NO_ROOM:
                raise LogDirError(f"cannot recover {topic_partition}: {error}") from error
            self.fail_dir(log_dir, error)
            return None
        # A tail that is lost, or a start that went on since, leaves the checkpoint outside the log.
        high_watermark = min(checkpointed.high_watermark, log.log_end_offset)
        log.update_high_watermark(max(log.log_start_offset, high_watermark))
        log.first_dirty_offset = checkpointed.first_dirty_offset
        for event in log.recovery_events:
            _logger.warning("recovery of %s %s", topic_partition, event)
        known = self._registry.add(log, log_dir)
        if known is not log:
            log.close_files()
            raise LogDirError(
                f"{topic_partition} is in two log directories: {known.directory}, {log.directory}"
            )
        return log

    def set_pending_aside(self, pending: PendingLog) -> str:
        """Rename the folder of a partition that is not to be loaded; its files stay."""
        name = stray_directory_name(pending.topic_partition, self.new_id())
        path = posixpath.join(pending.directory.path, name)
        try:
            self.fs.rename(pending.path, path)
        except OSError as error:
            self.fail_dir(pending.directory, error)
        return path

    # -- look-ups -------------------------------------------------------------------------------

    def get_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The partition's log, if one is in service."""
        return self._registry.get(topic_partition)

    def logs(self) -> Iterator[PartitionLog]:
        """Every log in service (a copy of the list, safe to change meanwhile)."""
        return iter(self._registry)

    def dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        """The log directory in which the partition's log lies."""
        return self._registry.dir_of(topic_partition)

    def stray_logs(
        self, is_known: Callable[[TopicPartition, bytes | None], bool]
    ) -> list[PartitionLog]:
        """The logs whose topic id or partition the metadata does not place here (any more)."""
        return [log for log in self._registry if not is_known(log.topic_partition, log.topic_id)]

    # -- create and delete ----------------------------------------------------------------------

    def get_or_create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        now_ms: int,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """The partition's log; if there is none, a new one in the given or least used directory.

        A log of an earlier topic of the same name is deleted first.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the directory fails or is offline.
        """
        log = self._registry.get(topic_partition)
        if log is not None:
            if log.topic_id is None:
                self._set_topic_id(log, topic_id)
            if log.topic_id == topic_id:
                log.set_config(config)
                return log
            self.delete_log(topic_partition, now_ms)
        return self.create_log(topic_partition, topic_id, config, now_ms, directory_id=directory_id)

    def create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        now_ms: int,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """Make an empty log. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        assert self._registry.get(topic_partition) is None, topic_partition
        log_dir = self._choose_dir(directory_id)
        try:
            log = self.factory.create(log_dir, topic_partition, topic_id, config, now_ms)
        except OSError as error:
            path = posixpath.join(log_dir.path, directory_name(topic_partition))
            raise self._storage_error(f"create {path}", log_dir, error) from error
        self.put_in_service(log, log_dir)
        return log

    def _choose_dir(self, directory_id: bytes | None) -> LogDir:
        online = self.dirs.online()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        wanted = [log_dir for log_dir in online if log_dir.directory_id == directory_id]
        return wanted[0] if wanted else self._registry.least_used(online)

    def _set_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        try:
            log.set_topic_id(topic_id)
        except OSError as error:
            log_dir = self._registry.dir_of(log.topic_partition)
            assert log_dir is not None, log
            raise self._storage_error(f"name {log.directory}", log_dir, error) from error

    def _storage_error(self, doing: str, log_dir: LogDir, error: OSError) -> KafkaError:
        self.fail_dir(log_dir, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {doing}: {error.strerror}")

    def put_in_service(self, log: PartitionLog, log_dir: LogDir) -> None:
        """Serve a partition from this log; it has no other."""
        known = self._registry.add(log, log_dir)
        assert known is log, known

    def truncate(self, log: PartitionLog, offset: int) -> None:
        """Truncate a log to `offset`; recovery checks what is written there later."""
        recovery_point = log.recovery_point
        try:
            log.truncate_to(offset)
        finally:
            if log.recovery_point < recovery_point:
                self.write_checkpoints()
            try:
                self.checkpoints.lower_cleaner_offset(log)
            except OSError as error:
                self.fail_log(log, error)

    def truncate_fully_and_start_at(self, log: PartitionLog, offset: int, now_ms: int) -> None:
        """Drop everything in a log and let it start at `offset`, also after a restart."""
        log_dir = self._registry.dir_of(log.topic_partition)
        if log_dir is not None:
            log_dir.checkpoints.forget(log.topic_partition)
        log.truncate_fully_and_start_at(offset, now_ms)

    def delete_log(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Take the log out of service and rename its directory; the files go later."""
        name = delete_directory_name(topic_partition, self.new_id())
        log = self._registry.get(topic_partition)
        if log is not None:
            self._take_out(log, name, now_ms + log.config.file_delete_delay_ms)

    def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Take a stray log out of service, but keep its files: its owner may want them back.

        Returns:
            the directory it is in now; None if there is none.
        """
        log = self._registry.get(topic_partition)
        name = stray_directory_name(topic_partition, self.new_id())
        return log.directory if log is not None and self._take_out(log, name, None) else None

    def _take_out(self, log: PartitionLog, name: str, due_ms: int | None) -> bool:
        """Stop serving a log and rename its directory; False if that is gone, or offline now."""
        log_dir = self._registry.take(log.topic_partition)
        self.flushes.forget(log.topic_partition)
        return self.move_away(log, log_dir, name, due_ms)

    def move_away(self, log: PartitionLog, log_dir: LogDir, name: str, due_ms: int | None) -> bool:
        """Close a log that is not in service and rename its directory; see `RemovedLogs.move`.

        Returns:
            False: the directory is gone, or offline now.
        """
        log.close_files()
        path = posixpath.join(log_dir.path, name)
        try:
            return self._removed.move(log, path, due_ms)
        except OSError as error:
            if error.errno in NO_ROOM:
                self._removed.retry_move(log, path, due_ms)
            self.fail_dir(log_dir, error)
            return error.errno in NO_ROOM

    def remove_deleted(self, now_ms: int) -> int:
        """Remove deleted segments and logs whose delay is over; return how many logs wait."""
        for log in self.logs():
            if log.retired.are_due(now_ms):
                try:
                    log.retired.remove_expired(now_ms)
                except OSError as error:
                    self.fail_log(log, error)
        return self._removed.remove_expired(now_ms)

    # -- periodic work --------------------------------------------------------------------------

    def retain(self, now_ms: int) -> int:
        """One retention pass over all logs: expired segments, and files past their delay."""
        count = sum(self.retain_log(log, now_ms) for log in self.logs())
        self._removed.remove_expired(now_ms)
        return count

    def retain_log(self, log: PartitionLog, now_ms: int) -> int:
        """One retention pass over one log; return how many segments it deleted."""
        try:
            count = log.apply_retention(now_ms)
            log.retired.remove_expired(now_ms)
        except OSError as error:
            self.fail_log(log, error)
            return 0
        if count:
            _logger.info(
                "retention deleted segments partition=%s count=%d log_start_offset=%d",
                log.topic_partition,
                count,
                log.log_start_offset,
            )
        return count

    def write_checkpoints(self) -> None:
        """Save recovery points, high watermarks and log start offsets of all directories."""
        for checkpoint in self.checkpoints.stale():
            try:
                self.checkpoints.write(checkpoint)
            except OSError as error:
                self.fail_dir(checkpoint.log_dir, error)

    # -- failures and stop ----------------------------------------------------------------------

    def fail_dir(self, log_dir: LogDir, error: OSError) -> list[TopicPartition]:
        """Take a directory offline; return the partitions that were served from it.

        A full disk is not a failed one: what needs space fails, and is tried again.
        """
        if error.errno in NO_ROOM:
            self.dirs.on_no_room(log_dir, error)
            return []
        is_news = self.dirs.fail(log_dir, error)
        lost = self._registry.in_dir(log_dir)
        for topic_partition, log in lost.items():
            self._registry.take(topic_partition)
            try:
                log.close_files()
            except OSError as second:
                _logger.warning("cannot close %s: %s", log.directory, second)
        if lost and self.on_lost is not None:
            self.on_lost(list(lost))
        if is_news and self.on_failed is not None:
            self.on_failed()
        return list(lost)

    def has_room(self, log_dir: LogDir) -> bool:
        """Whether so much as a few batches can be written to a directory; true if it is offline."""
        try:
            self.dirs.probe(log_dir)
        except OSError as error:
            self.fail_dir(log_dir, error)
            return not log_dir.is_online
        return True

    def fail_log(self, log: PartitionLog, error: OSError) -> list[TopicPartition]:
        """Take the directory of this log offline; a late flush may be of one out of service."""
        log_dir = self.dirs.holding(log.directory)
        return [] if log_dir is None else self.fail_dir(log_dir, error)

    def close(self, broker_epoch: int = -1) -> None:
        """Stop cleanly: flush and close all logs, write checkpoints and the markers.

        A directory in which anything fails gets no marker: it is recovered at the next start.
        """
        unclean: list[LogDir | None] = []
        for log in self.logs():
            try:
                log.close()
            except OSError as error:
                unclean.append(self._registry.dir_of(log.topic_partition))
                self.fail_log(log, error)
        for checkpoint in self.checkpoints.stale():
            try:
                self.checkpoints.write(checkpoint)
            except OSError as error:
                unclean.append(checkpoint.log_dir)
                self.fail_dir(checkpoint.log_dir, error)
        for log_dir in self.dirs.online():
            if log_dir.is_loaded and log_dir not in unclean:
                try:
                    self.dirs.mark_clean(log_dir, broker_epoch)
                except OSError as error:
                    self.fail_dir(log_dir, error)
        self.release()

    def release(self) -> None:
        """Close the files and give up the locks without saving anything."""
        for log in self.logs():
            log.close_files()
        self._registry.clear()
        self.dirs.release()
