"""Which commits and fetches of offsets are allowed in a group whose partitions the broker assigns.

Members say their epoch; others may commit while there are none, and always fetch. Called
by consumer groups and streams groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from kraftrio.wire.errors import ErrorCode

_MEMBER_EPOCH_VERSION = 9  # of OffsetCommit


class Member(Protocol):
    """A member, as far as its offsets are concerned."""

    @property
    def member_epoch(self) -> int: ...

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol, to which an epoch is a generation."""


M = TypeVar("M", bound=Member)


def check_commit(
    members: Mapping[str, M],
    member_id: str,
    group_instance_id: str | None,
    member_epoch: int,
    assigned_in: Callable[[M, bytes, int], int | None],
    *,
    transactional: bool,
    api_version: int,
    partitions: Iterable[tuple[bytes, int]],
) -> ErrorCode:
    """Whether a commit may be made: by a member, or by hand while there are none.

    A member may be in an older epoch than its current one, which it has not got yet, if it
    had all of the partitions in that epoch already, whether it keeps them or is giving them up.

    Args:
        members: by member id.
        assigned_in: the epoch in which a member got a partition (topic id, index) that it still
            has; None: it has not.
        transactional: by a producer, which need not say for which member.
        api_version: of OffsetCommit.
        partitions: that the offsets are of.
    """
    if member_epoch < 0 and not members:
        return ErrorCode.NONE
    if transactional and member_epoch < 0 and not member_id and group_instance_id is None:
        return ErrorCode.NONE
    member = members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and not member.is_classic and api_version < _MEMBER_EPOCH_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    if member_epoch == member.member_epoch:
        return ErrorCode.NONE
    if member_epoch < member.member_epoch:
        epochs = (assigned_in(member, *partition) for partition in partitions)
        if all(epoch is not None and epoch <= member_epoch for epoch in epochs):
            return ErrorCode.NONE
    # A producer takes an unknown code for fatal, and knows only that of generations.
    return ErrorCode.ILLEGAL_GENERATION if transactional else _stale(member)


def check_fetch(members: Mapping[str, M], member_id: str | None, member_epoch: int) -> ErrorCode:
    """Whether offsets may be fetched, by a member of an epoch or by hand."""
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_epoch == member.member_epoch else _stale(member)


def _stale(member: Member) -> ErrorCode:
    """The error for a member whose epoch is not the current one."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
