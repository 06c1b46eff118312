"""The kinds of group in one shard, and which of them a record, a deadline or a follow-up is for.

A kind is made when its first group or request comes: a broker may have thousands of shards, of
which most have groups of few kinds, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from kraftrio.broker.coordinator.deadlines import DeadlineKey, DeadlineQueue
from kraftrio.broker.coordinator.groups.group import Group, GroupRegistry
from kraftrio.broker.coordinator.groups.kind import GroupKind
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import GroupRecordKey

K = TypeVar("K", bound=GroupKind)

MakeKind: TypeAlias = Callable[[GroupRegistry, DeadlineQueue], GroupKind]
"""Makes a kind for the shard that has these groups and deadlines."""


class KindDirectory:
    """Says what belongs to which kind, for all shards; each key has one kind.

    Attributes:
        makers: all kinds, by their classes.
        by_group: the kind that a class of groups belongs to.
        by_key: the same for a class of record keys.
        by_deadline: the same for the first item of a deadline's key.
        by_follow_up: the same for a class of follow-ups.
    """

    __slots__ = ("by_deadline", "by_follow_up", "by_group", "by_key", "makers")

    def __init__(self, makers: Mapping[type[GroupKind], MakeKind]) -> None:
        self.makers = makers
        self.by_group = {kind.group_type: kind for kind in makers}
        self.by_key = {key: kind for kind in makers for key in kind.record_keys}
        self.by_deadline = {name: kind for kind in makers for name in kind.deadline_kinds}
        self.by_follow_up = {one: kind for kind in makers for one in kind.follow_ups}


class KindTable:
    """The kinds of one shard; see the module. Those that were made are iterated over."""

    __slots__ = ("_deadlines", "_directory", "_made", "_registry")

    def __init__(
        self, directory: KindDirectory, registry: GroupRegistry, deadlines: DeadlineQueue
    ) -> None:
        self._directory = directory
        self._registry = registry
        self._deadlines = deadlines
        self._made: dict[type[GroupKind], Any] = {}  # each by its own class

    def __iter__(self) -> Iterator[GroupKind]:
        return iter(tuple(self._made.values()))

    def of(self, kind: type[K]) -> K:
        """Return the kind of a class, made now if need be."""
        made: Any = self._made.get(kind)
        if made is None:
            made = self._made[kind] = self._directory.makers[kind](self._registry, self._deadlines)
        found: K = made
        return found

    def made(self, kind: type[K]) -> K | None:
        """Return the kind of a class, unless the shard has not needed it yet."""
        made: K | None = self._made.get(kind)
        return made

    def replay(self, key: GroupRecordKey, value: Any, now: Now) -> None:
        """Apply a record of a group; one of a kind that is not served is passed over."""
        kind = self._directory.by_key.get(type(key))
        if kind is not None:
            self.of(kind).replay(key, value, now)

    def on_deadline(self, key: DeadlineKey, now: Now) -> Outcome:
        """Act on one deadline that has come."""
        return self.of(self._directory.by_deadline[key[0]]).on_deadline(key, now)

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """Go on after records were committed, or could not be."""
        kind = self._directory.by_follow_up[type(follow_up)]
        return self.of(kind).on_append_done(follow_up, error, now)

    def tombstones(self, group: Group) -> list[CoordinatorRecord]:
        """Give the records that remove a group."""
        return self.of(self._directory.by_group[type(group)]).tombstones(group)


def join_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """Join the outcomes of all kinds into one: records that need no follow-up, and replies."""
    joined = Outcome()
    for outcome in outcomes:
        assert outcome.follow_up is None
        assert not outcome.records or not joined.records or outcome.replay == joined.replay
        joined.records += outcome.records
        joined.replies += outcome.replies
        joined.events += outcome.events
        joined.replay = joined.replay or outcome.replay
    return joined
