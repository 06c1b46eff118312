"""Blocking work in another thread than the event loop's, as a port: `RunInThread`.

A simulation runs such work at once, and decides when it is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

RunInThread: TypeAlias = Callable[[Callable[[], object]], Awaitable[None]]
"""Runs blocking work elsewhere than on the event loop and waits for it; its errors come through."""


async def run_in_worker_thread(work: Callable[[], object]) -> None:
    """Run blocking work in one of Trio's worker threads; it is never abandoned."""
    await trio.to_thread.run_sync(work)
