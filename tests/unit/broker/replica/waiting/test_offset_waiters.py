"""Waiting for a watermark: reached, given up, or out of time; each is called back once."""

from __future__ import annotations

import trio

from kraftrio.base.timers import Timers
from kraftrio.broker.replica.waiting.offset_waiters import OffsetWaiters
from kraftrio.wire.errors import ErrorCode


async def test_those_whose_offset_is_reached_are_called_back(autojump_clock: object) -> None:
    waiters, timers = OffsetWaiters(), Timers()
    calls: list[tuple[str, ErrorCode]] = []

    def add(name: str, offset: int, timeout_ms: float | None) -> None:
        waiters.add(offset, lambda code: calls.append((name, code)), timers, timeout_ms)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        add("a", 3, 50)
        add("b", 5, None)
        add("c", 7, 100)
        assert not waiters.has_reached(2) and waiters.has_reached(3)
        waiters.answer_reached(5, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert calls == [("a", code), ("b", code)]
        await trio.sleep(1)
        assert calls[2:] == [("c", ErrorCode.REQUEST_TIMED_OUT)], "and a is not called again"
        assert not waiters.waiting
        nursery.cancel_scope.cancel()


async def test_all_are_called_back_when_nothing_more_will_come(autojump_clock: object) -> None:
    waiters, timers = OffsetWaiters(), Timers()
    codes: list[ErrorCode] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        waiters.add(3, codes.append, timers, 50)
        waiters.add(9, codes.append, timers, None)
        waiters.answer_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
