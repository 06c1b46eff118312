"""A consumer group: its members, what they subscribe to and have, and the target (KIP-848).

Everything but `refresh` is what the group's records say; it changes by them alone (`replay`). A
request looks at the group and makes records. The state follows from the rest: it is not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Final

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember
from kraftrio.broker.coordinator.groups.consumer.state.partition_epochs import PartitionEpochs
from kraftrio.broker.coordinator.groups.consumer.state.subscriptions import Subscriptions
from kraftrio.broker.coordinator.groups.modern import offset_checks
from kraftrio.broker.coordinator.groups.modern.kept_names import KeptNames
from kraftrio.broker.coordinator.groups.modern.member_state import LEAVE_EPOCH, MemberState
from kraftrio.broker.coordinator.groups.modern.metadata_refresh import MetadataRefresh
from kraftrio.broker.coordinator.groups.modern.target_assignment import NOTHING, TargetAssignment
from kraftrio.wire.errors import ErrorCode, KafkaError

CONSUMER_GROUP_TYPE: Final = "consumer"
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_FIRST_EPOCH = 1  # Kafka 4.3's: the first member's join makes it 2


class ConsumerGroupState(Enum):
    """The states of a consumer group; values are the names clients see.

    EMPTY: no members; may hold offsets.
    ASSIGNING: the target assignment is older than the group epoch.
    RECONCILING: some members do not have their part of the target yet.
    STABLE: all have.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """See the module.

    Attributes:
        epoch: of the members and what they subscribe to; each change makes it greater.
        metadata_hash: of the topics that they subscribe to, as of that epoch.
        target: what they are to have.
        static_members: member ids by instance id.
        classic_member_count: members that use the classic protocol.
        has_partition_metadata: a record of Kafka 4.0 or older is still to be deleted.
    """

    group_type: Final = CONSUMER_GROUP_TYPE
    protocol_type: Final = CONSUMER_PROTOCOL_TYPE

    __slots__ = (
        "_assignors",
        "_classic_protocols",
        "_kept_names",
        "classic_member_count",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "partition_epochs",
        "refresh",
        "static_members",
        "subscriptions",
        "target",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.subscriptions = Subscriptions()
        self.partition_epochs = PartitionEpochs()
        self.target = TargetAssignment(NOTHING)
        self.refresh = MetadataRefresh()
        self.classic_member_count = 0
        self.has_partition_metadata = False
        self._assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        self._kept_names = KeptNames()

    # --- state ---

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target.epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target.epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        """The state as clients see it."""
        return self.state.value

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_unused(self) -> bool:
        """Whether the group may go once it holds no offsets."""
        return not self.members

    # --- members ---

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with an instance id."""
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerMember) -> MemberAssignment:
        """What a member is to have; a static one takes over that of the member it replaces."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id, "")
        return self.target.of(member_id)

    def preferred_assignor(
        self, former: ConsumerMember | None, member: ConsumerMember | None
    ) -> str | None:
        """The assignor that most members ask for, with one member in another's place."""
        counts = self._assignors.copy()
        if former is not None and former.server_assignor is not None:
            counts[former.server_assignor] -= 1
        if member is not None and member.server_assignor is not None:
            counts[member.server_assignor] += 1
        # Of two that equally many ask for, the one that comes first in Kafka's map: uniform.
        name = max(counts, key=lambda one: (counts[one], one), default=None)
        return name if name is not None and counts[name] > 0 else None

    def supports_classic(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """Whether a classic member with these protocols could be with the others of its kind."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        names = list(protocol_names)
        if not self.members:
            return bool(names)
        wanted = self.classic_member_count
        return any(self._classic_protocols[name] == wanted for name in names)

    def is_waiting_for_partitions(self, member: ConsumerMember) -> bool:
        """Whether partitions of a member's target still belong to others."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            index not in member.assigned.get(topic_id, {})
            and self.partition_epochs.is_owned(topic_id, index)
            for topic_id, partitions in self.target.of(member.member_id).items()
            for index in partitions
        )

    # --- changes by records ---

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or set one in the place of what it was."""
        names = self._kept_names.of(member.subscribed_topic_names)
        if names is not member.subscribed_topic_names:
            member = member._replace(subscribed_topic_names=names)
        former = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._count(former, member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Drop a member, if there is one."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, None)
        if (
            member.instance_id is not None
            and self.static_members.get(member.instance_id) == member_id
        ):
            del self.static_members[member.instance_id]

    def reset(self, member_id: str) -> None:
        """Take away what a member has, since that was deleted."""
        member = self.members.get(member_id)
        if member is not None:
            fresh = ConsumerMember(member_id)
            self.put(
                member._replace(
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=fresh.assigned,
                    pending_revocation=fresh.pending_revocation,
                )
            )

    def _count(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        self.subscriptions.replace(former, member)
        self.partition_epochs.replace(former, member)
        for one, step in ((former, -1), (member, 1)):
            if one is None:
                continue
            if one.server_assignor is not None:
                _add(self._assignors, one.server_assignor, step)
            if one.classic is not None:
                self.classic_member_count += step
                for name, _ in one.classic.protocols:
                    _add(self._classic_protocols, name, step)

    # --- offsets ---

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
        return offset_checks.check_commit(
            self.members,
            member_id,
            group_instance_id,
            generation_id,
            ConsumerMember.has_at_epoch,
            transactional=transactional,
            api_version=api_version,
            partitions=partitions,
        )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return offset_checks.check_fetch(self.members, member_id, member_epoch)

    def check_delete(self) -> ErrorCode:
        """Only a group without members may be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """Which topics the members read is always known."""
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic."""
        return self.subscriptions.has_topic(topic)

    def may_expire_offsets(self, topic: str) -> bool:
        """Offsets that no member reads expire."""
        return not self.is_subscribed_to(topic)

    def retention_start_ms(self, commit_timestamp_ms: int) -> int:
        """Retention counts from the commit on."""
        return commit_timestamp_ms

    def __repr__(self) -> str:
        return (
            f"<ConsumerGroup {self.group_id!r} {self.state_name} epoch={self.epoch}"
            f" assignment_epoch={self.target.epoch} members={list(self.members)}>"
        )


def _add(counts: Counter[str], name: str, step: int) -> None:
    counts[name] += step
    if not counts[name]:
        del counts[name]
