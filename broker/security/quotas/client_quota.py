"""One kind of client quota: how much each client has used, and how long it has to wait.

Owns: `ClientQuota`, the measures of all clients of one quota (produced bytes, say). Rules
1. Clients that share a limit (`kraft_meta/metadata/client_limits`) share one measure. A client
   without a limit has none, and costs nothing.
2. A measure that nothing counts in any more is dropped: a new one would be the same. There are at
   most MOST_CLIENTS; then the one that was used longest ago goes.
3. When limits change, measures stay, and are compared with the new limit the next time.
4. A client that has used more than its limit waits until the rate would have come down to it, for
   `most_wait_ms` at most.

Sans-IO. Called by: the throttle of the server, and the handler of Fetch.
Kafka's counterpart: ClientQuotaManager.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final, NamedTuple

from kraftrio.broker.security.quotas.sampled_rate import RateWindows, SampledRate
from kraftrio.kraft_meta.metadata.client_limits import Limits

MOST_CLIENTS: Final = 20_000

_Sharing = tuple[str, str]


class _Measure:
    __slots__ = ("limit", "rate", "used_ms")

    def __init__(self, windows: RateWindows) -> None:
        self.rate = SampledRate(windows)
        self.limit = math.inf
        self.used_ms = 0.0


class Permit(NamedTuple):
    """Whether a client may use what it asked for, and how long it has to wait in any case."""

    is_granted: bool
    wait_ms: int


_GRANTED: Final = Permit(is_granted=True, wait_ms=0)


class ClientQuota:
    """See the module.

    Attributes:
        limits: of all clients; may change.
    """

    def __init__(
        self, limits: Limits, windows: RateWindows, *, most_wait_ms: float = math.inf
    ) -> None:
        self.limits = limits
        self._windows = windows
        self._most_wait_ms = most_wait_ms
        self._measures: OrderedDict[_Sharing, _Measure] = OrderedDict()  # as they were used

    @property
    def client_count(self) -> int:
        """How many measures are kept."""
        return len(self._measures)

    def note(self, user: str, client_id: str, amount: float, now_ms: float) -> None:
        """Count what a client has used, which is compared with its limit the next time."""
        measure = self._measure(user, client_id, now_ms)
        if measure is not None:
            measure.rate.note(amount, now_ms)

    def use(self, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """Count what a client has used; return how long it has to wait, in milliseconds."""
        measure = self._measure(user, client_id, now_ms)
        if measure is None:
            return 0
        measure.rate.note(amount, now_ms)
        return self._wait_ms(measure, now_ms)

    def try_to_use(self, user: str, client_id: str, amount: float, now_ms: float) -> Permit:
        """Count what a client wants to use only if it need not wait first.

        What is more than its limit allows at any time is granted, too, once nothing else counts,
        or it would wait for ever.
        """
        measure = self._measure(user, client_id, now_ms)
        if measure is None:
            return _GRANTED
        rate = measure.rate
        was_empty = rate.is_empty(now_ms)
        rate.note(amount, now_ms)
        wait_ms = self._wait_ms(measure, now_ms)
        is_granted = was_empty or not wait_ms
        if not is_granted:
            rate.note(-amount, now_ms)
        return Permit(is_granted, wait_ms)

    def most_at_once(self, user: str, client_id: str) -> float:
        """Return how much a client that has used nothing may use without having to wait."""
        found = self.limits.find(user, client_id)
        return math.inf if found is None else found.value * self._windows.full_ms / 1000.0

    def _wait_ms(self, measure: _Measure, now_ms: float) -> int:
        return int(min(measure.rate.wait_ms(measure.limit, now_ms), self._most_wait_ms))

    def _measure(self, user: str, client_id: str, now_ms: float) -> _Measure | None:
        found = self.limits.find(user, client_id)
        if found is None:
            return None
        sharing = (found.user, found.client_id)
        measures = self._measures
        measure = measures.get(sharing)
        if measure is None:
            self._drop_unused(now_ms)
            measure = measures[sharing] = _Measure(self._windows)
        else:
            measures.move_to_end(sharing)
        measure.limit = found.value
        measure.used_ms = now_ms
        return measure

    def _drop_unused(self, now_ms: float) -> None:
        """Make room for a new measure (rule 2)."""
        measures = self._measures
        while measures:
            sharing, oldest = next(iter(measures.items()))
            is_unused = now_ms - oldest.used_ms >= self._windows.kept_ms
            if not is_unused and len(measures) < MOST_CLIENTS:
                return
            del measures[sharing]
