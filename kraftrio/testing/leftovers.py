"""What a test leaves open: clients and tasks, named, and closed after it.

Owns: `LeftOpen`, `new_clients` for tests with real sockets, and `Leftovers` for those in virtual
time, which also unwinds what was entered and never left: Trio could not go on otherwise.

Called by: `kafka_world` and `plugin`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import trio

from kraftrio.clients.diagnostics.open_clients import open_clients
from kraftrio.testing.traffic.traffic import TEST_CLIENT_ID


class LeftOpen(AssertionError):
    """A test has ended, and something that it has opened has not."""

    def __init__(self, names: Iterable[str]) -> None:
        listed = ", ".join(names)
        super().__init__(
            f"the test has ended, but left open: {listed}; enter clients with `async with`, and"
            " start tasks in a nursery that the test leaves"
        )


def new_clients(before: Collection[object]) -> list[object]:
    """The clients that are open now and were not before, without those that tests look with."""
    return [
        client
        for client in open_clients()
        if client not in before and getattr(client, "config").client_id != TEST_CLIENT_ID  # noqa: B009
    ]


class Leftovers:
    """What the current task opens from now on."""

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()
        self._nursery_count = len(self._task.child_nurseries)
        self._clients_before = open_clients()
        self._system_tasks_before = set(_system_tasks())

    async def close(self) -> list[str]:
        """Close all of it, the newest first; return the names of what was open."""
        names = [repr(client) for client in new_clients(self._clients_before)]
        names += [
            f"task {task.name}" for task in _system_tasks() if task not in self._system_tasks_before
        ]
        while len(self._task.child_nurseries) > self._nursery_count:
            position = len(self._task.child_nurseries) - 1
            client = self._client_at(position)
            if client is None:
                names += await self._end_nursery(self._task.child_nurseries[position])
            else:
                # Without a scope of ours around it, which would be left after what it is inside of.
                await client.__aexit__(None, None, None)
        return names

    def _client_at(self, position: int) -> Any:
        """The client that has opened a nursery of the task, if one has."""
        for client, opened in open_clients().items():
            if opened.task is self._task and opened.nursery_count == position:
                return client
        return None

    @staticmethod
    async def _end_nursery(nursery: trio.Nursery) -> list[str]:
        """Cancel and leave a nursery as its `async with` would; return the names of its tasks."""
        names = [f"task {task.name}" for task in nursery.child_tasks]
        nursery.cancel_scope.cancel()
        inside: Any = nursery
        error = await inside._nested_child_finished(None)
        inside.cancel_scope._close(error)
        return names or ["a nursery without tasks"]


def _system_tasks() -> list[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return [task for nursery in root.child_nurseries for task in nursery.child_tasks]
