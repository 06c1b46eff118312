"""Waiting for a condition, and saying what was seen instead when it does not hold in time.

Owns: `Seen`, `Wait` and `WaitTimedOut`. A `Wait` is awaited in asyncio and Trio, or waited for in
plain code; a test that does neither is warned, since then nothing was checked.

Called by: `subjects`, for brokers with real sockets and for those in virtual time.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple

import sniffio
import trio

from kraftrio.clients.errors import KafkaClientError
from kraftrio.testing.arguments import seconds
from kraftrio.testing.loop_thread import Call, LoopThread

LAST_EVENTS = 8  # so many are reported when the time is up
_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5


class Seen(NamedTuple):
    """The result of one check: whether the condition holds, and what was seen."""

    is_so: bool
    text: str


Look = Callable[[], Awaitable[Seen]]


class WaitTimedOut(AssertionError):
    """The condition did not hold in time; the text says what was seen instead."""


class Wait:
    """Waits for a condition: `await` it, or call `wait()` where nothing can be awaited.

    The result is what was seen, in words.

    Args:
        loop: where to look; None: in the Trio task that awaits it.
        last_events: what has happened lately, a line for each event, where that is known.

    Raises:
        WaitTimedOut: when it is awaited, and the condition does not hold in time.
        TypeError, ValueError: `timeout_s` is not a number of seconds.
    """

    def __init__(
        self,
        what: str,
        look: Look,
        timeout_s: float,
        loop: LoopThread | None,
        last_events: Callable[[], str] | None = None,
    ) -> None:
        self._is_used = True  # nothing is waited for yet
        self._what = what
        self._look = look
        self._timeout_s = seconds("timeout_s", timeout_s)
        if not timeout_s:
            raise ValueError("timeout_s must be more than 0: a look takes time, too")
        self._loop = loop
        self._last_events = last_events
        self._is_used = False

    def __await__(self) -> Generator[Any, Any, str]:
        self._is_used = True
        return self._wait_async().__await__()

    def wait(self) -> str:
        """Wait in this thread, which must not be one that the waited-for thing needs."""
        self._is_used = True
        if self._loop is None:
            raise RuntimeError("in virtual time nothing waits by itself: write `await ...`")
        return self._loop.call(self._poll).result()

    def __del__(self) -> None:
        if not self._is_used:
            text = f"nobody waited until {self._what}: write `await ...`, or `....wait()`"
            warnings.warn(text, RuntimeWarning, stacklevel=1, source=self)

    async def _poll(self) -> str:
        text = "nothing yet: no broker has answered"
        began_s = trio.current_time()
        with trio.move_on_after(self._timeout_s):
            while True:
                try:
                    is_so, text = await self._look()
                except KafkaClientError as error:
                    is_so, text = False, f"{type(error).__name__}: {error}"
                if is_so:
                    return text
                waited_s = trio.current_time() - began_s
                await trio.sleep(min(max(waited_s / 10, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))
        text = f"not within {self._timeout_s:g} s: {self._what}; seen last: {text}"
        if self._last_events is not None:
            text += f"\nlast events:\n{self._last_events()}"
        raise WaitTimedOut(text)

    async def _wait_async(self) -> str:
        if self._loop is None:
            return await self._poll()
        call = self._loop.call(self._poll)
        try:
            if sniffio.current_async_library() == "trio":
                await _done_in_trio(call)
            else:
                await asyncio.wrap_future(call.future)
        except BaseException:
            call.cancel()
            raise
        return call.future.result()


async def _done_in_trio(call: Call[str]) -> None:
    done = trio.Event()
    token = trio.lowlevel.current_trio_token()
    call.future.add_done_callback(lambda _future: token.run_sync_soon(done.set))
    await done.wait()
