"""One streams group: what its records say, and what is known besides.

The state follows from the rest:

    EMPTY       no members. Offsets may be committed by hand, the group may be deleted.
    NOT_READY   the topics do not let the topology run: no tasks.
    ASSIGNING   a target assignment for the group epoch is still to be computed.
    RECONCILING members give up tasks, or wait for them.
    STABLE      all members have what the target gives them.
    DEAD        deleted; no group has it.

Not in the records are: the configured topology, when topics are to be looked at again, who asked
the whole application to shut down, and how often the endpoints' tasks have changed. A failover
loses them, as in Kafka: the first two are determined again, and of the endpoint epoch only matters
whether it differs from the member's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from kraftrio.broker.coordinator.groups.modern import offset_checks
from kraftrio.broker.coordinator.groups.modern.member_state import LEAVE_EPOCH
from kraftrio.broker.coordinator.groups.modern.metadata_refresh import MetadataRefresh
from kraftrio.broker.coordinator.groups.modern.target_assignment import TargetAssignment
from kraftrio.broker.coordinator.groups.streams.member import StreamsMember
from kraftrio.broker.coordinator.groups.streams.task_owners import TaskOwners
from kraftrio.broker.coordinator.groups.streams.tasks import NO_ASSIGNED_TASKS, NO_TASKS
from kraftrio.broker.coordinator.groups.streams.topology.configured_topology import (
    ConfiguredTopology,
)
from kraftrio.broker.coordinator.groups.streams.topology.topology import StreamsTopology
from kraftrio.wire.errors import ErrorCode, KafkaError

STREAMS_GROUP_TYPE = "streams"
_PROTOCOL_TYPE = "streams"
_FIRST_EPOCH = 1  # of the group and its target, before anybody has joined


class StreamsGroupState(Enum):
    """See the module; values are the names on the wire."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsGroup:
    """See the module.

    Attributes:
        metadata_hash: of the topics that the topology needs, as of the group epoch.
        validated_topology_epoch: of the topology whose topics were all there as of the group epoch.
        assignment_configs: what the assignor was given for the group epoch.
        target: what each member is to have.
        configured: the topology with the topics as they were when the group last looked; None: it
            has not looked yet.
        shutdown_member_id: who asked the application to shut down.
        endpoint_epoch: goes up with each change of the tasks at the members' endpoints.

    Args:
        topic_name: returns the name of the topic that has an id now.
    """

    def __init__(self, group_id: str, topic_name: Callable[[bytes], str | None]) -> None:
        self.group_id = group_id
        self._topic_name = topic_name
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = 0
        self.assignment_configs: dict[str, str] = {}
        self.target = TargetAssignment(NO_TASKS, _FIRST_EPOCH)
        self.topology: StreamsTopology | None = None
        self.configured: ConfiguredTopology | None = None
        self.refresh = MetadataRefresh()
        self.shutdown_member_id: str | None = None
        self.endpoint_epoch = 0
        self.owners = TaskOwners()
        self._members: dict[str, StreamsMember] = {}

    # --- members ---

    @property
    def members(self) -> Mapping[str, StreamsMember]:
        """The members by id."""
        return self._members

    def member(self, member_id: str) -> StreamsMember:
        """Return a member; KafkaError UNKNOWN_MEMBER_ID."""
        member = self._members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def put(self, member: StreamsMember) -> None:
        """Add a member, or replace it."""
        former = self._members.get(member.member_id)
        if former is None or _held_by(former) != _held_by(member):
            self._release_tasks(former)
            for tasks in (member.assigned, member.pending_revocation):
                self.owners.add(tasks, member.metadata.process_id)
        self._members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Drop a member, if there is one; who asked for a shutdown is forgotten with the last."""
        self._release_tasks(self._members.pop(member_id, None))
        if not self._members:
            self.shutdown_member_id = None

    def _release_tasks(self, former: StreamsMember | None) -> None:
        if former is not None:
            process_id = former.metadata.process_id
            self.owners.remove(former.assigned, process_id)
            self.owners.remove(former.pending_revocation, process_id)

    def reset(self, member_id: str) -> None:
        """Take away a member's tasks and epoch, since the record of them was deleted."""
        member = self._members.get(member_id)
        if member is not None:
            self.put(
                member._replace(
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=NO_ASSIGNED_TASKS,
                    pending_revocation=NO_ASSIGNED_TASKS,
                )
            )

    def is_ready_for(self, member: StreamsMember) -> bool:
        """Whether the topics let a member run its topology, as of the group's last look at them.

        Of a topology that was stored since then it is not known yet.
        """
        topology, configured = self.topology, self.configured
        return (
            topology is not None
            and configured is not None
            and configured.is_ready
            and configured.epoch == self.validated_topology_epoch
            and member.metadata.topology_epoch >= topology.epoch
        )

    # --- what any group is asked ---

    @property
    def group_type(self) -> str:
        return STREAMS_GROUP_TYPE

    @property
    def protocol_type(self) -> str | None:
        return _PROTOCOL_TYPE

    @property
    def state(self) -> StreamsGroupState:
        """See the module."""
        if not self._members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target.epoch:
            return StreamsGroupState.ASSIGNING
        if all(one.is_reconciled_to(self.target.epoch) for one in self._members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members."""
        return not self._members

    def has_member(self, member_id: str) -> bool:
        return member_id in self._members

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether tasks read a topic, while there are members."""
        return (
            bool(self._members)
            and self.topology is not None
            and topic in self.topology.subtopology_by_topic
        )

    def may_expire_offsets(self, topic: str) -> bool:
        return not self.is_subscribed_to(topic)

    def retention_start_ms(self, commit_timestamp_ms: int) -> int:
        return commit_timestamp_ms

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self._members else ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

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
            self._members,
            member_id,
            group_instance_id,
            generation_id,
            self._assigned_in,
            transactional=transactional,
            api_version=api_version,
            partitions=partitions,
        )

    def _assigned_in(self, member: StreamsMember, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which a member got the task that reads a partition; None: it has no such."""
        if self.topology is None:
            return None
        topic = self._topic_name(topic_id)
        subtopology_id = self.topology.subtopology_by_topic.get(topic or "")
        if subtopology_id is None:
            return None
        for tasks in (member.assigned, member.pending_revocation):
            assignment_epoch = tasks.active.get(subtopology_id, {}).get(partition)
            if assignment_epoch is not None:
                return assignment_epoch
        return None

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return offset_checks.check_fetch(self._members, member_id, member_epoch)


def _held_by(member: StreamsMember) -> tuple[object, ...]:
    """What the owners of tasks get to know about a member."""
    return member.metadata.process_id, member.assigned, member.pending_revocation
