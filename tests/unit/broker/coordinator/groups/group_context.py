"""A shard of groups in a test: a clock to advance, requests by short names, replies by ticket.

The context carries out outcomes as the runtime does: replies are noted, records appended to a list
and replayed where asked. Records are committed at once unless `hold_commits` is set; then `commit`
or `fail_appends` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.classic.joins import Client
from kraftrio.broker.coordinator.groups.offset_commit import Committer, NamedPartition
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.broker.coordinator.groups.shard.kinds import group_kinds
from kraftrio.broker.coordinator.groups.share.ports import StatesToInitialize
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, ProducerOfBatch
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    OffsetCommitRequestPartition,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.records.batch import NO_PRODUCER_ID, iter_records, parse_header
from kraftrio.wire.records.builder import BatchBuilder
from tests.support.sliced import finish

START_WALL_MS = 1_700_000_000_000
MARKER = CoordinatorRecord(b"", None)  # stands for a control batch


def records_of(batch: BatchBuilder) -> list[CoordinatorRecord]:
    """The records of a batch that was encoded already."""
    data = batch.build()
    return [
        CoordinatorRecord(record.key or b"", record.value)
        for record in iter_records(data, parse_header(data))
    ]


@dataclass
class Properties:
    """Kafka's defaults, but no initial delay: tests that are about it set it."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = 2**31 - 1
    group_coordinator_rebalance_protocols: Sequence[str] = ("classic", "consumer", "streams")
    group_consumer_assignors: Sequence[str] = ("uniform", "range")
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_share_assignors: Sequence[str] = ("simple",)
    group_share_max_size: int = 200
    group_share_initialize_retry_interval_ms: int = 30_000
    group_streams_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_load_buffer_size: int = 5_242_880
    offsets_topic_num_partitions: int = 50
    offsets_topic_compression_codec: int = 0


@dataclass
class Settings:
    """Kafka's defaults of single groups, but nothing is delayed."""

    values: dict[str, int] = field(
        default_factory=lambda: {
            "consumer.assignment.interval.ms": 0,
            "consumer.heartbeat.interval.ms": 5_000,
            "consumer.session.timeout.ms": 45_000,
            "share.assignment.interval.ms": 0,
            "share.heartbeat.interval.ms": 5_000,
            "share.session.timeout.ms": 45_000,
            "streams.assignment.interval.ms": 0,
            "streams.heartbeat.interval.ms": 5_000,
            "streams.initial.rebalance.delay.ms": 0,
            "streams.num.standby.replicas": 0,
            "streams.session.timeout.ms": 45_000,
        }
    )

    def number(self, group_id: str, name: str) -> int:
        return self.values[name]

    def flag(self, group_id: str, name: str) -> bool:
        return bool(self.values[name])

    def text(self, group_id: str, name: str) -> str:
        return str(self.values[name])


