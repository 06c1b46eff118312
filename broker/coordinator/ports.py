"""What a coordinator needs of the replicas on this broker.

The replica manager fits as it is; tests bring logs in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import Buffer, TopicPartition

if TYPE_CHECKING:  # cores import this room, and must not import the disk layer
    from kraftrio.broker.log.producers.producer_state import AppendOrigin
    from kraftrio.broker.log.producers.verifications import VerificationGuard


class AppendResult(Protocol):
    @property
    def base_offset(self) -> int: ...


class LogReadResult(Protocol):
    @property
    def records(self) -> Buffer: ...


class LogOffsets(Protocol):
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class Replicas(Protocol):
    """The partitions that this broker leads."""

    def append_to_leader(
        self,
        topic_partition: TopicPartition,
        records: memoryview | bytearray,
        *,
        origin: AppendOrigin = ...,
        transaction_version: int = ...,
        guard: VerificationGuard | None = ...,
    ) -> AppendResult:
        """Append one batch.

        Raises:
            UnflushedError: it is in the log, but its flush failed.
            KafkaError: refused; nothing is appended.
        """

    def when_committed(
        self,
        topic_partition: TopicPartition,
        end_offset: int,
        deadline_ms: float | None,
        callback: Callable[[ErrorCode], None],
    ) -> None: ...

    def when_confirmed(
        self,
        topic_partition: TopicPartition,
        timeout_ms: float,
        callback: Callable[[ErrorCode], None],
    ) -> None:
        """Call `callback` once it is certain that this broker leads, or is not within the time."""

    def read_log(
        self, topic_partition: TopicPartition, start_offset: int, max_bytes: int
    ) -> LogReadResult: ...

    def log(self, topic_partition: TopicPartition) -> LogOffsets: ...

    def is_empty(self, topic_partition: TopicPartition) -> bool: ...
