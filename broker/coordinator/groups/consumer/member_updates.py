"""What a request changes: its member, the group's epoch, the target, what the member has.

The steps are the same for a heartbeat and for a classic member's JoinGroup; each adds records for
what it changes. Nothing else changes: the records do, once they are appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftrio.broker.coordinator.groups.assignors.spec import (
    AssignmentSpec,
    AssignorError,
    MemberAssignment,
    MemberSpec,
    TopicSpec,
)
from kraftrio.broker.coordinator.groups.consumer.parts import Parts
from kraftrio.broker.coordinator.groups.consumer.reconciliation import ConsumerTarget, reconcile
from kraftrio.broker.coordinator.groups.consumer.records import (
    TARGET_RECORDS,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    target_record,
)
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember, Owned
from kraftrio.broker.coordinator.groups.modern.member_state import JOIN_EPOCH
from kraftrio.broker.coordinator.groups.modern.target_assignment import NOTHING
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now
from kraftrio.wire.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class MemberUpdate:
    """One request's update.

    Attributes:
        former: the member before; fresh for one that joins, the copy for a static one that takes
            another's place.
        member: the member as the request has it.
        epoch: of the group, with what this update adds to it.
        is_homogeneous: whether all members subscribe to the same topics; None: as before.
    """

    group: ConsumerGroup
    former: ConsumerMember
    member: ConsumerMember
    records: list[CoordinatorRecord] = field(default_factory=list)
    epoch: int = field(init=False)
    is_homogeneous: bool | None = None

    def __post_init__(self) -> None:
        self.epoch = self.group.epoch

    def store_member(self) -> bool:
        """Store what the member is; return whether it names other topics."""
        if self.member == self.former:
            return False
        self.records.append(member_record(self.group.group_id, self.member))
        return self.member.subscribed_topic_names != self.former.subscribed_topic_names


def replacing_records(
    group: ConsumerGroup, former: ConsumerMember, member: ConsumerMember
) -> list[CoordinatorRecord]:
    """Make the records that put a static member with another id in a former one's place."""
    group_id = group.group_id
    return [
        *member_tombstones(group_id, former.member_id),
        member_record(group_id, member),
        target_record(group_id, member.member_id, group.target.of(former.member_id)),
        current_record(group_id, member),
    ]


