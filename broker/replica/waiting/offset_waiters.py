"""Requests that wait until a watermark of one partition reaches their offset.

Owns: `OffsetWaiters`: acknowledgements wait for the high watermark, deletions of records for the
low watermark. Each callback is called once: with the code given to `answer_reached` or
`answer_all`, or with REQUEST_TIMED_OUT.

Called by `partition`.
"""

from __future__ import annotations

from kraftrio.base.timers import Timer, Timers
from kraftrio.broker.replica.waiting.waiters import CommitCallback
from kraftrio.wire.errors import ErrorCode


class _OffsetWaiter:
    __slots__ = ("callback", "offset", "timer")

    def __init__(self, offset: int, callback: CommitCallback) -> None:
        self.offset = offset
        self.callback = callback
        self.timer: Timer | None = None


class OffsetWaiters:
    """See the module.

    Attributes:
        waiting: the waiters; checked directly for being empty where a call would cost too much.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[_OffsetWaiter] = []

    def add(
        self, offset: int, callback: CommitCallback, timers: Timers, timeout_ms: float | None
    ) -> None:
        """Call back once the watermark reaches `offset`, or the time is up (None: never)."""
        waiter = _OffsetWaiter(offset, callback)
        self.waiting.append(waiter)

        def give_up() -> None:
            self.waiting.remove(waiter)
            callback(ErrorCode.REQUEST_TIMED_OUT)

        if timeout_ms is not None:
            waiter.timer = timers.schedule(timeout_ms, give_up)

    def has_reached(self, watermark: int) -> bool:
        """Has the watermark reached the offset of any waiter?"""
        return any(waiter.offset <= watermark for waiter in self.waiting)

    def answer_reached(self, watermark: int, code: ErrorCode) -> None:
        """Call back the waiters whose offset the watermark has reached."""
        reached = [waiter for waiter in self.waiting if waiter.offset <= watermark]
        self.waiting = [waiter for waiter in self.waiting if waiter.offset > watermark]
        _answer(reached, code)

    def answer_all(self, code: ErrorCode) -> None:
        """Call back all waiters: the watermark will not rise here any more."""
        waiting, self.waiting = self.waiting, []
        _answer(waiting, code)


def _answer(waiters: list[_OffsetWaiter], code: ErrorCode) -> None:
    for waiter in waiters:
        if waiter.timer is not None:
            waiter.timer.cancel()
        waiter.callback(code)
