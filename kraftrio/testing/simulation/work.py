"""The time that work takes: while an event loop is busy, what waits for it waits longer.

Owns: `Work`. A node is charged for what its tasks do: bytes that it receives and sends, bytes that
it reads and writes on its loop, or, within `counted`, every call of a function. While it works, its
tasks do not run, and its answers and heartbeats wait; everybody else goes on. A turn of its loop
that takes longer than `longest_turn_s` ends the simulation.

Work in threads is not charged: the disk's delay stands for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kraftrio.testing.simulation.incarnation import Incarnation, current

RECEIVE_S = 0.00003  # for each piece that a node takes from a socket, or gives to one
BYTE_S = 2e-9  # for each byte that it takes or gives
CALL_S = 1e-7  # for each function that is called, where they are counted
_LEAST_S = 0.0005  # shorter work is added up before the node is busy with it
_CALLS_AT_ONCE = 500


class Work:
    """The work of the nodes of one world.

    Args:
        keep_busy: lets no task of a node run for as long as its work takes.
    """

    def __init__(self, keep_busy: Callable[[Incarnation], None]) -> None:
        self._keep_busy = keep_busy
        self._owed_s: dict[Incarnation, float] = {}
        self._turn_s: dict[Incarnation, float] = {}
        self._is_in_thread = False
        self.longest_turn_s = 1.0
        self.longest_s = 0.0  # of all turns so far
        self.total_s = 0.0

    def charge(self, who: Incarnation | None, seconds: float) -> None:
        """Add work that takes a node that long."""
        if who is None or not who.is_alive or self._is_in_thread:
            return
        self.total_s += seconds
        turn_s = self._turn_s[who] = self._turn_s.get(who, 0.0) + seconds
        self.longest_s = max(self.longest_s, turn_s)
        owed_s = self._owed_s[who] = self._owed_s.get(who, 0.0) + seconds
        if owed_s >= _LEAST_S and not who.is_busy:
            self._keep_busy(who)

    def on_turn(self) -> str:
        """End a turn of the loop; return a complaint if it took a node too long, else ""."""
        slow = [who for who, spent_s in self._turn_s.items() if spent_s > self.longest_turn_s]
        text = "".join(f"the loop of {who!r} stood for {self._turn_s[who]:g} s" for who in slow[:1])
        self._turn_s.clear()
        return text

    def owed_s(self, who: Incarnation | None) -> float:
        """How long a node has worked at this instant of the simulation, in which no time passes."""
        return 0.0 if who is None else self._owed_s.get(who, 0.0)

    def take_owed_s(self, who: Incarnation) -> float:
        """Return for how long a node is to be busy with what it was charged, and reset that."""
        return self._owed_s.pop(who, 0.0)

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        """Charge nothing for what the body does."""
        before, self._is_in_thread = self._is_in_thread, True
        try:
            yield
        finally:
            self._is_in_thread = before

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Charge every call of a function meanwhile. Slow: for scenarios about much work."""
        calls = 0

        def on_call(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            if event in ("call", "c_call"):
                calls += 1
                if calls >= _CALLS_AT_ONCE:
                    calls = 0
                    self.charge(current.get(), _CALLS_AT_ONCE * CALL_S)

        before = sys.getprofile()
        sys.setprofile(on_call)
        try:
            yield
        finally:
            sys.setprofile(before)
