"""The lives of the nodes and clients of a simulation, and which of them a task belongs to.

Owns: `Incarnation` and `current`, which every task of a node inherits from the one that started it.

Called by: `world`, `work`, `run_queue`, and what starts a node or a client.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import trio


class Incarnation:
    """One life of a node or client, from its start to its crash or stop.

    Attributes:
        set_aside: tasks that would run, but for its being paused or busy.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.is_alive = True
        self.is_paused = False
        self.is_busy = False
        self.set_aside: list[trio.lowlevel.Task] = []

    def __repr__(self) -> str:
        return f"{self.name}#{self.number}"


current: ContextVar[Incarnation | None] = ContextVar("current", default=None)


def incarnation_of(task: trio.lowlevel.Task) -> Incarnation | None:
    """Return the life that a task belongs to; None: it is the simulation's own."""
    context: Any = task.context
    found: Incarnation | None = context.get(current)
    return found
