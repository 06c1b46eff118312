"""How a member comes to its part of the target assignment, one heartbeat after the other (KIP-848).

Rules:
1. Partitions that the target does not give a member are taken away first. It stays in its epoch,
   UNREVOKED_PARTITIONS, until it says that it owns none of them.
2. Only then it moves to the target's epoch, and gets those of its partitions that are free. While
   others are still held by their former owners it is in UNRELEASED_PARTITIONS.
3. With everything that the target gives it, it is STABLE.
4. A topic that the member does not subscribe to any more is taken away at once, whatever the target
   (which may be computed later) says.

A partition keeps the epoch in which the member got it: a commit from before that is a zombie's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.groups.consumer.state.member import (
    NO_PARTITIONS,
    ConsumerMember,
    Owned,
    Partitions,
    owns_any,
)
from kraftrio.broker.coordinator.groups.modern.member_state import MemberState
from kraftrio.wire.errors import ErrorCode, KafkaError


class ConsumerTarget(NamedTuple):
    """What a member is to have, and from which epoch on."""

    epoch: int
    assignment: MemberAssignment


def reconcile(
    member: ConsumerMember,
    target: ConsumerTarget,
    subscribed_topic_ids: Collection[bytes],
    owned: Owned | None,
    *,
    has_subscription_changed: bool,
    is_owned: Callable[[bytes, int], bool],
) -> ConsumerMember:
    """Return the member after its next step; the same one if there is none to make.

    Args:
        subscribed_topic_ids: existing topics that the member subscribes to.
        owned: what the member says that it owns; None: it did not say.
        is_owned: whether any member has a partition.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH, the member is in a state that is not known here.
    """
    step = _Step(member, target, subscribed_topic_ids, owned, is_owned)
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != target.epoch:
                return step.next_assignment(member.member_epoch)
            return step.without_unsubscribed() if has_subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not owns_any(owned, member.pending_revocation):
                return step.next_assignment(member.member_epoch)
            return step.without_unsubscribed() if has_subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            return step.next_assignment(member.member_epoch)
        case MemberState.UNKNOWN:
            if owned is None or any(True for _ in owned):
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. The member must abandon all "
                    "its partitions and rejoin.",
                )
            return step.next_assignment(target.epoch)


class _Step(NamedTuple):
    """One step of a member; see `reconcile`."""

    member: ConsumerMember
    target: ConsumerTarget
    subscribed_topic_ids: Collection[bytes]
    owned: Owned | None
    is_owned: Callable[[bytes, int], bool]

    def without_unsubscribed(self) -> ConsumerMember:
        """Take topics away that the member has just unsubscribed from (rule 4)."""
        member = self.member
        kept: dict[bytes, dict[int, int]] = {}
        revoked = {topic: dict(parts) for topic, parts in member.pending_revocation.items()}
        for topic_id, partitions in member.assigned.items():
            if topic_id in self.subscribed_topic_ids:
                kept[topic_id] = dict(partitions)
            else:
                revoked.setdefault(topic_id, {}).update(partitions)
        if len(kept) == len(member.assigned):
            return member
        if owns_any(self.owned, revoked):
            return self._revoking(member.member_epoch, kept, revoked)
        return member._replace(previous_member_epoch=member.member_epoch, assigned=kept)

    def next_assignment(self, member_epoch: int) -> ConsumerMember:
        """Take away what the target does not give; or else give what is free of it (rules 1-3)."""
        member, target = self.member, self.target
        kept: dict[bytes, dict[int, int]] = {}
        revoked: dict[bytes, dict[int, int]] = {}
        added: dict[bytes, list[int]] = {}
        has_unreleased = False
        for topic_id in dict.fromkeys((*target.assignment, *member.assigned)):
            wanted = target.assignment.get(topic_id, frozenset())
            if topic_id not in self.subscribed_topic_ids:
                wanted = frozenset()
            had = member.assigned.get(topic_id, {})
            for index, epoch in had.items():
                side = kept if index in wanted else revoked
                side.setdefault(topic_id, {})[index] = epoch
            given_up = member.pending_revocation.get(topic_id, {})
            for index in wanted:
                if index in had:
                    continue
                if self.is_owned(topic_id, index) and index not in given_up:
                    has_unreleased = True
                else:
                    added.setdefault(topic_id, []).append(index)
        if revoked and owns_any(self.owned, revoked):
            return self._revoking(member_epoch, kept, revoked)
        for topic_id, indexes in added.items():
            kept.setdefault(topic_id, {}).update(dict.fromkeys(indexes, target.epoch))
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return self._moved(state, kept)

    def _moved(self, state: MemberState, assigned: Partitions) -> ConsumerMember:
        """Move to the target's epoch; a step that changes nothing gives the member itself."""
        member = self.member
        if assigned == member.assigned:
            assigned = member.assigned
        moved = member.moved_to(state, self.target.epoch, assigned)
        return member if moved == member else moved

    def _revoking(self, member_epoch: int, kept: Partitions, revoked: Partitions) -> ConsumerMember:
        return self.member._replace(
            state=MemberState.UNREVOKED_PARTITIONS,
            member_epoch=member_epoch,
            previous_member_epoch=self.member.member_epoch,
            assigned=kept or NO_PARTITIONS,
            pending_revocation=revoked,
        )
