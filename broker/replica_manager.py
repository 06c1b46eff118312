"""All partition replicas of this broker: appends, reads, waiting for commits, and what metadata
asks.

The replica manager is the shell around `PartitionState` (roles, high watermark) and `PartitionLog`
(bytes on disk).  It calls both from synchronous code, so nothing changes between a check and its
act.

Waiting
- `when_committed` parks a callback until the high watermark reaches an offset (acks=all).
- `FetchWaiter` parks a long poll until enough bytes were appended to its partitions.

Failures
- A disk error while appending or reading is KAFKA_STORAGE_ERROR to the client and one log line; the
  log itself has cut what was half written.  What was acknowledged stays readable.

Called by the data handlers, the group coordinator's runtime and the metadata publisher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kraftrio.broker.clock import Clock
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.log_manager import LogManager
from kraftrio.broker.log.partition_log import (
    AppendInfo,
    AppendOrigin,
    LogRead,
    OffsetAndTimestamp,
    PartitionLog,
)
from kraftrio.broker.metadata_cache import MetadataCache
from kraftrio.broker.partition_state import PartitionState
from kraftrio.broker.timers import Timer, Timers
from kraftrio.kraft_meta.image import MetadataDelta, MetadataImage, PartitionImage, TopicImage
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

_log = logging.getLogger("kraftrio.replicas")

CommitCallback = Callable[[ErrorCode], None]


class CommitWaiter:
    """A parked acknowledgement: `callback` is called once, with NONE or why it will not come."""

    __slots__ = ("callback", "end_offset", "timer")

    def __init__(self, end_offset: int, callback: CommitCallback) -> None:
        self.end_offset = end_offset
        self.callback = callback
        self.timer: Timer | None = None


class FetchWaiter:
    """A parked long poll over some partitions.

    `wake` is called once: when `missing_bytes` more were committed to the partitions, when one of
    them stops being served here, or when the time is up.
    """

    __slots__ = ("_partitions", "_timer", "missing_bytes", "wake")

    def __init__(self, missing_bytes: int, wake: Callable[[], None]) -> None:
        self.missing_bytes = missing_bytes
        self.wake = wake
        self._partitions: list[Partition] = []
        self._timer: Timer | None = None

    def park(self, partitions: list[Partition], timers: Timers, max_wait_ms: float) -> None:
        """Start to wait."""
        self._partitions = partitions
        for partition in partitions:
            partition.fetch_waiters[self] = None
        self._timer = timers.schedule(max_wait_ms, self.finish)

    def finish(self) -> None:
        """Stop waiting and wake the request."""
        for partition in self._partitions:
            partition.fetch_waiters.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self.wake()


class Partition:
    """One replica hosted here: its log, its replication state, and who waits for it."""

    __slots__ = ("commit_waiters", "fetch_waiters", "log", "state", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, log: PartitionLog, broker_id: int) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.state = PartitionState(broker_id, log.high_watermark)
        self.commit_waiters: list[CommitWaiter] = []
        self.fetch_waiters: dict[FetchWaiter, None] = {}

    def publish_high_watermark(self, committed_bytes: int | None) -> None:
        """Tell the log and everybody who waits that the high watermark advanced.

        Args:
            committed_bytes: by how much, for parked fetches; None: unknown, wake them all.
        """
        high_watermark = self.state.high_watermark
        self.log.update_high_watermark(high_watermark)
        if self.commit_waiters:
            reached = [w for w in self.commit_waiters if w.end_offset <= high_watermark]
            if reached:
                self.commit_waiters = [
                    w for w in self.commit_waiters if w.end_offset > high_watermark
                ]
                _answer(reached, ErrorCode.NONE)
        if self.fetch_waiters:
            self._wake_fetches(committed_bytes)

    def _wake_fetches(self, committed_bytes: int | None) -> None:
        for waiter in list(self.fetch_waiters):
            if committed_bytes is not None:
                waiter.missing_bytes -= committed_bytes
                if waiter.missing_bytes > 0:
                    continue
            waiter.finish()

    def abandon(self, code: ErrorCode) -> None:
        """This replica no longer leads: nobody's wait can succeed here."""
        waiters, self.commit_waiters = self.commit_waiters, []
        _answer(waiters, code)
        for waiter in list(self.fetch_waiters):
            waiter.finish()


