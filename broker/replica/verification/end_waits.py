"""Waiting for the end of a producer's last transaction, between two questions about its next one.

Newer clients begin the next transaction at once, while markers of the last one are on their way,
and the coordinator says CONCURRENT_TRANSACTIONS. To send a batch again would cost its producer
more than to ask again here. Rules
1. A coordinator on this broker says when the transaction has ended. Another broker's is asked
   again, after pauses that grow by half: its answers come in their order, so one that it held back
   for one transactional id would keep all others waiting.
2. After add.partitions.to.txn.retry.backoff.max.ms the producer is answered.

Called by: `verification`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kraftrio.base.clock import Clock
from kraftrio.broker.ports import EndingTransactions, SchedulerPort

_FIRST_PAUSE_MS: Final = 1.0  # markers take a few milliseconds
_GROWTH: Final = 1.5  # of the pauses: what is asked too late is a part of what was waited anyway


class EndWaitSettings(Protocol):
    """The settings in force (BrokerConfig)."""

    @property
    def add_partitions_to_txn_retry_backoff_ms(self) -> int: ...
    @property
    def add_partitions_to_txn_retry_backoff_max_ms(self) -> int: ...
    @property
    def request_timeout_ms(self) -> int: ...


class EndWait:
    """The waits of one write; its time begins with this."""

    def __init__(self, waits: EndWaits, transactional_id: str) -> None:
        self._waits = waits
        self._transactional_id = transactional_id
        self._until_ms = waits.clock.monotonic_ms() + waits.longest_ms
        self._pause_ms = _FIRST_PAUSE_MS

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._waits.clock.monotonic_ms() >= self._until_ms

    def ask_later(self, ask: Callable[[], None]) -> None:
        """Have `ask` called when the last transaction may have ended."""
        ended = self._waits.ending.when_ended(self._transactional_id)
        if ended is not None:
            ended.then(lambda _none: ask())
            return
        pause_ms = min(self._pause_ms, self._waits.longest_pause_ms)
        self._pause_ms *= _GROWTH
        self._waits.timers.schedule(pause_ms, ask)


class EndWaits:
    """Makes the waits of a broker's gate; see the module."""

    def __init__(
        self,
        ending: EndingTransactions,
        settings: Callable[[], EndWaitSettings],
        timers: SchedulerPort,
        clock: Clock,
    ) -> None:
        self.ending = ending
        self._settings = settings
        self.timers = timers
        self.clock = clock

    @property
    def longest_ms(self) -> int:
        """How long a write may wait."""
        settings = self._settings()
        return min(settings.add_partitions_to_txn_retry_backoff_max_ms, settings.request_timeout_ms)

    @property
    def longest_pause_ms(self) -> int:
        """How long another broker's coordinator is left alone."""
        return self._settings().add_partitions_to_txn_retry_backoff_ms

    def begin(self, transactional_id: str) -> EndWait:
        """A write for a transactional id has come."""
        return EndWait(self, transactional_id)
