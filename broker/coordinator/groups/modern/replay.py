"""What a record changes of a group whose partitions the broker assigns, by rules in a table.

Each kind has a table: for the key of each of its records the class of the value, what storing it
changes, and what its tombstone does. A group begins with its first record, whichever that is, since
compaction leaves them in any order; tombstones of what is not there are passed over. What all kinds
have in common is here: epochs, members, the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from kraftrio.broker.coordinator.groups.modern.target_assignment import (
    DELETED_EPOCH,
    TargetAssignment,
)
from kraftrio.broker.coordinator.outcome import Now
from kraftrio.wire.messages.group_records.keys import GroupRecordKey
from kraftrio.wire.messages.group_records.values import decode_value

_ENCODED: Final = (bytes, bytearray, memoryview)

M = TypeVar("M")
V = TypeVar("V")

Store: TypeAlias = Callable[[Any, Any, Any, Any, Now], None]
"""Takes over a value; is given the kind, the group, the key, the value, the time."""

Drop: TypeAlias = Callable[[Any, Any, Any], None]
"""Acts on a tombstone; is given the kind, the group, the key."""


class Rule(NamedTuple):
    """For the records of one type.

    Attributes:
        value: the class of the value; None: that there is one says it all.
    """

    value: type[Any] | None
    store: Store
    drop: Drop


class ReplayedKind(Protocol):
    """A kind of group, as far as its records are concerned."""

    rules: ClassVar[Mapping[type[GroupRecordKey], Rule]]

    def group_of(self, group_id: str) -> Any:
        """The group with an id; None if there is none."""

    def make_group(self, group_id: str) -> Any:
        """Return the group with an id, a new one if there is none.

        Raises:
            RemoteProtocolError: a group of another kind has the id, and stays.
        """


def replay(kind: ReplayedKind, key: Any, value: Any, now: Now) -> None:
    """Apply one record.

    Args:
        value: its bytes, the message that they were encoded from, or what is made of that; None: a
            tombstone.

    Raises:
        RemoteProtocolError: the value cannot be read, or the group is of another kind.
    """
    rule = kind.rules[type(key)]
    if value is not None:
        if isinstance(value, _ENCODED) and rule.value is not None:
            value = decode_value(rule.value, value)
        rule.store(kind, kind.make_group(key.group_id), key, value, now)
        return
    group = kind.group_of(key.group_id)
    if group is not None:
        rule.drop(kind, group, key)


class _Group(Protocol):
    epoch: int
    metadata_hash: int
    target: TargetAssignment[Any]


def store_epoch(_kind: object, group: _Group, _key: object, value: Any, _now: Now) -> None:
    """The epoch of a group, and the hash of its topics."""
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def store_target_epoch(_kind: object, group: _Group, _key: object, value: Any, _now: Now) -> None:
    """The epoch that the target is for, and when it was computed."""
    target = group.target
    target.epoch, target.timestamp_ms = value.assignment_epoch, value.assignment_timestamp


def drop_target_epoch(_kind: object, group: _Group, _key: object) -> None:
    """The target is not for any epoch."""
    group.target.epoch, group.target.timestamp_ms = DELETED_EPOCH, 0


def drop_target(_kind: object, group: _Group, key: Any) -> None:
    """A member is to have nothing."""
    group.target.members.pop(key.member_id, None)


def reset_member(_kind: object, group: Any, key: Any) -> None:
    """A member has nothing."""
    group.reset(key.member_id)


def storing_target(read: Callable[[V], object]) -> Store:
    """A member's part of the target, as it is read."""

    def store(_kind: object, group: _Group, key: Any, value: V, _now: Now) -> None:
        group.target.members[key.member_id] = read(value)

    return store


def storing_member(member_type: type[M], changed: Callable[[M, V], M]) -> Store:
    """What a member is, or has: the former one, changed by the value.

    Who made the record may have the changed one, all of it, at hand.

    Args:
        member_type: makes a member of its id alone.
    """
    new: Callable[[str], M] = member_type

    def store(_kind: object, group: Any, key: Any, value: Any, _now: Now) -> None:
        if isinstance(value, member_type):
            group.put(value)
        else:
            group.put(changed(group.members.get(key.member_id) or new(key.member_id), value))

    return store
