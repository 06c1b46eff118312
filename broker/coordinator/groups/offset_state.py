"""The offsets of all groups in one shard, and those that open transactions hold back.

Rules:
1. Hard state: it changes by records of the log alone (`store`, `replay`, `replay_end_transaction`);
   requests give records.
2. A change that is not committed yet counts for later requests, but is not shown to a plain
   OffsetFetch: it lies in `_uncommitted`, above `_committed`, until `on_committed`. Losing
   leadership drops the whole shard.
3. Offsets committed in a transaction are pending (`pending_offsets`) until its end marker makes
   them a change like any other, shown once the marker is committed, or drops them. Until then
   `require_stable` fetches answer UNSTABLE_OFFSET_COMMIT (KIP-447), others what counted before.
4. An offset expires `offsets.retention.minutes` after its group became empty, or after its commit
   when the group only stores offsets or no longer subscribes to the topic (KIP-211). An explicit
   expiry of OffsetCommit v2-4 goes first.
5. A topic's offsets go with the topic; a topic made again under the name starts without any
   (KIP-848 commits carry the topic id, which distinguishes them).

Sans-IO; called by `shard/group_shard`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.group import Group
from kraftrio.broker.coordinator.groups.offset_commit import CommitChange, StoredOffset
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey, OffsetTable
from kraftrio.broker.coordinator.groups.pending_offsets import PendingOffsets
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.classic import OffsetCommitValue, encode_offset_key
from kraftrio.wire.messages.groups import (
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.records.batch import NO_PRODUCER_ID

INVALID_OFFSET = -1


@dataclass(frozen=True, slots=True, eq=False)
class OffsetRemoved:
    """A tombstone that is not committed yet."""

    key: OffsetKey


class _Appended(NamedTuple):
    """A change whose records end at an offset of the partition."""

    end_offset: int
    change: CommitChange | OffsetRemoved


class ExpiredOffsets(NamedTuple):
    """Tombstones of expired offsets, and how many offsets were looked at."""

    records: list[CoordinatorRecord]
    looked_at: int


class OffsetState:
    """Committed, uncommitted and pending offsets."""

    def __init__(self, properties: GroupProperties) -> None:
        self._properties = properties
        self._committed: OffsetTable[StoredOffset] = OffsetTable()
        self._uncommitted: OffsetTable[StoredOffset | OffsetRemoved] = OffsetTable()
        self._appended: deque[_Appended] | None = None  # made when there is one: most have none
        self._pending = PendingOffsets()

    # --- look-ups ---

    def get(self, key: OffsetKey) -> StoredOffset | None:
        """The newest value of an offset, committed or not."""
        newest = self._uncommitted.get(key)
        if newest is None:
            return self._committed.get(key)
        return None if isinstance(newest, OffsetRemoved) else newest

    def committed(self) -> Iterator[tuple[OffsetKey, int]]:
        """Every offset that is committed."""
        for group_id in self._committed.group_ids():
            for topic, partitions in self._committed.topics(group_id).items():
                for partition, stored in partitions.items():
                    yield OffsetKey(group_id, topic, partition), stored.offset

    def newest_of(self, group_id: str) -> Mapping[str, Mapping[int, StoredOffset]]:
        """The newest values of a group by topic and partition, committed or not."""
        committed = self._committed.topics(group_id)
        uncommitted = self._uncommitted.topics(group_id)
        if not uncommitted:
            return committed
        newest = dict(committed)
        for topic, changes in uncommitted.items():
            merged = {**committed.get(topic, {}), **changes}
            newest[topic] = {
                partition: value
                for partition, value in merged.items()
                if not isinstance(value, OffsetRemoved)
            }
        return {topic: partitions for topic, partitions in newest.items() if partitions}

    def may_have(self, key: OffsetKey) -> bool:
        """Whether a fetch may answer anything but "no offset" for a partition."""
        return (
            self._committed.get(key) is not None
            or self._uncommitted.get(key) is not None
            or key in self._pending
        )

    def has_open_transaction(self, group_id: str) -> bool:
        """Whether offsets of a group are pending."""
        return self._pending.has_group(group_id)

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
        """Answer for every topic with an offset, -1 if that was committed; the handler fills in
        topic ids.

        The offsets are those of this moment; their entries are made while the response is encoded.
        """
        shown: Mapping[str, Mapping[int, StoredOffset]] = self._committed.topics(group_id)
        if require_stable:
            shown = self.newest_of(group_id)
        response = []
        for topic, partitions in shown.items():
            unstable = self._pending.partitions(group_id, topic) if require_stable else frozenset()
            found = [
                (partition, None if partition in unstable else value)
                for partition, value in partitions.items()
            ]
            entries = each(_stable_or_not, found)
            response.append(OffsetFetchResponseTopics(name=topic, partitions=entries))
        return response

    def _fetch_one(
        self, key: OffsetKey, topic_id: bytes, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        if require_stable and key in self._pending:
            return _fetched(key.partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self.get(key) if require_stable else self._committed.get(key)
        if value is None or _is_of_another_topic(value, topic_id):
            return _fetched(key.partition, None)
        return _fetched(key.partition, value)

    # --- removal ---

    def delete(self, key: OffsetKey) -> list[CoordinatorRecord]:
        """Give the tombstone of one offset; nothing if there is none."""
        if self.get(key) is None and key not in self._pending:
            return []
        return [_tombstone(key)]

    def delete_all(self, group_id: str) -> list[CoordinatorRecord]:
        """Give the tombstones of a whole group, pending offsets included."""
        keys = {
            OffsetKey(group_id, topic, partition): None
            for topics in (self.newest_of(group_id), self._pending.topics(group_id))
            for topic, partitions in topics.items()
            for partition in partitions
        }
        return [_tombstone(key) for key in keys]

    def delete_topics(self, topics: Mapping[str, bytes]) -> list[CoordinatorRecord]:
        """Give the tombstones of deleted topics, given by name with the id each had."""
        keys: dict[OffsetKey, None] = {}
        for group_id in self._group_ids():
            by_topic = self.newest_of(group_id)
            for topic, topic_id in topics.items():
                for partition, value in by_topic.get(topic, {}).items():
                    if not _is_of_another_topic(value, topic_id):
                        keys[OffsetKey(group_id, topic, partition)] = None
                for partition, value in self._pending.values(group_id, topic):
                    if not _is_of_another_topic(value, topic_id):
                        keys[OffsetKey(group_id, topic, partition)] = None
        return [_tombstone(key) for key in keys]

    def _group_ids(self) -> Iterator[str]:
        tables = self._committed, self._uncommitted, self._pending
        return iter(dict.fromkeys(itertools.chain.from_iterable(t.group_ids() for t in tables)))

    def expire(self, group: Group, topic: str, now: Now) -> ExpiredOffsets:
        """Give the tombstones of a group's expired offsets of a topic (rule 4)."""
        partitions = self.newest_of(group.group_id).get(topic, {})
        if not group.may_expire_offsets(topic):
            return ExpiredOffsets([], 0)
        retention_ms = self._properties.offsets_retention_minutes * 60_000
        records: list[CoordinatorRecord] = []
        for partition, value in partitions.items():
            expires_ms = value.expire_timestamp_ms
            if expires_ms == -1:
                expires_ms = group.retention_start_ms(value.commit_timestamp_ms) + retention_ms
            key = OffsetKey(group.group_id, topic, partition)
            if now.wall_ms >= expires_ms and key not in self._pending:
                records.append(_tombstone(key))
        return ExpiredOffsets(records, len(partitions))

    # --- changes ---

    def store(
        self, change: CommitChange, end_offset: int, *, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply a commit that was just appended, up to an offset of the partition.

        Args:
            producer_id: whose transaction it belongs to.
        """
        if producer_id != NO_PRODUCER_ID:
            self._pending.add(producer_id, change)
            return
        self._pending.supersede(change)
        self._store(change, end_offset)

    def _store(self, change: CommitChange, end_offset: int) -> None:
        for topic, offsets in change.topics.items():
            self._uncommitted.store(change.group_id, topic, offsets)
        self._note_appended(_Appended(end_offset, change))

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
            self._remove(record_offset, key, committed)
            self._pending.drop(key)
            return
        offset = StoredOffset.from_record(value)
        stored = CommitChange(key.group_id, {key.topic: {key.partition: offset}})
        if not committed or producer_id != NO_PRODUCER_ID:
            self.store(stored, record_offset + 1, producer_id=producer_id)
        else:
            self._pending.supersede(stored)
            self._committed.store(key.group_id, key.topic, {key.partition: offset})

    def replay_end_transaction(
        self, producer_id: int, end_offset: int, *, commit: bool, committed: bool = True
    ) -> list[str]:
        """Apply a transaction's end marker: its pending offsets count from now on, or never.

        Returns:
            The groups whose offsets have changed.
        """
        changes = self._pending.end(producer_id, commit=commit)
        for change in changes:
            self._store(change, end_offset)
        if committed:
            self.on_committed(end_offset)
        return [change.group_id for change in changes]

    def _remove(self, record_offset: int, key: OffsetKey, committed: bool) -> None:
        if committed:
            self._committed.remove(key)
            return
        removed = OffsetRemoved(key)
        self._uncommitted.store(key.group_id, key.topic, {key.partition: removed})
        self._note_appended(_Appended(record_offset + 1, removed))

    def _note_appended(self, appended: _Appended) -> None:
        if self._appended is None:
            self._appended = deque()
        self._appended.append(appended)

    def on_committed(self, end_offset: int) -> None:
        """Show changes up to an offset of the partition (rule 2)."""
        appended = self._appended
        while appended and appended[0].end_offset <= end_offset:
            change = appended.popleft().change
            if isinstance(change, OffsetRemoved):
                key = change.key
                self._committed.remove(key)
                self._uncommitted.remove_same(key.group_id, key.topic, {key.partition: change})
                continue
            for topic, offsets in change.topics.items():
                self._committed.store(change.group_id, topic, offsets)
                self._uncommitted.remove_same(change.group_id, topic, offsets)


def _fetched(
    partition: int, value: StoredOffset | None, error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    """Answer with a value, or that there is no offset."""
    if value is None:
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=INVALID_OFFSET,
            metadata="",
            error_code=error,
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _stable_or_not(found: tuple[int, StoredOffset | None]) -> OffsetFetchResponsePartitions:
    partition, value = found
    error = ErrorCode.UNSTABLE_OFFSET_COMMIT if value is None else ErrorCode.NONE
    return _fetched(partition, value, error)


def _tombstone(key: OffsetKey) -> CoordinatorRecord:
    return CoordinatorRecord(encode_offset_key(*key), None)


def _is_of_another_topic(value: StoredOffset, topic_id: bytes) -> bool:
    """Whether an offset was committed for another topic of the same name; unknown ids match."""
    return topic_id != ZERO_UUID and value.topic_id not in (ZERO_UUID, topic_id)
