"""A watch dog for the event loop: a thread that looks at what holds it when it does not turn.

Owns: `StallWatch`. Rules
1. The loop shows that it turns by its own task (`metrics/loop_watch`). When that is late by more
   than `event.loop.stall.ms` the thread keeps the stack of the loop's thread, and logs it once,
   when the loop turns again, or after `REPORT_AFTER_S`.
2. A thread that has overslept as much itself knows of no culprit: the process did not run, or a
   call let no thread run. It says that.

Called by: `observation`, in processes, not in simulations.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final

from kraftrio.base.logging_setup import log_with_stack
from kraftrio.broker.metrics.loop_watch import INTERVAL_S, LoopWatch

_log = logging.getLogger("kraftrio.node")

REPORT_AFTER_S: Final = 10.0
_NS_PER_MS: Final = 1_000_000
_FRAMES = 12  # of a stack, the innermost


class StallWatch:
    """See the module.

    Args:
        limit_ms: longer turns are stalls.
        ticks_ns: the clock of `loop`.
    """

    def __init__(self, loop: LoopWatch, limit_ms: int, ticks_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._limit = limit_ms * _NS_PER_MS
        self._ticks_ns = ticks_ns
        self._thread_id = threading.get_ident()
        self._ended = threading.Event()
        self._stack = ""  # of the stall that goes on
        self._is_reported = False

    def start(self) -> None:
        """Watch the calling thread's loop."""
        self._loop.last_turn = self._ticks_ns()
        threading.Thread(target=self._run, name="stall watch", daemon=True).start()

    def stop(self) -> None:
        """The loop ends."""
        self._ended.set()

    def _run(self) -> None:
        pause = self._limit / 4
        last_turn, looked = self._loop.last_turn, self._ticks_ns()
        while not self._ended.wait(pause / 1e9):
            now = self._ticks_ns()
            overslept = now - looked - pause > self._limit
            looked = now
            turn = self._loop.last_turn
            if turn != last_turn:
                self._on_turn(turn - last_turn)
                last_turn = turn
            late = now - turn - int(INTERVAL_S * 1e9)
            if late > self._limit:
                self._on_stall(late, overslept=overslept)

    def _on_stall(self, late: int, *, overslept: bool) -> None:
        if not self._stack:
            self._stack = self._stack_of_loop()
            if overslept:
                why = "the process was not running, or a call let no thread run, until here"
                self._stack = f"({why})\n{self._stack}"
        if late > REPORT_AFTER_S * 1e9:
            self._report(late)

    def _on_turn(self, gap: int) -> None:
        """The loop turns again."""
        if self._stack:
            self._loop.stall_count += 1
            self._report(gap - int(INTERVAL_S * 1e9))
        self._stack, self._is_reported = "", False

    def _report(self, late: int) -> None:
        if not self._is_reported:
            self._is_reported = True
            late_ms = late // _NS_PER_MS
            log_with_stack(_log, logging.WARNING, "event loop stalled", self._stack, ms=late_ms)

    def _stack_of_loop(self) -> str:
        frame: FrameType | None = sys._current_frames().get(self._thread_id)
        if frame is None:
            return "(its thread has ended)"
        lines = traceback.format_stack(frame)[-_FRAMES:]
        return "".join(lines).rstrip("\n")
