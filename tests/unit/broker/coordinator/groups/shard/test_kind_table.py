"""Which kind of group a record, a deadline or a follow-up goes to, and when a kind is made."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, TypeAlias

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.group import GroupRegistry
from kraftrio.broker.coordinator.groups.shard.kind_table import (
    KindDirectory,
    KindTable,
    join_outcomes,
)
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupRecordKey,
    ShareGroupMetadataKey,
)
from kraftrio.wire.primitives import Buffer

NOW = Now(0.0, 0)

Keys: TypeAlias = Collection[type[GroupRecordKey]]
FollowUps: TypeAlias = Collection[type[FollowUp]]


class RedStored(FollowUp):
    """Of the kind red."""


class BlueStored(FollowUp):
    """Of the kind blue."""


class Kind:
    """A kind of group that notes what it is asked."""

    group_type: ClassVar[type[Any]]
    record_keys: ClassVar[Keys]
    deadline_kinds: ClassVar[Collection[str]]
    follow_ups: ClassVar[FollowUps]

    def __init__(self, _registry: GroupRegistry, _deadlines: DeadlineQueue) -> None:
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


class Red(Kind):
    """Its groups are numbers."""

    group_type: ClassVar[type[Any]] = int
    record_keys: ClassVar[Keys] = (GroupMetadataKey,)
    deadline_kinds: ClassVar[Collection[str]] = ("red",)
    follow_ups: ClassVar[FollowUps] = (RedStored,)


class Blue(Kind):
    """Its groups are texts."""

    group_type: ClassVar[type[Any]] = str
    record_keys: ClassVar[Keys] = (ConsumerGroupMetadataKey,)
    deadline_kinds: ClassVar[Collection[str]] = ("blue",)
    follow_ups: ClassVar[FollowUps] = (BlueStored,)


def new_table() -> KindTable:
    return KindTable(KindDirectory({Red: Red, Blue: Blue}), GroupRegistry(), DeadlineQueue())


def test_each_kind_gets_what_is_its_own() -> None:
    """Groups are told apart by their class; types of records that nobody serves are passed over."""
    kinds = new_table()
    kinds.replay(GroupMetadataKey(group="r"), b"value", NOW)
    kinds.replay(ConsumerGroupMetadataKey(group_id="b"), None, NOW)
    kinds.replay(ShareGroupMetadataKey(group_id="s"), b"value", NOW)
    kinds.on_deadline(("red", "group"), NOW)
    kinds.on_append_done(BlueStored(), ErrorCode.NOT_COORDINATOR, NOW)
    assert kinds.of(Red).asked == [(GroupMetadataKey(group="r"), b"value"), ("red", "group")]
    assert kinds.of(Blue).asked == [
        (ConsumerGroupMetadataKey(group_id="b"), None),
        (BlueStored, ErrorCode.NOT_COORDINATOR),
    ]
    assert kinds.tombstones(17) == [CoordinatorRecord(b"17", None)]  # type: ignore[arg-type]


def test_a_kind_is_made_when_it_is_needed_first() -> None:
    """By a record, or by a request for it; it stays the same one."""
    kinds = new_table()
    assert list(kinds) == []
    assert kinds.made(Red) is None
    kinds.replay(ShareGroupMetadataKey(group_id="s"), b"value", NOW)
    assert list(kinds) == []
    kinds.replay(GroupMetadataKey(group="r"), b"value", NOW)
    red = kinds.made(Red)
    assert red is not None
    assert kinds.of(Red) is red
    assert list(kinds) == [red]
    blue = kinds.of(Blue)
    assert list(kinds) == [red, blue]


def test_what_all_kinds_answer_becomes_one_outcome() -> None:
    """Replies of all, and records as they are."""
    replying = Outcome()
    replying.reply(1, "moved")
    record = CoordinatorRecord(b"key", None)
    joined = join_outcomes([replying, Outcome(), Outcome(records=[record], replay=True)])
    assert (joined.records, joined.replay) == ([record], True)
    assert joined.replies == [(1, "moved")]
