"""Groups that change their protocol while they are in use: classic to consumer and back (KIP-848).

Rules, Kafka's:
1. A member of the consumer protocol that joins a classic group makes it a consumer group, if
   `group.consumer.migration.policy` allows; its classic members stay, in the epoch that is their
   generation, with the partitions that they have. Parked requests are told to rejoin.
2. When the last member of the consumer protocol goes, and classic ones remain, the group becomes a
   classic one in the generation that is its epoch, and rebalances.
3. A group that has no members becomes one of the other kind without being asked.
4. The old group's tombstones and the new one's records are one batch: there is never half a group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from kraftrio.broker.coordinator.groups.assignors.spec import MemberAssignment
from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.broker.coordinator.groups.classic.records import group_record, group_tombstone
from kraftrio.broker.coordinator.groups.classic.roster import ClassicMember
from kraftrio.broker.coordinator.groups.consumer.parts import Parts
from kraftrio.broker.coordinator.groups.consumer.records import group_records, group_tombstones
from kraftrio.broker.coordinator.groups.consumer.state.group import (
    CONSUMER_GROUP_TYPE,
    CONSUMER_PROTOCOL_TYPE,
    ConsumerGroup,
)
from kraftrio.broker.coordinator.groups.consumer.state.member import (
    ClassicMetadata,
    ConsumerMember,
    with_epoch,
)
from kraftrio.broker.coordinator.outcome import Change, CoordinatorRecord, Now, Outcome
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.messages.group_records.classic import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    protocol_version,
)


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, eq=False)
class Downgrade(Change):
    """A consumer group becomes a classic one, with all the protocols of its members.

    Attributes:
        rebalances: whether it is to rebalance at once.
    """

    group: ClassicGroup
    rebalances: bool


class Conversions:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def policy(self) -> MigrationPolicy:
        """Which conversions of groups with members are allowed."""
        return MigrationPolicy(self._parts.properties.group_consumer_migration_policy.lower())

    # --- to a consumer group ---

    def group_for(
        self, group_id: str, records: list[CoordinatorRecord], *, may_be_new: bool
    ) -> ConsumerGroup:
        """Return the consumer group with an id: the shard's, or a new one, or a converted one.

        What makes a new one goes into the records; the shard has it once they are replayed.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND: there is no such group, or one that stays of another
                kind.
        """
        group = self._parts.registry.get(group_id)
        if group is None and may_be_new:
            return ConsumerGroup(group_id)
        if may_be_new and isinstance(group, ClassicGroup):
            records.append(group_tombstone(group_id))
            if group.is_in(GroupState.EMPTY):
                return ConsumerGroup(group_id)
            self._check_upgrade(group)
            converted = self._converted(group)
            records += group_records(converted)
            return converted
        return self._parts.registry.require(
            group_id, ConsumerGroup, CONSUMER_GROUP_TYPE, missing="Consumer group"
        )

    def _check_upgrade(self, group: ClassicGroup) -> None:
        start = f"Cannot upgrade classic group {group.group_id} to consumer group because "
        if not self.policy.allows_upgrade:
            raise _not_found(start + "online upgrade is disabled.")
        if not group.uses_consumer_protocol:
            raise _not_found(start + "the group does not use the consumer embedded protocol.")
        if len(group.members) > self._parts.properties.group_consumer_max_size:
            raise _not_found(start + "the group size exceeds the consumer group maximum size.")

    def _converted(self, classic: ClassicGroup) -> ConsumerGroup:
        """Make the consumer group that a classic one becomes."""
        group = ConsumerGroup(classic.group_id)
        group.epoch = group.target.epoch = classic.generation_id
        protocol_name = classic.protocol_name
        if protocol_name is None or any(
            protocol_name not in dict(member.protocols) for member in classic.members.values()
        ):
            protocol_name = classic.roster.select_protocol()
        for classic_member in classic.members.values():
            member, assigned = self._member_of(classic, classic_member, protocol_name)
            group.target.members[member.member_id] = assigned
            group.put(member)
        group.metadata_hash = self._parts.hashes.of_group(group.subscriptions.topics())
        return group

    def _member_of(
        self, classic: ClassicGroup, member: ClassicMember, protocol_name: str
    ) -> tuple[ConsumerMember, MemberAssignment]:
        try:
            subscription = decode_subscription(member.metadata(protocol_name))
            assigned = self._assigned(classic, member)
        except RemoteProtocolError as error:
            raise _not_found(
                f"Cannot upgrade classic group {classic.group_id} to consumer group because the "
                "embedded consumer protocol is malformed."
            ) from error
        converted = ConsumerMember(
            member.member_id,
            member_epoch=classic.generation_id,
            previous_member_epoch=classic.generation_id,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            assigned=with_epoch(assigned, classic.generation_id),
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
        return converted, assigned

    def _assigned(self, classic: ClassicGroup, member: ClassicMember) -> MemberAssignment:
        if not member.assignment:
            return {}
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise _not_found(
                f"Cannot upgrade classic group {classic.group_id} to consumer group because an "
                "unsupported custom assignor is in use. Please refer to the documentation or "
                "switch to a default assignor before re-attempting the upgrade."
            )
        return {
            topic.topic_id: frozenset(named.partitions)
            for named in assignment.assigned_partitions
            if (topic := self._parts.metadata.topic(named.topic)) is not None
        }

    # --- to a classic group ---

    def may_downgrade_without(
        self, group: ConsumerGroup, leaving: Collection[ConsumerMember]
    ) -> bool:
        """Whether a group becomes a classic one when some members go."""
        classic_leaving = sum(member.classic is not None for member in leaving)
        remaining = len(group.members) - len(leaving)
        return (
            0 < remaining == group.classic_member_count - classic_leaving
            and self.policy.allows_downgrade
            and remaining <= self._parts.properties.group_max_size
        )

    def may_downgrade_with(self, group: ConsumerGroup, replaced: ConsumerMember | None) -> bool:
        """Whether a group becomes a classic one when a classic member replaces a member."""
        return (
            replaced is not None
            and replaced.classic is None
            and group.classic_member_count == len(group.members) - 1
            and self.policy.allows_downgrade
            and len(group.members) <= self._parts.properties.group_max_size
        )

    def downgrade(
        self,
        group: ConsumerGroup,
        now: Now,
        *,
        leaving: Collection[ConsumerMember] = (),
        joining: ConsumerMember | None = None,
        rebalances: bool = True,
    ) -> Outcome:
        """Make the records and the change that turn a group into a classic one.

        Args:
            joining: a classic member that takes the place of the static one with its instance id;
                the records before these have replaced that one already.
        """
        replaced = None if joining is None else group.static_member(joining.instance_id)
        left = {member.member_id for member in (*leaving, *((replaced,) if replaced else ()))}
        targets = {member_id: group.target.of(member_id) for member_id in group.members}
        members = [member for member in group.members.values() if member.member_id not in left]
        if joining is not None and replaced is not None:
            members.append(joining)
            targets[joining.member_id] = targets[replaced.member_id]
        classic = ClassicGroup(group.group_id, now.wall_ms)
        classic.generation_id = group.epoch
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        classic.state = GroupState.STABLE
        for member in members:
            classic.roster.add(_classic_member(member))
        classic.protocol_name = classic.roster.select_protocol()
        classic.subscribed_topics = classic.compute_subscribed_topics()
        for one in classic.members.values():
            metadata = one.metadata(classic.protocol_name)
            one.assignment = self._encoded(targets[one.member_id], metadata)
        removed = group_tombstones(group)
        if joining is not None and replaced is not None:
            removed = group_tombstones(group, replaced=replaced.member_id, by=joining.member_id)
        return Outcome(
            records=[*removed, group_record(classic)], change=Downgrade(classic, rebalances)
        )

    def _encoded(self, assignment: MemberAssignment, metadata: bytes) -> bytes:
        """Encode an assignment in the version of the consumer protocol that a member speaks."""
        return encode_assignment(
            ConsumerProtocolAssignment(
                assigned_partitions=[
                    AssignmentTopicPartition(topic=name, partitions=sorted(partitions))
                    for topic_id, partitions in assignment.items()
                    if (name := self._parts.metadata.topic_name(topic_id)) is not None
                ]
            ),
            protocol_version(metadata),
        )

    def assignment_of(self, member: ConsumerMember) -> bytes:
        """What a classic member has, as SyncGroup answers it."""
        assert member.classic is not None
        assigned = {topic_id: frozenset(parts) for topic_id, parts in member.assigned.items()}
        return self._encoded(assigned, member.classic.protocols[0][1])


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.protocols,
    )


def _not_found(message: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
