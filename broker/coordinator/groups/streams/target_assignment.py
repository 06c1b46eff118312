"""Computes the target assignment of a streams group, and the records that store what is new in it.

Called by a heartbeat that finds the target older than its group, and when a new group has waited
for its first members.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.broker.coordinator.groups.properties import GroupSettingsPort
from kraftrio.broker.coordinator.groups.streams.assignors.java_order import hash_order
from kraftrio.broker.coordinator.groups.streams.assignors.spec import (
    StreamsMemberSpec,
    SubtopologySpec,
    TaskAssignment,
    TaskAssignmentSpec,
    TaskAssignor,
    TaskAssignorError,
)
from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroup
from kraftrio.broker.coordinator.groups.streams.member import StreamsMember
from kraftrio.broker.coordinator.groups.streams.records import TARGET_RECORDS
from kraftrio.broker.coordinator.groups.streams.tasks import NO_TASKS
from kraftrio.broker.coordinator.groups.streams.topology.configured_topology import (
    ConfiguredTopology,
)
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now
from kraftrio.wire.errors import ErrorCode, KafkaError

STANDBY_REPLICAS_CONFIG = "num.standby.replicas"
"""The name of the assignor's only setting in the records."""


def assignment_configs(settings: GroupSettingsPort, group_id: str) -> Mapping[str, str]:
    """The settings of a group that the assignor is given, as the records have them."""
    return {STANDBY_REPLICAS_CONFIG: str(settings.number(group_id, "streams.num.standby.replicas"))}


def compute_target(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    configs: Mapping[str, str],
    assignor: TaskAssignor,
) -> TaskAssignment:
    """Return what each member is to have: nothing while the topics do not let the topology run.

    Args:
        members: of the group, with changes that are not replayed yet.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR: the assignor failed.
    """
    if not configured.is_ready:
        return dict.fromkeys(members, NO_TASKS)
    spec = TaskAssignmentSpec(
        members={
            member_id: StreamsMemberSpec(member.metadata.process_id, group.target.of(member_id))
            for member_id, member in members.items()
        },
        subtopologies={
            name: SubtopologySpec(one.task_count, one.is_stateful)
            for name, one in configured.subtopologies.items()
        },
        standby_replica_count=int(configs.get(STANDBY_REPLICAS_CONFIG, "0")),
    )
    try:
        return assignor.assign(spec)
    except TaskAssignorError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to compute a new target assignment: {error}"
        ) from error


def target_records(
    group: StreamsGroup, target: TaskAssignment, group_epoch: int, now: Now
) -> list[CoordinatorRecord]:
    """Make the records that turn a group's target into a new one, in Kafka's order."""
    return group.target.records_to(
        target, hash_order(target), TARGET_RECORDS, group.group_id, group_epoch, now
    )
