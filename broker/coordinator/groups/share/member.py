"""One member of a share group: who it is, what it subscribes to, and what it has."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.groups.modern.member_state import JOIN_EPOCH, MemberState
from kraftrio.wire.errors import ErrorCode, KafkaError

_NO_EPOCH = -1
_NO_PARTITIONS: Final[MemberAssignment] = {}


class ShareMember(NamedTuple):
    """See the module; never changed in place.

    Attributes:
        assigned: partitions by topic id; others may have them, too.
    """

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = _NO_EPOCH
    state: MemberState = MemberState.STABLE
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: MemberAssignment = _NO_PARTITIONS

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has what the target assignment of an epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def check_epoch(self, member_epoch: int) -> None:
        """Raise FENCED_MEMBER_EPOCH unless a request may come from the member as it is.

        The previous epoch is accepted: the answer with this one may have been lost.
        """
        if member_epoch in (JOIN_EPOCH, self.member_epoch):
            return
        known = (
            f"({member_epoch}) than the one known by the group coordinator ({self.member_epoch})"
        )
        if member_epoch > self.member_epoch:
            reason = f"The share group member has a greater member epoch {known}. "
        elif member_epoch != self.previous_member_epoch:
            reason = (
                f"The share group member has a smaller member epoch {known}, and it does not match "
                f"the previous member epoch ({self.previous_member_epoch}). "
            )
        else:
            return
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            reason + "The member must abandon all its partitions and rejoin.",
        )

    def reconciled(
        self,
        target_epoch: int,
        target: MemberAssignment,
        subscribed_topic_ids: frozenset[bytes],
        *,
        has_subscription_changed: bool,
    ) -> ShareMember:
        """The member with its part of the target, as far as it subscribes to the topics.

        It gets the epoch of the target at once: nobody has to give up partitions for it.
        """
        if target_epoch == self.member_epoch and not has_subscription_changed:
            return self
        assigned = {
            topic_id: partitions
            for topic_id, partitions in target.items()
            if topic_id in subscribed_topic_ids
        }
        if target_epoch == self.member_epoch:
            return self._replace(assigned=assigned)
        return self._replace(
            state=MemberState.STABLE,
            assigned=assigned,
            member_epoch=target_epoch,
            previous_member_epoch=self.member_epoch,
        )
