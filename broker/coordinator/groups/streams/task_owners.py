"""Which processes have which tasks, assigned or still to be given up.

An active task has one owner in the group. Of a task that is kept warm each process has one copy at
most, in whatever role. Called by the group for each member that is replaced or goes.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.streams.tasks import AssignedTasks, TaskSets

_Standbys = dict[tuple[str, int], set[str]]


class TaskOwners:
    """See the module; tasks are (subtopology id, partition)."""

    __slots__ = ("_active", "_standby", "_warmup")

    def __init__(self) -> None:
        self._active: dict[tuple[str, int], str] = {}
        self._standby: _Standbys = {}
        self._warmup: _Standbys = {}

    def snapshot(self) -> tuple[object, ...]:
        """A copy of everything, for comparisons."""
        return (
            dict(self._active),
            *(
                {task: frozenset(processes) for task, processes in owners.items()}
                for owners in (self._standby, self._warmup)
            ),
        )

    def add(self, tasks: AssignedTasks, process_id: str) -> None:
        """A process has tasks."""
        for name, partitions in tasks.active.items():
            for partition in partitions:
                self._active[name, partition] = process_id
        _add(self._standby, tasks.standby, process_id)
        _add(self._warmup, tasks.warmup, process_id)

    def remove(self, tasks: AssignedTasks, process_id: str) -> None:
        """A process does not have tasks any longer."""
        for name, partitions in tasks.active.items():
            for partition in partitions:
                if self._active.get((name, partition)) == process_id:
                    del self._active[name, partition]
        _remove(self._standby, tasks.standby, process_id)
        _remove(self._warmup, tasks.warmup, process_id)

    def has_active(self, task: tuple[str, int]) -> bool:
        """Whether some process has a task as its active one."""
        return task in self._active

    def is_active_of(self, task: tuple[str, int], process_id: str) -> bool:
        """Whether it is this process."""
        return self._active.get(task) == process_id

    def is_kept_by(self, task: tuple[str, int], process_id: str) -> bool:
        """Whether a process has a task as a standby, or warms it up."""
        return process_id in self._standby.get(task, ()) or process_id in self._warmup.get(task, ())


def _add(owners: _Standbys, tasks: TaskSets, process_id: str) -> None:
    for name, partitions in tasks.items():
        for partition in partitions:
            owners.setdefault((name, partition), set()).add(process_id)


def _remove(owners: _Standbys, tasks: TaskSets, process_id: str) -> None:
    for name, partitions in tasks.items():
        for partition in partitions:
            of_task = owners.get((name, partition))
            if of_task is not None:
                of_task.discard(process_id)
                if not of_task:
                    del owners[name, partition]
