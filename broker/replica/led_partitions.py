"""The partitions that this broker leads: appends, and waiting until they are committed.

Owns: `LedPartitions`. An append is checked by the partition's state, written by its log, and then
reported to the state, all in one turn of the event loop. It is committed later:
- `when_committed` calls back once the high watermark reaches an offset (acks=all);
- `when_confirmed` calls back once the followers show that this broker still leads.

Called by `api/produce` and the coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftrio.base.clock import Clock
from kraftrio.base.timers import Timers
from kraftrio.broker.log.partition.partition_log import (
    AppendInfo,
    AppendOrigin,
    LogRead,
    PartitionLog,
)
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.broker.ports import UnflushedError
from kraftrio.broker.replica.append_gate import AppendGate
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.directories.unmade_logs import UnmadeLogs
from kraftrio.broker.replica.hosted_replicas import HostedReplicas
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.replica_reads import ReplicaReads
from kraftrio.broker.replica.waiting.waiters import CommitCallback
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition


class LedPartitions:
    """See the module.

    Attributes:
        gate: what a Produce has to pass before its batches are appended.
    """

    def __init__(
        self,
        gate: AppendGate,
        partitions: Mapping[TopicPartition, Partition],
        hosted: HostedReplicas,
        unmade: UnmadeLogs,
        reads: ReplicaReads,
        disk_errors: DiskErrors,
        timers: Timers,
        clock: Clock,
    ) -> None:
        self.gate = gate
        self._partitions = partitions  # for appends, which do not pay for a call to find it
        self._hosted = hosted
        self._unmade = unmade
        self._reads = reads
        self._disk_errors = disk_errors
        self._timers = timers
        self._clock = clock
        self._unannounced: list[tuple[Partition, int]] = []  # appends not yet notified

    def log(self, topic_partition: TopicPartition) -> PartitionLog:
        """The log of a partition led here (raises what `HostedReplicas.leader` does)."""
        return self._hosted.leader(topic_partition).log

    def is_empty(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of a partition led here is empty (raises the same)."""
        if self._unmade.is_new(topic_partition):
            return True
        log = self.log(topic_partition)
        return log.log_start_offset == log.log_end_offset

    def has_ongoing_transaction(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int
    ) -> bool:
        """Does the log of a partition hosted here hold an open transaction of just that epoch?"""
        partition = self._partitions.get(topic_partition)
        return partition is not None and partition.log.producer_state.has_ongoing_transaction(
            producer_id, producer_epoch
        )

    def read_log(
        self, topic_partition: TopicPartition, start_offset: int, max_bytes: int
    ) -> LogRead:
        """Read committed batches from an offset on, at least one whole batch if there is any."""
        partition = self._hosted.leader(topic_partition)
        return self._reads.read(
            partition,
            start_offset,
            max_bytes,
            max_offset=partition.state.high_watermark,
            min_one_batch=True,
        )

    # -- appends --------------------------------------------------------------------------------

    def append_to_leader(
        self,
        topic_partition: TopicPartition,
        records: memoryview | bytearray,
        *,
        required_acks: int = -1,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
        wake_followers: bool = True,
    ) -> AppendInfo:
        """Append one batch; offsets, leader epoch and append time are stamped into `records`.

        Args:
            transaction_version: of the coordinator whose marker this is (KIP-890).
            guard: of the verification that a transactional batch depends on; None: of none.
            wake_followers: False: the caller calls `wake_followers` after its last append, so that
                one answer has it all.

        Raises:
            UnflushedError: it is in the log, and will be committed, but its flush failed.
            KafkaError: refused; nothing is appended.
        """
        partition = self._partitions.get(topic_partition) or self._hosted.make(topic_partition)
        log, state = partition.log, partition.state
        code = state.check_append(required_acks)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        before = log.log_end_offset
        try:
            info = log.append_as_leader(
                records,
                state.leader_epoch,
                self._clock.wall_ms(),
                origin=origin,
                transaction_version=transaction_version,
                guard=guard,
            )
        except OSError as error:
            is_appended = log.log_end_offset > before
            refusal = self._disk_errors.refused("append", partition, error)
            if not is_appended:
                raise refusal from error
            if state.is_leader:
                self._on_append(partition, len(records), wake_followers)
            raise UnflushedError(before, refusal.message) from error
        if not info.duplicate:
            traffic = partition.traffic
            traffic.bytes_in += len(records)
            traffic.records_in += info.last_offset - info.base_offset + 1
            self._on_append(partition, len(records), wake_followers)
        return info

    def _on_append(self, partition: Partition, size_bytes: int, wake_followers: bool) -> None:
        """The log of a partition that is led here has grown."""
        state, end_offset = partition.state, partition.log.log_end_offset
        if state.is_sole_replica:
            state.on_sole_append(end_offset)
            partition.publish_high_watermark(size_bytes)
            return
        partition.note_uncommitted(end_offset, size_bytes)
        if state.on_append(end_offset, self._clock.monotonic_ms()):
            partition.publish_high_watermark()
        if partition.watches or partition.follower_waiters:
            self._unannounced.append((partition, size_bytes))
            if wake_followers:
                self.wake_followers()

    def wake_followers(self) -> None:
        """Notify followers of what was appended with `wake_followers=False`."""
        if self._unannounced:
            appends, self._unannounced = self._unannounced, []
            for partition, size_bytes in appends:
                partition.notify_followers(size_bytes)

    # -- until it is committed ------------------------------------------------------------------

    def is_committed(self, topic_partition: TopicPartition, end_offset: int) -> bool:
        """Has the high watermark reached `end_offset` here, with enough replicas in sync?"""
        partition = self._partitions.get(topic_partition)
        if partition is None or partition.state.high_watermark < end_offset:
            return False
        return partition.state.check_committed() is ErrorCode.NONE

    def why_uncommitted(self, appends: Iterable[tuple[TopicPartition, int]]) -> str:
        """Say which replicas some appends (partition and end offset) still wait for."""
        for topic_partition, end_offset in appends:
            partition = self._partitions.get(topic_partition)
            if partition is None or partition.state.high_watermark >= end_offset:
                continue
            behind = partition.state.members_behind(end_offset)
            if behind:
                name = f"{topic_partition.topic}-{topic_partition.partition}"
                return f"replication of {name} to {','.join(map(str, behind))}"
        return ""

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
            partition = self._hosted.leader(topic_partition)
        except KafkaError as error:
            callback(error.code)
            return
        if partition.state.high_watermark >= end_offset:
            callback(partition.state.check_committed())
            return
        delay_ms = None if deadline_ms is None else deadline_ms - self._clock.monotonic_ms()
        partition.commit_waiters.add(end_offset, callback, self._timers, delay_ms)

    def when_confirmed(
        self, topic_partition: TopicPartition, timeout_ms: float, callback: CommitCallback
    ) -> None:
        """Call `callback` once it is certain that no other replica had become leader before now.

        A broker that was cut off or paused may still take itself for the leader while another one
        has taken over; then `callback` gets NOT_LEADER_OR_FOLLOWER when the time is up.
        """
        try:
            partition = self._hosted.leader(topic_partition)
        except KafkaError as error:
            callback(error.code)
            return
        if partition.is_only_isr_member:
            callback(ErrorCode.NONE)
            return
        partition.confirm(callback, self._timers, timeout_ms)
