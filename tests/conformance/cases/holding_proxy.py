"""A network that holds back a client's requests of one kind, however long the test likes.

A broker that advertises the proxy's address gets everything through it: frames of requests pass one
by one, and those of the chosen API wait until they are let go; answers pass as they come.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

DEADLINE_S = 20.0


class HoldingProxy:
    """Use as a context manager; `target` is set once the broker runs."""

    def __init__(self) -> None:
        self.target = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._held_key: int | None = None
        self._is_held = threading.Event()
        self._may_go = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def hold(self, api_key: int) -> None:
        """From now on hold back requests of an API, each with all that comes behind it."""
        self._is_held.clear()
        self._may_go.clear()
        self._held_key = api_key

    def wait_held(self) -> None:
        """Wait until there is such a request."""
        assert self._is_held.wait(DEADLINE_S), "no request came that was to be held back"

    def release(self) -> None:
        """Let everything go."""
        self._held_key = None
        self._may_go.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                host, port = self.target.rsplit(":", 1)
                far = socket.create_connection((host, int(port)))
                self._sockets += [near, far]
                for carry, source, sink in (
                    (self._carry_requests, near, far),
                    (self._carry, far, near),
                ):
                    thread = threading.Thread(target=carry, args=(source, sink), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def _carry_requests(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError), source.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", size)[0])
                if struct.unpack_from(">h", frame)[0] == self._held_key:
                    self._is_held.set()
                    self._may_go.wait(DEADLINE_S)
                sink.sendall(size + frame)
            sink.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.release()
        for one in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(DEADLINE_S)
