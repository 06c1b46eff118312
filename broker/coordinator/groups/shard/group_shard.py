"""One shard of the group coordinator: all groups and offsets of one `__consumer_offsets` partition.

Joins the kinds of group (`kind_table`) with the committed offsets, which meet in a few
places: a commit needs a member's generation, deleting a group takes its offsets, offsets expire by
their group's state.

Rules:
1. A method takes a request and the time, and answers with an `Outcome`, a response, or KafkaError
   for the whole request. Nothing here blocks or logs.
2. `replay` reads one record; it is what loading does, and what follows an append when the outcome
   asks for it. A commit is applied by what it was made of (`apply`), with the same result.
3. `next_deadline_ms` / `on_deadline` cover sessions, rebalances and the expiry of offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.groups.classic.groups import ClassicGroups
from kraftrio.broker.coordinator.groups.consumer.conversions import Downgrade
from kraftrio.broker.coordinator.groups.consumer.groups import ConsumerGroups
from kraftrio.broker.coordinator.groups.group import Group, GroupRegistry
from kraftrio.broker.coordinator.groups.offset_commit import (
    DEFAULT_RETENTION_TIME_MS,
    CommitChange,
    Committer,
    NamedPartition,
    OffsetCommit,
    prepare_commit,
)
from kraftrio.broker.coordinator.groups.offset_state import OffsetState
from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.broker.coordinator.groups.properties import GroupProperties
from kraftrio.broker.coordinator.groups.shard.administration import choose_groups, describe_group
from kraftrio.broker.coordinator.groups.shard.classic_requests import ClassicRequests
from kraftrio.broker.coordinator.groups.shard.expiry_schedule import (
    EXPIRY_DEADLINE,
    ExpirySchedule,
)
from kraftrio.broker.coordinator.groups.shard.kind_table import (
    KindDirectory,
    KindTable,
    join_outcomes,
)
from kraftrio.broker.coordinator.groups.shard.offset_expiry import ExpirySliceStored, OffsetExpiry
from kraftrio.broker.coordinator.groups.share.groups import ShareGroups
from kraftrio.broker.coordinator.groups.streams.groups import StreamsGroups
from kraftrio.broker.coordinator.outcome import (
    Change,
    FollowUp,
    Now,
    Outcome,
    ProducerOfBatch,
    RecordMessages,
)
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records.classic import decode_offset_value
from kraftrio.wire.messages.group_records.keys import OffsetCommitKey, decode_key
from kraftrio.wire.messages.groups import (
    DeletableGroupResult,
    DescribedGroup,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import NO_PRODUCER_ID

_GROUP_NOT_FOUND_COMMIT_VERSION = 9


class GroupShard:
    """Groups and offsets of one partition.

    Attributes:
        groups: of every kind.
        classic: the classic groups; this and the other kinds are made when they are first needed.
        consumer: the consumer groups; serves their requests.
        share: the share groups; serves their requests.
        streams: the streams groups; serves their requests.
        classic_requests: serves the requests of classic members, whatever group they are in.

    Args:
        directory: of all kinds of group.
    """

    def __init__(self, properties: GroupProperties, directory: KindDirectory) -> None:
        self._properties = properties
        self._deadlines = DeadlineQueue()
        self.groups = GroupRegistry()
        self.offsets = OffsetState(properties)
        self._kinds = KindTable(directory, self.groups, self._deadlines)
        self._expiry = ExpirySchedule(
            OffsetExpiry(self.groups, self.offsets, self._kinds.tombstones),
            self._deadlines,
            properties,
        )

    @cached_property
    def classic(self) -> ClassicGroups:
        return self._kinds.of(ClassicGroups)

    @cached_property
    def consumer(self) -> ConsumerGroups:
        return self._kinds.of(ConsumerGroups)

    @cached_property
    def share(self) -> ShareGroups:
        return self._kinds.of(ShareGroups)

    @cached_property
    def streams(self) -> StreamsGroups:
        return self._kinds.of(StreamsGroups)

    @cached_property
    def classic_requests(self) -> ClassicRequests:
        return ClassicRequests(self.groups, self._kinds)

    # --- life of the shard ---

    def on_loaded(self, now: Now) -> Outcome:
        """Begin to serve: everything was replayed."""
        self._expiry.start(now)
        return join_outcomes([kind.on_loaded(now) for kind in self._kinds])

    def on_leader_epoch(self, leader_epoch: int) -> None:
        """Groups and offsets do not depend on who leads."""

    def unload(self, now: Now) -> Outcome:
        """Stop serving, and answer the parked requests."""
        return join_outcomes([kind.unload(now) for kind in self._kinds])

    def next_deadline_ms(self) -> float | None:
        return self._deadlines.next_deadline_ms()

    def on_deadline(self, now: Now) -> list[Outcome]:
        """Do everything whose time has come."""
        outcomes = []
        while (key := self._deadlines.pop_due(now.monotonic_ms)) is not None:
            if key == EXPIRY_DEADLINE:
                outcome = self._expiry.on_deadline(now)
            else:
                outcome = self._kinds.on_deadline(key, now)
            if outcome:
                outcomes.append(outcome)
        return outcomes

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        if isinstance(follow_up, ExpirySliceStored):
            self._expiry.on_slice_stored(error, now)
            return Outcome()
        return self._kinds.on_append_done(follow_up, error, now)

    def on_committed(self, end_offset: int) -> None:
        self.offsets.on_committed(end_offset)

    # --- changes by records ---

    def replay(
        self,
        record_offset: int,
        key: Buffer,
        value: Buffer | None,
        now: Now,
        *,
        producer_id: int = NO_PRODUCER_ID,
        committed: bool = True,
        messages: RecordMessages | None = None,
    ) -> None:
        """Apply one record; record types of a newer Kafka are passed over.

        Raises RemoteProtocolError when the record cannot be read.
        """
        if messages is not None:
            self._kinds.replay(*messages, now)
            return
        parsed = decode_key(key)
        if isinstance(parsed, OffsetCommitKey):
            offset_value = None if value is None else decode_offset_value(value)
            if offset_value is not None:
                self.classic.ensure_group(parsed.group, now.wall_ms)
            self.offsets.replay(
                record_offset,
                OffsetKey(parsed.group, parsed.topic, parsed.partition),
                offset_value,
                producer_id=producer_id,
                committed=committed,
            )
        elif parsed is not None:
            self._kinds.replay(parsed, value, now)

    def replay_end_transaction(
        self, producer_id: int, end_offset: int, now: Now, *, commit: bool, committed: bool = True
    ) -> None:
        """Apply the end of a transaction; whatever counts then has a group."""
        for group_id in self.offsets.replay_end_transaction(
            producer_id, end_offset, commit=commit, committed=committed
        ):
            self.classic.ensure_group(group_id, now.wall_ms)

    def apply(
        self, change: Change, end_offset: int, now: Now, *, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply a commit that was just appended, or that a group is of another kind."""
        if isinstance(change, Downgrade):
            self.consumer.give_way(change.group.group_id)
            self.classic.adopt(change.group, now, rebalances=change.rebalances)
            return
        assert isinstance(change, CommitChange)
        self.classic.ensure_group(change.group_id, now.wall_ms)
        self.offsets.store(change, end_offset, producer_id=producer_id)

    # --- offsets ---

    def prepare_commit(
        self,
        committer: Committer,
        partitions: Iterable[NamedPartition | None],
        now: Now,
        *,
        retention_time_ms: int = DEFAULT_RETENTION_TIME_MS,
    ) -> Slices[OffsetCommit]:
        """Make the records of a commit, for `commit_offsets` or `commit_offsets_of_transaction`.

        It asks nothing of the group.
        """
        return prepare_commit(
            committer,
            partitions,
            now.wall_ms,
            self._properties.offset_metadata_max_bytes,
            retention_time_ms=retention_time_ms,
        )

    def commit_offsets(self, commit: OffsetCommit, api_version: int, now: Now) -> Outcome:
        """Store offsets; a commit by hand may make a group that holds nothing else.

        The response is the commit itself: its `refused` are the only errors.
        """
        committer = commit.committer
        missing = ErrorCode.ILLEGAL_GENERATION
        if api_version >= _GROUP_NOT_FOUND_COMMIT_VERSION:
            missing = ErrorCode.GROUP_ID_NOT_FOUND
        self._check_committer(commit, missing, api_version)
        self.classic.on_commit(committer.group_id, committer.member_id, now)
        return _stored(commit)

    def commit_offsets_of_transaction(
        self, commit: OffsetCommit, producer: ProducerOfBatch
    ) -> Outcome:
        """Store offsets that count once a producer's transaction is committed (KIP-447).

        The group may rebalance meanwhile; members are fenced by their generation. The response is
        as of `commit_offsets`.
        """
        self._check_committer(commit, ErrorCode.ILLEGAL_GENERATION)
        outcome = _stored(commit)
        outcome.producer = producer
        return outcome

    def _check_committer(
        self, commit: OffsetCommit, missing: ErrorCode, api_version: int | None = None
    ) -> None:
        """Raise KafkaError unless the group takes a commit.

        Args:
            missing: the error if the group should exist.
            api_version: of OffsetCommit; None: in a transaction.
        """
        group_id, member_id, group_instance_id, generation_id = commit.committer
        group = self.groups.get(group_id)
        error = ErrorCode.NONE
        if group is not None:
            error = group.check_commit(
                member_id,
                group_instance_id,
                generation_id,
                transactional=api_version is None,
                api_version=api_version or 0,
                partitions=commit.partitions(),
            )
        elif generation_id >= 0:
            error = missing
        if error is not ErrorCode.NONE:
            raise KafkaError(error)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Answer with committed offsets; null topics mean all.

        Raises:
            KafkaError: a member that asks is not in the group, or not in this epoch.
        """
        group = self.groups.get(request.group_id)
        if group is not None:
            error = group.check_fetch(request.member_id, request.member_epoch)
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
        if request.topics is None:
            topics = self.offsets.fetch_all(request.group_id, require_stable=require_stable)
        else:
            topics = self.offsets.fetch(
                request.group_id, request.topics, require_stable=require_stable
            )
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Outcome:
        """Remove offsets of topics that the group does not read."""
        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        error = group.check_offset_delete()
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
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
                    key = OffsetKey(request.group_id, topic.name, index)
                    outcome.records += self.offsets.delete(key)
            response.topics.append(
                OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)
            )
        outcome.response = response
        return outcome

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> Outcome:
        """Remove the offsets of deleted topics, given by name with the id each had."""
        records = self.offsets.delete_topics(topics)
        share = self._kinds.made(ShareGroups)
        if share is not None:
            records += share.on_topics_deleted(topics)
        return Outcome(records=records, replay=True, splittable=True)

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        """Report topics that are new, gone or have changed to the groups of all kinds."""
        for kind in self._kinds:
            kind.on_topics_changed(names, now)

    # --- administration ---

    def delete_groups(self, group_ids: Sequence[str]) -> Outcome:
        """Delete empty groups with their offsets."""
        outcome = Outcome(replay=True)
        results = []
        for group_id in group_ids:
            group = self.groups.get(group_id)
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
            if group is not None and error is ErrorCode.NONE:
                outcome.records += self.offsets.delete_all(group_id)
                outcome.records += self._kinds.tombstones(group)
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        outcome.response = results
        return outcome

    def describe(self, group_id: str, *, api_version: int) -> DescribedGroup:
        """Answer DescribeGroups for one group."""
        return describe_group(group_id, self.groups.get(group_id), api_version=api_version)

    def choose(self, states_filter: Sequence[str], types_filter: Sequence[str]) -> list[Group]:
        """Choose the groups that ListGroups asks for."""
        return choose_groups(self.groups, states_filter, types_filter)

    def has_member(self, group_id: str, member_id: str) -> bool:
        """Whether a group has a member."""
        group = self.groups.get(group_id)
        return group is not None and group.has_member(member_id)


def _stored(commit: OffsetCommit) -> Outcome:
    """What stores a commit; nothing is to be stored if all of it is refused."""
    if not commit.batch.record_count:
        return Outcome(response=commit)
    return Outcome(batch=commit.batch, change=commit.change, response=commit)
