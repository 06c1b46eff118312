"""What a task assignor is given and what it gives back (KIP-1071).

Rules: an assignor is a pure function of the `TaskAssignmentSpec`; the order of its members counts
where two of them are equally good, as in Kafka. It changes nothing that it is given.

Called by `streams/target_assignment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from kraftrio.broker.coordinator.groups.streams.tasks import Tasks


class StreamsMemberSpec(NamedTuple):
    """One member: which process it is a thread of, and its part of the current target."""

    process_id: str
    tasks: Tasks


class SubtopologySpec(NamedTuple):
    """One subtopology: its tasks are numbered from 0 on; stateful ones may have standbys."""

    task_count: int
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class TaskAssignmentSpec:
    """A streams group, as its assignor sees it.

    Attributes:
        members: by member id.
        subtopologies: by subtopology id.
        standby_replica_count: how many standby tasks each stateful task is to have.
    """

    members: Mapping[str, StreamsMemberSpec]
    subtopologies: Mapping[str, SubtopologySpec]
    standby_replica_count: int


TaskAssignment: TypeAlias = Mapping[str, Tasks]
"""What each member is to run, by member id; every member has an entry."""


class TaskAssignorError(Exception):
    """There are tasks, and no process to give them to."""


class TaskAssignor(Protocol):
    """Decides who runs which tasks, as Kafka's assignor of the same name does."""

    @property
    def name(self) -> str: ...

    def assign(self, spec: TaskAssignmentSpec) -> TaskAssignment:
        """Return the new target assignment.

        Raises:
            TaskAssignorError: there are tasks, and no members.
        """
