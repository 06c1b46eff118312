"""How fast the cleaner's thread may go: never two milliseconds without a rest.

A thread of Python code that never waits makes the event loop wait for the interpreter at every
turn. So the thread works in short slices and rests as long as it worked, and longer where
log.cleaner.io.max.bytes.per.second asks for it. Clock and sleep are injected. Used by `cleaner`.
"""

from __future__ import annotations

from collections.abc import Callable

SLICE_S = 0.002
_LONGEST_SLEEP_S = 0.05


class CleanerPace:
    """Counts what was done in the present slice."""

    def __init__(
        self,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        bytes_per_second: float,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._bytes_per_second = max(bytes_per_second, 1.0)
        self._start_s = clock()
        self._size_bytes = 0

    def pause(self, size_bytes: int, check: Callable[[], None]) -> None:
        """Call this after every piece of work; `check` may raise to end a long rest early."""
        self._size_bytes += size_bytes
        worked_s = self._clock() - self._start_s
        due_s = self._size_bytes / self._bytes_per_second
        if worked_s < SLICE_S and due_s < SLICE_S:
            return
        rest_s = max(worked_s, due_s - worked_s)
        while rest_s > 0:
            step_s = min(rest_s, _LONGEST_SLEEP_S)
            self._sleep(step_s)
            rest_s -= step_s
            check()
        self._start_s = self._clock()
        self._size_bytes = 0
