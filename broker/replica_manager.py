"""All partition replicas of this broker: appends, reads, waiting for commits, and what metadata
asks.

The replica manager is the shell around `PartitionState` (roles, high watermark) and `PartitionLog`
(bytes on disk).  It calls both from synchronous code, so nothing changes between a check and its
act.

Waiting
- `when_committed` parks a callback until the high watermark reaches an offset (acks=all).
- `FetchWaiter` parks a long poll until enough bytes were appended to its partitions.

New logs
- The log of a new partition is made soon after its metadata came, in slices of time, or at once
  when somebody asks for the partition: thousands of new partitions stop nobody.
- While its log cannot be made (no space, say) the partition answers KAFKA_STORAGE_ERROR; each
  request and a timer try again.

Failures
- A disk error while appending or reading is KAFKA_STORAGE_ERROR to the client and a log line, for
  each partition one in some seconds; the log itself has cut what was half written.  What was
  acknowledged stays readable.

Called by the data handlers, the group coordinator's runtime and the metadata publisher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

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

_MAKE_SLICE_MS = 20  # how long others wait while logs of new partitions are made
_MAKE_PAUSE_MS = 1
_MAKE_RETRY_MS = 1000
_REPORT_INTERVAL_MS = 10_000  # one line for each partition in this time: a full disk fails often


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


class _Unmade(NamedTuple):
    """A partition placed here whose log is not there yet."""

    topic: TopicImage
    image: PartitionImage
    is_new: bool  # False: it existed before this process, so its log may be on a failed disk


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
        self._unmade: dict[TopicPartition, _Unmade] = {}
        self._make_timer: Timer | None = None
        self._knows_cluster = False  # the first image shows what existed before this process
        self._reported_ms: dict[TopicPartition, float] = {}

    # -- look-ups -------------------------------------------------------------------------------

    def partitions(self) -> Iterable[Partition]:
        """Every replica hosted here."""
        return self._partitions.values()

    def leader(self, topic_partition: TopicPartition, current_leader_epoch: int = -1) -> Partition:
        """The replica to serve a client from.

        Raises:
            KafkaError: not the leader, an unknown partition, or a leader epoch out of date.
        """
        partition = self._partitions.get(topic_partition) or self._make(topic_partition)
        code = partition.state.check_leader(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return partition

    def log(self, topic_partition: TopicPartition) -> PartitionLog:
        """The log of a partition led here (raises like `leader`)."""
        return self.leader(topic_partition).log

    def is_empty(self, topic_partition: TopicPartition) -> bool:
        """Does the log of a partition led here hold nothing (raises like `leader`)?"""
        unmade = self._unmade.get(topic_partition)
        if unmade is not None and unmade.is_new:
            return True
        log = self.log(topic_partition)
        return log.log_start_offset == log.log_end_offset

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
        partition = self._partitions.get(topic_partition) or self._make(topic_partition)
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
        try:
            partition = self._partitions.get(topic_partition) or self._make(topic_partition)
        except KafkaError as error:
            callback(error.code)
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
        self._report(partition.topic_partition, doing, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} failed: {error.strerror}")

    def _report(self, topic_partition: TopicPartition, doing: str, error: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        last_ms = self._reported_ms.get(topic_partition)
        if last_ms is not None and now_ms < last_ms + _REPORT_INTERVAL_MS:
            return
        self._reported_ms[topic_partition] = now_ms
        _log.error(
            'storage error partition=%s-%d doing="%s" reason="%s"', *topic_partition, doing, error
        )

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
        self._knows_cluster = True
        if self._unmade and self._make_timer is None:
            self._make_timer = self._timers.schedule(0, self._make_some)

    def _apply_partition(self, topic: TopicImage, index: int, image: PartitionImage) -> None:
        topic_partition = TopicPartition(topic.name, index)
        partition = self._partitions.get(topic_partition)
        if self.broker_id not in image.replicas:
            self._unmade.pop(topic_partition, None)
            if partition is not None:
                self._remove(partition)
            return
        if partition is not None:
            self._apply_image(partition, image)
            return
        log = self.log_manager.get_log(topic_partition)
        earlier = self._unmade.get(topic_partition)
        is_new = self._knows_cluster if earlier is None else earlier.is_new
        self._unmade[topic_partition] = _Unmade(topic, image, is_new)
        if log is not None and log.topic_id == topic.topic_id:
            self._make(topic_partition)

    def _apply_image(self, partition: Partition, image: PartitionImage) -> None:
        was_leader = partition.state.is_leader
        if partition.state.apply(image, partition.log.log_end_offset):
            try:
                partition.log.start_leader_epoch(image.leader_epoch)
            except OSError as error:
                # The log knows the epoch, and saves it before it calls anything of it durable.
                self._report(partition.topic_partition, "save the leader epoch", error)
        if was_leader and not partition.state.is_leader:
            partition.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.state.advance_high_watermark():
            partition.publish_high_watermark(None)

    def _make(self, topic_partition: TopicPartition) -> Partition:
        """Give a partition that was placed here its log.

        Raises:
            KafkaError: there is no such partition here, or KAFKA_STORAGE_ERROR: not now.
        """
        unmade = self._unmade.get(topic_partition)
        if unmade is None:
            raise self._metadata.check_hosted(*topic_partition)
        if (
            not unmade.is_new
            and self.log_manager.get_log(topic_partition) is None
            and not all(log_dir.is_online for log_dir in self.log_manager.dirs)
        ):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {topic_partition} may be in a log directory that is offline",
            )
        try:
            log = self.log_manager.get_or_create_log(
                topic_partition,
                unmade.topic.topic_id,
                self._topic_log_config(topic_partition.topic),
                self._clock.wall_ms(),
            )
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        del self._unmade[topic_partition]
        partition = Partition(topic_partition, log, self.broker_id)
        self._partitions[topic_partition] = partition
        self._apply_image(partition, unmade.image)
        return partition

    def _make_some(self) -> None:
        """Make logs of new partitions for a while; come again for the rest."""
        self._make_timer = None
        end_ms = self._clock.monotonic_ms() + _MAKE_SLICE_MS
        delay_ms = _MAKE_PAUSE_MS
        for topic_partition in list(self._unmade):
            if self._clock.monotonic_ms() >= end_ms:
                break
            try:
                self._make(topic_partition)
            except KafkaError as error:
                self._report(topic_partition, "make the log", error)
                delay_ms = _MAKE_RETRY_MS
        if self._unmade:
            self._make_timer = self._timers.schedule(delay_ms, self._make_some)

    def _delete_topic(self, topic: TopicImage) -> None:
        for index in sorted(topic.partitions):
            topic_partition = TopicPartition(topic.name, index)
            unmade = self._unmade.get(topic_partition)
            if unmade is not None and unmade.topic.topic_id == topic.topic_id:
                del self._unmade[topic_partition]
            partition = self._partitions.get(topic_partition)
            if partition is not None and partition.log.topic_id == topic.topic_id:
                self._remove(partition)

    def _remove(self, partition: Partition) -> None:
        del self._partitions[partition.topic_partition]
        partition.state.resign()
        partition.abandon(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._reported_ms.pop(partition.topic_partition, None)
        self.log_manager.delete_log(partition.topic_partition, self._clock.wall_ms())

    def update_configs(self, topics: Iterable[str] | None) -> None:
        """Give the logs of these topics (None: all) their new configuration."""
        wanted = None if topics is None else set(topics)
        for topic_partition, partition in self._partitions.items():
            if wanted is None or topic_partition.topic in wanted:
                partition.log.config = self._topic_log_config(topic_partition.topic)
