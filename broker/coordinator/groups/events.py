"""What happens to groups, for the log and for figures: joins, departures, rebalances.

Owns: `group_events`, which reads it from what a shard decides. Cores of the classic protocol name
their events themselves (`Outcome.events`), since their records have no reasons; groups whose
partitions the broker assigns say everything by their records:
- a member's metadata, that was no member before: it joined; a tombstone of it: it left, or its
  session ended, when nobody asked for it;
- an epoch of the target assignment: a rebalance, with what it is for, as far as records of the same
  decision show it.

Called by the coordinator's runtime, before the records are appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from kraftrio.broker.coordinator.groups.group import Group
from kraftrio.broker.coordinator.outcome import CoordinatorEvent, Outcome
from kraftrio.wire.messages.group_records.keys import (
    KEYS_BY_RECORD_TYPE,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMetadataKey,
    decode_key,
)

CLASSIC: Final = "classic"
MEMBER_JOINED: Final = "member joined"
MEMBER_LEFT: Final = "member left"
MEMBER_EXPIRED: Final = "member expired"
REBALANCED: Final = "group rebalanced"

_MEMBERS: Final = {
    ConsumerGroupMemberMetadataKey: "consumer",
    ShareGroupMemberMetadataKey: "share",
    StreamsGroupMemberMetadataKey: "streams",
}
_EPOCHS: Final = (ConsumerGroupMetadataKey, ShareGroupMetadataKey, StreamsGroupMetadataKey)
_TARGETS = {
    ConsumerGroupTargetAssignmentMetadataKey: "consumer",
    ShareGroupTargetAssignmentMetadataKey: "share",
    StreamsGroupTargetAssignmentMetadataKey: "streams",
}
# How the keys of these begin: others, of offsets above all, are passed over unread.
_READ_TYPES = frozenset(
    record_type
    for record_type, kind in KEYS_BY_RECORD_TYPE.items()
    if kind in _MEMBERS or kind in _EPOCHS or kind in _TARGETS
)
_MOST_READ = 1000


class KnowsGroups(Protocol):
    """The groups of a shard (`group.GroupRegistry`)."""

    def get(self, group_id: str) -> Group | None: ...


def group_events(
    groups: KnowsGroups, outcome: Outcome, *, by_deadline: bool
) -> Iterator[CoordinatorEvent]:
    """Yield the events that an outcome means for groups.

    Args:
        by_deadline: nobody asked for it, a time was up.
    """
    yield from outcome.events
    joined = left = 0
    has_epoch = False
    for record in outcome.records[:_MOST_READ]:
        if int.from_bytes(record.key[:2], "big") not in _READ_TYPES:
            continue
        key: Any = record.messages.key if record.messages else decode_key(record.key)
        if type(key) in _MEMBERS:
            kind, group = _MEMBERS[type(key)], groups.get(key.group_id)
            is_member = group is not None and group.has_member(key.member_id)
            fields = {"group": key.group_id, "type": kind, "member": key.member_id}
            if record.value is None and is_member:
                left += 1
                yield CoordinatorEvent(MEMBER_EXPIRED if by_deadline else MEMBER_LEFT, fields)
            elif record.value is not None and not is_member:
                joined += 1
                yield CoordinatorEvent(MEMBER_JOINED, fields)
        elif isinstance(key, _EPOCHS):
            has_epoch = record.value is not None
        elif type(key) in _TARGETS and record.value is not None:
            group = groups.get(key.group_id)
            yield CoordinatorEvent(
                REBALANCED,
                {
                    "group": key.group_id,
                    "type": _TARGETS[type(key)],
                    "reason": _reason(joined, left, has_epoch=has_epoch),
                    "members": (0 if group is None else group.member_count) + joined - left,
                },
            )


def _reason(joined: int, left: int, *, has_epoch: bool) -> str:
    if joined:
        return "a member joined"
    if left:
        return "a member left"
    return "subscriptions or topics changed" if has_epoch else "members or topics had changed"
