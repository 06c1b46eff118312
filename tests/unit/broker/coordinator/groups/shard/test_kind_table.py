"""Which kind of group a record, a deadline or a follow-up goes to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kraftrio.broker.coordinator.deadlines import DeadlineKey
from kraftrio.broker.coordinator.groups.shard.kind_table import KindTable, join_outcomes
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    ShareGroupMetadataKey,
)
from kraftrio.wire.primitives import Buffer

NOW = Now(0.0, 0)


class RedStored(FollowUp):
    """Of the kind red."""


class BlueStored(FollowUp):
    """Of the kind blue."""


class Kind:
    """A kind of group that notes what it is asked."""

    def __init__(
        self, group_type: type[Any], key: type[Any], deadline: str, follow_up: type[FollowUp]
    ) -> None:
        self.group_type = group_type
        self.record_keys = (key,)
        self.deadline_kinds = (deadline,)
        self.follow_ups = (follow_up,)
        self.asked: list[Any] = []

    def replay(self, key: Any, value: Buffer | None, _now: Now) -> None:
        self.asked.append((key, value))

    def on_loaded(self, _now: Now) -> Outcome:
        return Outcome()

    def unload(self, _now: Now) -> Outcome:
        return Outcome()

    def on_deadline(self, key: DeadlineKey, _now: Now) -> Outcome:
        self.asked.append(key)
        return Outcome()

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, _now: Now) -> Outcome:
        self.asked.append((type(follow_up), error))
        return Outcome()

    def on_topics_changed(self, names: Collection[str], _now: Now) -> None:
        self.asked += names

    def tombstones(self, group: Any) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(repr(group).encode(), None)]


def test_each_kind_gets_what_is_its_own() -> None:
    """Groups are told apart by their class; types of records that nobody serves are passed over."""
    red = Kind(int, GroupMetadataKey, "red", RedStored)
    blue = Kind(str, ConsumerGroupMetadataKey, "blue", BlueStored)
    kinds = KindTable([red, blue])
    kinds.replay(GroupMetadataKey(group="r"), b"value", NOW)
    kinds.replay(ConsumerGroupMetadataKey(group_id="b"), None, NOW)
    kinds.replay(ShareGroupMetadataKey(group_id="s"), b"value", NOW)
    kinds.on_deadline(("red", "group"), NOW)
    kinds.on_append_done(BlueStored(), ErrorCode.NOT_COORDINATOR, NOW)
    assert red.asked == [(GroupMetadataKey(group="r"), b"value"), ("red", "group")]
    assert blue.asked == [
        (ConsumerGroupMetadataKey(group_id="b"), None),
        (BlueStored, ErrorCode.NOT_COORDINATOR),
    ]
    assert kinds.tombstones(17) == [CoordinatorRecord(b"17", None)]  # type: ignore[arg-type]


def test_what_all_kinds_answer_becomes_one_outcome() -> None:
    """Replies of all, and records as they are."""
    replying = Outcome()
    replying.reply(1, "moved")
    record = CoordinatorRecord(b"key", None)
    joined = join_outcomes([replying, Outcome(), Outcome(records=[record], replay=True)])
    assert (joined.records, joined.replay) == ([record], True)
    assert joined.replies == [(1, "moved")]
