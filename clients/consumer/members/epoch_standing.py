"""Who a member of the consumer protocol is for commits: its epoch stands where a generation did.

The epoch changes with every rebalance, also of others, so it says nothing about what the member
owns: a commit is the member's to make as long as it has not given up the partitions (`tenure`).

Sans-IO. Called by: `epoch_member`, `commits`, `subscription`. KIP-848.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.group_offsets import NO_GENERATION, GroupMetadata
from kraftrio.clients.heartbeat_member.member import JOIN_EPOCH, HeartbeatMember
from kraftrio.clients.heartbeat_member.states import HeartbeatMemberState
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition


class EpochStanding:
    """See the module, and the port `Standing`."""

    def __init__(
        self, member: HeartbeatMember, group_id: str, group_instance_id: str | None
    ) -> None:
        self.member_id = member.member_id
        self._member = member
        self._group_id = group_id
        self._group_instance_id = group_instance_id

    @property
    def failure(self) -> KafkaClientError | None:
        """What has ended the membership for good."""
        return self._member.failure

    @property
    def metadata(self) -> GroupMetadata:
        """Who the member is at the moment."""
        member = self._member
        return self._as_of(member.member_epoch if member.can_commit else NO_GENERATION)

    @property
    def owner(self) -> GroupMetadata | None:
        """As which member it was given what it owns, also if it is fenced meanwhile."""
        epoch = self._member.last_epoch
        return None if epoch == JOIN_EPOCH else self._as_of(epoch)

    @property
    def reader(self) -> GroupMetadata | None:
        """As which member committed offsets are asked for; None while it is in no group."""
        return self.metadata if self._member.can_commit else None

    def _as_of(self, epoch: int) -> GroupMetadata:
        return GroupMetadata(self._group_id, epoch, self.member_id, self._group_instance_id)

    @property
    def can_commit(self) -> bool:
        """Whether the coordinator takes commits from the member for what it owns."""
        return self._member.can_commit

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member is on its way into the group, or back into it."""
        return self._member.state in (HeartbeatMemberState.JOINING, HeartbeatMemberState.FENCED)

    def tenure(self, partitions: Iterable[TopicPartition]) -> Hashable:
        """Return what stays equal as long as a commit of these partitions is the member's."""
        return self._member.tenure(partitions)

    def refused(self, code: ErrorCode) -> None:
        """A commit was refused because of who sent it: the next heartbeat says why."""
        self._member.pace.make_due()
