"""When a member sends its next heartbeat: at the coordinator's interval, or sooner.

Rules:
1. One heartbeat is under way at a time.
2. The coordinator says how long it wants to wait between two (`interval_ms`); the time counts from
   when the last one was sent. What the coordinator should know at once makes one due now.
3. One that was not answered is repeated after a pause that doubles.
4. An application that has not polled for max_poll_interval_ms has stayed away too long.

Sans-IO: time comes in as milliseconds. Called by: `member`.
"""

from __future__ import annotations

import math
import random

from kraftrio.base.backoff import ExponentialBackoff


class Pace:
    """See the module."""

    def __init__(
        self, max_poll_interval_ms: int, backoff: ExponentialBackoff, rng: random.Random
    ) -> None:
        self._max_poll_interval_ms = max_poll_interval_ms
        self._backoff = backoff
        self._rng = rng
        self._polled_at_ms = -math.inf
        self._interval_ms = 0
        self._failures = 0
        self._due_ms = 0.0
        self._retry_at_ms = 0.0

    # -- polls ----------------------------------------------------------------------------------

    def polled(self, now_ms: float) -> None:
        """The application polls."""
        self._polled_at_ms = now_ms

    @property
    def poll_deadline_ms(self) -> float:
        """When the application must have polled again."""
        return self._polled_at_ms + self._max_poll_interval_ms

    def poll_is_overdue(self, now_ms: float) -> bool:
        """Whether the application has stayed away too long."""
        return now_ms > self.poll_deadline_ms

    # -- heartbeats -----------------------------------------------------------------------------

    @property
    def due_ms(self) -> float:
        """When the next heartbeat is due."""
        return max(self._due_ms, self._retry_at_ms)

    def make_due(self) -> None:
        """Have the next heartbeat sent now, unless the coordinator could not be reached."""
        self._due_ms = 0.0

    def sent(self, now_ms: float) -> None:
        """A heartbeat goes out."""
        self._due_ms = now_ms + self._interval_ms

    def answered(self, interval_ms: int) -> None:
        """It was answered, with the interval that the coordinator wants."""
        if interval_ms != self._interval_ms:
            self._due_ms += interval_ms - self._interval_ms
            self._interval_ms = interval_ms
        self._failures = 0
        self._retry_at_ms = 0.0

    def failed(self, now_ms: float) -> None:
        """It was not answered, or cannot be answered yet."""
        self._due_ms = 0.0
        self._retry_at_ms = now_ms + self._backoff.jittered(self._failures, self._rng)
        self._failures += 1
