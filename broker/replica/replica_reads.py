"""Reads of a replica's log; an error of its disk becomes KAFKA_STORAGE_ERROR.

Owns: `ReplicaReads`. The Fetch handler has its own way to read (`api/fetch/reads`).

Called by the ListOffsets handler, `led_partitions` and `moves`.
"""

from __future__ import annotations

from kraftrio.broker.log.partition.partition_log import LogRead
from kraftrio.broker.log.partition.timestamp_search import (
    TimestampedRecord,
    offset_for_timestamp,
    offset_of_max_timestamp,
)
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.partition import Partition


class ReplicaReads:
    """See the module."""

    def __init__(self, disk_errors: DiskErrors) -> None:
        self._disk_errors = disk_errors

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
        with self._disk_errors.guard("read", partition):
            return partition.log.read(
                start_offset, max_bytes, max_offset=max_offset, min_one_batch=min_one_batch
            )

    def offset_for_timestamp(
        self, partition: Partition, timestamp: int
    ) -> TimestampedRecord | None:
        """The first record at or after a time (KafkaError when the disk fails)."""
        with self._disk_errors.guard("find a time", partition):
            return offset_for_timestamp(partition.log, timestamp)

    def offset_of_max_timestamp(self, partition: Partition) -> TimestampedRecord | None:
        """The record with the greatest timestamp (KafkaError when the disk fails)."""
        with self._disk_errors.guard("find a time", partition):
            return offset_of_max_timestamp(partition.log)
