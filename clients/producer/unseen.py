"""Failed deliveries that the program never looked at: a warning, every ten seconds at most.

A batch that failed holds an `UnseenFailure`. Once the program asks one of its deliveries for the
result, it is seen; if the last delivery is freed before, there is a warning. Transactions report
failures themselves.

Called by: `accumulator`, `batch`.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

logger = logging.getLogger(__name__)

_EVERY_S: Final = 10.0


class _Warnings:
    """Limits the warnings of all producers of the process."""

    def __init__(self) -> None:
        self._last_s = float("-inf")
        self._unreported_records = 0

    def report(self, failure: UnseenFailure) -> None:
        """Warn, or count the records for the next warning."""
        now = time.monotonic()
        if now - self._last_s < _EVERY_S:
            self._unreported_records += failure.record_count
            return
        others = f" (and {self._unreported_records} before)" if self._unreported_records else ""
        self._last_s, self._unreported_records = now, 0
        logger.warning(
            "%d record(s)%s for %s were not delivered, and nobody looked at their deliveries: %s;"
            " await what send returns, or use send_and_wait",
            failure.record_count,
            others,
            failure.where,
            failure.error,
        )

    def forget(self) -> None:
        """Warn of the next failure at once."""
        self._last_s, self._unreported_records = float("-inf"), 0


WARNINGS: Final = _Warnings()


class UnseenFailure:
    """The failure of a batch.

    Attributes:
        is_seen: the program has asked for the result of one of its deliveries.
    """

    __slots__ = ("error", "is_seen", "record_count", "where")

    def __init__(self, where: str, record_count: int, error: Exception) -> None:
        self.where = where
        self.record_count = record_count
        self.error = error
        self.is_seen = False

    def __del__(self) -> None:
        if not self.is_seen and not sys.is_finalizing():
            WARNINGS.report(self)