@dataclass
class GroupContext:
    """One shard and its time; see the module."""

    properties: Properties = field(default_factory=Properties)
    group_id: str = "group"
    hold_commits: bool = False
    metadata: MetadataCache = field(default_factory=MetadataCache)
    settings: Settings = field(default_factory=lambda: Settings())

    def __post_init__(self) -> None:
        self.now = Now(1_000.0, START_WALL_MS)
        self._uuids = 0
        self._tickets = 0
        self.replies: dict[int, Any] = {}
        self.log: list[CoordinatorRecord] = []
        self.producers: dict[int, int] = {}  # offset of a record -> whose transaction it is of
        self.markers: dict[int, tuple[int, bool]] = {}  # offset of one -> what it says
        self._held: list[tuple[int, Outcome]] = []
        self.append_error = ErrorCode.NONE
        self.wanted: list[StatesToInitialize] = []
        self.shard = self._new_shard()
        self.carry_out(self.shard.on_loaded(self.now))

    def _new_shard(self) -> GroupShard:
        kinds = group_kinds(
            self.properties, self.settings, self._new_uuid, self._new_member_id, self.metadata, self
        )
        return GroupShard(self.properties, kinds)

    def initialize(self, states: StatesToInitialize) -> None:
        """Note that states of share partitions are wanted."""
        self.wanted.append(states)

    def _new_uuid(self) -> str:
        self._uuids += 1
        return f"uuid{self._uuids}"

    def _new_member_id(self) -> str:
        self._uuids += 1
        return f"id{self._uuids}"

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups.find(self.group_id, ClassicGroup)
        assert group is not None
        return group

    @property
    def state(self) -> str:
        group = self.shard.groups.get(self.group_id)
        return "absent" if group is None else group.state_name

    # --- what the runtime does ---

    def carry_out(self, outcome: Outcome) -> Any:
        """Reply, append, replay; returns the outcome's own response (released or not)."""
        for ticket, response in outcome.replies:
            assert ticket not in self.replies, "a request was answered twice"
            self.replies[ticket] = response
        records = outcome.records if outcome.batch is None else records_of(outcome.batch)
        if not records:
            return outcome.response
        if self.append_error is not ErrorCode.NONE:
            self._settle(outcome, self.append_error, 0)
            return outcome.response
        base_offset = len(self.log)
        self.log += records
        producer_id = NO_PRODUCER_ID
        if outcome.producer is not None:
            producer_id = outcome.producer.producer_id
            self.producers.update(dict.fromkeys(range(base_offset, len(self.log)), producer_id))
        if outcome.replay:
            for offset, record in enumerate(records, base_offset):
                self.shard.replay(
                    offset,
                    *record,
                    self.now,
                    producer_id=producer_id,
                    committed=False,
                    messages=record.messages,
                )
        if outcome.change is not None:
            self.shard.apply(outcome.change, len(self.log), self.now, producer_id=producer_id)
        self._held.append((len(self.log), outcome))
        if not self.hold_commits:
            self.commit()
        return outcome.response

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Append a transaction's end marker."""
        self.markers[len(self.log)] = producer_id, commit
        self.log.append(MARKER)
        self.shard.replay_end_transaction(
            producer_id, len(self.log), self.now, commit=commit, committed=False
        )
        self._held.append((len(self.log), Outcome()))
        if not self.hold_commits:
            self.commit()

    def commit(self) -> None:
        """All that was appended is committed."""
        held, self._held = self._held, []
        for end_offset, outcome in held:
            self._settle(outcome, ErrorCode.NONE, end_offset)

    def fail_appends(self, error: ErrorCode) -> None:
        """All that was appended is lost, as when the leader changes."""
        held, self._held = self._held, []
        for _, outcome in held:
            self._settle(outcome, error, 0)

    def _settle(self, outcome: Outcome, error: ErrorCode, end_offset: int) -> None:
        if error is ErrorCode.NONE:
            self.shard.on_committed(end_offset)
        if outcome.follow_up is not None:
            self.carry_out(self.shard.on_append_done(outcome.follow_up, error, self.now))

    def advance(self, delay_ms: float) -> None:
        """Let time pass, stopping at every deadline on the way."""
        end_ms = self.now.monotonic_ms + delay_ms
        while (due := self.shard.next_deadline_ms()) is not None and due <= end_ms:
            self._set_time(max(due, self.now.monotonic_ms))
            for outcome in self.shard.on_deadline(self.now):
                self.carry_out(outcome)
        self._set_time(end_ms)

    def _set_time(self, monotonic_ms: float) -> None:
        passed = monotonic_ms - self.now.monotonic_ms
        self.now = Now(monotonic_ms, self.now.wall_ms + round(passed))

    def reload(self) -> Self:
        """Another broker takes over: a new context that has replayed this one's log."""
        other = type(self)(
            self.properties, self.group_id, metadata=self.metadata, settings=self.settings
        )
        other.now, other.log, other._uuids = self.now, list(self.log), self._uuids + 100
        other.shard = other._new_shard()
        other.producers, other.markers = dict(self.producers), dict(self.markers)
        for offset, (key, value) in enumerate(self.log):
            if offset in self.markers:
                producer_id, commit = self.markers[offset]
                other.shard.replay_end_transaction(
                    producer_id, offset + 1, other.now, commit=commit
                )
                continue
            producer_id = self.producers.get(offset, NO_PRODUCER_ID)
            other.shard.replay(offset, key, value, other.now, producer_id=producer_id)
        other.carry_out(other.shard.on_loaded(other.now))
        return other

    # --- requests ---

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def send_join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"meta"),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        api_version: int = 9,
        client_id: str = "client",
        client_host: str = "/127.0.0.1",
    ) -> int:
        """Send JoinGroup; returns the ticket."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        )
        ticket = self.ticket()
        client = Client(client_id, client_host, api_version)
        self.carry_out(self.shard.classic_requests.join(request, client, ticket, self.now))
        return ticket

    def joined(self, ticket: int) -> JoinGroupResponse:
        response = self.replies[ticket]
        assert isinstance(response, JoinGroupResponse)
        return response

    def new_member_id(self, **kwargs: Any) -> str:
        """Ask for a member id, as clients do since JoinGroup v4."""
        response = self.joined(self.send_join(**kwargs))
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    def start_member(self, **kwargs: Any) -> tuple[str, int]:
        """Ask for a member id and join with it; returns the id and the join's ticket."""
        member_id = self.new_member_id(**kwargs)
        return member_id, self.send_join(member_id, **kwargs)

    def stable_group(self, count: int = 1, **kwargs: Any) -> list[str]:
        """Make a stable group of dynamic members; the first leads and assigns b"for <id>"."""
        members = [self.start_member(**kwargs) for _ in range(count)]
        self.settle_rebalance(members)
        return [member_id for member_id, _ in members]

    def settle_rebalance(self, members: Sequence[tuple[str, int]]) -> None:
        """Let the joins complete, then sync everybody, the leader last."""
        self.advance(self.properties.group_initial_rebalance_delay_ms)
        ids = [member_id for member_id, _ in members]
        leader = self.joined(members[0][1]).leader
        for member_id in [*(m for m in ids if m != leader), leader]:
            ticket = self.send_sync(
                member_id, {m: f"for {m}".encode() for m in ids} if member_id == leader else {}
            )
        assert self.synced(ticket).error_code == ErrorCode.NONE
        assert self.state == "Stable"

    def send_sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation_id: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = None,
    ) -> int:
        """Send SyncGroup of the current generation; returns the ticket."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.group.generation_id if generation_id is None else generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
        )
        ticket = self.ticket()
        self.carry_out(self.shard.classic_requests.sync(request, ticket, self.now))
        return ticket

    def synced(self, ticket: int) -> SyncGroupResponse:
        response = self.replies[ticket]
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(
        self, member_id: str, *, generation_id: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        if generation_id is None:
            generation_id = self.group.generation_id
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        return ErrorCode(self.shard.classic_requests.heartbeat(request, self.now).error_code)

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        """Send LeaveGroup for (member id, instance id) pairs; returns each one's error."""
        identities = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        response = self.carry_out(
            self.shard.classic_requests.leave(self.group_id, identities, self.now)
        )
        assert isinstance(response, LeaveGroupResponse)
        return [ErrorCode(member.error_code) for member in response.members]

    def commit_offset(
        self,
        topic: str = "topic",
        partition: int = 0,
        offset: int = 1,
        *,
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
        metadata: str | None = None,
        topic_id: bytes = ZERO_UUID,
        leader_epoch: int = -1,
        retention_time_ms: int = -1,
        api_version: int = 9,
        producer: ProducerOfBatch | None = None,
    ) -> ErrorCode:
        """Commit one offset, in a producer's transaction if one is given.

        Raises KafkaError when the group refuses the request.
        """
        entry = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        commit = finish(
            self.shard.prepare_commit(
                Committer(self.group_id, member_id, instance_id, generation_id),
                [NamedPartition(topic, topic_id, entry)],
                self.now,
                retention_time_ms=retention_time_ms,
            )
        )
        if producer is not None:
            outcome = self.shard.commit_offsets_of_transaction(commit, producer)
        else:
            outcome = self.shard.commit_offsets(commit, api_version, self.now)
        assert self.carry_out(outcome) is commit
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if commit.refused else ErrorCode.NONE

    def fetch_offset(
        self,
        topic: str = "topic",
        partition: int = 0,
        *,
        topic_id: bytes = ZERO_UUID,
        require_stable: bool = False,
    ) -> tuple[int, int, str | None, ErrorCode]:
        """Fetch one offset: (offset, leader epoch, metadata, error)."""
        request = OffsetFetchRequestGroup(
            group_id=self.group_id,
            topics=[
                OffsetFetchRequestTopics(
                    name=topic, topic_id=topic_id, partition_indexes=[partition]
                )
            ],
        )
        response = self.shard.fetch_offsets(request, require_stable=require_stable)
        found = response.topics[0].partitions[0]
        return (
            found.committed_offset,
            found.committed_leader_epoch,
            found.metadata,
            ErrorCode(found.error_code),
        )

    def all_offsets(self) -> dict[tuple[str, int], int]:
        request = OffsetFetchRequestGroup(group_id=self.group_id, topics=None)
        response = self.shard.fetch_offsets(request, require_stable=False)
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in response.topics
            for partition in topic.partitions
        }
