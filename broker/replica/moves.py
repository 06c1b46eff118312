"""Moves replicas between the log directories of this broker (AlterReplicaLogDirs).

Owns: `ReplicaMoves`. A move
1. begins with a future log in the wanted directory (`log/future_logs`); the partition's log is not
   compacted from then on, or a copy could keep what its tombstone was to delete;
2. copies what the log in service has, in small pieces between which the event loop goes on, no
   faster than replica.alter.log.dirs.io.max.bytes.per.second. Before each piece the copy is
   truncated to where both logs agree, by leader epochs, as a follower is;
3. when it has nearly all: makes the copy durable, reports the new directory to the controller, and
   waits until the metadata has it;
4. then copies the rest and swaps the logs, in one turn of the event loop: reads and appends see the
   one or the other.
It continues after a restart, and is given up when another directory is asked for, the replica is
removed, or either directory fails. If the new directory had been reported already, that is taken
back: the old one is reported, or LOST when that has failed.

Called by: api/log_dirs.py (`alter`), broker_role.py (the others). KIP-113, KIP-858.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.threads import RunInThread
from kraftrio.broker.log.manager.directories import has_future_name
from kraftrio.broker.log.manager.future_logs import FutureLog, FutureLogs
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import FutureReplica
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.ports import DirectoryReports
from kraftrio.broker.replica.quota import NO_LIMIT, SlidingRate
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.kraft_meta.metadata.directories import LOST
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

_log = logging.getLogger("kraftrio.replicas")

MOVE_RATE_CONFIG = "replica.alter.log.dirs.io.max.bytes.per.second"

_PIECE_BYTES = 256 * 1024
_POLL_S = 0.02
_PAUSE_S = 1.0


class ReplicaMoves:
    """See the module; one per broker.

    Args:
        reports: the way of the replicas' log directories to the controller.
        limit: bytes a second for all moves together, as configured now.
        rate: measures them.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        reports: DirectoryReports,
        clock: Clock,
        run_in_thread: RunInThread,
        limit: Callable[[], int],
        rate: SlidingRate,
    ) -> None:
        self._replicas = replicas
        self._logs: LogManager = replicas.log_manager
        self._hosted = replicas.hosted
        self._metadata = metadata
        self._reports = reports
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._limit = limit
        self._rate = rate
        self._futures = FutureLogs(self._logs)
        replicas.unmade.is_abandoned = self._futures.is_abandoned
        self._reported: dict[TopicPartition, bytes] = {}  # topic ids
        self._without_room: set[TopicPartition] = set()
        self._news = trio.Event()

    def is_moving(self, topic_partition: TopicPartition) -> bool:
        """Is the log of this partition being copied?"""
        return self._futures.get(topic_partition) is not None

    def futures_in(self, log_dir: LogDir) -> dict[TopicPartition, FutureReplica]:
        """The copies in a log directory, for those who describe it."""
        found = {}
        for future in self._futures.all():
            current = self._logs.get_log(future.log.topic_partition)
            if future.log_dir is log_dir and current is not None:
                lag = max(0, current.log_end_offset - future.log.log_end_offset)
                found[current.topic_partition] = FutureReplica(future.log.size_bytes, lag)
        return found

    # -- requests -------------------------------------------------------------------------------

    def alter(self, topic_partition: TopicPartition, path: str) -> ErrorCode:
        """Let a replica move to the log directory `path`; a replica to come will be made there.

        Returns:
            NONE: it moves, or is there already. Else LOG_DIR_NOT_FOUND, INVALID_TOPIC_EXCEPTION
            (the name is too long for a future log), KAFKA_STORAGE_ERROR, REPLICA_NOT_AVAILABLE (not
            here yet: the directory is remembered), UNKNOWN_TOPIC_OR_PARTITION.
        """
        log_dir = self._directory(path)
        if log_dir is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not has_future_name(topic_partition):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if not log_dir.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        future = self._futures.get(topic_partition)
        if future is not None and future.log_dir is not log_dir:
            self._give_up(topic_partition, "another log directory is asked for")
            future = None
        partition = self._hosted.partition(topic_partition)
        if partition is None:
            code = self._metadata.check_hosted(*topic_partition).code
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return code
            self._replicas.unmade.prefer(topic_partition, log_dir.directory_id)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if partition.state.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if future is not None or self._logs.dir_of(topic_partition) is log_dir:
            return ErrorCode.NONE
        return self._begin(partition, log_dir)

    def _directory(self, path: str) -> LogDir | None:
        wanted = posixpath.normpath(path)
        for log_dir in self._logs.dirs:
            if posixpath.normpath(log_dir.path) == wanted:
                return log_dir
        return None

    def _begin(self, partition: Partition, log_dir: LogDir) -> ErrorCode:
        try:
            self._futures.create(partition.log, log_dir, self._clock.wall_ms())
        except KafkaError as error:
            return error.code
        _log.info(
            "replica move started partition=%s-%d from=%s to=%s",
            *partition.topic_partition, posixpath.dirname(partition.log.directory), log_dir.path,
        )  # fmt: skip
        self._news.set()
        return ErrorCode.NONE

    # -- life -----------------------------------------------------------------------------------

    async def load(self) -> None:
        """Find the moves that an earlier process had begun; after the logs, before they serve."""
        now_ms = self._clock.wall_ms()
        await self._run_in_thread(lambda: self._futures.load(now_ms))

    async def run(self) -> None:
        """Carry the moves out, until cancelled."""
        while True:
            futures = self._futures.all()
            if not futures:
                self._news = trio.Event()
                await self._news.wait()
                continue
            is_busy = False
            for future in futures:
                await trio.lowlevel.checkpoint()
                is_busy |= await self._advance(future)
            if not is_busy:
                await trio.sleep(_POLL_S)

    def close(self) -> None:
        """Stop cleanly; after everything else of the broker has ended. Blocks on the disk."""
        self._futures.close()

    # -- one move -------------------------------------------------------------------------------

    async def _advance(self, future: FutureLog) -> bool:
        """Take one step of a move; False when there is nothing to do for it now."""
        partition = self._moving(future)
        if partition is None or self._is_over_limit():
            return False
        topic_partition = partition.topic_partition
        try:
            if self._copy_piece(partition, future.log):
                return True
            if topic_partition not in self._reported:
                # Else a power cut soon after the swap could take what the old log had long saved.
                await self._run_in_thread(future.log.flush)
                if self._moving(future) is partition:
                    self._report(partition, future.log_dir.directory_id)
                return True
            if not self._is_known(partition, future.log_dir.directory_id):
                return False
            self._swap(partition, future)
        except OSError as error:
            await self._on_disk_error(future, error)
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                self._give_up(topic_partition, f"its log cannot be copied: {error}")
            else:
                await trio.sleep(_PAUSE_S)  # it is offline then, or lacks file descriptors
        return True

    def _moving(self, future: FutureLog) -> Partition | None:
        """The replica that a future log is for; None, and the move is given up, if it is gone."""
        topic_partition = future.log.topic_partition
        if self._futures.get(topic_partition) is not future:
            return None
        partition = self._hosted.partition(topic_partition)
        reason = ""
        if partition is None:
            if topic_partition in self._replicas.unmade:
                return None  # right after the start: its role is not known yet
            reason = "the replica is not here any more"
        elif partition.topic_id != future.log.topic_id:
            reason = "the topic was made again"
        elif partition.state.role is Role.OFFLINE:
            reason = "its log directory has failed"
        elif not future.log_dir.is_online:
            reason = "the new log directory has failed"
        if reason:
            self._give_up(topic_partition, reason)
            return None
        return partition

    def _is_over_limit(self) -> bool:
        limit = self._limit()
        return limit != NO_LIMIT and self._rate.bytes_per_second(self._clock.monotonic_ms()) > limit

    def _copy_piece(self, partition: Partition, future: PartitionLog) -> bool:
        """Copy some of what is missing; True when more is.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: the log in service cannot be read; CORRUPT_MESSAGE.
            OSError: the copy cannot be written.
        """
        now_ms = self._clock.wall_ms()
        current = partition.log
        _truncate_to_agreement(current, future, now_ms)
        if future.log_end_offset < current.log_end_offset:
            read = self._replicas.reads.read(
                partition,
                future.log_end_offset,
                _PIECE_BYTES,
                max_offset=current.log_end_offset,
                min_one_batch=True,
            )
            future.append_as_follower(read.records, now_ms)
            self._rate.record(len(read.records), self._clock.monotonic_ms())
        future.update_high_watermark(min(current.high_watermark, future.log_end_offset))
        start = min(current.log_start_offset, future.high_watermark)
        if start > future.log_start_offset:
            future.delete_records_before(start)
        return future.log_end_offset < current.log_end_offset

    def _report(self, partition: Partition, directory_id: bytes) -> None:
        """Report to the controller in which directory the replica is, or soon will be."""
        self._reported[partition.topic_partition] = partition.topic_id
        self._reports.place(partition.topic_id, partition.topic_partition.partition, directory_id)

    def _is_known(self, partition: Partition, directory_id: bytes) -> bool:
        """Does the metadata have the new directory?"""
        topic = self._metadata.image.topics_by_id.get(partition.topic_id)
        image = None if topic is None else topic.partitions.get(partition.topic_partition.partition)
        return (
            image is not None and image.directory(self._replicas.settings.broker_id) == directory_id
        )

    def _swap(self, partition: Partition, future: FutureLog) -> None:
        """Step 4; the caller has just copied the rest."""
        current, log = partition.log, future.log
        if current.latest_epoch > log.latest_epoch:
            log.start_leader_epoch(current.latest_epoch)  # nothing was written in it yet
        log.set_config(current.config)
        self._futures.promote(partition.topic_partition, self._clock.wall_ms())
        self._replicas.roles.serve_from(partition, log)
        self._reported.pop(partition.topic_partition, None)
        self._without_room.discard(partition.topic_partition)
        _log.info(
            "replica move finished partition=%s-%d to=%s log_end_offset=%d",
            *partition.topic_partition, future.log_dir.path, log.log_end_offset,
        )  # fmt: skip

    # -- failures -------------------------------------------------------------------------------

    def _give_up(self, topic_partition: TopicPartition, reason: str) -> None:
        """Drop the copy; the log in service stays as it is, and is compacted again."""
        _log.warning("replica move abandoned partition=%s-%d reason=%s", *topic_partition, reason)
        self._futures.drop(topic_partition, self._clock.wall_ms())
        self._without_room.discard(topic_partition)
        topic_id = self._reported.pop(topic_partition, None)
        if topic_id is not None:
            serving = self._logs.dir_of(topic_partition)
            directory_id = LOST if serving is None else serving.directory_id
            self._reports.place(topic_id, topic_partition.partition, directory_id)

    async def _on_disk_error(self, future: FutureLog, error: OSError) -> None:
        """The new directory is full: try again later. Or it fails: that ends its moves."""
        topic_partition = future.log.topic_partition
        self._futures.fail(future, error)
        if future.log_dir.is_online:
            if topic_partition not in self._without_room:
                self._without_room.add(topic_partition)
                _log.warning(
                    "replica move delayed partition=%s-%d reason=%s", *topic_partition, error
                )
            await trio.sleep(_PAUSE_S)


def _truncate_to_agreement(current: PartitionLog, future: PartitionLog, now_ms: int) -> None:
    """Drop from the copy what the log in service does not have (any more); mostly nothing."""
    start = current.log_start_offset
    if future.log_end_offset < start:
        future.truncate_fully_and_start_at(start, now_ms)
    while future.log_end_offset > future.log_start_offset:
        # The newest epoch that both have, as far as each of them goes in it.
        epoch = min(future.latest_epoch, current.latest_epoch)
        epoch, end_offset = current.end_offset_for_epoch(epoch)
        end_offset = min(end_offset, future.end_offset_for_epoch(epoch).start_offset)
        if end_offset >= future.log_end_offset:
            return
        if end_offset <= max(start, future.log_start_offset):
            future.truncate_fully_and_start_at(start, now_ms)
        else:
            future.truncate_to(end_offset)
