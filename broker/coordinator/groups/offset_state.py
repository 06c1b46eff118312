"""The committed offsets of all groups in one shard, and those that open transactions hold back.

Rules:
1. Hard state: it changes in `replay` (and `replay_end_transaction`) alone; requests give records.
2. A change that is not committed yet is in force for later requests, but is not shown to a plain
   OffsetFetch: `_committed_view` keeps what to show until `on_committed` (the runtime tells it how
   far the partition is committed). Losing leadership drops the whole shard.
3. Offsets committed in a transaction are pending under their producer id until its end marker;
   `require_stable` fetches then answer UNSTABLE_OFFSET_COMMIT (KIP-447).
4. An offset expires `offsets.retention.minutes` after its group became empty, or after its commit
   when the group only stores offsets or no longer subscribes to the topic (KIP-211). An explicit
   expiry of OffsetCommit v2-4 goes first.
5. A topic's offsets go with the topic; a topic made again under the name starts without (KIP-848
   commits carry the topic id, which tells them apart).

Sans-IO; called by `groups/shard`. KIP-211, KIP-447, KIP-848.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now
from kraftrio.broker.coordinator.ports import GroupProperties
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records import (
    OffsetCommitValue,
    encode_offset_key,
    encode_offset_value,
)
from kraftrio.wire.messages.groups import (
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kraftrio.wire.primitives import ZERO_UUID

INVALID_OFFSET = -1
NO_PRODUCER_ID = -1
DEFAULT_RETENTION_TIME_MS = -1
_LATEST_MS = (1 << 63) - 1


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """One committed offset, with the offset of the record that holds it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes
    record_offset: int

    @classmethod
    def from_record(cls, record_offset: int, value: OffsetCommitValue) -> CommittedOffset:
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            topic_id=value.topic_id,
            record_offset=record_offset,
        )

    def to_record(self) -> OffsetCommitValue:
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=self.expire_timestamp_ms,
            topic_id=self.topic_id,
        )


