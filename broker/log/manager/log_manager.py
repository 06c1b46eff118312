"""All logs of a broker in its log directories (log.dirs): load, create, delete, save, stop.

Rules:
1. One process per directory: `.lock` is held from `start` to `close`.
2. The clean-shutdown marker is removed before anything is loaded and written only after everything
   is flushed, so a crash in between is never taken for a clean stop (KAFKA-10471).
3. A directory whose disk fails goes offline as a whole: its logs are reported and not served; the
   other directories go on (KIP-112).
4. Nothing here waits by itself: the owner's timers call `retain`, `write_checkpoints` and
   `flush_due`, and run the slow ones (`load_log`, `flush` of a log) in worker threads.
5. Deletion renames to `<topic>-<partition>.<id>-delete` at once and removes after
   file.delete.delay.ms (`remove_deleted`).

`node` and `replica/manager` call it.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping

from kraftrio.base.no_room import NO_ROOM
from kraftrio.broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CheckpointError,
    MetaProperties,
    read_meta_properties,
    read_topic_id,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.log_config import LONG_MAX, LogConfig
from kraftrio.broker.log.manager.directories import (
    delete_directory_name,
    directory_name,
    is_deleted_name,
    parse_directory_name,
    stray_directory_name,
)
from kraftrio.broker.log.manager.log_dir import LogDir, PendingLog, StaleCheckpoint
from kraftrio.broker.log.manager.offset_checkpoints import OffsetCheckpoints
from kraftrio.broker.log.manager.removed_logs import RemovedLogs
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.partition.recovery import open_log
from kraftrio.broker.log.partition.tail_cache import DEFAULT_TOTAL_LIMIT_BYTES, TailBudget
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

_logger = logging.getLogger(__name__)

METADATA_TOPIC = "__cluster_metadata"

_PROBE_FILE = ".kraftrio-room"
_PROBE_BYTES = 1 << 20


class LogDirError(Exception):
    """A log directory cannot be used: locked, of another node, or unreadable."""


class LogManager:
    """Owner of the logs by partition and of the log directories.

    Args:
        new_id: makes the unique ids of directories and deletions (simulations inject theirs).
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dirs: Iterable[str],
        *,
        default_config: LogConfig | None = None,
        tail_cache_bytes: int = DEFAULT_TOTAL_LIMIT_BYTES,
        producer_id_expiration_ms: int | None = None,
        new_id: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
    ) -> None:
        self._fs = fs
        self.dirs = [LogDir(path, OffsetCheckpoints(fs, path)) for path in log_dirs]
        self.default_config = default_config or LogConfig()
        self._tail_budget = TailBudget(tail_cache_bytes)
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.new_id = new_id
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._removed = RemovedLogs(fs)
        self._last_flush_ms: dict[TopicPartition, int] = {}
        # Told, on the event loop, which partitions went with their directory.
        self.on_lost: Callable[[list[TopicPartition]], None] | None = None
        # Told that a directory has failed, after that.
        self.on_failed: Callable[[], None] | None = None

    # -- start ----------------------------------------------------------------------------------

    def start(
        self, cluster_id: str, node_id: int, known_ids: Mapping[str, bytes] | None = None
    ) -> list[PendingLog]:
        """Lock and check the directories; return the partition directories to load.

        A fresh directory gets its meta.properties, or when the cluster is not known yet ("") by
        `format`. The caller passes each result to `load_log` (from several threads if it likes) and
        then calls `finish_loading`.

        Args:
            known_ids: ids that fresh directories have already, by path.

        Raises:
            LogDirError: a directory is locked by another process or belongs to another node, or
                none is usable.
        """
        pending: list[PendingLog] = []
        for log_dir in self.dirs:
            log_dir.directory_id = (known_ids or {}).get(log_dir.path, b"")
            try:
                self._open_dir(log_dir, cluster_id, node_id)
                pending += self._find_logs(log_dir)
            except OSError as error:
                log_dir.failure = error  # even for lack of space: it is not set up
        if not any(log_dir.is_online for log_dir in self.dirs):
            raise LogDirError(f"no log directory can be used: {self.describe_failures()}")
        for log_dir in self.dirs:
            if log_dir.failure is not None:
                _logger.error("log directory %s is offline: %s", log_dir.path, log_dir.failure)
        return pending

    def describe_failures(self) -> str:
        """Why directories are offline, in words for a user."""
        return "; ".join(
            f"{log_dir.path}: {log_dir.failure.strerror or log_dir.failure}"
            for log_dir in self.dirs
            if log_dir.failure is not None
        )

    def _open_dir(self, log_dir: LogDir, cluster_id: str, node_id: int) -> None:
        fs, path = self._fs, log_dir.path
        if not fs.is_directory(path):
            fs.make_directory(path)
            fs.sync_directory(posixpath.dirname(path) or ".")
        try:
            log_dir.lock = fs.lock(posixpath.join(path, LOCK_FILE))
        except BlockingIOError:
            raise LogDirError(
                f"{path} is locked: another process is using this log directory"
            ) from None
        try:
            found = read_meta_properties(fs, path)
        except CheckpointError as error:
            raise LogDirError(f"{path}: {error}") from None
        if found is None:
            found = MetaProperties(cluster_id, node_id, log_dir.directory_id or self.new_id())
            log_dir.is_fresh = not cluster_id
            if cluster_id:
                write_meta_properties(fs, path, found)
        if found.cluster_id != cluster_id:
            raise LogDirError(
                f"{path} belongs to cluster {found.cluster_id}, but this is {cluster_id}"
            )
        if found.node_id != node_id:
            raise LogDirError(f"{path} belongs to node {found.node_id}, but this is {node_id}")
        log_dir.directory_id = found.directory_id
        epoch = take_clean_shutdown(fs, path)
        log_dir.clean_shutdown = epoch is not None
        log_dir.previous_broker_epoch = -1 if epoch is None else epoch
        for name, problem in log_dir.checkpoints.read():
            # Recovery points and log starts are then found from the logs, from their beginning on.
            _logger.warning("ignore %s: %s", log_dir.checkpoints.path(name), problem)
            if name == RECOVERY_POINT_CHECKPOINT:
                log_dir.clean_shutdown = False

    def format(self, cluster_id: str, node_id: int) -> None:
        """Write meta.properties where it is missing; blocks. Directories that fail go offline."""
        for log_dir in [one for one in self.dirs if one.is_fresh and one.is_online]:
            owner = MetaProperties(cluster_id, node_id, log_dir.directory_id)
            try:
                write_meta_properties(self._fs, log_dir.path, owner)
                log_dir.is_fresh = False
            except OSError as error:
                log_dir.failure = error
                _logger.error("log directory %s is offline: %s", log_dir.path, error)

    def _find_logs(self, log_dir: LogDir) -> list[PendingLog]:
        fs = self._fs
        pending: list[PendingLog] = []
        for name in fs.list_directory(log_dir.path):
            path = posixpath.join(log_dir.path, name)
            if is_deleted_name(name) and fs.is_directory(path):
                self._removed.found(path)
                continue
            topic_partition = parse_directory_name(name)
            if (
                topic_partition is not None
                and topic_partition.topic != METADATA_TOPIC
                and fs.is_directory(path)
            ):
                pending.append(PendingLog(log_dir, topic_partition))
        return pending

    def load_log(
        self, pending: PendingLog, config: LogConfig | None, now_ms: int
    ) -> PartitionLog | None:
        """Open one found log, recovering it if needed; None if its directory went offline.

        Several threads may call this for different partitions.
        """
        log_dir, topic_partition = pending
        checkpoints = log_dir.checkpoints
        if not log_dir.is_online:
            return None
        try:
            log = self.open_log(
                self.path_of(pending),
                topic_partition,
                config or self.default_config,
                recovery_point=checkpoints.offset(RECOVERY_POINT_CHECKPOINT, topic_partition),
                log_start_offset=checkpoints.offset(LOG_START_CHECKPOINT, topic_partition),
                clean_shutdown=log_dir.clean_shutdown,
                now_ms=now_ms,
            )
        except OSError as error:
            if error.errno in NO_ROOM:
                raise LogDirError(f"cannot recover {topic_partition}: {error}") from error
            self.fail_dir(log_dir, error)
            return None
        # A tail that is lost, or a start that went on since, leaves the checkpoint outside the log.
        high_watermark = checkpoints.offset(REPLICATION_CHECKPOINT, topic_partition)
        log.update_high_watermark(
            max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        )
        log.first_dirty_offset = checkpoints.offset(CLEANER_CHECKPOINT, topic_partition)
        for event in log.recovery_events:
            _logger.warning("recovery of %s %s", topic_partition, event)
        known = self._logs.setdefault(topic_partition, log)
        if known is not log:
            log.close_files()
            raise LogDirError(
                f"{topic_partition} is in two log directories: {known.directory}, {log.directory}"
            )
        self._dir_of[topic_partition] = log_dir
        return log

    def path_of(self, pending: PendingLog) -> str:
        """The folder of a partition that was found."""
        return posixpath.join(pending.directory.path, directory_name(pending.topic_partition))

    def set_pending_aside(self, pending: PendingLog) -> str:
        """Rename the folder of a partition that is not to be loaded; its files stay."""
        name = stray_directory_name(pending.topic_partition, self.new_id())
        path = posixpath.join(pending.directory.path, name)
        try:
            self._fs.rename(self.path_of(pending), path)
        except OSError as error:
            self.fail_dir(pending.directory, error)
        return path

    def load_all(self, pending: Iterable[PendingLog], now_ms: int) -> None:
        """Load every found log in this thread, then finish."""
        for item in pending:
            self.load_log(item, None, now_ms)
        self.finish_loading()

    def finish_loading(self) -> None:
        """From now on a stop may be called clean."""
        for log_dir in self.dirs:
            log_dir.loaded = log_dir.is_online

    # -- look-ups -------------------------------------------------------------------------------

    @property
    def fs(self) -> FileSystem:
        """The file system of the log directories."""
        return self._fs

    def get_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(topic_partition)

    def logs(self) -> Iterator[PartitionLog]:
        """Every log in service (a copy of the list, safe to change meanwhile)."""
        return iter(list(self._logs.values()))

    def dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        return self._dir_of.get(topic_partition)

    def has_online(self, directory_id: bytes) -> bool:
        """Is the directory with this id one of ours, and online?"""
        return any(
            log_dir.is_online and log_dir.directory_id == directory_id for log_dir in self.dirs
        )

    def offline_directory_ids(self) -> list[bytes]:
        """The ids of the directories that have failed, as far as they could be read."""
        return [
            log_dir.directory_id
            for log_dir in self.dirs
            if not log_dir.is_online and log_dir.directory_id
        ]

    def stray_logs(
        self, is_known: Callable[[TopicPartition, bytes | None], bool]
    ) -> list[PartitionLog]:
        """The logs whose topic id or partition the metadata does not place here (any more)."""
        return [
            log for log in self._logs.values() if not is_known(log.topic_partition, log.topic_id)
        ]

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
        """The partition's log; a new one in the asked or least used directory if there is none.

        A log of an earlier topic of the same name is deleted first.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the directory fails or is offline.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id is None:
                self._set_topic_id(log, topic_id)
            if log.topic_id == topic_id:
                log.config = config
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
        assert topic_partition not in self._logs, topic_partition
        log_dir = self._choose_dir(directory_id)
        path = posixpath.join(log_dir.path, directory_name(topic_partition))
        is_new = False
        try:
            self._make_way(log_dir, path, topic_partition, topic_id)
            is_new = not self._fs.is_directory(path)
            log = self.open_log(
                path,
                topic_partition,
                config,
                topic_id=topic_id,
                clean_shutdown=is_new,
                now_ms=now_ms,
            )
        except OSError as error:
            if is_new and error.errno in NO_ROOM:
                self._removed.remove_unused(path)
            raise self._storage_error(f"create {path}", log_dir, error) from error
        self.put_in_service(log, log_dir)
        return log

    def _make_way(
        self, log_dir: LogDir, path: str, topic_partition: TopicPartition, topic_id: bytes
    ) -> None:
        """Let nothing of an earlier topic of that name be taken for a new log's. Raises OSError."""
        self._removed.clear_way(path)
        log_dir.checkpoints.forget(topic_partition)
        stored_id = read_topic_id(self._fs, path)
        if stored_id is not None and stored_id != topic_id:
            # It was to be set aside, or deleted, and could not be.
            name = stray_directory_name(topic_partition, self.new_id())
            stray_path = posixpath.join(log_dir.path, name)
            self._fs.rename(path, stray_path)
            _logger.warning("log of another topic kept as %s", stray_path)

    def _set_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        try:
            log.set_topic_id(topic_id)
        except OSError as error:
            log_dir = self._dir_of[log.topic_partition]
            raise self._storage_error(f"name {log.directory}", log_dir, error) from error

    def _storage_error(self, doing: str, log_dir: LogDir, error: OSError) -> KafkaError:
        self.fail_dir(log_dir, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {doing}: {error.strerror}")

    def open_log(
        self,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: bytes | None = None,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean_shutdown: bool,
        now_ms: int,
    ) -> PartitionLog:
        """Open or make a log in that folder, not in service yet. Raises OSError. Any thread."""
        return open_log(
            self._fs,
            path,
            topic_partition,
            config,
            topic_id=topic_id,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
            now_ms=now_ms,
            tail_budget=self._tail_budget,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
        )

    def put_in_service(self, log: PartitionLog, log_dir: LogDir) -> None:
        """Serve a partition from this log; it has no other."""
        assert log.topic_partition not in self._logs, log
        self._logs[log.topic_partition] = log
        self._dir_of[log.topic_partition] = log_dir

    def _choose_dir(self, directory_id: bytes | None) -> LogDir:
        online = [log_dir for log_dir in self.dirs if log_dir.is_online]
        wanted = [log_dir for log_dir in online if log_dir.directory_id == directory_id]
        if wanted:
            return wanted[0]
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        if len(online) == 1:
            return online[0]
        counts = {id(log_dir): 0 for log_dir in online}
        for log_dir in self._dir_of.values():
            if id(log_dir) in counts:
                counts[id(log_dir)] += 1
        return min(online, key=lambda candidate: counts[id(candidate)])

    def truncate(self, log: PartitionLog, offset: int) -> None:
        """Cut a log from `offset` on; what is written there later is looked at by a recovery."""
        recovery_point = log.recovery_point
        try:
            log.truncate_to(offset)
        finally:
            if log.recovery_point < recovery_point:
                self.write_checkpoints()

    def truncate_fully_and_start_at(self, log: PartitionLog, offset: int, now_ms: int) -> None:
        """Drop everything in a log and let it start at `offset`, also after a restart."""
        log_dir = self._dir_of.get(log.topic_partition)
        if log_dir is not None:
            log_dir.checkpoints.forget(log.topic_partition)
        log.truncate_fully_and_start_at(offset, now_ms)

    def delete_log(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Take the log out of service and rename its directory; the files go later."""
        name = delete_directory_name(topic_partition, self.new_id())
        log = self._logs.get(topic_partition)
        if log is not None:
            self._take_out(log, name, now_ms + log.config.file_delete_delay_ms)

    def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Take a stray log out of service, but keep its files: its owner may want them back.

        Returns:
            the directory it is in now; None if there is none.
        """
        log = self._logs.get(topic_partition)
        name = stray_directory_name(topic_partition, self.new_id())
        return log.directory if log is not None and self._take_out(log, name, None) else None

    def _take_out(self, log: PartitionLog, name: str, due_ms: int | None) -> bool:
        """Stop serving a log and rename its directory; False if that is gone, or offline now."""
        topic_partition = log.topic_partition
        del self._logs[topic_partition]
        log_dir = self._dir_of.pop(topic_partition)
        self._last_flush_ms.pop(topic_partition, None)
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
        """Remove the renamed directories whose delay is over; return how many wait."""
        return self._removed.remove_due(now_ms)

    # -- periodic work --------------------------------------------------------------------------

    def retain(self, now_ms: int) -> int:
        """One retention pass over all logs: segments past their keep, files past their delay."""
        count = sum(self.retain_log(log, now_ms) for log in self.logs())
        self.remove_deleted(now_ms)
        return count

    def retain_log(self, log: PartitionLog, now_ms: int) -> int:
        """One retention pass over one log; return how many segments it deleted."""
        try:
            count = log.apply_retention(now_ms)
            log.remove_retired(now_ms)
        except OSError as error:
            self.fail_log(log, error)
            return 0
        return count

    def flush_due(self, now_ms: int) -> list[PartitionLog]:
        """The logs to flush now, by flush.ms or because they rolled.

        The caller calls `flush` (or `flush_closed_segments` where only that is due) on each in a
        worker thread; `needs_full_flush` tells which.
        """
        return [
            log
            for log in self._logs.values()
            if log.has_unflushed_segments or self.needs_full_flush(log, now_ms)
        ]

    def needs_full_flush(self, log: PartitionLog, now_ms: int) -> bool:
        """Whether flush.ms is over for data that is not durable."""
        if log.config.flush_ms == LONG_MAX or log.recovery_point >= log.log_end_offset:
            return False
        last = self._last_flush_ms.setdefault(log.topic_partition, now_ms)
        return now_ms - last >= log.config.flush_ms

    def on_flushed(self, log: PartitionLog, now_ms: int) -> None:
        """Start the next flush.ms of a log that was flushed."""
        if self._logs.get(log.topic_partition) is log:
            self._last_flush_ms[log.topic_partition] = now_ms

    def write_checkpoints(self) -> None:
        """Save recovery points, high watermarks and log start offsets of all directories."""
        for checkpoint in self.stale_checkpoints():
            try:
                self.write_checkpoint(checkpoint)
            except OSError as error:
                self.fail_dir(checkpoint.log_dir, error)

    def stale_checkpoints(self) -> list[StaleCheckpoint]:
        """The checkpoint files that are not what the logs have, in the order to write them."""
        stale: list[StaleCheckpoint] = []
        for log_dir in self.dirs:
            if not log_dir.is_online:
                continue
            logs = {
                topic_partition: self._logs[topic_partition]
                for topic_partition, owner in self._dir_of.items()
                if owner is log_dir
            }
            starts = {
                topic_partition: log.log_start_offset
                for topic_partition, log in logs.items()
                if log.log_start_offset > log.segments.first_base_offset
            }
            recovery_points = {key: log.recovery_point for key, log in logs.items()}
            high_watermarks = {key: log.high_watermark for key, log in logs.items()}
            # Starts first: a recovery point without its start would bring deleted records back.
            stale += self._stale(log_dir, LOG_START_CHECKPOINT, starts)
            stale += self._stale(log_dir, RECOVERY_POINT_CHECKPOINT, recovery_points)
            stale += self._stale(log_dir, REPLICATION_CHECKPOINT, high_watermarks)
        return stale

    def _stale(
        self, log_dir: LogDir, name: str, offsets: dict[TopicPartition, int]
    ) -> Iterator[StaleCheckpoint]:
        if log_dir.checkpoints.is_stale(name, offsets):
            yield StaleCheckpoint(log_dir, name, offsets, log_dir.checkpoints.next_number())

    def stale_cleaner_offsets(self) -> list[StaleCheckpoint]:
        """The cleaner-offset-checkpoint files that are not what the logs have.

        Only the cleaner has them written, in its own time.
        """
        offsets: dict[int, dict[TopicPartition, int]] = {id(log_dir): {} for log_dir in self.dirs}
        for key, owner in self._dir_of.items():
            if self._logs[key].first_dirty_offset > 0:
                offsets[id(owner)][key] = self._logs[key].first_dirty_offset
        return [
            stale
            for log_dir in self.dirs
            if log_dir.is_online
            for stale in self._stale(log_dir, CLEANER_CHECKPOINT, offsets[id(log_dir)])
        ]

    def write_checkpoint(self, checkpoint: StaleCheckpoint) -> None:
        """Save one file that is stale; raises OSError. May run in a worker thread."""
        log_dir, name, offsets, number = checkpoint
        log_dir.checkpoints.write(name, offsets, number)
        if log_dir.told_no_room:
            log_dir.told_no_room = False
            _logger.info("log directory %s can be written again", log_dir.path)

    # -- failures and stop ----------------------------------------------------------------------

    def fail_dir(self, log_dir: LogDir, error: OSError) -> list[TopicPartition]:
        """Take a directory offline; return the partitions that were served from it.

        A full disk is no failed one: what needs space fails, and is tried again.
        """
        if error.errno in NO_ROOM:
            if not log_dir.told_no_room:
                _logger.error("log directory %s cannot be written now: %s", log_dir.path, error)
                log_dir.told_no_room = True
            return []
        is_news = log_dir.failure is None
        if is_news:
            log_dir.failure = error
            _logger.error("log directory %s is offline: %s", log_dir.path, error)
        lost = [key for key, owner in self._dir_of.items() if owner is log_dir]
        for topic_partition in lost:
            del self._dir_of[topic_partition]
            log = self._logs.pop(topic_partition)
            try:
                log.close_files()
            except OSError as second:
                _logger.warning("cannot close %s: %s", log.directory, second)
        if lost and self.on_lost is not None:
            self.on_lost(lost)
        if is_news and self.on_failed is not None:
            self.on_failed()
        return lost

    def has_room(self, log_dir: LogDir) -> bool:
        """Whether so much as a few batches can be written to a directory; true if it is offline."""
        path = posixpath.join(log_dir.path, _PROBE_FILE)
        try:
            file = self._fs.open(path, create=True)
            try:
                file.write_at(bytes(_PROBE_BYTES), 0)
            finally:
                file.close()
                self._fs.remove(path)
        except OSError as error:
            self.fail_dir(log_dir, error)
            return not log_dir.is_online
        return True

    def fail_log(self, log: PartitionLog, error: OSError) -> list[TopicPartition]:
        """Take the directory of this log offline; it may be out of service, as of a late flush."""
        name = posixpath.basename(log.directory)
        for log_dir in self.dirs:
            if posixpath.join(log_dir.path, name) == log.directory:
                return self.fail_dir(log_dir, error)
        return []

    def close(self, broker_epoch: int = -1) -> None:
        """Stop cleanly: flush and close all logs, write checkpoints and the markers.

        A directory in which anything fails gets no marker: it is recovered at the next start.
        """
        unclean: list[LogDir | None] = []
        for log in self.logs():
            try:
                log.close()
            except OSError as error:
                unclean.append(self._dir_of.get(log.topic_partition))
                self.fail_log(log, error)
        for checkpoint in self.stale_checkpoints():
            try:
                self.write_checkpoint(checkpoint)
            except OSError as error:
                unclean.append(checkpoint.log_dir)
                self.fail_dir(checkpoint.log_dir, error)
        for log_dir in self.dirs:
            if log_dir.is_online and log_dir.loaded and log_dir not in unclean:
                try:
                    write_clean_shutdown(self._fs, log_dir.path, broker_epoch)
                except OSError as error:
                    self.fail_dir(log_dir, error)
        self.release()

    def release(self) -> None:
        """Close the files and give up the locks without saving anything."""
        for log in self.logs():
            log.close_files()
        self._logs.clear()
        self._dir_of.clear()
        for log_dir in self.dirs:
            if log_dir.lock is not None:
                log_dir.lock.release()
                log_dir.lock = None
