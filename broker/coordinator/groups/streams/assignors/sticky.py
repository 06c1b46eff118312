"""The assignor `sticky`: members keep their tasks as long as all get about equally many (KIP-1071).

Active tasks come first. Each goes to the member that runs it; else to one that keeps its state as a
standby; else to the process with the least load. The first two apply only while the member has
fewer tasks than its share. Standby tasks follow by the same steps, one for each replica, never two
of a task in one process; where there are too few processes some are left out.

A share is an even part of the tasks that are left among the members that have not had theirs yet:
it is computed again whenever a member reaches it.

Decides as Kafka 4.3 does, also between equals (`java_order`), and where that is strange: of several
earlier standbys one replaces the first candidate only if both its process and itself have less
load, and it is the first candidate's process that must not have the task yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.streams.assignors.java_order import (
    LoadQueue,
    hash_order,
    text_order,
)
from kraftrio.broker.coordinator.groups.streams.assignors.process_load import ProcessLoad, Task
from kraftrio.broker.coordinator.groups.streams.assignors.spec import (
    TaskAssignment,
    TaskAssignmentSpec,
    TaskAssignorError,
)
from kraftrio.broker.coordinator.groups.streams.tasks import NO_TASK_SETS, NO_TASKS, Tasks, TaskSets


class StickyTaskAssignor:
    """See the module."""

    name = "sticky"

    def assign(self, spec: TaskAssignmentSpec) -> TaskAssignment:
        """Return the new target assignment; TaskAssignorError as `TaskAssignor.assign`."""
        return _Assignment(spec).compute()


class _Holder(NamedTuple):
    """A member that had a task, and its process."""

    process: ProcessLoad
    member_id: str

    @property
    def task_count(self) -> int:
        return self.process.task_counts[self.member_id]


class _Share:
    """How many tasks each member is to have that has not had its share yet."""

    __slots__ = ("_members", "_tasks", "per_member")

    def __init__(self, task_count: int, member_count: int) -> None:
        self._tasks = task_count
        self._members = member_count
        self.per_member = self._even_part()

    def _even_part(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def note_given(self, task_count: int) -> None:
        """A member has `task_count` tasks now, which may be its full share."""
        if task_count == self.per_member:
            self._members -= 1
            self._tasks -= task_count
            self.per_member = self._even_part()


class _Assignment:
    """One computation."""

    def __init__(self, spec: TaskAssignmentSpec) -> None:
        self._spec = spec
        self._standby_count = spec.standby_replica_count
        members = [(member_id, spec.members[member_id]) for member_id in hash_order(spec.members)]
        self._processes: dict[str, ProcessLoad] = {}
        self._active_holders: dict[Task, _Holder] = {}
        self._standby_holders: dict[Task, list[_Holder]] = defaultdict(list)
        for member_id, member in members:
            process = self._processes.setdefault(member.process_id, ProcessLoad())
            process.add_member(member_id)
            holder = _Holder(process, member_id)
            for name, partitions in member.tasks.active.items():
                for partition in partitions:
                    self._active_holders[name, partition] = holder
            for name, partitions in member.tasks.standby.items():
                for partition in partitions:
                    self._standby_holders[name, partition].append(holder)
        subtopologies = spec.subtopologies.values()
        active_count = sum(one.task_count for one in subtopologies)
        stateful_count = sum(one.task_count for one in subtopologies if one.is_stateful)
        self._active_share = _Share(active_count, len(members))
        self._share = _Share(active_count + stateful_count * self._standby_count, len(members))

    def compute(self) -> TaskAssignment:
        """Give out all tasks."""
        self._assign_active()
        if self._standby_count > 0:
            self._assign_standby()
        given = dict.fromkeys(self._spec.members, NO_TASKS)
        for process in self._processes.values():
            for member_id, task_count in process.task_counts.items():
                if task_count:
                    given[member_id] = Tasks(
                        _task_sets(process.active.get(member_id, ())),
                        _task_sets(process.standby.get(member_id, ())),
                    )
        return given

    def _tasks(self, *, only_stateful: bool) -> list[Task]:
        """Tasks by subtopology, then by partition."""
        return [
            (name, partition)
            for name in sorted(self._spec.subtopologies, key=text_order)
            if self._spec.subtopologies[name].is_stateful or not only_stateful
            for partition in range(self._spec.subtopologies[name].task_count)
        ]

    def _least_loaded(self) -> LoadQueue[ProcessLoad]:
        order = hash_order(self._processes, expected_count=len(self._spec.members))
        return LoadQueue([self._processes[one] for one in order], lambda process: process.load)

    # --- active tasks ---

    def _assign_active(self) -> None:
        tasks = self._tasks(only_stateful=False)
        order = {task: index for index, task in enumerate(tasks)}
        tasks.sort(key=lambda task: task[1])  # stable: by partition, then by subtopology
        tasks = [task for task in tasks if not self._keep_active(task)]
        tasks = [task for task in tasks if not self._promote_standby(task)]
        tasks.sort(key=order.__getitem__)
        queue = self._least_loaded()
        for task in tasks:
            if not queue:
                raise TaskAssignorError(
                    f"No process available to assign active task {task[0]}_{task[1]}."
                )
            process = queue.take()
            self._note_active(process.give_to_least_loaded(task, is_active=True))
            queue.add(process)

    def _keep_active(self, task: Task) -> bool:
        return self._give_active(self._active_holders.get(task), task)

    def _promote_standby(self, task: Task) -> bool:
        return self._give_active(_least_loaded_of(self._standby_holders.get(task, ())), task)

    def _give_active(self, holder: _Holder | None, task: Task) -> bool:
        """Give an active task to a member that had it, unless that has its full share."""
        if holder is None or holder.task_count >= self._active_share.per_member:
            return False
        self._note_active(holder.process.give(holder.member_id, task, is_active=True))
        return True

    def _note_active(self, task_count: int) -> None:
        self._active_share.note_given(task_count)
        self._share.note_given(task_count)

    # --- standby tasks ---

    def _assign_standby(self) -> None:
        tasks = self._tasks(only_stateful=True)
        order = {task: index for index, task in enumerate(tasks)}
        tasks.sort(key=lambda task: task[1])
        left = []
        for task in reversed(tasks):
            missing = self._keep_standbys(task)
            if missing:
                left.append((task, missing))
        left.sort(key=lambda entry: order[entry[0]], reverse=True)
        queue = self._least_loaded()
        for task, missing in left:
            for _ in range(missing):
                if not self._give_standby_to_least_loaded(queue, task):
                    break

    def _keep_standbys(self, task: Task) -> int:
        """Give a task's standbys to members that had it; return how many are still missing."""
        for given in range(self._standby_count):
            if not (
                self._give_standby(self._former_active(task), task)
                or self._give_standby(self._former_standby(task), task)
            ):
                return self._standby_count - given
        return 0

    def _former_active(self, task: Task) -> _Holder | None:
        holder = self._active_holders.get(task)
        return None if holder is None or holder.process.has_task(task) else holder

    def _former_standby(self, task: Task) -> _Holder | None:
        return _least_loaded_of(self._standby_holders.get(task, ()), without=task)

    def _give_standby(self, holder: _Holder | None, task: Task) -> bool:
        if holder is None or holder.task_count >= self._share.per_member:
            return False
        self._share.note_given(holder.process.give(holder.member_id, task, is_active=False))
        return True

    def _give_standby_to_least_loaded(self, queue: LoadQueue[ProcessLoad], task: Task) -> bool:
        """Give a standby to the process with the least load that does not have the task."""
        passed_over = []
        found = False
        while queue and not found:
            process = queue.take()
            passed_over.append(process)
            if not process.has_task(task):
                self._share.note_given(process.give_to_least_loaded(task, is_active=False))
                found = True
        for process in reversed(passed_over):
            queue.add(process)
        return found


def _least_loaded_of(holders: Sequence[_Holder], *, without: Task | None = None) -> _Holder | None:
    """Choose among the holders of a standby; see the module for its quirks."""
    if not holders:
        return None
    candidate = holders[0]
    process_load, task_count = candidate.process.load, candidate.task_count
    for holder in holders[1:]:
        if (
            holder.process.load < process_load
            and (without is None or not holder.process.has_task(without))
            and holder.task_count < task_count
        ):
            candidate = holder
            process_load, task_count = holder.process.load, holder.task_count
    if without is not None and holders[0].process.has_task(without):
        return None
    return candidate


def _task_sets(tasks: Iterable[Task]) -> TaskSets:
    partitions: dict[str, set[int]] = {}
    for name, partition in tasks:
        partitions.setdefault(name, set()).add(partition)
    return {name: frozenset(each) for name, each in partitions.items()} or NO_TASK_SETS
