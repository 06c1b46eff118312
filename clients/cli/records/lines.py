"""Lines from a file, a pipe or a terminal, many at a time, without holding up the event loop.

Reads happen in a thread that is abandoned when the command ends. A pipe is made as large as the
system allows, and each read takes all that has arrived, so that a fast writer needs few reads, and
a typed line is taken at once.

Called by: `producing`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
from collections.abc import AsyncIterator

import trio

_CHUNK_BYTES = 1 << 20


class LineSource:
    """The lines of a descriptor, without their ends.

    Args:
        descriptor: open for reading.

    Attributes:
        size_bytes: of the file; None if that is not known.
        read_bytes: how much was read so far.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self.size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
        self.read_bytes = 0
        self._may_wait = self.size_bytes is None
        if stat.S_ISFIFO(status.st_mode):
            with contextlib.suppress(OSError):  # a system may allow less
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)

    async def chunks(self) -> AsyncIterator[list[bytes]]:
        """Yield the lines that have arrived, at least one, until the input ends.

        Raises:
            OSError: it cannot be read.
        """
        rest: list[bytes] = []
        while data := await trio.to_thread.run_sync(self._read, abandon_on_cancel=True):
            self.read_bytes += len(data)
            lines = data.split(b"\n")
            # A long line comes in many parts, which are joined once, when its end has come.
            rest.append(lines[0])
            if len(lines) == 1:
                continue
            lines[0] = b"".join(rest)
            rest = [lines.pop()]
            yield lines
        last = b"".join(rest)
        if last:
            yield [last]

    def _read(self) -> bytes:
        """Read what has arrived, waiting for something; nothing at the end."""
        data = os.read(self._descriptor, _CHUNK_BYTES)
        if not self._may_wait or not data:
            return data
        parts, size = [data], len(data)
        while size < _CHUNK_BYTES and select.select([self._descriptor], [], [], 0)[0]:
            more = os.read(self._descriptor, _CHUNK_BYTES - size)
            if not more:
                break  # the next read finds the end again
            parts.append(more)
            size += len(more)
        return b"".join(parts)
