"""Which partitions the members of a consumer group have, and in which member epoch.

A partition in here belongs to a member, which may still have to give it up: nobody else gets
it. An entry goes with the member in the epoch that it was made for, so that a later owner's entry
outlives the records of the former one.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember

FREE = -1


class PartitionEpochs:
    """See the module."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[bytes, dict[int, int]] = {}

    def get(self, topic_id: bytes, partition: int) -> int:
        """The member epoch of a partition's owner; -1 if it is free."""
        return self._epochs.get(topic_id, {}).get(partition, FREE)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member has a partition, or is still giving it up."""
        return partition in self._epochs.get(topic_id, {})

    def replace(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        """Note what a member has in the place of what it had."""
        if (
            former is not None
            and member is not None
            and former.member_epoch == member.member_epoch
            and former.assigned is member.assigned
            and former.pending_revocation is member.pending_revocation
        ):
            return
        if former is not None:
            self._remove(former)
        if member is not None:
            self._add(member)

    def _remove(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, indexes in partitions.items():
                epochs = self._epochs.get(topic_id)
                if epochs is None:
                    continue
                for index in indexes:
                    if epochs.get(index) == member.member_epoch:
                        del epochs[index]
                if not epochs:
                    del self._epochs[topic_id]

    def _add(self, member: ConsumerMember) -> None:
        epoch = member.member_epoch
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, indexes in partitions.items():
                if not indexes:
                    continue
                epochs = self._epochs.setdefault(topic_id, {})
                for index in indexes:
                    epochs[index] = max(epoch, epochs.get(index, epoch))
