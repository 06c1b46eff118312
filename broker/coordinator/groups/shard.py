"""One shard of the group coordinator: all groups and offsets of one `__consumer_offsets` partition.

Joins the classic groups and the committed offsets, which meet in a few places: a commit needs a
member's generation, deleting a group takes its offsets, offsets expire by their group's state.

Rules:
1. A method takes a request and the time, and answers with an `Outcome`, a response, or KafkaError
   for the whole request. Nothing here blocks or logs.
2. `replay` reads one record; it is what loading does, and what follows an append when the outcome
   says so.
3. `next_deadline_ms` / `on_deadline` cover sessions, rebalances and the expiry of offsets.

Called by `runtime` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.groups.admin import choose_groups, describe_group, why_not
from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup, GroupState
from kraftrio.broker.coordinator.groups.classic.groups import ClassicGroups
from kraftrio.broker.coordinator.groups.classic.replies import Client
from kraftrio.broker.coordinator.groups.offset_state import (
    NO_PRODUCER_ID,
    OffsetKey,
    OffsetState,
    check_commit,
)
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, FollowUp, Now, Outcome, Ticket
from kraftrio.broker.coordinator.ports import GroupProperties
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
)
from kraftrio.wire.messages.groups import (
    DeletableGroupResult,
    DescribedGroup,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    SyncGroupRequest,
)
from kraftrio.wire.primitives import Buffer

_EXPIRY = ("expiry",)
_GROUP_NOT_FOUND_COMMIT_VERSION = 9


class GroupShard:
    """Groups and offsets of one partition."""

    def __init__(self, properties: GroupProperties, new_uuid: Callable[[], str]) -> None:
        self._properties = properties
        self._deadlines = DeadlineQueue()
        self.groups = ClassicGroups(properties, self._deadlines, new_uuid)
        self.offsets = OffsetState(properties)

    def group(self, group_id: str) -> ClassicGroup | None:
        return self.groups.groups.get(group_id)

    # --- life of the shard ---

    def on_loaded(self, now: Now) -> Outcome:
        """Begin to serve: everything was replayed."""
        self._schedule_expiry(now)
        return self.groups.on_loaded(now)

    def unload(self, now: Now) -> Outcome:
        """Stop serving; answers whoever still waits."""
        return self.groups.unload(now)

    def next_deadline_ms(self) -> float | None:
        return self._deadlines.next_deadline_ms()

    def on_deadline(self, now: Now) -> list[Outcome]:
        """Do everything that is due."""
        outcomes = []
        while (key := self._deadlines.pop_due(now.monotonic_ms)) is not None:
            outcome = self._expire(now) if key == _EXPIRY else self.groups.on_deadline(key, now)
            if outcome:
                outcomes.append(outcome)
        return outcomes

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        return self.groups.on_append_done(follow_up, error, now)

    def on_committed(self, end_offset: int) -> None:
        self.offsets.on_committed(end_offset)

    # --- replay ---

    def replay(
        self,
        record_offset: int,
        key: Buffer,
        value: Buffer | None,
        now: Now,
        *,
        producer_id: int = NO_PRODUCER_ID,
        committed: bool = True,
    ) -> None:
        """Apply one record; record types of other protocols are passed over.

        Raises RemoteProtocolError when the record cannot be read.
        """
        parsed = decode_key(key)
        if isinstance(parsed, OffsetCommitKey):
            offset_value = None if value is None else decode_offset_value(value)
            if offset_value is not None:
                self.groups.get_or_create(parsed.group, now)
            self.offsets.replay(
                record_offset,
                OffsetKey(parsed.group, parsed.topic, parsed.partition),
                offset_value,
                producer_id=producer_id,
                committed=committed,
            )
        elif isinstance(parsed, GroupMetadataKey):
            group = None
            if value is not None:
                group = ClassicGroup.from_record(parsed.group, decode_group_value(value))
            self.groups.replace(parsed.group, group)

    def replay_end_transaction(
        self, record_offset: int, producer_id: int, *, commit: bool, committed: bool = True
    ) -> None:
        self.offsets.replay_end_transaction(
            record_offset, producer_id, commit=commit, committed=committed
        )

    # --- membership ---

    def join(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: Now) -> Outcome:
        return self.groups.join(request, client, ticket, now)

    def sync(self, request: SyncGroupRequest, ticket: Ticket, now: Now) -> Outcome:
        return self.groups.sync(request, ticket, now)

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        return self.groups.heartbeat(request, now)

    def leave(self, group_id: str, members: list[MemberIdentity], now: Now) -> Outcome:
        return self.groups.leave(group_id, members, now)

    # --- offsets ---

    def commit_offsets(self, request: OffsetCommitRequest, api_version: int, now: Now) -> Outcome:
        """Store offsets; a commit by hand may make a group that holds nothing else."""
        group = self.group(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id >= 0:
                if api_version >= _GROUP_NOT_FOUND_COMMIT_VERSION:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        else:
            error = check_commit(group, request.member_id, request.group_instance_id, generation_id)
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
            if group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
                self.groups.touch(group, request.member_id, now)
        records, topics = self.offsets.commit(
            request.group_id, request.topics, request.retention_time_ms, now
        )
        return Outcome(records=records, response=OffsetCommitResponse(topics=topics), replay=True)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Answer with committed offsets; null topics mean all."""
        if request.topics is None:
            topics = self.offsets.fetch_all(request.group_id, require_stable=require_stable)
        else:
            topics = self.offsets.fetch(
                request.group_id, request.topics, require_stable=require_stable
            )
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Outcome:
        """Remove offsets of topics that the group does not read."""
        group = self.group(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_in(GroupState.EMPTY) and not group.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        outcome = Outcome(replay=True)
        response = OffsetDeleteResponse()
        for topic in request.topics:
            error = ErrorCode.NONE
            if group.is_subscribed_to(topic.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                partitions.append(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                )
                if error is ErrorCode.NONE:
                    outcome.records += self.offsets.delete(request.group_id, topic.name, index)
            response.topics.append(
                OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)
            )
        outcome.response = response
        return outcome

    def delete_topics(self, topics: Mapping[str, bytes]) -> Outcome:
        """Remove the offsets of deleted topics, given by name with the id each had."""
        return Outcome(records=self.offsets.delete_topics(topics), replay=True, splittable=True)

    def _schedule_expiry(self, now: Now) -> None:
        interval_ms = self._properties.offsets_retention_check_interval_ms
        self._deadlines.schedule(_EXPIRY, now.monotonic_ms + interval_ms)

    def _expire(self, now: Now) -> Outcome:
        """Remove expired offsets, and empty groups that have none left."""
        self._schedule_expiry(now)
        outcome = Outcome(replay=True, splittable=True)
        for group in self.groups.groups.values():
            records, nothing_left = self.offsets.expire(group, now)
            outcome.records += records
            if nothing_left and group.is_in(GroupState.EMPTY) and not group.pending_join_members:
                outcome.records.append(_group_tombstone(group.group_id))
        return outcome

    # --- administration ---

    def delete_groups(self, group_ids: Sequence[str]) -> Outcome:
        """Delete empty groups with their offsets."""
        outcome = Outcome(replay=True)
        results = []
        for group_id in group_ids:
            group = self.group(group_id)
            error = ErrorCode.NONE
            if group is None:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.is_in(GroupState.EMPTY):
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                outcome.records += self.offsets.delete_all(group_id)
                outcome.records.append(_group_tombstone(group_id))
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        outcome.response = results
        return outcome

    def describe(
        self, group_id: str, *, api_version: int, include_operations: bool
    ) -> DescribedGroup:
        return describe_group(
            group_id,
            self.group(group_id),
            api_version=api_version,
            include_operations=include_operations,
        )

    def why_not(self, kind: str, group_id: str) -> str:
        """Say that a group is not of a kind other than the classic one."""
        return why_not(kind, group_id, self.group(group_id))

    def choose(
        self, states_filter: Sequence[str], types_filter: Sequence[str]
    ) -> list[ClassicGroup]:
        """Choose the groups that ListGroups asks for."""
        return choose_groups(self.groups.groups.values(), states_filter, types_filter)

    def has_member(self, group_id: str, member_id: str) -> bool:
        group = self.group(group_id)
        return group is not None and member_id in group.members


def _group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(encode_group_key(group_id), None)
