"""A commit of offsets as records and as the changes they make; built in slices, since it may be
long.

What a commit writes does not depend on its group: whether the group takes it is asked right before
the one batch is appended. Nor does it depend on whether the offsets count at once (OffsetCommit) or
with a transaction (TxnOffsetCommit). KIP-211, KIP-447, KIP-848 (topic ids).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.broker.coordinator.outcome import Change, CoordinatorRecord
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records.classic import (
    OffsetCommitValue,
    encode_offset_key,
    encode_offset_value,
)
from kraftrio.wire.messages.groups import OffsetCommitRequestPartition
from kraftrio.wire.messages.transactions import TxnOffsetCommitRequestPartition
from kraftrio.wire.records.builder import BatchBuilder

DEFAULT_RETENTION_TIME_MS = -1
_NO_EXPIRY = -1
_LATEST_MS = (1 << 63) - 1
_SLICE_PARTITIONS = 16  # handled between two pauses

MAX_PARTITIONS = 24_000
"""No more offset records than this fit into one batch of the default max.message.bytes. Kafka, too,
answers UNKNOWN_SERVER_ERROR when a commit does not fit into a batch."""


class StoredOffset(NamedTuple):
    """The value of one offset.

    Attributes:
        expire_timestamp_ms: set by OffsetCommit v2-4 alone; -1: the broker's retention counts.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes

    @classmethod
    def from_record(cls, value: OffsetCommitValue) -> StoredOffset:
        """Take over what a record says."""
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            topic_id=value.topic_id,
        )

    def to_record(self) -> OffsetCommitValue:
        """Say the same as a record does."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=self.expire_timestamp_ms,
            topic_id=self.topic_id,
        )


@dataclass(frozen=True, slots=True)
class CommitChange(Change):
    """Offsets of one group by topic and partition."""

    group_id: str
    topics: dict[str, dict[int, StoredOffset]] = field(default_factory=dict)


class Committer(NamedTuple):
    """Who commits offsets of a group: a member, or a tool by hand, whose generation is negative.

    Attributes:
        generation_id: or the member epoch.
    """

    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1


class NamedPartition(NamedTuple):
    """One partition of a commit, with its topic's name, and id where the broker knows one."""

    topic: str
    topic_id: bytes
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


class OffsetCommit:
    """A commit that is ready to be appended, or becomes so.

    Attributes:
        refused: topics and partitions whose metadata is too long.
    """

    __slots__ = ("_expire_timestamp_ms", "_now_wall_ms", "batch", "change", "committer", "refused")

    def __init__(self, committer: Committer, now_wall_ms: int, retention_time_ms: int) -> None:
        self.committer = committer
        self.batch = BatchBuilder(now_wall_ms)
        self.change = CommitChange(committer.group_id)
        self.refused: set[tuple[str, int]] = set()
        self._now_wall_ms = now_wall_ms
        self._expire_timestamp_ms = _NO_EXPIRY
        if retention_time_ms != DEFAULT_RETENTION_TIME_MS:
            expire_timestamp_ms = now_wall_ms + retention_time_ms
            self._expire_timestamp_ms = min(expire_timestamp_ms, _LATEST_MS)

    @property
    def is_empty(self) -> bool:
        """Whether none of the partitions exists."""
        return not self.batch.record_count and not self.refused

    def partitions(self) -> Iterator[tuple[bytes, int]]:
        """The partitions whose offsets are to be stored, by topic id."""
        for offsets in self.change.topics.values():
            for index, offset in offsets.items():
                yield offset.topic_id, index

    def refuse(self, named: NamedPartition) -> None:
        """Leave out a partition."""
        self.refused.add((named.topic, named.partition.partition_index))

    def store(self, named: NamedPartition) -> CoordinatorRecord:
        """Take in a partition; its record is yet to be added to the batch."""
        topic, topic_id, partition = named
        index = partition.partition_index
        self.refused.discard((topic, index))
        offset = StoredOffset(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            self._now_wall_ms,
            self._expire_timestamp_ms,
            topic_id,
        )
        self.change.topics.setdefault(topic, {})[index] = offset
        key = encode_offset_key(self.committer.group_id, topic, index)
        return CoordinatorRecord(key, encode_offset_value(offset.to_record()))


def prepare_commit(
    committer: Committer,
    partitions: Iterable[NamedPartition | None],
    now_wall_ms: int,
    max_metadata_bytes: int,
    *,
    retention_time_ms: int = DEFAULT_RETENTION_TIME_MS,
) -> Slices[OffsetCommit]:
    """Make the records of a commit.

    Args:
        partitions: what the request names; None for each that does not exist.
        max_metadata_bytes: a partition whose metadata is longer is refused.
        retention_time_ms: of OffsetCommit v2-4; otherwise the broker's own counts.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR, the commit does not fit into one batch.
    """
    commit = OffsetCommit(committer, now_wall_ms, retention_time_ms)
    records: list[CoordinatorRecord] = []
    known_count = 0
    for count, named in enumerate(partitions, 1):
        if named is not None:
            known_count += 1
            if known_count > MAX_PARTITIONS:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            if len(named.partition.committed_metadata or "") > max_metadata_bytes:
                commit.refuse(named)
            else:
                records.append(commit.store(named))
        if count % _SLICE_PARTITIONS == 0:
            commit.batch.add(records)
            records.clear()
            yield
    commit.batch.add(records)
    return commit
