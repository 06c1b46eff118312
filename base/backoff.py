"""Times that double with each failure in a row, up to a limit: pauses before another attempt.

Jitter is drawn from a generator that is passed in, so that callers that failed together do not
retry together.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

_JITTER: Final = 0.2
_MAX_DOUBLINGS: Final = 30


class ExponentialBackoff(NamedTuple):
    """From `first_ms` after the first failure on, to `max_ms`."""

    first_ms: float
    max_ms: float

    def after(self, failures: int) -> float:
        """Return the time in milliseconds, without jitter.

        Args:
            failures: how many failures in a row came before the last one.
        """
        doubled_ms: float = self.first_ms * 2.0 ** min(failures, _MAX_DOUBLINGS)
        return min(doubled_ms, float(self.max_ms))

    def jittered(self, failures: int, rng: random.Random) -> float:
        """Return the time in milliseconds, 20% more or less."""
        return self.after(failures) * rng.uniform(1 - _JITTER, 1 + _JITTER)


NO_BACKOFF: Final = ExponentialBackoff(0, 0)
