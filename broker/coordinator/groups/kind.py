"""What the shard asks of one kind of group: classic, consumer (KIP-848), share or streams.

The shard holds the groups of all kinds in one registry, and a table of the kinds. It hands each
record, deadline and follow-up to the kind whose class says that it is its own, and makes that kind
if it is the first one. Requests do not go through that table: a handler asks the kind that serves
them (`shard.classic.join`).

A kind's state is what its records make of it. A request makes records, and the shard replays them
once they are appended, as it does when it loads; so a failed append leaves nothing behind, and the
state after a failover is the one before. (The classic kind alone keeps soft state that its records
describe.)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Protocol

from kraftrio.broker.coordinator.deadlines import DeadlineKey
from kraftrio.broker.coordinator.groups.group import Group
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import GroupRecordKey


class GroupKind(Protocol):
    """See the module."""

    group_type: ClassVar[type[Group]]
    """The class of this kind's groups."""

    record_keys: ClassVar[Collection[type[GroupRecordKey]]]
    """The keys of the records that are this kind's."""

    deadline_kinds: ClassVar[Collection[str]]
    """The first items of this kind's keys in the shard's deadlines."""

    follow_ups: ClassVar[Collection[type[FollowUp]]]
    """The follow-ups of this kind's outcomes."""

    def replay(self, key: Any, value: Any, now: Now) -> None:
        """Apply one record, whose key was read already; a null value is a tombstone.

        Args:
            value: its bytes, or the message that they were encoded from.

        Raises:
            RemoteProtocolError: the value cannot be read.
        """

    def on_loaded(self, now: Now) -> Outcome:
        """Everything was replayed: start the sessions of the members that there are."""

    def unload(self, now: Now) -> Outcome:
        """This broker stops coordinating: answer the parked requests."""

    def on_deadline(self, key: DeadlineKey, now: Now) -> Outcome:
        """Act on one deadline that has come."""

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        """The records of an outcome with this follow-up are committed, or failed."""

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        """Topics were made, deleted, or have other partitions, or replicas in other racks.

        The metadata cache knows them as they are now.
        """

    def tombstones(self, group: Any) -> list[CoordinatorRecord]:
        """Give the records that remove a group, one of this kind's, which may be deleted."""
