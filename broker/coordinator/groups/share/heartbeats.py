"""Serves ShareGroupHeartbeat: members that join, subscribe, get partitions, and leave (KIP-932).

A request makes records, and changes nothing else but the member's session. Partitions whose state
nobody has requested yet are noted as initializing; once that is stored their states are requested,
and when these are there the next heartbeats give the partitions to members.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kraftrio.broker.coordinator.groups.assignors.spec import (
    AssignmentSpec,
    AssignorError,
    MemberAssignment,
    MemberSpec,
    TopicSpec,
)
from kraftrio.broker.coordinator.groups.modern.member_state import JOIN_EPOCH, LEAVE_EPOCH
from kraftrio.broker.coordinator.groups.modern.target_assignment import NOTHING
from kraftrio.broker.coordinator.groups.share.group import ShareGroup
from kraftrio.broker.coordinator.groups.share.member import ShareMember
from kraftrio.broker.coordinator.groups.share.parts import ShareParts
from kraftrio.broker.coordinator.groups.share.ports import StatesToInitialize
from kraftrio.broker.coordinator.groups.share.records import (
    TARGET_RECORDS,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
)
from kraftrio.broker.coordinator.groups.share.state_progress import StateProgress
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_groups import (
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
)

Request = ShareGroupHeartbeatRequest
Response = ShareGroupHeartbeatResponse

_UNINITIALIZED = -1


@dataclass(frozen=True, slots=True)
class StatesWanted(FollowUp):
    """Follows the append of the record that notes states as initializing: request them now."""

    states: StatesToInitialize


class _Update:
    """What one heartbeat adds to a group.

    Attributes:
        epoch: the group's, after the update.
        topics: the names of the topics that the group subscribes to after the update.
    """

    __slots__ = ("epoch", "former", "group", "member", "records", "topics")

    def __init__(self, group: ShareGroup, former: ShareMember, member: ShareMember) -> None:
        self.group = group
        self.former = former
        self.member = member
        self.records: list[CoordinatorRecord] = []
        self.epoch = group.epoch
        self.topics: Collection[str] = group.topics()


class ShareHeartbeats:
    """See the module."""

    def __init__(self, parts: ShareParts) -> None:
        self._parts = parts

    def unchanged(
        self, request: Request, client_id: str, client_host: str, now: Now
    ) -> Response | None:
        """Answer a heartbeat that changes nothing; None: it may change something.

        The answer has nothing that the member does not know, so it need not wait for records that
        are not committed yet.
        """
        group = self._parts.registry.get(request.group_id)
        if not isinstance(group, ShareGroup) or request.subscribed_topic_names is not None:
            return None
        member = group.members.get(request.member_id)
        epoch = group.epoch
        if (
            member is None
            or request.member_epoch != epoch
            or group.target.epoch != epoch
            or not member.is_reconciled_to(epoch)
            or member.client_id != client_id
            or member.client_host != client_host
            or request.rack_id not in (None, member.rack_id)
            or group.refresh.is_due(epoch, now.monotonic_ms)
            or not group.has_all_states
            or group.lacks_initialized
        ):
            return None
        self._parts.prolong_session(group.group_id, member.member_id, now)
        return Response(
            member_id=member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=self._parts.times.of(group.group_id).interval_ms,
        )

    def serve(self, request: Request, client_id: str, client_host: str, now: Now) -> Outcome:
        """Serve a heartbeat.

        Raises:
            KafkaError: the request is refused, and nothing has changed.
        """
        _check(request)
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request)
        group, former = self._find(request)
        member = former._replace(
            rack_id=former.rack_id if request.rack_id is None else request.rack_id,
            client_id=client_id,
            client_host=client_host,
            subscribed_topic_names=(
                former.subscribed_topic_names
                if request.subscribed_topic_names is None
                else frozenset(request.subscribed_topic_names)
            ),
        )
        update = _Update(group, former, member)
        has_changed = self._bump_epoch_if_needed(update, now)
        self._assign(update, now, has_changed=has_changed)
        outcome = Outcome(records=update.records, replay=True, stable=True)
        self._request_states(update, outcome, now)
        self._parts.prolong_session(group.group_id, member.member_id, now)
        outcome.response = self._response(request, update)
        return outcome

    def _find(self, request: Request) -> tuple[ShareGroup, ShareMember]:
        """The group and the member, new ones for a member that joins."""
        is_joining = request.member_epoch == JOIN_EPOCH
        member_id = request.member_id
        if is_joining:
            group = self._parts.find_or_make(request.group_id)
        else:
            group = self._parts.find(request.group_id, "Share group")
        max_size = self._parts.properties.group_share_max_size
        if len(group.members) >= max_size and not group.has_member(member_id):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {max_size} members.",
            )
        if is_joining and not group.has_member(member_id):
            return group, ShareMember(member_id)
        member = group.member(member_id)
        member.check_epoch(request.member_epoch)
        return group, member

    def _bump_epoch_if_needed(self, update: _Update, now: Now) -> bool:
        """Record what the member is; bump the group epoch if its change, or a topic's, needs it.

        Returns:
            whether the epoch was bumped.
        """
        group, former, member = update.group, update.former, update.member
        if member != former:
            update.records.append(member_record(group.group_id, member))
        is_bumped = member.subscribed_topic_names != former.subscribed_topic_names
        if group.target.epoch >= group.epoch and group.lacks_initialized:
            is_bumped = True
        if is_bumped or group.refresh.is_due(group.epoch, now.monotonic_ms):
            update.topics = group.topics_with(former, member).keys()
            metadata_hash = self._parts.hashes.of_group(update.topics)
            is_bumped = is_bumped or metadata_hash != group.metadata_hash
            if is_bumped:
                update.epoch += 1
                update.records.append(epoch_record(group.group_id, update.epoch, metadata_hash))
            group.refresh.note(update.epoch, now.monotonic_ms)
        return is_bumped

    def _assign(self, update: _Update, now: Now, *, has_changed: bool) -> None:
        """Give the member its part of the target, which is computed again for a newer epoch."""
        group, member = update.group, update.member
        target_epoch, part = group.target.epoch, group.target.of(member.member_id)
        if target_epoch < update.epoch and self._may_compute_target(group, now):
            target_epoch, part = update.epoch, self._compute_target(update, now)
        if not has_changed and member.is_reconciled_to(target_epoch):
            return
        update.member = member.reconciled(
            target_epoch,
            part,
            self._parts.topic_ids(member.subscribed_topic_names),
            has_subscription_changed=has_changed,
        )
        if update.member != member:
            update.records.append(current_record(group.group_id, update.member))

    def _may_compute_target(self, group: ShareGroup, now: Now) -> bool:
        interval_ms = self._parts.settings.number(group.group_id, "share.assignment.interval.ms")
        return group.target.may_be_computed(interval_ms, now)

    def _compute_target(self, update: _Update, now: Now) -> MemberAssignment:
        """Make the records of a new target; return the member's part.

        Raises:
            KafkaError: UNKNOWN_SERVER_ERROR, the assignor failed.
        """
        group = update.group
        spec = self._spec(update)
        try:
            target = self._parts.assignor.assign(spec)
        except AssignorError as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Failed to compute a new target assignment for epoch {update.epoch}: {error}",
            ) from error
        update.records += group.target.records_to(
            target, spec.members, TARGET_RECORDS, group.group_id, update.epoch, now
        )
        return target.get(update.member.member_id, NOTHING)

    def _spec(self, update: _Update) -> AssignmentSpec:
        """Describe the group as it is with the update."""
        group = update.group
        members = {**group.members, update.member.member_id: update.member}
        topic_ids: dict[frozenset[str], frozenset[bytes]] = {}
        specs: dict[str, MemberSpec] = {}
        for one in members.values():
            names = one.subscribed_topic_names
            if names not in topic_ids:
                topic_ids[names] = self._parts.topic_ids(names)
            specs[one.member_id] = MemberSpec(
                topic_ids[names], group.target.of(one.member_id), one.rack_id
            )
        image = self._parts.metadata.image
        topics = {
            topic_id: TopicSpec(topic.partition_count)
            for topic_id in frozenset().union(*topic_ids.values())
            if (topic := image.topic_by_id(topic_id)) is not None
        }
        states = group.states or StateProgress()
        return AssignmentSpec(specs, topics, len(topic_ids) == 1, states.initialized_partitions)

    def _request_states(self, update: _Update, outcome: Outcome, now: Now) -> None:
        """Note missing states as initializing; they are requested once that is stored."""
        group_id = update.group.group_id
        states = update.group.states or StateProgress()
        missing = states.missing(
            self._parts.existing_topics(update.topics),
            now.wall_ms,
            self._parts.properties.group_share_initialize_retry_interval_ms,
        )
        if not missing:
            if not states.initializing:
                update.group.note_complete_states()
            return
        outcome.records.append(
            self._parts.states_record(group_id, states.with_initializing(missing))
        )
        start_offsets = {
            topic_id: dict.fromkeys(sorted(topic.partitions), _UNINITIALIZED)
            for topic_id, topic in missing.items()
        }
        wanted = StatesToInitialize(group_id, update.epoch, start_offsets)
        outcome.follow_up = StatesWanted(wanted)

    def _response(self, request: Request, update: _Update) -> Response:
        member = update.member
        assignment = None
        if (
            request.member_epoch == JOIN_EPOCH
            or request.subscribed_topic_names is not None
            or member.assigned != update.former.assigned
        ):
            assignment = ShareGroupHeartbeatAssignment(
                topic_partitions=[
                    ShareGroupHeartbeatTopicPartitions(
                        topic_id=topic_id, partitions=sorted(member.assigned[topic_id])
                    )
                    for topic_id in sorted(member.assigned)
                ]
            )
        return Response(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._parts.times.of(update.group.group_id).interval_ms,
            assignment=assignment,
        )

    # --- departures ---

    def _leave(self, request: Request) -> Outcome:
        group = self._parts.find(request.group_id)
        member = group.member(request.member_id)
        outcome = self.remove(group, member)
        outcome.response = Response(member_id=member.member_id, member_epoch=request.member_epoch)
        return outcome

    def remove(self, group: ShareGroup, member: ShareMember) -> Outcome:
        """Make the records that remove a member and bump the group epoch."""
        metadata_hash = self._parts.hashes.of_group(group.topics_with(member, None).keys())
        records = member_tombstones(group.group_id, member.member_id)
        records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
        return Outcome(records=records, replay=True)


def _check(request: Request) -> None:
    """Raise INVALID_REQUEST for a request that is invalid for any group."""
    reason = None
    if not request.member_id.strip():
        reason = "MemberId can't be empty."
    elif not request.group_id.strip():
        reason = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        reason = "RackId can't be empty."
    elif request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            reason = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE_EPOCH:
        reason = "MemberEpoch is invalid."
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
