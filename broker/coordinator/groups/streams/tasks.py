"""Tasks of a streams group: a subtopology at work on one partition of its input.

A member's tasks are kept by role: active ones do the work, standby ones keep a copy of its state,
warm-up ones prepare to take an active one over. `Tasks` are what a member is to have, or says that
it has; `AssignedTasks` are what the group has given it, active tasks with the assignment epoch that
each was given at, below which the member's commits for it are fenced.

Values: nothing here changes. No subtopology without partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

TaskSets: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by subtopology id."""

TaskEpochs: TypeAlias = Mapping[str, Mapping[int, int]]
"""Assignment epochs by partition by subtopology id."""

NO_TASK_SETS: Final[TaskSets] = MappingProxyType({})
NO_TASK_EPOCHS: Final[TaskEpochs] = MappingProxyType({})


class Tasks(NamedTuple):
    """Tasks by role."""

    active: TaskSets = NO_TASK_SETS
    standby: TaskSets = NO_TASK_SETS
    warmup: TaskSets = NO_TASK_SETS

    @property
    def is_empty(self) -> bool:
        """Whether there is no task in any role."""
        return not (self.active or self.standby or self.warmup)

    def contains_any(self, given: AssignedTasks) -> bool:
        """Whether some task is among those given, in the same role."""
        return (
            _share_a_task(self.active, given.active)
            or _share_a_task(self.standby, given.standby)
            or _share_a_task(self.warmup, given.warmup)
        )


class AssignedTasks(NamedTuple):
    """Tasks by role, active ones with their assignment epochs."""

    active: TaskEpochs = NO_TASK_EPOCHS
    standby: TaskSets = NO_TASK_SETS
    warmup: TaskSets = NO_TASK_SETS

    @property
    def is_empty(self) -> bool:
        """Whether there is no task in any role."""
        return not (self.active or self.standby or self.warmup)

    def merge(self, other: AssignedTasks) -> AssignedTasks:
        """Join with others; an epoch of theirs replaces ours."""
        active = {name: dict(epochs) for name, epochs in self.active.items()}
        for name, epochs in other.active.items():
            active.setdefault(name, {}).update(epochs)
        return AssignedTasks(
            active, _merge(self.standby, other.standby), _merge(self.warmup, other.warmup)
        )


NO_TASKS: Final = Tasks()
NO_ASSIGNED_TASKS: Final = AssignedTasks()


def task_sets(tasks: Iterable[tuple[str, Iterable[int]]]) -> TaskSets:
    """Make task sets of (subtopology id, partitions); of an id that comes twice the last counts."""
    return {name: frozenset(partitions) for name, partitions in tasks}


def _share_a_task(one: TaskSets, other: Mapping[str, Collection[int]]) -> bool:
    return any(not partitions.isdisjoint(other.get(name, ())) for name, partitions in one.items())


def _merge(one: TaskSets, other: TaskSets) -> TaskSets:
    return {
        name: one.get(name, frozenset()) | other.get(name, frozenset())
        for name in dict.fromkeys((*one, *other))
    }
