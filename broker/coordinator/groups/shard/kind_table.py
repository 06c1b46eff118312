"""The kinds of group in one shard, and which of them a record, a deadline or a follow-up is for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kraftrio.broker.coordinator.deadlines import DeadlineKey
from kraftrio.broker.coordinator.groups.group import Group
from kraftrio.broker.coordinator.groups.kind import GroupKind
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import GroupRecordKey
from kraftrio.wire.primitives import Buffer


class KindTable:
    """See the module. Each key, deadline and follow-up belongs to one kind."""

    __slots__ = ("_by_deadline", "_by_follow_up", "_by_group", "_by_key", "_kinds")

    def __init__(self, kinds: Sequence[GroupKind]) -> None:
        self._kinds = tuple(kinds)
        self._by_group = {kind.group_type: kind for kind in kinds}
        self._by_key = {key: kind for kind in kinds for key in kind.record_keys}
        self._by_deadline = {name: kind for kind in kinds for name in kind.deadline_kinds}
        self._by_follow_up = {one: kind for kind in kinds for one in kind.follow_ups}

    def __iter__(self) -> Iterator[GroupKind]:
        return iter(self._kinds)

    def replay(self, key: GroupRecordKey, value: Buffer | None, now: Now) -> None:
        """Apply a record of a group; one of a kind that is not served is passed over."""
        kind = self._by_key.get(type(key))
        if kind is not None:
            kind.replay(key, value, now)

    def on_deadline(self, key: DeadlineKey, now: Now) -> Outcome:
        """Act on one deadline that has come."""
        return self._by_deadline[key[0]].on_deadline(key, now)

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """Go on after records were committed, or could not be."""
        return self._by_follow_up[type(follow_up)].on_append_done(follow_up, error, now)

    def tombstones(self, group: Group) -> list[CoordinatorRecord]:
        """Give the records that remove a group."""
        return self._by_group[type(group)].tombstones(group)


def join_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """Make one of outcomes that all kinds gave: records that need no follow-up, and replies."""
    joined = Outcome()
    for outcome in outcomes:
        assert outcome.follow_up is None
        assert not outcome.records or not joined.records or outcome.replay == joined.replay
        joined.records += outcome.records
        joined.replies += outcome.replies
        joined.replay = joined.replay or outcome.replay
    return joined
