"""Committed and uncommitted offsets, against a naive model: the list of all records.

Commits, tombstones, transactions and their ends come in any order; the high watermark follows when
it likes. A plain look-up shows what the records below it say, a stable one what all of them say.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kraftrio.broker.coordinator.groups.offset_commit import CommitChange, StoredOffset
from kraftrio.broker.coordinator.groups.offset_state import OffsetState
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import OffsetFetchRequestTopics
from kraftrio.wire.primitives import ZERO_UUID
from tests.unit.broker.coordinator.groups.group_context import Properties

GROUPS, TOPICS, PARTITIONS = ("g", "h"), ("t", "u"), (0, 1, 2)
KEYS = [OffsetKey(g, t, p) for g in GROUPS for t in TOPICS for p in PARTITIONS]


@dataclass
class Model:
    """Records as (keys, value or None)."""

    records: list[tuple[tuple[OffsetKey, ...], int | None]] = field(default_factory=list)

    def value(self, key: OffsetKey, end_offset: int) -> int:
        shown = -1
        for keys, value in self.records[:end_offset]:
            if key in keys:
                shown = -1 if value is None else value
        return shown


def shown(state: OffsetState, key: OffsetKey, *, require_stable: bool) -> int:
    topic = OffsetFetchRequestTopics(name=key.topic, partition_indexes=[key.partition])
    (answer,) = state.fetch(key.group_id, [topic], require_stable=require_stable)
    (partition,) = answer.partitions
    assert partition.error_code == ErrorCode.NONE
    return partition.committed_offset


def all_shown(state: OffsetState, group_id: str, *, require_stable: bool) -> dict[OffsetKey, int]:
    return {
        OffsetKey(group_id, topic.name, partition.partition_index): partition.committed_offset
        for topic in state.fetch_all(group_id, require_stable=require_stable)
        for partition in topic.partitions
    }


def commit(state: OffsetState, keys: list[OffsetKey], value: int, end_offset: int) -> None:
    """Store the same offset for keys of one group."""
    change = CommitChange(keys[0].group_id)
    for key in keys:
        offset = StoredOffset(value, -1, "", 0, -1, ZERO_UUID)
        change.topics.setdefault(key.topic, {})[key.partition] = offset
    state.store(change, end_offset)


@pytest.mark.parametrize("seed", range(30))
def test_layers_show_what_the_records_say(seed: int) -> None:
    """After each step, for each key, alone and with all others of its group."""
    rng = random.Random(seed)
    state, model = OffsetState(Properties()), Model()
    high_watermark = 0
    for value in range(150):
        offset = len(model.records)
        action = rng.random()
        if action < 0.4:
            group_id = rng.choice(GROUPS)
            of_group = [key for key in KEYS if key.group_id == group_id]
            keys = rng.sample(of_group, rng.randint(1, len(of_group)))
            model.records.append((tuple(keys), value))
            commit(state, keys, value, offset + 1)
        elif action < 0.7:
            key = rng.choice(KEYS)
            model.records.append(((key,), None))
            state.replay(offset, key, None, committed=False)
        else:
            high_watermark = rng.randint(high_watermark, offset)
            state.on_committed(high_watermark)
        end_offset = len(model.records)
        for key in KEYS:
            committed, newest = model.value(key, high_watermark), model.value(key, end_offset)
            assert shown(state, key, require_stable=False) == committed
            assert shown(state, key, require_stable=True) == newest
            assert state.may_have(key) or committed == newest == -1
        for group_id in GROUPS:
            of_group = [key for key in KEYS if key.group_id == group_id]
            for is_stable, end in ((False, high_watermark), (True, end_offset)):
                expected = {key: model.value(key, end) for key in of_group}
                assert all_shown(state, group_id, require_stable=is_stable) == {
                    key: found for key, found in expected.items() if found != -1
                }
    state.on_committed(len(model.records))
    assert not state._appended
    assert not list(state._uncommitted.group_ids()), "nothing is left above the committed offsets"


@pytest.mark.parametrize("seed", range(30))
def test_the_last_of_several_transactions_counts(seed: int) -> None:
    """Transactions and plain commits of one key, ended in any order, as loading replays them."""
    rng = random.Random(seed)
    key = KEYS[0]
    state = OffsetState(Properties())
    pending: dict[int, tuple[int, int]] = {}
    value_written, current = -1, -1  # the offset of the record that counts, and its value
    for offset in range(60):
        producer_id = rng.randrange(3)
        action = rng.random()
        stored = StoredOffset(offset, -1, "", 0, -1, ZERO_UUID).to_record()
        if action < 0.4:
            state.replay(offset, key, stored, producer_id=producer_id)
            pending[producer_id] = offset, offset
        elif action < 0.6:
            state.replay(offset, key, stored)
            value_written, current = offset, offset
        else:
            is_committed = rng.random() < 0.7
            state.replay_end_transaction(producer_id, commit=is_committed)
            written, value = pending.pop(producer_id, (-1, -1))
            if is_committed and written > value_written:
                value_written, current = written, value
        assert shown(state, key, require_stable=False) == current
