"""One heartbeat of a member of a streams group: what it changes, and what is answered.

In this order, as in Kafka 4.3:
1. The group, made by whoever joins first, and the member, whose epoch must be the one known.
2. What the member says of itself; anything new bumps the group epoch.
3. The topology, which the first member brings; others must bring the same one, or an older one.
4. The topics: a change of those that the topology needs bumps the group epoch, too.
5. The target assignment, once the group epoch is beyond it, not too soon after the last one.
6. The member's next step towards its part of the target.

Records are all that changes a group; they are replayed once they are appended. What is not in
records (see `group_state`) is changed here. Called by `groups`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.classic.records import group_tombstone
from kraftrio.broker.coordinator.groups.group import GroupRegistry
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import KeptSettings
from kraftrio.broker.coordinator.groups.modern.member_state import JOIN_EPOCH
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettingsPort
from kraftrio.broker.coordinator.groups.streams.assignors.sticky import StickyTaskAssignor
from kraftrio.broker.coordinator.groups.streams.endpoints import partitions_by_endpoint
from kraftrio.broker.coordinator.groups.streams.group_state import STREAMS_GROUP_TYPE, StreamsGroup
from kraftrio.broker.coordinator.groups.streams.member import (
    StreamsMember,
    StreamsMemberState,
    UserEndpoint,
)
from kraftrio.broker.coordinator.groups.streams.member_checks import (
    check_member_epoch,
    check_tasks_exist,
    owned_tasks,
)
from kraftrio.broker.coordinator.groups.streams.member_deadlines import MemberDeadlines
from kraftrio.broker.coordinator.groups.streams.reconciliation import StreamsTarget, reconcile
from kraftrio.broker.coordinator.groups.streams.records import (
    current_assignment_record,
    group_record,
    member_record,
    topology_record,
)
from kraftrio.broker.coordinator.groups.streams.target_assignment import (
    compute_target,
    target_records,
)
from kraftrio.broker.coordinator.groups.streams.tasks import NO_TASKS
from kraftrio.broker.coordinator.groups.streams.topology.configured_topology import (
    ConfiguredTopology,
    InternalTopic,
)
from kraftrio.broker.coordinator.groups.streams.topology.topic_problem import HeartbeatStatus
from kraftrio.broker.coordinator.groups.streams.topology.topics import GroupTopics
from kraftrio.broker.coordinator.groups.streams.topology.topology import (
    StreamsTopology,
    check_topology,
    topology_from_record,
    topology_record_value,
)
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatStatus,
    StreamsGroupHeartbeatTaskIds,
)


class HeartbeatResult(NamedTuple):
    """The result of a heartbeat: the response, and internal topics that the broker is to make."""

    response: StreamsGroupHeartbeatResponse
    missing_topics: tuple[InternalTopic, ...] = ()


class HeartbeatSender(NamedTuple):
    """Who sends a heartbeat, as the connection knows it."""

    client_id: str
    client_host: str


@dataclass(slots=True)
class _Heartbeat:
    """One heartbeat that is being served."""

    request: StreamsGroupHeartbeatRequest
    group: StreamsGroup
    former: StreamsMember
    member: StreamsMember
    now: Now
    records: list[CoordinatorRecord]
    statuses: list[StreamsGroupHeartbeatStatus] = field(default_factory=list)
    bumps_epoch: bool = False

    def add_status(self, status: HeartbeatStatus, detail: str) -> None:
        """Add a status to the response."""
        self.statuses.append(StreamsGroupHeartbeatStatus(status_code=status, status_detail=detail))


class StreamsHeartbeats:
    """Serves the heartbeats of one shard's streams groups."""

    def __init__(
        self,
        registry: GroupRegistry,
        properties: GroupProperties,
        settings: GroupSettingsPort,
        topics: GroupTopics,
        deadlines: MemberDeadlines,
        configs: KeptSettings[Mapping[str, str]],
    ) -> None:
        self._registry = registry
        self._properties = properties
        self._settings = settings
        self._configs = configs  # what the assignor is given
        self._topics = topics
        self._deadlines = deadlines
        self._assignor = StickyTaskAssignor()

    # --- what changes nothing ---

    def unchanged(
        self, request: StreamsGroupHeartbeatRequest, sender: HeartbeatSender, now: Now
    ) -> StreamsGroupHeartbeatResponse | None:
        """Answer a heartbeat that changes nothing; None: it may change something.

        The answer has nothing that the member does not know, so it need not wait for records that
        are not committed yet.
        """
        group = self._registry.get(request.group_id)
        if not isinstance(group, StreamsGroup) or not _is_unchanged(request):
            return None
        member = group.members.get(request.member_id)
        epoch = group.epoch
        if (
            member is None
            or not epoch == group.target.epoch == request.member_epoch
            or not member.is_reconciled_to(epoch)
            or member.metadata.client_id != sender.client_id
            or member.metadata.client_host != sender.client_host
            or not group.is_ready_for(member)
            or group.refresh.is_due(epoch, now.monotonic_ms)
            or group.endpoint_epoch != request.endpoint_information_epoch
            or group.shutdown_member_id is not None
            or group.assignment_configs != self.assignment_configs(request.group_id)
            or self._deadlines.is_first_assignment_delayed(request.group_id)
        ):
            return None
        self._deadlines.prolong_session(request.group_id, request.member_id, now)
        return StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=self._deadlines.times.of(request.group_id).interval_ms,
            status=[],
            endpoint_information_epoch=group.endpoint_epoch,
        )

    # --- serving in full ---

    def serve(
        self, request: StreamsGroupHeartbeatRequest, sender: HeartbeatSender, now: Now
    ) -> tuple[HeartbeatResult, list[CoordinatorRecord]]:
        """Return the answer to a heartbeat, and the records that it depends on.

        Raises:
            KafkaError: the whole heartbeat is refused; nothing has changed.
        """
        heartbeat = self._begin(request, sender, now)
        topology = self._update_topology(heartbeat)
        configured, metadata_hash = self._configure(heartbeat, topology)
        configs = self.assignment_configs(request.group_id)
        group_epoch = self._bump_epoch_if_needed(heartbeat, configured, metadata_hash, configs)
        if heartbeat.group.is_unused:
            self._deadlines.delay_first_assignment(request.group_id, now)
        target = self._update_target(heartbeat, group_epoch, configured, configs)
        self._reconcile(heartbeat, target)
        self._deadlines.prolong_session(request.group_id, request.member_id, now)
        if request.shutdown_application and heartbeat.group.shutdown_member_id is None:
            heartbeat.group.shutdown_member_id = request.member_id
        response = self._response(heartbeat, configured)
        return HeartbeatResult(response, configured.missing_topics), heartbeat.records

    def first_target(self, group: StreamsGroup, now: Now) -> list[CoordinatorRecord]:
        """Compute the first target of a group that has waited for members."""
        if group.is_unused or group.epoch <= group.target.epoch or group.topology is None:
            return []
        configured = group.configured or self._topics.configure(group.topology)
        target = compute_target(
            group, group.members, configured, group.assignment_configs, self._assignor
        )
        return target_records(group, target, group.epoch, now)

    def assignment_configs(self, group_id: str) -> Mapping[str, str]:
        """The settings of a group that the assignor is given."""
        return self._configs.of(group_id)

    # --- the steps ---

    def _begin(
        self, request: StreamsGroupHeartbeatRequest, sender: HeartbeatSender, now: Now
    ) -> _Heartbeat:
        """Steps 1 and 2."""
        records: list[CoordinatorRecord] = []
        is_joining = request.member_epoch == JOIN_EPOCH
        if is_joining:
            group = self._group_to_join(request.group_id, records)
            if len(group.members) >= self._properties.group_streams_max_size:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    "The streams group has reached its maximum capacity of "
                    f"{self._properties.group_streams_max_size} members.",
                )
            former = group.members.get(request.member_id, StreamsMember(request.member_id))
        else:
            group = self.find(request.group_id)
            former = group.member(request.member_id)
        check_member_epoch(former, request)
        member = _updated_member(former, request, sender)
        heartbeat = _Heartbeat(request, group, former, member, now, records)
        if member != former:
            records.append(member_record(request.group_id, member))
            heartbeat.bumps_epoch = True
        return heartbeat

    def find(self, group_id: str) -> StreamsGroup:
        """Return a group; KafkaError GROUP_ID_NOT_FOUND."""
        return self._registry.require(
            group_id, StreamsGroup, STREAMS_GROUP_TYPE, missing="Streams group"
        )

    def _group_to_join(self, group_id: str, records: list[CoordinatorRecord]) -> StreamsGroup:
        """Return the group that a member joins, a new one unless there is one.

        An empty classic group gives way: its tombstone comes first.
        """
        group = self._registry.get(group_id)
        if group is None:
            return StreamsGroup(group_id, self._topics.name_of)
        if isinstance(group, ClassicGroup) and group.is_unused:
            records.append(group_tombstone(group_id))
            return StreamsGroup(group_id, self._topics.name_of)
        return self.find(group_id)

    def _update_topology(self, heartbeat: _Heartbeat) -> StreamsTopology:
        """Step 3."""
        request, group = heartbeat.request, heartbeat.group
        topology = group.topology
        if request.topology is not None:
            value = topology_record_value(request.topology)
            check_topology(value)
            brought = topology_from_record(value)
            if topology is None:
                heartbeat.records.append(topology_record(request.group_id, value))
                return brought
            if topology.epoch <= brought.epoch and topology != brought:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet."
                )
        if topology is None:
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY, "The group has no topology; a member must join."
            )
        own_epoch = heartbeat.member.metadata.topology_epoch
        if own_epoch < topology.epoch:
            heartbeat.add_status(
                HeartbeatStatus.STALE_TOPOLOGY,
                f"The member's topology epoch {own_epoch} is behind "
                f"the group's topology epoch {topology.epoch}.",
            )
        return topology

    def _configure(
        self, heartbeat: _Heartbeat, topology: StreamsTopology
    ) -> tuple[ConfiguredTopology, int]:
        """Step 4: the topology with its topics, and the hash of these."""
        group, now_ms = heartbeat.group, heartbeat.now.monotonic_ms
        configured = group.configured if group.topology is not None else None
        if configured is not None and not group.refresh.is_due(group.epoch, now_ms):
            return configured, group.metadata_hash
        metadata_hash = self._topics.hash_of(topology)
        if metadata_hash != group.metadata_hash:
            heartbeat.bumps_epoch = True
        else:
            group.refresh.note(group.epoch, now_ms)
        if configured is None or metadata_hash != group.metadata_hash:
            configured = self._topics.configure(topology)
            group.configured = configured
        return configured, metadata_hash

    def _bump_epoch_if_needed(
        self,
        heartbeat: _Heartbeat,
        configured: ConfiguredTopology,
        metadata_hash: int,
        configs: Mapping[str, str],
    ) -> int:
        """Return the group epoch: the next one if the assignment may have to change."""
        group, request = heartbeat.group, heartbeat.request
        validated_epoch = -1
        if configured.is_ready:
            validated_epoch = configured.epoch
            for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
                if tasks:
                    check_tasks_exist(tasks, configured)
        if not (
            heartbeat.bumps_epoch
            or validated_epoch != group.validated_topology_epoch
            or configs != group.assignment_configs
        ):
            return group.epoch
        group_epoch = group.epoch + 1
        heartbeat.records.append(
            group_record(request.group_id, group_epoch, metadata_hash, validated_epoch, configs)
        )
        group.refresh.note(group_epoch, heartbeat.now.monotonic_ms)
        return group_epoch

    def _update_target(
        self,
        heartbeat: _Heartbeat,
        group_epoch: int,
        configured: ConfiguredTopology,
        configs: Mapping[str, str],
    ) -> StreamsTarget:
        """Step 5: what the member is to have."""
        group, member_id = heartbeat.group, heartbeat.request.member_id
        if self._deadlines.is_first_assignment_delayed(group.group_id):
            heartbeat.add_status(
                HeartbeatStatus.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured initial rebalance delay.",
            )
            return StreamsTarget(group.target.epoch, NO_TASKS)
        if group.target.epoch >= group_epoch:
            return StreamsTarget(group.target.epoch, group.target.of(member_id))
        interval_ms = self._settings.number(group.group_id, "streams.assignment.interval.ms")
        if not group.target.may_be_computed(interval_ms, heartbeat.now):
            heartbeat.add_status(
                HeartbeatStatus.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured assignment interval.",
            )
            return StreamsTarget(group.target.epoch, group.target.of(member_id))
        members = {**group.members, member_id: heartbeat.member}
        target = compute_target(group, members, configured, configs, self._assignor)
        heartbeat.records += target_records(group, target, group_epoch, heartbeat.now)
        return StreamsTarget(group_epoch, target[member_id])

    def _reconcile(self, heartbeat: _Heartbeat, target: StreamsTarget) -> None:
        """Step 6."""
        group_id, member = heartbeat.group.group_id, heartbeat.member
        owned = owned_tasks(heartbeat.request)
        reconciled = reconcile(member, target, owned, heartbeat.group.owners)
        if reconciled == member:
            return
        heartbeat.member = reconciled
        heartbeat.records.append(current_assignment_record(group_id, reconciled))
        if reconciled.state is StreamsMemberState.UNREVOKED_TASKS:
            self._deadlines.await_revocation(group_id, reconciled, heartbeat.now)
        else:
            self._deadlines.revocation_is_over(group_id, reconciled.member_id)

    # --- the response ---

    def _response(
        self, heartbeat: _Heartbeat, configured: ConfiguredTopology
    ) -> StreamsGroupHeartbeatResponse:
        request, group, member = heartbeat.request, heartbeat.group, heartbeat.member
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._deadlines.times.of(request.group_id).interval_ms,
            status=heartbeat.statuses,
        )
        if request.member_epoch == JOIN_EPOCH or member.assigned != heartbeat.former.assigned:
            response.active_tasks = _task_ids(member.assigned.active)
            response.standby_tasks = _task_ids(member.assigned.standby)
            response.warmup_tasks = _task_ids(member.assigned.warmup)
            if member.metadata.user_endpoint is not None:
                group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_information_epoch:
            others = [one for one in group.members.values() if one.member_id != member.member_id]
            response.partitions_by_user_endpoint = partitions_by_endpoint(
                (*others, member), configured, self._topics.partition_count
            )
        if self._registry.get(request.group_id) is group:
            # A group that is made only now begins to count once its records are appended.
            response.endpoint_information_epoch = group.endpoint_epoch
        if configured.problem is not None:
            heartbeat.add_status(configured.problem.status, configured.problem.detail)
        if group.shutdown_member_id is not None:
            heartbeat.add_status(
                HeartbeatStatus.SHUTDOWN_APPLICATION,
                f"Streams group member {group.shutdown_member_id} encountered a fatal error "
                "and requested a shutdown for the entire application.",
            )
        return response


