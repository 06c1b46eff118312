"""When logs are flushed: those that rolled, and those whose flush.ms is over.

Owned by `log_manager`. The owner's timers ask which logs are to be flushed, do that in worker
threads, and report it.
"""

from __future__ import annotations

from kraftrio.broker.log.log_config import LONG_MAX
from kraftrio.broker.log.manager.log_registry import LogRegistry
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.primitives import TopicPartition


class FlushSchedule:
    """See the module."""

    def __init__(self, registry: LogRegistry) -> None:
        self._registry = registry
        self._last_flush_ms: dict[TopicPartition, int] = {}

    def logs_to_flush(self, now_ms: int) -> list[PartitionLog]:
        """The logs to flush now: whole (`needs_full_flush`), or their closed segments alone."""
        return [
            log
            for log in self._registry
            if log.durability.has_closed_segments_to_flush or self.needs_full_flush(log, now_ms)
        ]

    def needs_full_flush(self, log: PartitionLog, now_ms: int) -> bool:
        """Whether flush.ms is over for data that is not durable."""
        if log.config.flush_ms == LONG_MAX or log.recovery_point >= log.log_end_offset:
            return False
        last = self._last_flush_ms.setdefault(log.topic_partition, now_ms)
        return now_ms - last >= log.config.flush_ms

    def on_flushed(self, log: PartitionLog, now_ms: int) -> None:
        """Start the next flush.ms of a log that was flushed."""
        if self._registry.get(log.topic_partition) is log:
            self._last_flush_ms[log.topic_partition] = now_ms

    def forget(self, topic_partition: TopicPartition) -> None:
        """The log of that partition is out of service."""
        self._last_flush_ms.pop(topic_partition, None)
