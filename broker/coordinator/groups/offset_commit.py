"""A commit of offsets as records, and as what they change; made in slices, since it may be long.

What a commit writes does not depend on its group: whether the group takes it is asked right before
the one batch is appended. KIP-211, KIP-848 (topic ids).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.broker.coordinator.outcome import Change, CoordinatorRecord
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.messages.group_records import (
    OffsetCommitValue,
    encode_offset_key,
    encode_offset_value,
)
from kraftrio.wire.messages.groups import OffsetCommitRequest, OffsetCommitRequestTopic
from kraftrio.wire.records.builder import BatchBuilder

DEFAULT_RETENTION_TIME_MS = -1
_NO_EXPIRY = -1
_LATEST_MS = (1 << 63) - 1
_SLICE_RECORDS = 16  # made between two pauses


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


@dataclass(slots=True)
class OffsetCommit:
    """A commit that is ready to be appended.

    Attributes:
        refused: topics and partitions whose metadata is too long.
    """

    request: OffsetCommitRequest
    batch: BatchBuilder
    change: CommitChange
    refused: set[tuple[str, int]] = field(default_factory=set)


def prepare_commit(
    request: OffsetCommitRequest, now_wall_ms: int, max_metadata_bytes: int
) -> Slices[OffsetCommit]:
    """Make the records of a commit.

    Args:
        request: each topic has its name, and its id where the broker knows one.
        max_metadata_bytes: longer metadata is refused, for its partition alone.
    """
    expire_timestamp_ms = _NO_EXPIRY
    if request.retention_time_ms != DEFAULT_RETENTION_TIME_MS:
        expire_timestamp_ms = min(now_wall_ms + request.retention_time_ms, _LATEST_MS)
    commit = OffsetCommit(request, BatchBuilder(now_wall_ms), CommitChange(request.group_id))
    records: list[CoordinatorRecord] = []
    for topic in request.topics:
        for record in _records_of_topic(
            commit, topic, now_wall_ms, expire_timestamp_ms, max_metadata_bytes
        ):
            records.append(record)
            if len(records) == _SLICE_RECORDS:
                commit.batch.add(records)
                records.clear()
                yield
    if records:
        commit.batch.add(records)
    return commit


def _records_of_topic(
    commit: OffsetCommit,
    topic: OffsetCommitRequestTopic,
    now_wall_ms: int,
    expire_timestamp_ms: int,
    max_metadata_bytes: int,
) -> Iterator[CoordinatorRecord]:
    group_id, name = commit.request.group_id, topic.name
    stored = commit.change.topics.setdefault(name, {})
    for partition in topic.partitions:
        index = partition.partition_index
        metadata = partition.committed_metadata or ""
        if len(metadata) > max_metadata_bytes:
            commit.refused.add((name, index))
            continue
        commit.refused.discard((name, index))
        stored[index] = offset = StoredOffset(
            partition.committed_offset,
            partition.committed_leader_epoch,
            metadata,
            now_wall_ms,
            expire_timestamp_ms,
            topic.topic_id,
        )
        key = encode_offset_key(group_id, name, index)
        yield CoordinatorRecord(key, encode_offset_value(offset.to_record()))
