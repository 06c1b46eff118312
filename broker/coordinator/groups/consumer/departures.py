"""Members of consumer groups that leave, are removed, or are fenced since their time was up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kraftrio.broker.coordinator.deadlines import DeadlineKey
from kraftrio.broker.coordinator.groups.consumer.checks import check_instance
from kraftrio.broker.coordinator.groups.consumer.conversions import Conversions
from kraftrio.broker.coordinator.groups.consumer.member_timers import REBALANCE_DEADLINE
from kraftrio.broker.coordinator.groups.consumer.parts import Parts
from kraftrio.broker.coordinator.groups.consumer.records import (
    current_record,
    epoch_record,
    member_tombstones,
    regex_tombstone,
)
from kraftrio.broker.coordinator.groups.consumer.state.group import (
    CONSUMER_GROUP_TYPE,
    ConsumerGroup,
)
from kraftrio.broker.coordinator.groups.consumer.state.member import NO_PARTITIONS, ConsumerMember
from kraftrio.broker.coordinator.groups.modern.member_state import STATIC_LEAVE_EPOCH, MemberState
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


@dataclass(frozen=True, slots=True)
class MemberFenced(FollowUp):
    """The records that fence a member, whose deadline has come, were to be stored."""

    key: DeadlineKey


class Departures:
    """See the module."""

    def __init__(self, parts: Parts, conversions: Conversions) -> None:
        self._parts = parts
        self._conversions = conversions

    # --- requests ---

    def leave(self, request: ConsumerGroupHeartbeatRequest, now: Now) -> Outcome:
        """Serve the heartbeat of a member that leaves.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        group_id, member_id, instance_id = (
            request.group_id, request.member_id, request.instance_id,
        )  # fmt: skip
        group = self._parts.registry.require(group_id, ConsumerGroup, CONSUMER_GROUP_TYPE)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id, member_epoch=request.member_epoch
        )
        if instance_id is None:
            return self.remove(group, [group.member(member_id)], response, now)
        member = check_instance(group.static_member(instance_id), member_id, instance_id)
        if request.member_epoch != STATIC_LEAVE_EPOCH:
            return self.remove(group, [member], response, now)
        left = member._replace(
            member_epoch=STATIC_LEAVE_EPOCH,
            pending_revocation=NO_PARTITIONS,
            assigned={
                topic_id: dict.fromkeys(partitions, 0)
                for topic_id, partitions in member.assigned.items()
            },
        )
        return Outcome(records=[current_record(group_id, left)], replay=True, response=response)

    def leave_classic(
        self, group: ConsumerGroup, identities: Sequence[MemberIdentity], now: Now
    ) -> Outcome:
        """Serve LeaveGroup in a consumer group; the response says of each member how it went."""
        leaving: dict[str, ConsumerMember] = {}
        responses = []
        for identity in identities:
            error = ErrorCode.NONE
            try:
                member = _identified(group, identity)
                leaving[member.member_id] = member
            except KafkaError as refusal:
                error = refusal.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        return self.remove(
            group, list(leaving.values()), LeaveGroupResponse(members=responses), now
        )

    # --- removal ---

    def remove(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: Any, now: Now
    ) -> Outcome:
        """Remove members: the group comes to a new epoch, or becomes a classic one."""
        if not members:
            return Outcome(response=response)
        if self._conversions.may_downgrade_without(group, members):
            outcome = self._conversions.downgrade(group, now, leaving=members)
            outcome.response = response
            return outcome
        group_id = group.group_id
        records: list[CoordinatorRecord] = []
        subscriptions = group.subscriptions.copy()
        for member in members:
            records += member_tombstones(group_id, member.member_id)
            subscriptions.replace(member, None)
        regexes = Counter(one.subscribed_topic_regex for one in members)
        records += [
            regex_tombstone(group_id, regex)
            for regex, count in regexes.items()
            if regex and group.subscriptions.regexes[regex] == count
        ]
        subscriptions.drop_unused()
        metadata_hash = self._parts.hashes.of_group(subscriptions.topics())
        records.append(epoch_record(group_id, group.epoch + 1, metadata_hash))
        return Outcome(records=records, replay=True, response=response)

    def on_deadline(
        self, group: ConsumerGroup, member: ConsumerMember, key: DeadlineKey, now: Now
    ) -> Outcome:
        """Fence a member whose time is up.

        One whose time to give up partitions is up may not have been asked to: the record of that
        may have failed.
        """
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if key[0] == REBALANCE_DEADLINE and not is_revoking:
            return Outcome()
        outcome = self.remove(group, [member], None, now)
        outcome.follow_up = MemberFenced(key)
        return outcome

    def on_fenced(self, fenced: MemberFenced, error: ErrorCode, now: Now) -> None:
        """Try again, if the records could not be appended."""
        _, group_id, member_id = fenced.key
        group = self._parts.registry.find(group_id, ConsumerGroup)
        member = None if group is None else group.members.get(member_id)
        if error is not ErrorCode.NONE and member is not None:
            self._parts.timers.retry(fenced.key, now)


def _identified(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """Return the member that a LeaveGroup means; an instance id alone will do."""
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    member = group.static_member(identity.group_instance_id)
    member_id = identity.member_id
    if member is not None and not member_id:
        member_id = member.member_id
    return check_instance(member, member_id, identity.group_instance_id)
