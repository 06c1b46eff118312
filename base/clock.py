"""Two clocks: wall time for what records and files say, monotonic time for deadlines.

A node takes both from one `Clock`, so that a simulation can run whole nodes in virtual time; the
clients read the wall clock by `wall_ms`.
"""

from __future__ import annotations

import time

import trio


def wall_ms() -> int:
    """Return the milliseconds since 1970 by the system's clock, which may jump."""
    return time.time_ns() // 1_000_000


class Clock:
    """Milliseconds of the wall clock, and of Trio's clock for deadlines."""

    __slots__ = ()

    wall_ms = staticmethod(wall_ms)
    """Milliseconds since 1970; may jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds on Trio's clock; never goes back, virtual in tests with a mock clock."""
        return trio.current_time() * 1000.0

    ticks_ns = staticmethod(time.perf_counter_ns)
    """Nanoseconds, to measure how long something took; a plain number for the hot path."""
