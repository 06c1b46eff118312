"""Deletions of records: the leader moves its log's start, and its followers do likewise.

Owns: `RecordDeletions`. Followers hear of the new start by their next fetch, and show by the one
after that they have moved theirs.

Called by the DeleteRecords handler.
"""

from __future__ import annotations

from kraftrio.base.timers import Timers
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.waiters import CommitCallback
from kraftrio.wire.errors import ErrorCode, KafkaError


class RecordDeletions:
    """See the module."""

    def __init__(self, disk_errors: DiskErrors, timers: Timers) -> None:
        self._disk_errors = disk_errors
        self._timers = timers

    def delete_records(self, partition: Partition, offset: int) -> int:
        """Move our log start offset to `offset` (-1: the high watermark); return where it is to be.

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
        with self._disk_errors.guard("delete records", partition):
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
        else:
            partition.when_deleted(offset, callback, self._timers, timeout_ms)
