"""The offsets that open transactions hold back, by producer and by what they are committed for.

Rules:
1. An offset is pending under its producer id from its record on until the transaction's end marker,
   or a tombstone of the offset. While any transaction holds it back it is unstable (KIP-447).
2. Of several values the one that was written last counts, whenever its transaction ends: what a
   plain commit, or another transaction that is committed, has written after it supersedes it.
3. A look at one offset, or at whether a group has pending ones, costs the same however many there
   are; what a producer's end or a commit costs grows with its own offsets.

Sans-IO; called by `offset_state`, which has what counts already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from kraftrio.broker.coordinator.groups.offset_commit import CommitChange, StoredOffset
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey, OffsetTable


class PendingOffset:
    """A value that the transaction of a producer holds back."""

    __slots__ = ("is_superseded", "producer_id", "value")

    def __init__(self, producer_id: int, value: StoredOffset) -> None:
        self.producer_id = producer_id
        self.value = value
        self.is_superseded = False


class PendingOffsets:
    """See the rules at the top of the module."""

    __slots__ = ("_by_key", "_by_producer")

    def __init__(self) -> None:
        # The same offsets twice; those of one key, of different producers, as they were written.
        self._by_key: OffsetTable[tuple[PendingOffset, ...]] = OffsetTable()
        self._by_producer: dict[int, OffsetTable[PendingOffset]] = {}

    # --- look-ups ---

    def __contains__(self, key: OffsetKey) -> bool:
        return self._by_key.get(key) is not None

    def has_group(self, group_id: str) -> bool:
        """Whether offsets of a group are pending."""
        return bool(self._by_key.topics(group_id))

    def group_ids(self) -> Iterator[str]:
        """The groups that have pending offsets."""
        return self._by_key.group_ids()

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, object]]:
        """The partitions with pending offsets of a group, by topic."""
        return self._by_key.topics(group_id)

    def partitions(self, group_id: str, topic: str) -> Set[int]:
        """The partitions of a topic whose offsets are pending in a group."""
        return self._by_key.partitions(group_id, topic).keys()

    def values(self, group_id: str, topic: str) -> Iterator[tuple[int, StoredOffset]]:
        """The partitions of a topic with each value that is pending for them in a group."""
        for partition, held in self._by_key.partitions(group_id, topic).items():
            for pending in held:
                yield partition, pending.value

    # --- changes ---

    def add(self, producer_id: int, change: CommitChange) -> None:
        """Hold back offsets that a producer's transaction has written, in place of its former."""
        group_id = change.group_id
        of_producer = self._by_producer.setdefault(producer_id, OffsetTable())
        for topic, offsets in change.topics.items():
            held = self._by_key.partitions(group_id, topic)
            added: dict[int, PendingOffset] = {}
            by_partition: dict[int, tuple[PendingOffset, ...]] = {}
            for partition, value in offsets.items():
                added[partition] = pending = PendingOffset(producer_id, value)
                others = held.get(partition)
                if others is None:
                    by_partition[partition] = (pending,)
                else:
                    by_partition[partition] = (*_without(others, producer_id), pending)
            of_producer.store(group_id, topic, added)
            self._by_key.store(group_id, topic, by_partition)

    def supersede(self, change: CommitChange) -> None:
        """A plain commit was written: what was written before is not to replace it (rule 2)."""
        topics = self._by_key.topics(change.group_id)
        if not topics:
            return
        for topic, offsets in change.topics.items():
            held = topics.get(topic)
            if held is not None:
                for partition in held.keys() & offsets.keys():
                    _supersede(held[partition])

    def drop(self, key: OffsetKey) -> None:
        """A tombstone was written: no transaction brings the offset back."""
        held = self._by_key.get(key)
        if held is None:
            return
        self._by_key.remove(key)
        for pending in held:
            self._by_producer[pending.producer_id].remove(key)

    def end(self, producer_id: int, *, commit: bool) -> list[CommitChange]:
        """End a producer's transaction; return, by group, the offsets that count from now on."""
        ended = self._by_producer.pop(producer_id, None)
        if ended is None:
            return []
        changes: list[CommitChange] = []
        for group_id in ended.group_ids():
            change = CommitChange(group_id)
            for topic, offsets in ended.topics(group_id).items():
                self._release(group_id, topic, offsets, supersede=commit)
                if commit:
                    counting = {
                        partition: pending.value
                        for partition, pending in offsets.items()
                        if not pending.is_superseded
                    }
                    if counting:
                        change.topics[topic] = counting
            if change.topics:
                changes.append(change)
        return changes

    def _release(
        self, group_id: str, topic: str, ended: Mapping[int, PendingOffset], *, supersede: bool
    ) -> None:
        """Take a producer's offsets of a topic out of those by key."""
        held = self._by_key.partitions(group_id, topic)
        still_held: dict[int, tuple[PendingOffset, ...]] = {}
        for partition, pending in ended.items():
            of_key = held[partition]
            if len(of_key) > 1:
                if supersede and not pending.is_superseded:
                    _supersede(of_key[: of_key.index(pending)])
                still_held[partition] = _without(of_key, pending.producer_id)
        self._by_key.remove_all(group_id, topic, ended.keys() - still_held.keys())
        if still_held:
            self._by_key.store(group_id, topic, still_held)


def _without(held: tuple[PendingOffset, ...], producer_id: int) -> tuple[PendingOffset, ...]:
    return tuple(pending for pending in held if pending.producer_id != producer_id)


def _supersede(held: tuple[PendingOffset, ...]) -> None:
    for pending in held:
        pending.is_superseded = True