class MemberUpdates:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def bump_epoch_if_needed(self, update: MemberUpdate, now: Now, *, is_changed: bool) -> None:
        """Bump the group epoch if the topics have changed, or (`is_changed`) what is subscribed to.

        Nothing is looked at as long as nothing has been said of the topics.
        """
        group, member = update.group, update.member
        if not is_changed and not group.refresh.is_due(group.epoch, now.monotonic_ms):
            return
        subscriptions = group.subscriptions.copy()
        subscriptions.replace(update.former, member)
        subscriptions.drop_unused()
        metadata_hash = self._parts.hashes.of_group(subscriptions.topics())
        member_count = len(group.members)
        is_known = group.has_member(member.member_id) or member.instance_id in group.static_members
        member_count += not is_known
        update.is_homogeneous = subscriptions.is_homogeneous(member_count)
        if is_changed or metadata_hash != group.metadata_hash:
            update.epoch += 1
            update.records.append(epoch_record(group.group_id, update.epoch, metadata_hash))
        group.refresh.note(update.epoch, now.monotonic_ms)
        if group.has_partition_metadata:
            update.records.append(partition_metadata_tombstone(group.group_id))

    def compute_target_if_needed(self, update: MemberUpdate, now: Now) -> ConsumerTarget:
        """Return the member's target: of a new assignment if the group's epoch asks for one.

        Raises:
            KafkaError: UNKNOWN_SERVER_ERROR, the assignor failed.
        """
        group, member = update.group, update.member
        if group.target.epoch >= update.epoch or not self._may_compute_target(group, now):
            return ConsumerTarget(group.target.epoch, group.target_of(member))
        name = group.preferred_assignor(update.former, member)
        assignor = self._parts.assignors[name or self._parts.default_assignor]
        spec = self._spec(update)
        try:
            target = assignor.assign(spec)
        except AssignorError as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Failed to compute a new target assignment for epoch {update.epoch}: {error}",
            ) from error
        update.records += group.target.records_to(
            target, spec.members, TARGET_RECORDS, group.group_id, update.epoch, now
        )
        return ConsumerTarget(update.epoch, target.get(member.member_id, NOTHING))

    def _may_compute_target(self, group: ConsumerGroup, now: Now) -> bool:
        interval_ms = self._parts.settings.number(group.group_id, "consumer.assignment.interval.ms")
        return group.target.may_be_computed(interval_ms, now)

    def _spec(self, update: MemberUpdate) -> AssignmentSpec:
        """Describe the group as it is with the update."""
        group, member = update.group, update.member
        members = dict(group.members)
        replaced_id = group.static_members.get(member.instance_id or "")
        if replaced_id is not None:
            members.pop(replaced_id, None)
        members[member.member_id] = member
        topic_ids: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
        specs: dict[str, MemberSpec] = {}
        for one in members.values():
            subscription = one.subscribed_topic_names, one.subscribed_topic_regex
            subscribed = topic_ids.get(subscription)
            if subscribed is None:
                subscribed = self._parts.topic_ids(one, group.subscriptions)
                topic_ids[subscription] = subscribed
            assigned = group.target.of(one.member_id)
            if one is member:
                assigned = group.target.of(replaced_id or member.member_id)
            specs[one.member_id] = MemberSpec(subscribed, assigned, one.rack_id, one.instance_id)
        image = self._parts.metadata.image
        topics = {
            topic_id: TopicSpec(topic.partition_count)
            for topic_id in frozenset().union(*topic_ids.values())
            if (topic := image.topic_by_id(topic_id)) is not None
        }
        for member_id, one_spec in specs.items():
            assigned = existing(one_spec.assigned, topics)
            if assigned is not one_spec.assigned:
                specs[member_id] = one_spec._replace(assigned=assigned)
        is_homogeneous = update.is_homogeneous
        if is_homogeneous is None:
            is_homogeneous = group.subscriptions.is_homogeneous(len(group.members))
        return AssignmentSpec(specs, topics, is_homogeneous)

    def reconcile(
        self,
        update: MemberUpdate,
        target: ConsumerTarget,
        owned: Owned | None,
        now: Now,
        *,
        has_subscription_changed: bool,
    ) -> None:
        """Let the member make its next step towards its target.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH.
        """
        group, member = update.group, update.member
        if not has_subscription_changed and member.is_reconciled_to(target.epoch):
            return
        update.member = reconcile(
            member,
            target,
            self._parts.topic_ids(member, group.subscriptions),
            owned,
            has_subscription_changed=has_subscription_changed,
            is_owned=group.partition_epochs.is_owned,
        )
        if update.member != member:
            update.records.append(current_record(group.group_id, update.member))
            self._parts.timers.after_step(group.group_id, update.member, now)


def existing(assigned: MemberAssignment, topics: Mapping[bytes, TopicSpec]) -> MemberAssignment:
    """Leave out partitions that are not known here.

    The target may be that of a coordinator before, whose metadata was newer.
    """
    beyond = [
        topic_id
        for topic_id, partitions in assigned.items()
        if topic_id in topics and max(partitions, default=0) >= topics[topic_id].partition_count
    ]
    if not beyond:
        return assigned
    kept = dict(assigned)
    for topic_id in beyond:
        count = topics[topic_id].partition_count
        kept[topic_id] = frozenset(index for index in assigned[topic_id] if index < count)
    return kept


def joining(member_id: str) -> ConsumerMember:
    """Return a member that is not in a group yet."""
    return ConsumerMember(member_id, member_epoch=JOIN_EPOCH)
