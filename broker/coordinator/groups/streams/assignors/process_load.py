"""One process of a Kafka Streams application while tasks are given out: its members and their load.

A process has a member for each of its threads. Its load is its tasks per member. It runs a task at
most once, in whatever role. Called by `sticky`.
"""

from __future__ import annotations

from typing import TypeAlias

from kraftrio.broker.coordinator.groups.streams.assignors.java_order import LoadQueue, hash_order

Task: TypeAlias = tuple[str, int]
"""Subtopology id and partition."""


class ProcessLoad:
    """See the module.

    Attributes:
        load: tasks per member.
        task_counts: by member id.
        active, standby: the tasks given out so far, by member id.
    """

    __slots__ = ("_by_load", "_task_count", "_tasks", "active", "load", "standby", "task_counts")

    def __init__(self) -> None:
        self.load = 0.0
        self.task_counts: dict[str, int] = {}
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        self._tasks: set[Task] = set()
        self._task_count = 0
        self._by_load: LoadQueue[str] | None = None

    def add_member(self, member_id: str) -> None:
        """Take in a member, before there are tasks."""
        self.task_counts[member_id] = 0

    def has_task(self, task: Task) -> bool:
        """Whether some member has a task."""
        return task in self._tasks

    def give(self, member_id: str, task: Task, *, is_active: bool) -> int:
        """Give a task to a member; return how many tasks the member has then."""
        self._by_load = None
        return self._give(member_id, task, is_active=is_active)

    def give_to_least_loaded(self, task: Task, *, is_active: bool) -> int:
        """Give a task to the member with the fewest; return how many tasks it has then."""
        if len(self.task_counts) == 1:
            (only,) = self.task_counts
            return self._give(only, task, is_active=is_active)
        if self._by_load is None:
            self._by_load = LoadQueue(hash_order(self.task_counts), self.task_counts.__getitem__)
        member_id = self._by_load.take()
        count = self._give(member_id, task, is_active=is_active)
        self._by_load.add(member_id)
        return count

    def _give(self, member_id: str, task: Task, *, is_active: bool) -> int:
        self._tasks.add(task)
        given = self.active if is_active else self.standby
        given.setdefault(member_id, []).append(task)
        count = self.task_counts[member_id] + 1
        self.task_counts[member_id] = count
        self._task_count += 1
        self.load = self._task_count / len(self.task_counts)
        return count
