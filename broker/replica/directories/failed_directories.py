"""Takes the replicas in a failed log directory out of service.

Owns: `FailedDirectories`. Such a replica answers KAFKA_STORAGE_ERROR from then on; only its removal
ends that (`partition_state`).

Called by the log manager when a directory has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftrio.broker.replica.directories.unmade_logs import UnmadeLogs
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.ports import FetcherManager
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition


class FailedDirectories:
    """See the module."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        unmade: UnmadeLogs,
        fetchers: FetcherManager,
    ) -> None:
        self._partitions = partitions
        self._unmade = unmade
        self._fetchers = fetchers

    def go_offline(self, lost: Iterable[TopicPartition]) -> None:
        """The log directory of these partitions has failed: stop serving them."""
        for topic_partition in lost:
            partition = self._partitions.get(topic_partition)
            if partition is None or partition.state.role is Role.OFFLINE:
                continue
            partition.state.go_offline()
            self._fetchers.stop(topic_partition)
            partition.abandon(ErrorCode.KAFKA_STORAGE_ERROR)

    def offline_partitions(self) -> list[TopicPartition]:
        """The replicas whose log directory has failed, or whose log may be in one that has."""
        failed = [
            topic_partition
            for topic_partition, partition in self._partitions.items()
            if partition.state.role is Role.OFFLINE
        ]
        return failed + self._unmade.lost()
