"""One member of a consumer group, as its records have it; it never changes, it is replaced.

A member of the classic protocol (KIP-848: both kinds may be in one group) has `classic`: its
session timeout and what it sent with JoinGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.groups.modern.member_state import MemberState
from kraftrio.wire.messages.groups import ConsumerGroupHeartbeatTopicPartitions

Partitions: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""What a member has: by topic id the partitions, each with the epoch in which the member got it."""

NO_PARTITIONS: Final[Partitions] = {}

Owned: TypeAlias = Iterable[ConsumerGroupHeartbeatTopicPartitions]
"""Partitions as a request names them."""


class ClassicMetadata(NamedTuple):
    """What a member of the classic protocol joined with; protocols by preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(NamedTuple):
    """See the module.

    Attributes:
        member_epoch: the epoch of the target assignment that the member works on; 0: joins;
            -2: a static member that left and is to come back.
        previous_member_epoch: the one before, in case the member has not got the newer one.
        subscribed_topic_regex: "" (or, in records of others, None) without one.
        assigned: what the member has, or gets with its next heartbeat.
        pending_revocation: what it has to give up first.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS
    classic: ClassicMetadata | None = None

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has what the target of an epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def moved_to(
        self, state: MemberState, member_epoch: int, assigned: Partitions
    ) -> ConsumerMember:
        """Return the member in a state of an epoch, with nothing to give up."""
        return self._replace(
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=NO_PARTITIONS,
        )

    def has_at_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the member got a partition that it has or gives up; None: neither."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def owns_any(owned: Owned | None, partitions: Partitions) -> bool:
    """Whether a member that says what it owns (None: it does not say) may own some of these."""
    if owned is None:
        return True
    return any(
        index in partitions.get(topic.topic_id, {}) for topic in owned for index in topic.partitions
    )


def owns_only(owned: Owned | None, partitions: Partitions) -> bool:
    """Whether a member says what it owns, and that is nothing but these."""
    if owned is None:
        return False
    return all(
        index in partitions.get(topic.topic_id, {}) for topic in owned for index in topic.partitions
    ) and all(topic.topic_id in partitions for topic in owned)


def with_epoch(assignment: MemberAssignment, epoch: int) -> Partitions:
    """Return an assignment as what a member got in an epoch."""
    return {topic: dict.fromkeys(partitions, epoch) for topic, partitions in assignment.items()}
