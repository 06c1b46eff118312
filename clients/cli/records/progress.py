"""The progress of a long input, on standard error if that is a terminal.

Called by: the command.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from kraftrio.clients.cli.records.lines import LineSource

_AFTER_S = 1.0
_EVERY_S = 0.2


@asynccontextmanager
async def show_progress(source: LineSource, count: Callable[[], int]) -> AsyncIterator[None]:
    """Show how much was read while the body runs, once it has run for a second.

    Args:
        count: returns how many records were sent.
    """
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_draw, source, count)
        yield
        nursery.cancel_scope.cancel()


async def _draw(source: LineSource, count: Callable[[], int]) -> None:
    await trio.sleep(_AFTER_S)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = [BarColumn(), DownloadColumn(), TransferSpeedColumn()]
    text = TextColumn("{task.fields[records]:,} records")
    with Progress(*columns, text, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=source.size_bytes, records=0)
        while True:
            progress.update(task, completed=source.read_bytes, records=count())
            await trio.sleep(_EVERY_S)
