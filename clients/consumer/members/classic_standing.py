"""Who a member of the classic protocol is for commits: all of them are those of its generation.

Sans-IO. Called by: `classic_member`, `commits`, `subscription`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from kraftrio.clients.consumer.membership.membership import Membership
from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.group_offsets import GroupMetadata
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition


class ClassicStanding:
    """See the module, and the port `Standing`."""

    # Committed offsets are asked for as no member: the coordinator need not know it for that.
    reader = None

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave out; empty before that."""
        return self._membership.member_id

    @property
    def failure(self) -> KafkaClientError | None:
        """What has ended the membership for good."""
        return self._membership.failure

    @property
    def metadata(self) -> GroupMetadata:
        """Who the member is at the moment."""
        return self._membership.metadata

    @property
    def owner(self) -> GroupMetadata | None:
        """As which member it was given what it owns."""
        return self._membership.owner

    @property
    def can_commit(self) -> bool:
        """Whether the coordinator takes commits from the member for what it owns."""
        return self._membership.can_commit

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member is on its way to another assignment, or ought to be."""
        return self._membership.is_rebalancing

    def tenure(self, partitions: Iterable[TopicPartition]) -> Hashable:
        """Return what stays equal as long as a commit is the member's to make: its generation."""
        return self._membership.metadata

    def refused(self, code: ErrorCode) -> None:
        """A commit was refused because of who sent it."""
        self._membership.refused(code)
