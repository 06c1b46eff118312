"""Bytes to standard output, without holding up the event loop.

A reader that stops reading (a pager, a program that hangs) must not end the membership in a group:
so writes happen in a thread, one after the other, while the next records are fetched.

Called by: `consuming`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

_PIPE_BYTES = 1 << 20


class Writer:
    """See the module; made by `open_writer`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._send, self._receive = trio.open_memory_channel[bytes](1)
        self._failure: OSError | None = None

    async def write(self, data: bytes) -> None:
        """Queue bytes to be written; waits while earlier ones are queued.

        Raises:
            OSError: an earlier write failed.
        """
        try:
            await self._send.send(data)
        except trio.BrokenResourceError:
            self.raise_failure()

    async def run(self) -> None:
        """Write until the writer is closed and all is written, or a write fails."""
        async with self._receive:
            async for data in self._receive:
                try:
                    await trio.to_thread.run_sync(self._write_all, data, abandon_on_cancel=True)
                except OSError as error:
                    self._failure = error
                    return

    def close(self) -> None:
        """End `run` once all is written."""
        self._send.close()

    def raise_failure(self) -> None:
        """Raise the error of a write that failed, if one did."""
        if self._failure is not None:
            raise self._failure

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


@asynccontextmanager
async def open_writer(descriptor: int) -> AsyncIterator[Writer]:
    """Write to a descriptor while the body runs; leaving it waits until all is written.

    Exceptions of the body come out as they are, not in a group.

    Raises:
        OSError: something could not be written.
    """
    with contextlib.suppress(OSError):  # no pipe, or a system that allows less
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    writer = Writer(descriptor)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        try:
            yield writer
        except (Exception, trio.Cancelled) as error:
            failure = error  # raised below: from here the nursery would wrap it in a group
        writer.close()
    if failure is not None:
        raise failure
    writer.raise_failure()
