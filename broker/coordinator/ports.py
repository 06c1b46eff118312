"""What the coordinator needs of the rest of the broker, as narrow protocols.

The replica manager, the timers, the clock, the metadata cache and the broker's configuration fit
them as they are; tests bring small ones of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kraftrio.kraft_meta.metadata.image import Endpoint, PartitionImage, TopicImage
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import Buffer, TopicPartition
from kraftrio.wire.topic_names import CONSUMER_OFFSETS

if TYPE_CHECKING:  # cores import this module, and must not import the disk layer
    from kraftrio.broker.log.producers.producer_state import AppendOrigin

OFFSETS_TOPIC = CONSUMER_OFFSETS


class GroupProperties(Protocol):
    """The configuration of groups, under Kafka's property names."""

    @property
    def group_min_session_timeout_ms(self) -> int: ...
    @property
    def group_max_session_timeout_ms(self) -> int: ...
    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...
    @property
    def group_max_size(self) -> int: ...
    @property
    def offset_metadata_max_bytes(self) -> int: ...
    @property
    def offsets_retention_minutes(self) -> int: ...
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...
    @property
    def offsets_commit_timeout_ms(self) -> int: ...
    @property
    def offsets_load_buffer_size(self) -> int: ...
    @property
    def offsets_topic_num_partitions(self) -> int: ...
    @property
    def offsets_topic_compression_codec(self) -> int: ...


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
    """The partitions this broker leads."""

    def append_to_leader(
        self,
        topic_partition: TopicPartition,
        records: memoryview | bytearray,
        *,
        origin: AppendOrigin = ...,
    ) -> AppendResult: ...

    def when_committed(
        self,
        topic_partition: TopicPartition,
        end_offset: int,
        deadline_ms: float | None,
        callback: Callable[[ErrorCode], None],
    ) -> None: ...

    def read_log(
        self, topic_partition: TopicPartition, start_offset: int, max_bytes: int
    ) -> LogReadResult: ...

    def log(self, topic_partition: TopicPartition) -> LogOffsets: ...

    def is_empty(self, topic_partition: TopicPartition) -> bool: ...


class ScheduledTimer(Protocol):
    def cancel(self) -> None: ...


class TimerService(Protocol):
    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> ScheduledTimer: ...


class Clocks(Protocol):
    def wall_ms(self) -> int: ...
    def monotonic_ms(self) -> float: ...


class Metadata(Protocol):
    """Look-ups in the newest metadata image."""

    def topic(self, name: str) -> TopicImage | None: ...
    def topic_id(self, name: str) -> bytes: ...
    def topic_name(self, topic_id: bytes) -> str | None: ...
    def partition(self, name: str, index: int) -> PartitionImage | None: ...
    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None: ...
