"""SIGINT and SIGTERM as the normal end of commands that follow or watch: these then end cleanly.

Called by: the commands that follow or watch.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def until_interrupted() -> AsyncIterator[None]:
    """Run the body until it ends, or SIGINT or SIGTERM comes, which cancels it.

    Exceptions of the body come out as they are, not in a group.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(_cancel_at_signals, nursery.cancel_scope)
        try:
            yield
        except Exception as error:
            failure = error  # raised below: from here the nursery would wrap it in a group
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _cancel_at_signals(
    scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return
