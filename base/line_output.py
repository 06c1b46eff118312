"""Lines to standard output and standard error, whether or not these can take them.

Owns: `LineOutput`. Rules:
1. A write never fails and never waits: a full disk, a reader that has gone and one that has stopped
   reading must not decide whether the broker serves.
2. What cannot be written at once waits, bounded, for a thread of its own that may be held up; what
   is beyond the bound is lost.

Called by: the command line and `logging_setup`.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque

STANDARD_OUTPUT = 1
STANDARD_ERROR = 2

_WAITING_LIMIT_BYTES = 1 << 20
_PIPE_BYTES = 4096  # a pipe that is writable takes as much at once (PIPE_BUF)
_LAST_WAIT_S = 1.0


class LineOutput:
    """See the module; one per descriptor. Looks like a text file to `logging`.

    Attributes:
        failure: why the newest write was lost; None when it was not.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self.failure: str | None = None

    def write(self, text: str) -> int:
        """Write whole lines, or lose them; return the length of the text."""
        data = text.encode(errors="backslashreplace")
        with self._lock:
            self.failure = None
            if self._writer is None:
                data = self._write_now(data)
            if data:
                self._keep(data)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back that could be written."""

    def close(self) -> None:
        """Give what waits a last second."""
        writer = self._writer
        if writer is not None:
            writer.join(_LAST_WAIT_S)

    def _write_now(self, data: bytes) -> bytes:
        """Write what is taken without waiting; return the rest."""
        while data and self._poll.poll(0):
            try:
                data = data[os.write(self._descriptor, data[:_PIPE_BYTES]) :]
            except OSError as error:
                self.failure = error.strerror or str(error)
                return b""
        return data

    def _keep(self, data: bytes) -> None:
        if self._waiting_bytes + len(data) > _WAITING_LIMIT_BYTES:
            self.failure = "nobody reads it"
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_waiting, daemon=True)
            self._writer.start()

    def _write_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._writer = None
                    return
                data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except OSError as error:
                    self.failure = error.strerror or str(error)
                    break


def reserve_standard_descriptors() -> None:
    """Open those of descriptors 0 to 2 that are closed: else a log's file could get one of them."""
    for descriptor in range(STANDARD_ERROR + 1):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
