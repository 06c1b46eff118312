"""What a shard asks of a group of any kind, and the groups it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from kraftrio.wire.errors import ErrorCode, KafkaError

G = TypeVar("G")


class Group(Protocol):
    """A group, as far as offsets and administration need to know it."""

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> str:
        """The kind, as ListGroups names it."""

    @property
    def state_name(self) -> str:
        """The state, as ListGroups names it."""

    @property
    def protocol_type(self) -> str | None:
        """What the members use the group for (`consumer`, `connect`); None if it had none yet."""

    def has_member(self, member_id: str) -> bool: ...

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        transactional: bool = False,
        api_version: int = 0,
        partitions: Iterable[tuple[bytes, int]] = (),
    ) -> ErrorCode:
        """Whether offsets may be committed by a member of a generation (or member epoch).

        A commit by hand has neither; its generation is negative.

        Args:
            api_version: of OffsetCommit.
            partitions: that the offsets are of, by topic id.
        """

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether offsets may be fetched, by a member of an epoch or (None, negative) by hand."""

    def check_delete(self) -> ErrorCode:
        """Whether the group may be deleted now."""

    def check_offset_delete(self) -> ErrorCode:
        """Whether single offsets may be deleted now, of topics without subscribers."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic."""

    def may_expire_offsets(self, topic: str) -> bool:
        """Whether offsets of a topic expire, once they are old enough (KIP-211)."""

    def retention_start_ms(self, commit_timestamp_ms: int) -> int:
        """The wall time from which on the retention of an offset counts."""

    @property
    def member_count(self) -> int:
        """How many members it has."""

    @property
    def is_unused(self) -> bool:
        """Whether the group may go once it holds no offsets."""


class GroupRegistry:
    """The groups of one shard by id; an id belongs to one group, of one kind.

    Attributes:
        get: gives the group with an id, of whatever kind, or None.
    """

    __slots__ = ("_groups", "get")

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self.get: Callable[[str], Group | None] = self._groups.get

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def find(self, group_id: str, kind: type[G]) -> G | None:
        """The group with an id, if it is of a kind."""
        group = self._groups.get(group_id)
        return group if isinstance(group, kind) else None

    def require(self, group_id: str, kind: type[G], kind_name: str, *, missing: str = "Group") -> G:
        """The group with an id, of a kind, or what Kafka says where there is none.

        Args:
            kind_name: as in `group_type`.
            missing: what the message calls a group that is not there.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND.
        """
        group = self._groups.get(group_id)
        if isinstance(group, kind):
            return group
        reason = f"{missing} {group_id} not found."
        if group is not None:
            reason = f"Group {group_id} is not a {kind_name} group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, reason)

    def all_of(self, kind: type[G]) -> list[G]:
        """The groups of a kind."""
        return [group for group in self._groups.values() if isinstance(group, kind)]

    def add(self, group: Group) -> None:
        """Add a group; its id must be free."""
        assert group.group_id not in self._groups
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> None:
        """Drop a group, if there is one."""
        self._groups.pop(group_id, None)
