"""Failed deliveries that nobody looked at: a warning, once in ten seconds at most.

A batch that failed holds an `UnseenFailure`. It is seen by whoever looks at one of its deliveries;
if the last delivery is gone without that, there is a warning. Transactions report their records
themselves.

Called by: `accumulator`, `batch`.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

logger = logging.getLogger(__name__)

_EVERY_S: Final = 10.0


class _Teller:
    """Counts what was left out, over all producers of the process."""

    def __init__(self) -> None:
        self._told_at = float("-inf")
        self._left_out = 0

    def tell(self, failure: UnseenFailure) -> None:
        """Warn, or count for the next warning."""
        now = time.monotonic()
        if now - self._told_at < _EVERY_S:
            self._left_out += failure.record_count
            return
        others = f" (and {self._left_out} before)" if self._left_out else ""
        self._told_at, self._left_out = now, 0
        logger.warning(
            "%d record(s)%s for %s were not delivered, and nobody looked at their deliveries: %s;"
            " await what send returns, or use send_and_wait",
            failure.record_count,
            others,
            failure.where,
            failure.error,
        )

    def forget(self) -> None:
        """Warn of the next one at once."""
        self._told_at, self._left_out = float("-inf"), 0


TELLER: Final = _Teller()


class UnseenFailure:
    """The failure of a batch.

    Attributes:
        is_seen: somebody has looked.
    """

    __slots__ = ("error", "is_seen", "record_count", "where")

    def __init__(self, where: str, record_count: int, error: Exception) -> None:
        self.where = where
        self.record_count = record_count
        self.error = error
        self.is_seen = False

    def __del__(self) -> None:
        if not self.is_seen and not sys.is_finalizing():
            TELLER.tell(self)
