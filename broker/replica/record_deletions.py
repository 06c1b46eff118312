"""Deletes records: the leader advances its log start offset, and its followers do the same.

Owns: `RecordDeletions`. Followers learn the new start from the answer to their next fetch, and show
by the fetch after that that they have advanced theirs.

Called by the DeleteRecords handler.
"""

from __future__ import annotations

from kraftrio.base.timers import Timers
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.waiting.waiters import CommitCallback
from kraftrio.wire.errors import ErrorCode, KafkaError


class RecordDeletions:
    """See the module."""

    def __init__(self, disk_errors: DiskErrors, timers: Timers) -> None:
        self._disk_errors = disk_errors
        self._timers = timers

    def delete_records(self, partition: Partition, offset: int) -> int:
        """Move our log start offset to `offset` (-1: the high watermark); return its new value.

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
        partition.wake_followers()  # the answer has the new start
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
            partition.low_watermark_waiters.add(offset, callback, self._timers, timeout_ms)
