"""A naive model of the offsets in one partition of `__consumer_offsets`: the list of all records.

What counts is worked out from the beginning of the list each time: of the values of an offset the
one that was written last, behind its last tombstone, unless its transaction is open or aborted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.wire.records.batch import NO_PRODUCER_ID

GROUPS, TOPICS, PARTITIONS = ("g", "h"), ("t", "u"), (0, 1, 2)
KEYS = [OffsetKey(g, t, p) for g in GROUPS for t in TOPICS for p in PARTITIONS]
PRODUCERS = (0, 1, 2)
UNSTABLE = -2


class Entry(NamedTuple):
    """A commit of one value for some keys, a tombstone of them, or a marker."""

    keys: tuple[OffsetKey, ...] = ()
    value: int | None = None
    producer_id: int = NO_PRODUCER_ID
    commit: bool | None = None

    @property
    def is_marker(self) -> bool:
        return self.commit is not None


@dataclass
class Model:
    """The log; what it says is worked out from its beginning each time."""

    entries: list[Entry] = field(default_factory=list)

    def value(self, key: OffsetKey, end_offset: int) -> int:
        """The value written last of those that count; -1 if there is none."""
        for offset in reversed(range(end_offset)):
            entry = self.entries[offset]
            if key in entry.keys:
                if entry.value is None:
                    break
                if entry.producer_id == NO_PRODUCER_ID or self.end(offset, end_offset):
                    return entry.value
        return -1

    def is_pending(self, key: OffsetKey, end_offset: int) -> bool:
        for offset in reversed(range(end_offset)):
            entry = self.entries[offset]
            if key in entry.keys:
                if entry.value is None:
                    break
                if entry.producer_id != NO_PRODUCER_ID and self.end(offset, end_offset) is None:
                    return True
        return False

    def end(self, offset: int, end_offset: int) -> bool | None:
        """Whether the transaction of an entry was committed; None while it is open."""
        producer_id = self.entries[offset].producer_id
        for entry in self.entries[offset:end_offset]:
            if entry.is_marker and entry.producer_id == producer_id:
                return entry.commit
        return None

    def shown(self, key: OffsetKey, high_watermark: int, *, require_stable: bool) -> int:
        if not require_stable:
            return self.value(key, high_watermark)
        end_offset = len(self.entries)
        return UNSTABLE if self.is_pending(key, end_offset) else self.value(key, end_offset)


def random_entry(rng: random.Random) -> Entry:
    """A commit (half of them in transactions), a tombstone, or a marker."""
    action = rng.random()
    producer_id = rng.choice(PRODUCERS)
    if action < 0.5:
        group_id = rng.choice(GROUPS)
        of_group = [key for key in KEYS if key.group_id == group_id]
        keys = tuple(rng.sample(of_group, rng.randint(1, len(of_group))))
        if rng.random() < 0.4:
            producer_id = NO_PRODUCER_ID
        return Entry(keys, rng.randrange(1 << 40), producer_id)
    if action < 0.65:
        return Entry((rng.choice(KEYS),))
    return Entry(producer_id=producer_id, commit=rng.random() < 0.6)
