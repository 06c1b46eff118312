"""What a client quota is measured by: `SampledRate`, an amount a second over the last windows.

The measure is Kafka's. What is noted goes into a window; a window is over once it is as old as a
window is long. The rate is what lies in all windows by the time since the oldest of them began,
counted as at least all full windows but one: right after a pause a client may use up at once what
it is allowed in that time. A window is forgotten as a whole, once its last note is as old as all
windows together.

Sans-IO. Called by: `client_quota`, and the server for connections.
Kafka's counterparts: SampledStat, Rate, QuotaUtils.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateWindows:
    """How many windows are kept (the current one among them), and how long each is."""

    count: int = 11
    size_ms: float = 1000.0

    @property
    def full_ms(self) -> float:
        """The least time that a rate is measured over."""
        return (self.count - 1) * self.size_ms

    @property
    def kept_ms(self) -> float:
        """How long what was noted counts."""
        return self.count * self.size_ms


class _Window:
    __slots__ = ("amount", "began_ms", "noted_ms")

    def __init__(self, now_ms: float) -> None:
        self.began_ms = self.noted_ms = now_ms
        self.amount = 0.0


class SampledRate:
    """See the module."""

    __slots__ = ("_amount", "_kept", "_windows")

    def __init__(self, windows: RateWindows) -> None:
        self._windows = windows
        self._kept: deque[_Window] = deque()  # oldest first
        self._amount = 0.0

    def note(self, amount: float, now_ms: float) -> None:
        """Add an amount; a negative one takes back what was noted before."""
        kept = self._kept
        if not kept or now_ms - kept[-1].began_ms >= self._windows.size_ms:
            kept.append(_Window(now_ms))
            if len(kept) > self._windows.count + 1:
                self._forget_oldest()
        window = kept[-1]
        window.amount += amount
        window.noted_ms = now_ms
        self._amount += amount

    def is_empty(self, now_ms: float) -> bool:
        """Whether nothing counts any more."""
        self._forget_old(now_ms)
        return self._amount <= 0

    def per_second(self, now_ms: float) -> float:
        """Return the rate."""
        self._forget_old(now_ms)
        return self._amount * 1000.0 / self._measured_ms(now_ms)

    def wait_ms(self, limit: float, now_ms: float) -> int:
        """Return how long nothing may be noted for the rate to come down to the limit."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return round(self._windows.kept_ms)
        return int((rate - limit) / limit * self._measured_ms(now_ms) + 0.5)

    def _measured_ms(self, now_ms: float) -> float:
        windows = self._windows
        measured_ms = now_ms - self._kept[0].began_ms if self._kept else 0.0
        missing = windows.count - 1 - measured_ms // windows.size_ms
        if missing > 0:
            measured_ms += missing * windows.size_ms
        return max(measured_ms, 1.0)

    def _forget_old(self, now_ms: float) -> None:
        kept = self._kept
        while kept and now_ms - kept[0].noted_ms >= self._windows.kept_ms:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        self._amount -= self._kept.popleft().amount
        if not self._kept:
            self._amount = 0.0  # whatever was lost in rounding
