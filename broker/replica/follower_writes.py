"""Writes to the logs of followers: appending what the leader answered, and truncating.

Owns: `FollowerWrites`. Rules:
1. Nothing of another leader epoch, or of an earlier topic of the same name, is written.
2. The high watermark follows the leader's and never exceeds the log end offset, even if the disk
   fails in the middle of a truncation.

Called by the fetchers (`follower/fetcher`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kraftrio.base.clock import Clock
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.hosted_replicas import HostedReplicas
from kraftrio.broker.replica.partition import Partition
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer, TopicPartition


class FollowerWrites:
    """See the module."""

    def __init__(
        self,
        hosted: HostedReplicas,
        log_manager: LogManager,
        metadata: MetadataCache,
        disk_errors: DiskErrors,
        clock: Clock,
    ) -> None:
        self._hosted = hosted
        self._log_manager = log_manager
        self._metadata = metadata
        self._disk_errors = disk_errors
        self._clock = clock

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The replica, once it has its log; None: it is not hosted here."""
        return self._hosted.partition(topic_partition)

    def append_as_follower(
        self,
        topic_partition: TopicPartition,
        records: Buffer,
        leader_epoch: int,
        *,
        leader_high_watermark: int,
        leader_log_start_offset: int,
        topic_id: bytes,
    ) -> None:
        """Append what the leader answered to a fetch at our log end; `records` may be empty.

        Args:
            leader_epoch: the fetch's; what an older leadership answered is refused.
            topic_id: the fetch's; what belongs to an earlier topic of that name is refused.

        Raises:
            KafkaError: not followed here in that leader epoch (NOT_LEADER_OR_FOLLOWER,
                FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, INCONSISTENT_TOPIC_ID), bad batches
                (CORRUPT_MESSAGE), KAFKA_STORAGE_ERROR.
        """
        partition = self._followed(topic_partition, leader_epoch, topic_id)
        log = partition.log
        try:
            if len(records):
                partition.traffic.replication_bytes_in += len(records)
                log.append_as_follower(records, self._clock.wall_ms(), leader_epoch=leader_epoch)
            partition.on_leader_answer(leader_high_watermark, len(records))
            if leader_log_start_offset > log.log_start_offset:
                high_watermark = partition.state.high_watermark
                log.delete_records_before(min(leader_log_start_offset, high_watermark))
        except OSError as error:
            partition.on_truncation()  # the append may have restarted the log at another offset
            raise self._disk_errors.refused("append", partition, error) from error

    def truncate(
        self,
        topic_partition: TopicPartition,
        offset: int,
        leader_epoch: int,
        topic_id: bytes,
    ) -> None:
        """Truncate the log to `offset` (raises what `append_as_follower` does)."""
        partition = self._followed(topic_partition, leader_epoch, topic_id)
        with self._truncating(partition):
            self._log_manager.truncate(partition.log, offset)

    def truncate_fully_and_start_at(
        self,
        topic_partition: TopicPartition,
        offset: int,
        leader_epoch: int,
        topic_id: bytes,
    ) -> None:
        """Empty the log and start it at `offset` (raises the same)."""
        partition = self._followed(topic_partition, leader_epoch, topic_id)
        with self._truncating(partition):
            now_ms = self._clock.wall_ms()
            self._log_manager.truncate_fully_and_start_at(partition.log, offset, now_ms)

    @contextmanager
    def _truncating(self, partition: Partition) -> Iterator[None]:
        """Rule 2."""
        try:
            with self._disk_errors.guard("truncate", partition):
                yield
        finally:
            partition.on_truncation()

    def _followed(
        self, topic_partition: TopicPartition, leader_epoch: int, topic_id: bytes
    ) -> Partition:
        partition = self._hosted.partition(topic_partition)
        if partition is None:
            raise self._metadata.check_hosted(*topic_partition)
        if topic_id != partition.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        code = partition.state.check_followed(leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return partition
