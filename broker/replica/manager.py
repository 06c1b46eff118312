"""All partition replicas of this broker: appends, reads, waiting for commits, and what metadata
asks.

The replica manager is the shell around `PartitionState` (roles, ISR, high watermark) and
`PartitionLog` (bytes on disk).  It calls both from synchronous code, so nothing changes between a
check and its act.

Waiting
- `when_committed` parks a callback until the high watermark reaches an offset (acks=all).
- `FetchWaiter` parks a long poll until enough can be read: a consumer's until it is committed, a
  follower's until it is appended.
- `when_confirmed` parks a callback until the followers show that this broker still leads.
- `when_deleted` parks a callback until every live replica has moved its log start offset.

Followers
- A fetch by a follower tells its progress (`on_follower_fetch`): it may move the high watermark and
  the ISR, which `IsrKeeper` takes to the controller.
- What is followed here is copied by the fetcher manager, which is told by `follow` and `stop`, and
  calls `append_as_follower` and the truncations.

New logs
- The log of a new partition is made soon after its metadata came, in slices of time, or at once
  when somebody asks for the partition: thousands of new partitions stop nobody.
- While its log cannot be made (no space, say) the partition answers KAFKA_STORAGE_ERROR; each
  request and a timer try again.

Failures
- A disk error is KAFKA_STORAGE_ERROR to the client (`disk_errors`); the log itself has cut what was
  half written.  What was acknowledged stays readable.
- One that no room would mend takes the log directory offline, and its replicas alone; for want of
  room a leader gives way to a replica that has some (`full_directories`).

Called by the data handlers, the group coordinator, the fetchers and the metadata publisher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kraftrio.base.clock import Clock
from kraftrio.base.timers import Timer, Timers
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import (
    AppendInfo,
    AppendOrigin,
    LogRead,
    OffsetAndTimestamp,
    PartitionLog,
)
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.disk_errors import DiskErrors
from kraftrio.broker.replica.full_directories import FullDirectories
from kraftrio.broker.replica.isr_keeper import IsrKeeper
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.partition_state import NO_EFFECTS, Role
from kraftrio.broker.replica.ports import (
    FetcherManager,
    IsrProposer,
    MetadataBrokers,
    ReplicaPlacer,
)
from kraftrio.broker.replica.unmade_logs import UnmadeLogs
from kraftrio.broker.replica.waiters import CommitCallback, OffsetWaiter
from kraftrio.kraft_meta.metadata.image import (
    NO_LEADER,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer, TopicPartition

_log = logging.getLogger("kraftrio.replicas")

_MAKE_SLICE_MS = 20  # how long others wait while logs of new partitions are made
_MAKE_PAUSE_MS = 1
_MAKE_RETRY_MS = 1000


class ReplicaManager:
    """Owner of every replica on this broker.

    Args:
        topic_log_config: name of a topic -> its effective log configuration, by the newest image.
        proposals: the way of new ISRs to the controller; a node without others needs none.
        fetchers: copies what is followed here; may be set later, before the first metadata.
        placer: the way of the replicas' log directories to the controller.
    """

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        metadata: MetadataCache,
        timers: Timers,
        clock: Clock,
        topic_log_config: Callable[[str], LogConfig],
        *,
        proposals: IsrProposer | None = None,
        fetchers: FetcherManager | None = None,
        placer: ReplicaPlacer | None = None,
        lag_time_max_ms: float = 30_000,
    ) -> None:
        self.broker_id = broker_id
        self.log_manager = log_manager
        self._full = FullDirectories(log_manager, timers, fetchers)
        self._metadata = metadata
        self._timers = timers
        self._clock = clock
        self._topic_log_config = topic_log_config
        self._partitions: dict[TopicPartition, Partition] = {}
        self._unmade = UnmadeLogs(broker_id, log_manager, placer)
        self._make_timer: Timer | None = None
        self.disk_errors = DiskErrors(log_manager, clock, self._give_way)
        self._brokers = MetadataBrokers(metadata)
        self._lag_time_max_ms = lag_time_max_ms
        self._isrs = IsrKeeper(self._partitions.values, timers, clock, lag_time_max_ms, proposals)
        self._grown: list[tuple[Partition, int]] = []  # appends that followers do not know of
        log_manager.on_lost = self.go_offline

    def fetch_with(self, fetchers: FetcherManager) -> None:
        """Let these copy what is followed here."""
        self._full.fetchers = fetchers

    @property
    def proposals(self) -> IsrProposer | None:
        """The way of new ISRs to the controller."""
        return self._isrs.proposals

    @proposals.setter
    def proposals(self, proposals: IsrProposer) -> None:
        self._isrs.proposals = proposals

    # -- look-ups -------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The replica hosted here, in whatever role, once it has its log."""
        return self._partitions.get(topic_partition)

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

    def hosted(self, topic_partition: TopicPartition) -> Partition:
        """The replica hosted here, in whatever role.

        Raises:
            KafkaError: it is elsewhere, or nowhere, or its log directory has failed.
        """
        partition = self._partitions.get(topic_partition) or self._make(topic_partition)
        if partition.state.role is Role.OFFLINE:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return partition

    def readable(self, topic_partition: TopicPartition, current_leader_epoch: int) -> Partition:
        """The replica to serve a consumer from, leader or not (KIP-392).

        Raises:
            KafkaError: not hosted here, its log directory failed, or a leader epoch out of date.
        """
        partition = self._partitions.get(topic_partition) or self._make(topic_partition)
        code = partition.state.check_readable(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return partition

    def log(self, topic_partition: TopicPartition) -> PartitionLog:
        """The log of a partition led here (raises like `leader`)."""
        return self.leader(topic_partition).log

    def is_empty(self, topic_partition: TopicPartition) -> bool:
        """Does the log of a partition led here hold nothing (raises like `leader`)?"""
        if self._unmade.is_new(topic_partition):
            return True
        log = self.log(topic_partition)
        return log.log_start_offset == log.log_end_offset

    @property
    def unmade(self) -> UnmadeLogs:
        """The replicas placed here that have no log yet."""
        return self._unmade

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
        wake_followers: bool = True,
    ) -> AppendInfo:
        """Append one batch; offsets, leader epoch and append time are stamped into `records`.

        Args:
            wake_followers: False: the caller calls `wake_followers` after its last append, so that
                one answer has it all.

        Raises:
            KafkaError: refused; nothing was written.
        """
        partition = self._partitions.get(topic_partition) or self._make(topic_partition)
        log, state = partition.log, partition.state
        code = state.check_append(required_acks)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        try:
            info = log.append_as_leader(
                records, state.leader_epoch, self._clock.wall_ms(), origin=origin
            )
        except OSError as error:
            raise self.disk_errors.refused("append", partition, error) from error
        if info.duplicate:
            return info
        end_offset = log.log_end_offset
        if state.is_sole_replica:
            state.on_sole_append(end_offset)
            partition.publish_high_watermark(len(records))
            return info
        partition.note_uncommitted(end_offset, len(records))
        if state.on_append(end_offset, self._clock.monotonic_ms()):
            partition.publish_high_watermark()
        if partition.watches or partition.follower_waiters:
            self._grown.append((partition, len(records)))
            if wake_followers:
                self.wake_followers()
        return info

    def wake_followers(self) -> None:
        """Let followers fetch what was appended with `wake_followers=False`."""
        if self._grown:
            grown, self._grown = self._grown, []
            for partition, size_bytes in grown:
                partition.tell_followers(size_bytes)

    def is_committed(self, topic_partition: TopicPartition, end_offset: int) -> bool:
        """Has the high watermark reached `end_offset` here, with enough replicas in sync?"""
        partition = self._partitions.get(topic_partition)
        if partition is None or partition.state.high_watermark < end_offset:
            return False
        return partition.state.check_committed() is ErrorCode.NONE

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
            partition = self.leader(topic_partition)
        except KafkaError as error:
            callback(error.code)
            return
        if partition.state.high_watermark >= end_offset:
            callback(partition.state.check_committed())
            return
        waiter = OffsetWaiter(end_offset, callback)
        partition.commit_waiters.append(waiter)
        if deadline_ms is not None:
            delay_ms = deadline_ms - self._clock.monotonic_ms()
            self._time_out(waiter, delay_ms, lambda: partition.commit_waiters)

    def _time_out(
        self, waiter: OffsetWaiter, delay_ms: float, waiters: Callable[[], list[OffsetWaiter]]
    ) -> None:
        """Give up a wait when its time is over."""

        def give_up() -> None:
            waiters().remove(waiter)
            waiter.callback(ErrorCode.REQUEST_TIMED_OUT)

        waiter.timer = self._timers.schedule(delay_ms, give_up)

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
            raise self.disk_errors.refused("read", partition, error) from error

    def offset_for_timestamp(
        self, partition: Partition, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """The first record at or after a time (KafkaError when the disk fails)."""
        with self.disk_errors.guard("find a time", partition):
            return partition.log.offset_for_timestamp(timestamp)

    def offset_of_max_timestamp(self, partition: Partition) -> OffsetAndTimestamp | None:
        """The record with the greatest timestamp (KafkaError when the disk fails)."""
        with self.disk_errors.guard("find a time", partition):
            return partition.log.offset_of_max_timestamp()

    def delete_records(self, partition: Partition, offset: int) -> int:
        """Move our log start offset to `offset` (-1: the high watermark); return where it is to be.

        Followers hear of it by their next fetch; `when_deleted` tells when they have done so.

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
        with self.disk_errors.guard("delete records", partition):
            partition.log.delete_records_before(target)
        partition.wake_followers()  # they learn the new start by the answer
        return target

    def when_deleted(
        self,
        partition: Partition,
        offset: int,
        timeout_ms: float,
        callback: CommitCallback,
    ) -> None:
        """Call `callback` once every live replica's log starts at `offset` or later."""
        if partition.low_watermark() >= offset:
            callback(ErrorCode.NONE)
            return
        waiter = OffsetWaiter(offset, callback)
        partition.low_watermark_waiters.append(waiter)
        self._time_out(waiter, timeout_ms, lambda: partition.low_watermark_waiters)

    # -- a leader's followers -------------------------------------------------------------------

    def on_follower_fetch(
        self,
        partition: Partition,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: float,
    ) -> None:
        """A follower has everything before `fetch_offset`: it was found to be within our log.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: that broker has restarted since.
        """
        effects = partition.state.on_follower_fetch(
            replica_id,
            broker_epoch,
            fetch_offset,
            log_start_offset,
            partition.log.log_end_offset,
            now_ms,
        )
        if effects is not NO_EFFECTS:
            self._isrs.carry_out(partition, effects)
        if partition.low_watermark_waiters:
            partition.check_low_watermark()
        if partition.confirmations:
            partition.on_follower_fetch(replica_id)

    def when_confirmed(
        self, topic_partition: TopicPartition, timeout_ms: float, callback: CommitCallback
    ) -> None:
        """Call `callback` once it is sure that no other replica was leader before now, or is not.

        A broker that was cut off, or stood still, may take itself for the leader while another one
        has gone on; then it is given NOT_LEADER_OR_FOLLOWER, in time.
        """
        try:
            partition = self.leader(topic_partition)
        except KafkaError as error:
            callback(error.code)
            return
        if partition.state.maximal_isr == {self.broker_id}:
            callback(ErrorCode.NONE)
            return
        partition.confirm(callback, self._timers, timeout_ms)

    # -- what is followed here ------------------------------------------------------------------

    def follower_partitions(self) -> Iterable[Partition]:
        """Every replica that follows a leader, or waits for one."""
        return [p for p in self._partitions.values() if p.state.role is Role.FOLLOWER]

    def append_as_follower(
        self,
        topic_partition: TopicPartition,
        records: Buffer,
        leader_epoch: int,
        *,
        leader_high_watermark: int,
        leader_log_start_offset: int,
        topic_id: bytes | None = None,
    ) -> None:
        """Take over what the leader answered to a fetch at our log end; `records` may be empty.

        Args:
            leader_epoch: of the fetch: nothing of an older leadership is taken.
            topic_id: of the fetch: nothing of an earlier topic of that name is taken.

        Raises:
            KafkaError: not followed here in that leader epoch (NOT_LEADER_OR_FOLLOWER,
                FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, INCONSISTENT_TOPIC_ID), bad batches
                (CORRUPT_MESSAGE), KAFKA_STORAGE_ERROR.
        """
        partition = self._followed(topic_partition, leader_epoch, topic_id)
        log = partition.log
        try:
            if len(records):
                log.append_as_follower(records, self._clock.wall_ms(), leader_epoch=leader_epoch)
            partition.on_leader_answer(leader_high_watermark, len(records))
            if leader_log_start_offset > log.log_start_offset:
                high_watermark = partition.state.high_watermark
                log.delete_records_before(min(leader_log_start_offset, high_watermark))
        except OSError as error:
            partition.on_truncation()  # a log that is to begin within a batch was perhaps emptied
            raise self.disk_errors.refused("append", partition, error) from error

    def truncate(
        self,
        topic_partition: TopicPartition,
        offset: int,
        leader_epoch: int | None = None,
        topic_id: bytes | None = None,
    ) -> None:
        """Cut a followed log from `offset` on (raises like `append_as_follower`)."""
        partition = self._followed(topic_partition, leader_epoch, topic_id)
        with self._truncating(partition):
            self.log_manager.truncate(partition.log, offset)

    def truncate_fully_and_start_at(
        self,
        topic_partition: TopicPartition,
        offset: int,
        leader_epoch: int | None = None,
        topic_id: bytes | None = None,
    ) -> None:
        """Drop everything in a followed log and start at `offset` (raises likewise)."""
        partition = self._followed(topic_partition, leader_epoch, topic_id)
        with self._truncating(partition):
            now_ms = self._clock.wall_ms()
            self.log_manager.truncate_fully_and_start_at(partition.log, offset, now_ms)

    @contextmanager
    def _truncating(self, partition: Partition) -> Iterator[None]:
        """Keep the high watermark within the log, also if the disk stops half-way."""
        try:
            with self.disk_errors.guard("truncate", partition):
                yield
        finally:
            partition.on_truncation()

    def _followed(
        self, topic_partition: TopicPartition, leader_epoch: int | None, topic_id: bytes | None
    ) -> Partition:
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self._metadata.check_hosted(*topic_partition)
        if topic_id is not None and topic_id != partition.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        code = partition.state.check_followed(leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return partition

    # -- failures -------------------------------------------------------------------------------

    def go_offline(self, lost: Iterable[TopicPartition]) -> None:
        """The log directory of these partitions has failed: they are served no more."""
        for topic_partition in lost:
            partition = self._partitions.get(topic_partition)
            if partition is None or partition.state.role is Role.OFFLINE:
                continue
            partition.state.go_offline()
            self._full.stop(topic_partition)
            partition.abandon(ErrorCode.KAFKA_STORAGE_ERROR)

    def offline_partitions(self) -> list[TopicPartition]:
        """The replicas whose log directory has failed, or whose log may be in one that has."""
        failed = [
            topic_partition
            for topic_partition, partition in self._partitions.items()
            if partition.state.role is Role.OFFLINE
        ]
        return failed + self._unmade.lost()

    def _give_way(self, partition: Partition) -> None:
        """The disk is full: if this broker leads, let one lead that has room."""
        self._full.note(partition.topic_partition)
        self._isrs.resign(partition)

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
        if delta.changed_brokers:
            for hosted in self._partitions.values():
                hosted.check_low_watermark()  # who is dead is waited for no more
        self._unmade.knows_cluster = True
        if self._unmade and self._make_timer is None:
            self._make_timer = self._timers.schedule(0, self._make_some)

    def _apply_partition(self, topic: TopicImage, index: int, image: PartitionImage) -> None:
        topic_partition = TopicPartition(topic.name, index)
        partition = self._partitions.get(topic_partition)
        if self.broker_id not in image.replicas:
            self._unmade.discard(topic_partition)
            if partition is not None:  # it is served elsewhere from now on
                self._remove(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if partition is not None:
            self._apply_image(partition, image)
            return
        log = self.log_manager.get_log(topic_partition)
        self._unmade.add(topic_partition, topic, image)
        if log is not None and log.topic_id == topic.topic_id:
            self._make(topic_partition)

    def _apply_image(self, partition: Partition, image: PartitionImage) -> None:
        state, log = partition.state, partition.log
        was_leader = state.is_leader
        if was_leader:
            partition.tell_followers(0)  # perhaps they are not in the ISR any more
        now_ms = self._clock.monotonic_ms()
        if state.apply(image, log.log_end_offset, now_ms):
            if state.is_leader:
                self._lead(partition)
            else:
                self._follow(partition)
        partition.forget_watches()
        if was_leader and not state.is_leader:
            partition.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if state.advance_high_watermark(now_ms):
            partition.publish_high_watermark()
        partition.check_low_watermark()
        partition.check_confirmations()

    def serve_from(self, partition: Partition, log: PartitionLog) -> None:
        """Another log, equal to the one so far, takes its place: it has moved."""
        partition.log = log
        log.update_high_watermark(partition.state.high_watermark)
        if partition.state.role is Role.FOLLOWER:
            self._follow(partition)

    def _lead(self, partition: Partition) -> None:
        """A leader epoch begins in which this broker leads."""
        self._full.stop(partition.topic_partition)
        try:
            partition.log.start_leader_epoch(partition.state.leader_epoch)
        except OSError as error:
            # The log knows the epoch, and saves it before it calls anything of it durable.
            self.disk_errors.report(partition.topic_partition, "save the leader epoch", error)
        partition.start_to_lead()
        if not partition.state.is_sole_replica:
            self._isrs.start()

    def _follow(self, partition: Partition) -> None:
        """A leader epoch begins in which another broker leads, or none."""
        partition.wake_fetches()
        tp, state = partition.topic_partition, partition.state
        if state.leader_id == NO_LEADER:
            self._full.stop(tp)
        else:
            self._full.follow(tp, partition.topic_id, state.leader_id, state.leader_epoch)

    def _make(self, topic_partition: TopicPartition) -> Partition:
        """Give a partition that was placed here its log.

        Raises:
            KafkaError: there is no such partition here, or KAFKA_STORAGE_ERROR: not now.
        """
        made = self._unmade.make(
            topic_partition,
            self._topic_log_config(topic_partition.topic),
            self._clock.wall_ms(),
        )
        if made is None:
            raise self._metadata.check_hosted(*topic_partition)
        unmade, log = made
        partition = Partition(
            topic_partition,
            unmade.topic.topic_id,
            log,
            self.broker_id,
            self._brokers,
            self._lag_time_max_ms,
        )
        self._partitions[topic_partition] = partition
        self._apply_image(partition, unmade.image)
        return partition

    def _make_some(self) -> None:
        """Make logs of new partitions for a while; come again for the rest."""
        self._make_timer = None
        end_ms = self._clock.monotonic_ms() + _MAKE_SLICE_MS
        delay_ms = _MAKE_PAUSE_MS
        for topic_partition in self._unmade:
            if self._clock.monotonic_ms() >= end_ms:
                break
            try:
                self._make(topic_partition)
            except KafkaError as error:
                self.disk_errors.report(topic_partition, "make the log", error)
                delay_ms = _MAKE_RETRY_MS
        if self._unmade:
            self._make_timer = self._timers.schedule(delay_ms, self._make_some)

    def _delete_topic(self, topic: TopicImage) -> None:
        for index in sorted(topic.partitions):
            topic_partition = TopicPartition(topic.name, index)
            self._unmade.discard(topic_partition, topic.topic_id)
            partition = self._partitions.get(topic_partition)
            if partition is not None and partition.topic_id == topic.topic_id:
                self._remove(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _remove(self, partition: Partition, code: ErrorCode) -> None:
        """Drop a replica and its log; `code` is for those who wait."""
        del self._partitions[partition.topic_partition]
        self._full.stop(partition.topic_partition)
        partition.state.resign()
        partition.abandon(code)
        self.disk_errors.forget(partition.topic_partition)
        self.log_manager.delete_log(partition.topic_partition, self._clock.wall_ms())

    def update_configs(self, topics: Iterable[str] | None) -> None:
        """Give the logs of these topics (None: all) their new configuration."""
        wanted = None if topics is None else set(topics)
        for topic_partition, partition in self._partitions.items():
            if wanted is None or topic_partition.topic in wanted:
                config = self._topic_log_config(topic_partition.topic)
                partition.log.config = config
                partition.state.min_insync_replicas = config.min_insync_replicas
                if partition.state.advance_high_watermark(self._clock.monotonic_ms()):
                    partition.publish_high_watermark()
