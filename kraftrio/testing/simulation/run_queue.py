"""Trio's queue of runnable tasks, in which nodes can be paused.

Owns: `RunQueue`, which takes the place of a run's own queue. What is paused (SIGSTOP does the
same to a process) keeps its sockets, and its timers fall due meanwhile.

Called by: `world`, and `local_nodes` for nodes with real sockets. Trio's internals used here are
pinned by a test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import trio
from trio._core import _run as trio_run

from kraftrio.testing.simulation.incarnation import Incarnation, incarnation_of


class RunQueue(deque[trio.lowlevel.Task]):
    """See the module.

    Args:
        active: gets everybody who has become runnable.
    """

    def __init__(
        self, tasks: Iterable[trio.lowlevel.Task], active: dict[Incarnation, None] | None = None
    ) -> None:
        super().__init__(tasks)
        self._active = {} if active is None else active

    def append(self, task: trio.lowlevel.Task) -> None:
        owner = incarnation_of(task)
        if owner is not None:
            if owner.is_paused or owner.is_busy:
                owner.set_aside.append(task)
                return
            self._active[owner] = None
        super().append(task)

    def set_aside(self, who: Incarnation) -> None:
        """Take out the tasks of an incarnation that is paused from now on."""
        mine = [task for task in self if incarnation_of(task) is who]
        for task in mine:
            self.remove(task)
        who.set_aside += mine

    def go_on(self, who: Incarnation) -> None:
        """Put back what was set aside, unless there is another reason for a pause."""
        if not (who.is_paused or who.is_busy):
            if who.set_aside:
                self._active[who] = None
            self.extend(who.set_aside)
            who.set_aside.clear()


def current_runner() -> Any:
    """Trio's own state of this thread's run."""
    return trio_run.GLOBAL_RUN_CONTEXT.runner


def current_run_queue() -> RunQueue:
    """The queue of this thread's run, in place of Trio's from now on."""
    runner = current_runner()
    if not isinstance(runner.runq, RunQueue):
        runner.runq = RunQueue(runner.runq)
    found: RunQueue = runner.runq
    return found


def pause(who: Incarnation) -> None:
    """Run no task of a paused owner in this thread's run, until `resume`."""
    who.is_paused = True
    current_run_queue().set_aside(who)


def resume(who: Incarnation) -> None:
    """Let an incarnation that was paused go on."""
    who.is_paused = False
    current_run_queue().go_on(who)
