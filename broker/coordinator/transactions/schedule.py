"""When the coordinator has to do something about a transactional id by itself.

An ongoing transaction is aborted after its time-out, an idle id expires, and a step that failed is
tried again. What is due of an id follows from its state. Rules:
1. Times in the log are of the wall clock, of whichever broker wrote them; deadlines are of the
   monotonic one. A wall clock that steps back, or is behind the former leader's, makes nothing
   wait longer than its own span from now on.
2. What does not come due costs nothing: an id that changes often moves its deadline without moving
   in the heap.

Sans-IO; called by `shard`.
"""

from __future__ import annotations

from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.outcome import Now
from kraftrio.broker.coordinator.transactions.ports import TransactionProperties
from kraftrio.broker.coordinator.transactions.state import TransactionMetadata, TransactionState

_RETRY_MS = 500  # before a step of the coordinator's own that failed is tried again


class TransactionSchedule:
    """The deadlines of one shard's transactional ids."""

    __slots__ = ("_expiries", "_properties", "_soon")

    def __init__(self, properties: TransactionProperties) -> None:
        self._properties = properties
        # An id that is used goes to and fro between a near and a far deadline. In one queue each
        # move to the near one would leave an entry behind until the far one comes.
        self._soon = DeadlineQueue()
        self._expiries = DeadlineQueue()

    def set(self, transaction: TransactionMetadata, now: Now) -> None:
        """Note until when an id may stay as it is."""
        key = (transaction.transactional_id,)
        self._soon.cancel(key)
        self._expiries.cancel(key)
        if transaction.state.is_idle:
            span_ms = self._properties.transactional_id_expiration_ms
            due_ms = transaction.last_update_ms + span_ms
            self._expiries.schedule(key, _deadline_ms(due_ms, span_ms, now))
        elif transaction.state is TransactionState.ONGOING and transaction.has_timeout:
            due_ms = transaction.start_ms + transaction.timeout_ms
            self._soon.schedule(key, _deadline_ms(due_ms, transaction.timeout_ms, now))

    def set_soon(self, transactional_id: str, now: Now) -> None:
        """Let an id come due at once."""
        self._soon.schedule((transactional_id,), now.monotonic_ms)

    def set_retry(self, transactional_id: str, now: Now) -> None:
        """Let an id come due again after a pause, since what was due failed."""
        self._soon.schedule((transactional_id,), now.monotonic_ms + _RETRY_MS)

    def forget(self, transactional_id: str) -> None:
        """An id does not exist any more, or is being changed."""
        self._soon.cancel((transactional_id,))
        self._expiries.cancel((transactional_id,))

    def next_deadline_ms(self) -> float | None:
        """A time at or before the earliest deadline; None when there is none."""
        soon_ms, expiry_ms = self._soon.next_deadline_ms(), self._expiries.next_deadline_ms()
        if soon_ms is None or expiry_ms is None:
            return expiry_ms if soon_ms is None else soon_ms
        return min(soon_ms, expiry_ms)

    def pop_due(self, now: Now) -> str | None:
        """Take an id whose time has come; None if there is none."""
        for queue in (self._soon, self._expiries):
            key = queue.pop_due(now.monotonic_ms)
            if key is not None:
                return key[0]
        return None


def _deadline_ms(due_wall_ms: int, span_ms: int, now: Now) -> float:
    """The monotonic time of a time of the wall clock that is at most a span away."""
    return now.monotonic_ms + min(max(due_wall_ms - now.wall_ms, 0), span_ms)