class OffsetState:
    """Committed and pending offsets by group, topic and partition."""

    def __init__(self, properties: GroupProperties) -> None:
        self._properties = properties
        self._offsets: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[int, dict[OffsetKey, CommittedOffset]] = {}
        self._uncommitted: deque[tuple[int, OffsetKey, CommittedOffset | None]] = deque()
        self._uncommitted_counts: dict[OffsetKey, int] = {}
        self._committed_view: dict[OffsetKey, CommittedOffset | None] = {}

    # --- look-ups ---

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The newest value of an offset, committed or not."""
        return self._offsets.get(group_id, {}).get(topic, {}).get(partition)

    def offsets_of(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._offsets.get(group_id, {})

    def may_have(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether something else than "no offset" may be told of a partition."""
        key = OffsetKey(group_id, topic, partition)
        return self.get(*key) is not None or key in self._committed_view or self._is_pending(key)

    def _has_open_transaction(self, group_id: str) -> bool:
        return any(key.group_id == group_id for keys in self._pending.values() for key in keys)

    def _is_pending(self, key: OffsetKey) -> bool:
        return any(key in offsets for offsets in self._pending.values())

    # --- OffsetCommit ---

    def commit(
        self,
        group_id: str,
        topics: Sequence[OffsetCommitRequestTopic],
        retention_time_ms: int,
        now: Now,
    ) -> tuple[list[CoordinatorRecord], list[OffsetCommitResponseTopic]]:
        """Give the records of a commit, and the response's topics.

        Each topic has its name, and its id where the broker knows one.
        """
        expire_timestamp_ms = -1
        if retention_time_ms != DEFAULT_RETENTION_TIME_MS:
            expire_timestamp_ms = min(now.wall_ms + retention_time_ms, _LATEST_MS)
        records: list[CoordinatorRecord] = []
        response: list[OffsetCommitResponseTopic] = []
        for topic in topics:
            partitions: list[OffsetCommitResponsePartition] = []
            for partition in topic.partitions:
                metadata = partition.committed_metadata or ""
                error = ErrorCode.NONE
                if len(metadata) > self._properties.offset_metadata_max_bytes:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    value = OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now.wall_ms,
                        expire_timestamp=expire_timestamp_ms,
                        topic_id=topic.topic_id,
                    )
                    key = encode_offset_key(group_id, topic.name, partition.partition_index)
                    records.append(CoordinatorRecord(key, encode_offset_value(value)))
                partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                )
            response.append(
                OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=partitions
                )
            )
        return records, response

    # --- OffsetFetch ---

    def fetch(
        self, group_id: str, topics: Sequence[OffsetFetchRequestTopics], *, require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        """Answer for the named topics; a partition without an offset gets -1."""
        return [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    self._fetch_one(
                        OffsetKey(group_id, topic.name, partition), topic.topic_id, require_stable
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in topics
        ]

    def fetch_all(self, group_id: str, *, require_stable: bool) -> list[OffsetFetchResponseTopics]:
        """Answer for every topic with an offset; topic ids are left for the edge to fill in."""
        by_topic: dict[str, dict[int, None]] = {
            topic: dict.fromkeys(partitions)
            for topic, partitions in self._offsets.get(group_id, {}).items()
        }
        for key in self._committed_view:
            if key.group_id == group_id:
                by_topic.setdefault(key.topic, {})[key.partition] = None
        response = []
        for topic, partitions in by_topic.items():
            fetched = [
                self._fetch_one(OffsetKey(group_id, topic, partition), ZERO_UUID, require_stable)
                for partition in partitions
            ]
            known = [p for p in fetched if p.committed_offset >= 0 or p.error_code]
            if known:
                response.append(OffsetFetchResponseTopics(name=topic, partitions=known))
        return response

    def _fetch_one(
        self, key: OffsetKey, topic_id: bytes, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        none = OffsetFetchResponsePartitions(
            partition_index=key.partition, committed_offset=INVALID_OFFSET, metadata=""
        )
        if require_stable:
            if self._is_pending(key):
                none.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                return none
            value = self.get(*key)
        elif key in self._committed_view:
            value = self._committed_view[key]
        else:
            value = self.get(*key)
        if value is None or _is_of_another_topic(value, topic_id):
            return none
        return OffsetFetchResponsePartitions(
            partition_index=key.partition,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
        )

    # --- removal ---

    def delete(self, group_id: str, topic: str, partition: int) -> list[CoordinatorRecord]:
        """Give the tombstone of one offset; nothing if there is none."""
        key = OffsetKey(group_id, topic, partition)
        if self.get(*key) is None and not self._is_pending(key):
            return []
        return [_tombstone(key)]

    def delete_all(self, group_id: str) -> list[CoordinatorRecord]:
        """Give the tombstones of a whole group, pending offsets included."""
        keys = {
            OffsetKey(group_id, topic, partition): None
            for topic, partitions in self._offsets.get(group_id, {}).items()
            for partition in partitions
        }
        for offsets in self._pending.values():
            keys.update({key: None for key in offsets if key.group_id == group_id})
        return [_tombstone(key) for key in keys]

    def delete_topics(self, topics: Mapping[str, bytes]) -> list[CoordinatorRecord]:
        """Give the tombstones of deleted topics, given by name with the id each had."""
        keys: dict[OffsetKey, None] = {}
        for group_id, by_topic in self._offsets.items():
            for topic, topic_id in topics.items():
                for partition, value in by_topic.get(topic, {}).items():
                    if not _is_of_another_topic(value, topic_id):
                        keys[OffsetKey(group_id, topic, partition)] = None
        for offsets in self._pending.values():
            for key, value in offsets.items():
                if key.topic in topics and not _is_of_another_topic(value, topics[key.topic]):
                    keys[key] = None
        return [_tombstone(key) for key in keys]

    def expire(self, group: ClassicGroup, now: Now) -> tuple[list[CoordinatorRecord], bool]:
        """Give the tombstones of a group's expired offsets, and whether none is left (rule 4)."""
        by_topic = self._offsets.get(group.group_id)
        if by_topic is None:
            return [], not self._has_open_transaction(group.group_id)
        uses_state_timestamp = (
            group.protocol_type is not None
            and group.is_in(GroupState.EMPTY)
            and group.current_state_timestamp_ms != -1
        )
        may_expire = (
            group.protocol_type is None
            or group.is_in(GroupState.EMPTY)
            or (
                group.uses_consumer_protocol
                and group.subscribed_topics is not None
                and group.is_in(GroupState.STABLE)
            )
        )
        if not may_expire:
            return [], False
        retention_ms = self._properties.offsets_retention_minutes * 60_000
        records: list[CoordinatorRecord] = []
        everything_expired = True
        for topic, partitions in by_topic.items():
            subscribed = group.is_subscribed_to(topic)
            for partition, value in partitions.items():
                since_ms = value.commit_timestamp_ms
                if uses_state_timestamp:
                    since_ms = group.current_state_timestamp_ms
                expires_ms = value.expire_timestamp_ms
                if expires_ms == -1:
                    expires_ms = since_ms + retention_ms
                key = OffsetKey(group.group_id, topic, partition)
                if subscribed or now.wall_ms < expires_ms or self._is_pending(key):
                    everything_expired = False
                else:
                    records.append(_tombstone(key))
        return records, everything_expired and not self._has_open_transaction(group.group_id)

    # --- replay ---

    def replay(
        self,
        record_offset: int,
        key: OffsetKey,
        value: OffsetCommitValue | None,
        *,
        producer_id: int = NO_PRODUCER_ID,
        committed: bool = True,
    ) -> None:
        """Apply one record. `committed` is False for records that were just appended."""
        if value is None:
            self._set(record_offset, key, None, committed)
            for offsets in self._pending.values():
                offsets.pop(key, None)
        elif producer_id == NO_PRODUCER_ID:
            offset = CommittedOffset.from_record(record_offset, value)
            self._set(record_offset, key, offset, committed)
        else:
            offset = CommittedOffset.from_record(record_offset, value)
            self._pending.setdefault(producer_id, {})[key] = offset

    def replay_end_transaction(
        self, record_offset: int, producer_id: int, *, commit: bool, committed: bool = True
    ) -> None:
        """Apply a transaction's end marker: its pending offsets count from now on, or never."""
        for key, offset in self._pending.pop(producer_id, {}).items():
            current = self.get(*key)
            # A plain commit written after the transactional one stays in force.
            if commit and (current is None or offset.record_offset > current.record_offset):
                self._set(record_offset, key, offset, committed)

    def _set(
        self, record_offset: int, key: OffsetKey, value: CommittedOffset | None, committed: bool
    ) -> None:
        former = self.get(*key)
        if not committed:
            if key not in self._committed_view:
                self._committed_view[key] = former
            self._uncommitted.append((record_offset, key, value))
            self._uncommitted_counts[key] = self._uncommitted_counts.get(key, 0) + 1
        if value is not None:
            by_topic = self._offsets.setdefault(key.group_id, {})
            by_topic.setdefault(key.topic, {})[key.partition] = value
        elif former is not None:
            by_topic = self._offsets[key.group_id]
            partitions = by_topic[key.topic]
            del partitions[key.partition]
            if not partitions:
                del by_topic[key.topic]
            if not by_topic:
                del self._offsets[key.group_id]

    def on_committed(self, end_offset: int) -> None:
        """Show changes up to an offset of the partition (rule 2)."""
        while self._uncommitted and self._uncommitted[0][0] < end_offset:
            _, key, value = self._uncommitted.popleft()
            count = self._uncommitted_counts[key] - 1
            if count:
                self._uncommitted_counts[key] = count
                self._committed_view[key] = value
            else:
                del self._uncommitted_counts[key]
                del self._committed_view[key]


def check_commit(
    group: ClassicGroup,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    *,
    transactional: bool = False,
) -> ErrorCode:
    """Whether a commit may be made in a group: by a member of the generation, or by hand.

    A commit without member and generation is allowed while the group has no members.
    """
    if generation_id < 0 and group.is_in(GroupState.EMPTY):
        return ErrorCode.NONE
    if generation_id >= 0 or member_id or group_instance_id is not None:
        error = group.check_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
    elif not transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and group.is_in(GroupState.COMPLETING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _tombstone(key: OffsetKey) -> CoordinatorRecord:
    return CoordinatorRecord(encode_offset_key(*key), None)


def _is_of_another_topic(value: CommittedOffset, topic_id: bytes) -> bool:
    """Whether an offset was committed for another topic of the same name; unknown ids match."""
    return topic_id != ZERO_UUID and value.topic_id not in (ZERO_UUID, topic_id)
