"""Turns errors of a disk into KAFKA_STORAGE_ERROR for the request, and a line in the log.

Owns: `DiskErrors`. A lack of room (NO_ROOM) passes; any other fault takes the log directory
offline (`LogManager.fail_log`). Of each partition one line is logged in some seconds: a full disk
fails with every request.

Called by whatever in `replica/` reads or writes a log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kraftrio.base.clock import Clock
from kraftrio.base.no_room import NO_ROOM, NO_SPACE
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.replica.partition import Partition
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

_log = logging.getLogger("kraftrio.replicas")

_REPORT_INTERVAL_MS = 10_000


class DiskErrors:
    """See the module; one per replica manager.

    Args:
        on_no_space: called with a partition whose disk is full.
    """

    def __init__(
        self, log_manager: LogManager, clock: Clock, on_no_space: Callable[[Partition], None]
    ) -> None:
        self._log_manager = log_manager
        self._clock = clock
        self._on_no_space = on_no_space
        self._reported_ms: dict[TopicPartition, float] = {}

    @contextmanager
    def guard(self, doing: str, partition: Partition) -> Iterator[None]:
        """Raise KAFKA_STORAGE_ERROR for an OSError in the block."""
        try:
            yield
        except OSError as error:
            raise self.refused(doing, partition, error) from error

    def refused(self, doing: str, partition: Partition, error: OSError) -> KafkaError:
        """The error to answer with; takes the directory offline unless more room would help."""
        self.report(partition.topic_partition, doing, error)
        if error.errno not in NO_ROOM:
            self._log_manager.fail_log(partition.log, error)
        elif error.errno in NO_SPACE:
            self._on_no_space(partition)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} failed: {error.strerror}")

    def report(self, topic_partition: TopicPartition, doing: str, error: Exception) -> None:
        """Log a line, unless there was one about this partition in the last seconds."""
        now_ms = self._clock.monotonic_ms()
        last_ms = self._reported_ms.get(topic_partition)
        if last_ms is not None and now_ms < last_ms + _REPORT_INTERVAL_MS:
            return
        self._reported_ms[topic_partition] = now_ms
        _log.error(
            'storage error partition=%s-%d doing="%s" reason="%s"', *topic_partition, doing, error
        )

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is not hosted here any more."""
        self._reported_ms.pop(topic_partition, None)
