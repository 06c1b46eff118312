"""Committed, uncommitted and pending offsets, against a naive model (`offset_model`).

Commits, tombstones, transactions and their ends come in any order; the high watermark follows when
it likes. A plain look-up shows what the records below it say, a stable one what all of them say, or
that an open transaction holds the offset back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from kraftrio.broker.coordinator.groups.offset_commit import CommitChange, StoredOffset
from kraftrio.broker.coordinator.groups.offset_state import OffsetState
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import OffsetFetchRequestTopics
from kraftrio.wire.primitives import ZERO_UUID
from tests.unit.broker.coordinator.groups.group_context import Properties
from tests.unit.broker.coordinator.groups.offset_model import (
    GROUPS,
    KEYS,
    PRODUCERS,
    UNSTABLE,
    Entry,
    Model,
    random_entry,
)


def shown(state: OffsetState, key: OffsetKey, *, require_stable: bool) -> int:
    topic = OffsetFetchRequestTopics(name=key.topic, partition_indexes=[key.partition])
    (answer,) = state.fetch(key.group_id, [topic], require_stable=require_stable)
    (partition,) = answer.partitions
    if partition.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        assert partition.committed_offset == -1
        return UNSTABLE
    assert partition.error_code == ErrorCode.NONE
    return partition.committed_offset


def all_shown(state: OffsetState, group_id: str, *, require_stable: bool) -> dict[OffsetKey, int]:
    return {
        OffsetKey(group_id, topic.name, partition.partition_index): UNSTABLE
        if partition.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        else partition.committed_offset
        for topic in state.fetch_all(group_id, require_stable=require_stable)
        for partition in topic.partitions
    }


def append(state: OffsetState, offset: int, entry: Entry) -> None:
    """Apply an entry that was just appended, as the coordinator that wrote it does."""
    if entry.commit is not None:
        state.replay_end_transaction(
            entry.producer_id, offset + 1, commit=entry.commit, committed=False
        )
    elif entry.value is None:
        state.replay(offset, entry.keys[0], None, committed=False)
    else:
        change = CommitChange(entry.keys[0].group_id)
        for key in entry.keys:
            change.topics.setdefault(key.topic, {})[key.partition] = stored(entry.value)
        state.store(change, offset + 1, producer_id=entry.producer_id)


def load(entries: Iterable[Entry]) -> OffsetState:
    """Replay a log, as a coordinator that is elected does."""
    state = OffsetState(Properties())
    for offset, entry in enumerate(entries):
        if entry.commit is not None:
            state.replay_end_transaction(entry.producer_id, offset + 1, commit=entry.commit)
        for key in entry.keys:
            value = None if entry.value is None else stored(entry.value).to_record()
            state.replay(offset, key, value, producer_id=entry.producer_id)
    return state


def stored(value: int) -> StoredOffset:
    return StoredOffset(value, -1, "", 0, -1, ZERO_UUID)


def check(state: OffsetState, model: Model, high_watermark: int) -> None:
    """Each key, alone and with all others of its group, is as the model says."""
    for require_stable in (False, True):
        for group_id in GROUPS:
            of_group = [key for key in KEYS if key.group_id == group_id]
            expected = {
                key: model.shown(key, high_watermark, require_stable=require_stable)
                for key in of_group
            }
            assert expected == {
                key: shown(state, key, require_stable=require_stable) for key in of_group
            }
            end_offset = len(model.entries) if require_stable else high_watermark
            assert all_shown(state, group_id, require_stable=require_stable) == {
                key: found for key, found in expected.items() if model.value(key, end_offset) != -1
            }
    for key in KEYS:
        may_have = state.may_have(key)
        assert may_have or shown(state, key, require_stable=False) == -1
        assert may_have or shown(state, key, require_stable=True) == -1
    for group_id in GROUPS:
        end_offset = len(model.entries)
        assert state.has_open_transaction(group_id) == any(
            model.is_pending(key, end_offset) for key in KEYS if key.group_id == group_id
        )


@pytest.mark.parametrize("seed", range(16))
def test_layers_show_what_the_records_say(seed: int) -> None:
    """After each step; and a coordinator that loads the log then shows the same."""
    rng = random.Random(seed)
    state, model = OffsetState(Properties()), Model()
    high_watermark = 0
    for _ in range(120):
        offset = len(model.entries)
        if rng.random() < 0.7:
            entry = random_entry(rng)
            model.entries.append(entry)
            append(state, offset, entry)
        else:
            high_watermark = rng.randint(high_watermark, offset)
            state.on_committed(high_watermark)
        check(state, model, high_watermark)
        if rng.random() < 0.1:
            end_offset = len(model.entries)
            check(load(model.entries), model, end_offset)
            until_then = Model(model.entries[:high_watermark])
            check(load(until_then.entries), until_then, high_watermark)
    end_offset = len(model.entries)
    for producer_id in PRODUCERS:
        append(state, end_offset, Entry(producer_id=producer_id, commit=True))
        end_offset += 1
    state.on_committed(end_offset)
    assert not state._appended
    assert not list(state._uncommitted.group_ids()), "nothing is left above the committed offsets"
    assert not list(state._pending.group_ids()), "no offset is left of an ended transaction"
    assert not state._pending._by_producer
