"""One partition that a consumer reads, and what was fetched of it.

Owns the values that the consumer's cores share. States of a partition:

    INITIALIZING  nothing known: the committed offset is looked up       -> any
    RESETTING     `reset` says where to begin; looked up at the leader   -> FETCHING, VALIDATING
    VALIDATING    the leader is new: is its log still the one read?      -> FETCHING, RESETTING
    FETCHING                                                             -> any

KIP-320: with the leader epoch of the last record read, the new leader says where the logs part. A
topic that was re-created (`topic_id`) has another log, of which no position says anything:
VALIDATING with `is_log_new`, and no leader is asked.

Called by: `assigned_partitions`, `fetch_buffer`, and the tasks that talk to brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from kraftrio.clients.consumer.config import OffsetReset
from kraftrio.clients.consumer.records import ConsumerBatch
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.primitives import ZERO_UUID, TopicPartition

NO_EPOCH = -1


class FetchStatus(Enum):
    """What has to happen to a partition; see the module."""

    INITIALIZING = "initializing"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


class Position(NamedTuple):
    """The next offset to be handed over, and the leader epoch of the record before it."""

    offset: int
    leader_epoch: int = NO_EPOCH


class BufferedAnswer:
    """One broker's answer; it is in memory as long as one of its parts is."""

    __slots__ = ("node_id", "parts", "size_bytes")

    def __init__(self, node_id: int, size_bytes: int) -> None:
        self.node_id = node_id
        self.size_bytes = size_bytes
        self.parts = 0


class Chunk:
    """What an answer holds for one partition, or what went wrong after the records before.

    Attributes:
        leader_epoch: of its last batch, which may be one that nobody is given: a marker, or a batch
            of an aborted transaction. The position behind it is in that epoch.
    """

    __slots__ = ("answer", "batches", "failure", "fetch_offset", "leader_epoch", "next_offset")

    def __init__(
        self,
        fetch_offset: int,
        next_offset: int,
        batches: Iterable[ConsumerBatch] = (),
        answer: BufferedAnswer | None = None,
        failure: KafkaError | None = None,
        leader_epoch: int = NO_EPOCH,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.next_offset = next_offset
        self.batches = deque(batches)
        self.answer = answer
        self.failure = failure
        self.leader_epoch = leader_epoch


class AssignedPartition:
    """One partition that is assigned."""

    __slots__ = (
        "chunks",
        "current_leader_epoch",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "is_log_new",
        "is_paused",
        "is_queued",
        "last_stable_offset",
        "log_start_offset",
        "position",
        "preferred_node",
        "preferred_until",
        "reset",
        "retry_at",
        "served",
        "status",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.topic_id = ZERO_UUID  # of the topic that the position is in; zeros: not known
        self.is_log_new = False  # the position is that of a topic that had the same name before
        self.status = FetchStatus.INITIALIZING
        self.position: Position | None = None
        self.fetch_offset = 0
        self.fetch_epoch = NO_EPOCH
        self.current_leader_epoch = NO_EPOCH  # with which leader the position was compared
        self.reset: OffsetReset | None = None
        self.chunks: deque[Chunk] = deque()
        self.is_paused = False
        self.is_queued = False  # among those whose turn comes
        self.version = 0
        self.retry_at = 0.0
        self.served = 0  # grows with each answer that held records
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.preferred_node = -1
        self.preferred_until = 0.0

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return f"<{topic}-{partition} {self.status.value} at {self.position}>"

    @property
    def is_deliverable(self) -> bool:
        """Whether its records may be handed over."""
        return self.status is FetchStatus.FETCHING and not self.is_paused

    @property
    def wants_fetch(self) -> bool:
        """Whether more records are wanted of it: it is neither paused nor in doubt."""
        return self.is_deliverable and not (self.chunks and self.chunks[-1].failure)

    @property
    def has_room(self) -> bool:
        """Whether the next answer for it may come."""
        return len(self.chunks) <= 1


class FetchFailure(Exception):
    """What stopped a partition at an offset; the next `take` tries again from its position."""

    def __init__(self, partition: AssignedPartition, offset: int, cause: KafkaError) -> None:
        super().__init__(str(cause))
        self.partition = partition
        self.offset = offset
        self.cause = cause
