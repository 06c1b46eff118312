"""What distinguishes one kind of coordinator from another: its topic, and how it is kept."""

from __future__ import annotations

from dataclasses import dataclass

from kraftrio.wire.records.compression import Compression


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Settings of one `CoordinatorRuntime`.

    Attributes:
        name: stands in log lines; the logger is `kraftrio.<name>`.
        topic: the internal topic that holds the coordinator's records.
        default_partition_count: partitions of the topic as long as it does not exist.
        load_buffer_size: bytes that loading reads at a time.
        commit_timeout_ms: how long a response waits for its records to be committed.
        compression: of the batches that the coordinator appends.
    """

    name: str
    topic: str
    default_partition_count: int
    load_buffer_size: int
    commit_timeout_ms: int
    compression: Compression
