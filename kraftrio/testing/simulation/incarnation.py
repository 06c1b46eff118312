"""Whose task runs: the lives of the nodes and clients of a simulation.

Owns: `Incarnation` and `current`, which every task of a node inherits from the one that started it.

Called by: `world`, `work`, and who is charged or paused with them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import trio


class Incarnation:
    """One life of a node or client: from its start to its crash or stop."""

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
    """Whose task it is; None: the simulation's own."""
    context: Any = task.context
    found: Incarnation | None = context.get(current)
    return found