def _is_unchanged(request: StreamsGroupHeartbeatRequest) -> bool:
    """Whether a request has only what every heartbeat has."""
    return (
        request.member_epoch > JOIN_EPOCH
        and request.topology is None
        and request.active_tasks is None
        and request.standby_tasks is None
        and request.warmup_tasks is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.process_id is None
        and request.user_endpoint is None
        and request.client_tags is None
        and not request.shutdown_application
    )


def _updated_member(
    member: StreamsMember, request: StreamsGroupHeartbeatRequest, sender: HeartbeatSender
) -> StreamsMember:
    """Return a member with the fields that its request sets."""
    fields: dict[str, Any] = {"client_id": sender.client_id, "client_host": sender.client_host}
    if request.rack_id is not None:
        fields["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        fields["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        fields["topology_epoch"] = request.topology.epoch
    if request.process_id is not None:
        fields["process_id"] = request.process_id
    if request.client_tags is not None:
        tags = {tag.key: tag.value for tag in request.client_tags}
        fields["client_tags"] = tuple(sorted(tags.items()))
    if request.user_endpoint is not None:
        fields["user_endpoint"] = UserEndpoint(
            request.user_endpoint.host, request.user_endpoint.port
        )
    metadata = member.metadata
    if all(getattr(metadata, name) == value for name, value in fields.items()):
        return member
    return member._replace(metadata=metadata._replace(**fields))


def _task_ids(tasks: Mapping[str, Collection[int]]) -> list[StreamsGroupHeartbeatTaskIds]:
    return [
        StreamsGroupHeartbeatTaskIds(subtopology_id=name, partitions=sorted(tasks[name]))
        for name in sorted(tasks)
    ]
