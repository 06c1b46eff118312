"""The logs in service, each with the log directory that it lies in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.primitives import TopicPartition


class LogRegistry:
    """A partition has one log at most, and a log one directory."""

    __slots__ = ("_dir_of", "_logs")

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}

    def __iter__(self) -> Iterator[PartitionLog]:
        """Every log (a copy of the list, safe to change meanwhile)."""
        return iter(list(self._logs.values()))

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(topic_partition)

    def dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        return self._dir_of.get(topic_partition)

    def add(self, log: PartitionLog, log_dir: LogDir) -> PartitionLog:
        """Put a log in service unless its partition has one; return the one that is. Any thread."""
        known = self._logs.setdefault(log.topic_partition, log)
        if known is log:
            self._dir_of[log.topic_partition] = log_dir
        return known

    def take(self, topic_partition: TopicPartition) -> LogDir:
        """Take a log out of service; return where it lies."""
        del self._logs[topic_partition]
        return self._dir_of.pop(topic_partition)

    def in_dir(self, log_dir: LogDir) -> dict[TopicPartition, PartitionLog]:
        """The logs in one directory."""
        return {
            topic_partition: self._logs[topic_partition]
            for topic_partition, owner in self._dir_of.items()
            if owner is log_dir
        }

    def least_used(self, candidates: Sequence[LogDir]) -> LogDir:
        """The directory with the fewest logs; the first of several."""
        if len(candidates) == 1:
            return candidates[0]
        counts = {id(log_dir): 0 for log_dir in candidates}
        for log_dir in self._dir_of.values():
            if id(log_dir) in counts:
                counts[id(log_dir)] += 1
        return min(candidates, key=lambda candidate: counts[id(candidate)])

    def clear(self) -> None:
        self._logs.clear()
        self._dir_of.clear()
