"""Which clients of this process are open, for tests that want to know of those left open.

Called by: the clients, once they are connected to nothing but have their tasks; `kraftrio.testing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio


class Opened(NamedTuple):
    """Where a client was entered: the task, and how many nurseries it had open before."""

    task: trio.lowlevel.Task
    nursery_count: int


_open: dict[object, Opened] = {}


@contextmanager
def noted_as_open(client: object) -> Iterator[None]:
    """Note a client that has opened its nursery, until it is left."""
    task = trio.lowlevel.current_task()
    _open[client] = Opened(task, len(task.child_nurseries) - 1)
    try:
        yield
    finally:
        _open.pop(client, None)


def open_clients() -> dict[object, Opened]:
    """All that are open now, in the order in which they were entered; from any thread."""
    return _open.copy()
