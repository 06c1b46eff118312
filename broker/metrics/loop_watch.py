"""How late the event loop is: a task that sleeps, and sees when it is woken.

Owns: `LoopWatch`. The time between the moment that a timer is due and the moment that it runs is
what every request waits, too. Where a turn of the loop takes longer than a stall may, the watch dog
(`node/stall_watch`), a thread, looks at what holds it.

Called by: `node/watch/observation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from kraftrio.base.histogram import Histogram
from kraftrio.base.statistics import LabelledStatistics

INTERVAL_S: Final = 0.1
_BOUNDS = tuple(range(16, 37))  # 66 us to 69 s


class LoopWatch:
    """See the module.

    Attributes:
        last_turn: ticks of when the task last ran; another thread may read it.
        stall_count: turns that took longer than a stall may; the watch dog counts.
    """

    def __init__(self, ticks_ns: Callable[[], int]) -> None:
        self._ticks_ns = ticks_ns
        self._delays = Histogram()
        self.last_turn = ticks_ns()
        self.stall_count = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        interval = int(INTERVAL_S * 1_000_000_000)
        while True:
            due = self._ticks_ns() + interval
            await trio.sleep(INTERVAL_S)
            self.last_turn = now = self._ticks_ns()
            self._delays.add(max(now - due, 0))

    def labelled_statistics(self) -> LabelledStatistics:
        """How late timers were, how often much too late, and how many tasks there are."""
        return {
            "delay_nanoseconds": {(): self._delays.snapshot(_BOUNDS)},
            "stalls_total": {(): self.stall_count},
            "tasks": {(): trio.lowlevel.current_statistics().tasks_living},
        }