def _answer(waiters: Iterable[CommitWaiter], code: ErrorCode) -> None:
    for waiter in waiters:
        if waiter.timer is not None:
            waiter.timer.cancel()
        waiter.callback(code)


class ReplicaManager:
    """Owner of every replica on this broker.

    Args:
        topic_log_config: name of a topic -> its effective log configuration, by the newest image.
    """

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        metadata: MetadataCache,
        timers: Timers,
        clock: Clock,
        topic_log_config: Callable[[str], LogConfig],
    ) -> None:
        self.broker_id = broker_id
        self.log_manager = log_manager
        self._metadata = metadata
        self._timers = timers
        self._clock = clock
        self._topic_log_config = topic_log_config
        self._partitions: dict[TopicPartition, Partition] = {}

    # -- look-ups -------------------------------------------------------------------------------

    def partitions(self) -> Iterable[Partition]:
        """Every replica hosted here."""
        return self._partitions.values()

    def leader(self, topic_partition: TopicPartition, current_leader_epoch: int = -1) -> Partition:
        """The replica to serve a client from.

        Raises:
            KafkaError: not the leader, an unknown partition, or a leader epoch out of date.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self._metadata.check_hosted(*topic_partition)
        code = partition.state.check_leader(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return partition

    def log(self, topic_partition: TopicPartition) -> PartitionLog:
        """The log of a partition led here (raises like `leader`)."""
        return self.leader(topic_partition).log

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        return self.leader(topic_partition).state.high_watermark

    # -- appends --------------------------------------------------------------------------------

    def append_to_leader(
        self,
        topic_partition: TopicPartition,
        records: memoryview | bytearray,
        *,
        required_acks: int = -1,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Append one batch; offsets, leader epoch and append time are stamped into `records`.

        Raises:
            KafkaError: refused; nothing was written.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self._metadata.check_hosted(*topic_partition)
        log, state = partition.log, partition.state
        code = state.check_append(required_acks, log.config.min_insync_replicas)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        try:
            info = log.append_as_leader(
                records, state.leader_epoch, self._clock.wall_ms(), origin=origin
            )
        except OSError as error:
            raise self._storage_error("append", partition, error) from error
        if not info.duplicate and state.on_append(log.log_end_offset):
            partition.publish_high_watermark(len(records))
        return info

    def is_committed(self, topic_partition: TopicPartition, end_offset: int) -> bool:
        """Has the high watermark reached `end_offset` here?"""
        partition = self._partitions.get(topic_partition)
        return partition is not None and partition.state.high_watermark >= end_offset

    def when_committed(
        self,
        topic_partition: TopicPartition,
        end_offset: int,
        deadline_ms: float | None,
        callback: CommitCallback,
    ) -> None:
        """Call `callback` once the high watermark has reached `end_offset`, or can not.

        Args:
            deadline_ms: on the monotonic clock; REQUEST_TIMED_OUT then.  None: wait for ever.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None:
            callback(self._metadata.check_hosted(*topic_partition).code)
            return
        if partition.state.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
            return
        waiter = CommitWaiter(end_offset, callback)
        partition.commit_waiters.append(waiter)
        if deadline_ms is not None:

            def time_out() -> None:
                partition.commit_waiters.remove(waiter)
                waiter.callback(ErrorCode.REQUEST_TIMED_OUT)

            waiter.timer = self._timers.schedule(deadline_ms - self._clock.monotonic_ms(), time_out)

    # -- reads ----------------------------------------------------------------------------------

    def read_log(
        self, topic_partition: TopicPartition, start_offset: int, max_bytes: int
    ) -> LogRead:
        """Read committed batches from an offset on, at least one whole batch if there is any."""
        partition = self.leader(topic_partition)
        return self.read(
            partition,
            start_offset,
            max_bytes,
            max_offset=partition.state.high_watermark,
            min_one_batch=True,
        )

    def read(
        self,
        partition: Partition,
        start_offset: int,
        max_bytes: int,
        *,
        max_offset: int,
        min_one_batch: bool,
    ) -> LogRead:
        """Read batches of one partition below `max_offset`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, or KAFKA_STORAGE_ERROR when the disk fails.
        """
        try:
            return partition.log.read(
                start_offset, max_bytes, max_offset=max_offset, min_one_batch=min_one_batch
            )
        except OSError as error:
            raise self._storage_error("read", partition, error) from error

    def offset_for_timestamp(
        self, partition: Partition, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """The first record at or after a time (KafkaError when the disk fails)."""
        try:
            return partition.log.offset_for_timestamp(timestamp)
        except OSError as error:
            raise self._storage_error("find a time", partition, error) from error

    def offset_of_max_timestamp(self, partition: Partition) -> OffsetAndTimestamp | None:
        """The record with the greatest timestamp (KafkaError when the disk fails)."""
        try:
            return partition.log.offset_of_max_timestamp()
        except OSError as error:
            raise self._storage_error("find a time", partition, error) from error

    def delete_records(self, partition: Partition, offset: int) -> int:
        """Move the log start offset to `offset` (-1: the high watermark); return the low watermark.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION, KAFKA_STORAGE_ERROR.
        """
        high_watermark = partition.state.high_watermark
        target = high_watermark if offset == -1 else offset
        if not partition.log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "records of a topic whose cleanup.policy lacks delete cannot be deleted",
            )
        if target < 0 or target > high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            partition.log.delete_records_before(target)
        except OSError as error:
            raise self._storage_error("delete records", partition, error) from error
        return partition.log.log_start_offset

    def _storage_error(self, doing: str, partition: Partition, error: OSError) -> KafkaError:
        _log.error(
            "storage error partition=%s doing=%s reason=%s", partition.topic_partition, doing, error
        )
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} failed: {error.strerror}")

    # -- metadata -------------------------------------------------------------------------------

    def apply_delta(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Make the hosted replicas what the controller decided."""
        for topic in delta.deleted_topics.values():
            self._delete_topic(topic)
        for topic_id, topic_delta in delta.changed_topics.items():
            current = image.topics_by_id.get(topic_id)
            if current is None:
                continue
            for index, partition in sorted(topic_delta.partitions.items()):
                self._apply_partition(current, index, partition)

    def _apply_partition(self, topic: TopicImage, index: int, image: PartitionImage) -> None:
        topic_partition = TopicPartition(topic.name, index)
        partition = self._partitions.get(topic_partition)
        if self.broker_id not in image.replicas:
            if partition is not None:
                self._remove(partition)
            return
        if partition is None:
            log = self.log_manager.get_or_create_log(
                topic_partition,
                topic.topic_id,
                self._topic_log_config(topic.name),
                self._clock.wall_ms(),
            )
            partition = Partition(topic_partition, log, self.broker_id)
            self._partitions[topic_partition] = partition
        was_leader = partition.state.is_leader
        if partition.state.apply(image, partition.log.log_end_offset):
            partition.log.start_leader_epoch(image.leader_epoch)
        if was_leader and not partition.state.is_leader:
            partition.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.state.advance_high_watermark():
            partition.publish_high_watermark(None)

    def _delete_topic(self, topic: TopicImage) -> None:
        for index in sorted(topic.partitions):
            partition = self._partitions.get(TopicPartition(topic.name, index))
            if partition is not None and partition.log.topic_id == topic.topic_id:
                self._remove(partition)

    def _remove(self, partition: Partition) -> None:
        del self._partitions[partition.topic_partition]
        partition.state.resign()
        partition.abandon(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.log_manager.delete_log(partition.topic_partition, self._clock.wall_ms())

    def update_configs(self, topics: Iterable[str] | None) -> None:
        """Give the logs of these topics (None: all) their new configuration."""
        wanted = None if topics is None else set(topics)
        for topic_partition, partition in self._partitions.items():
            if wanted is None or topic_partition.topic in wanted:
                partition.log.config = self._topic_log_config(topic_partition.topic)
