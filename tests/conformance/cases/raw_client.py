"""A client that only does what a test asks of it: one socket, one frame after the other.

`RawClient.call` sends a request object in a version and returns the response object; it checks the
correlation id and that the response holds not one byte more than its version's layout. Below that,
`send_frame` and `read_frame` carry any bytes at all. Every wait has a deadline; a connection that
the broker closed raises `ConnectionClosed`.
"""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any, Self

from kraftrio.wire.codec.message import decode, encode, spec_of
from kraftrio.wire.messages.headers import RequestHeader, ResponseHeader
from kraftrio.wire.protocol.api import APIS, request_header_version, response_header_version

TIMEOUT_S = 15.0


class ConnectionClosed(Exception):
    """The broker closed the connection."""


class RawClient:
    """One connection to a broker."""

    def __init__(self, address: str, client_id: str | None = "raw", *, from_host: str = "") -> None:
        """Connect; `from_host` is an address of this machine that the broker is to see."""
        host, port = address.rsplit(":", 1)
        self.client_id = client_id
        source = (from_host, 0) if from_host else None
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S, source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)
        self._buffer = bytearray()

    # Bytes

    def send_frame(self, frame: bytes) -> None:
        """Send bytes as one frame."""
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def read_frame(self, timeout_s: float = TIMEOUT_S) -> bytes:
        """Return the next frame without its length."""
        size = struct.unpack(">i", self._read(4, timeout_s))[0]
        return self._read(size, timeout_s)

    def _read(self, count: int, timeout_s: float) -> bytes:
        self.socket.settimeout(timeout_s)
        while len(self._buffer) < count:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError as error:
                raise ConnectionClosed from error
            if not data:
                raise ConnectionClosed
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def is_closed(self, timeout_s: float = 5.0) -> bool:
        """Wait for the broker to close the connection; False when it sends something instead."""
        try:
            self._read(len(self._buffer) + 1, timeout_s)
        except ConnectionClosed:
            return True
        except TimeoutError:
            return False
        return False

    def is_silent(self, for_s: float) -> bool:
        """Whether the broker neither answers nor closes for that long."""
        try:
            self._read(len(self._buffer) + 1, for_s)
        except TimeoutError:
            return True
        except ConnectionClosed:
            return False
        return False

    # Requests

    def frame_of(self, request: Any, version: int, correlation_id: int) -> bytes:
        """Encode a request with its header."""
        key = spec_of(type(request)).api_key
        assert key is not None
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self.client_id,
        )
        return encode(header, request_header_version(key, version)) + encode(request, version)

    def send(self, request: Any, version: int | None = None) -> int:
        """Send a request, in the newest version unless one is given; return its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_frame(self.frame_of(request, _version(request, version), correlation_id))
        return correlation_id

    def receive(
        self, request: Any, version: int | None, correlation_id: int, timeout_s: float = TIMEOUT_S
    ) -> Any:
        """Read the response to a request that was sent before."""
        version = _version(request, version)
        key = spec_of(type(request)).api_key
        assert key is not None
        frame = self.read_frame(timeout_s)
        header, position = decode(ResponseHeader, response_header_version(key, version), frame)
        assert header.correlation_id == correlation_id
        response, end = decode(APIS[key].response, version, frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes left over: {frame[end:].hex()}"
        return response

    def call(self, request: Any, version: int | None = None, timeout_s: float = TIMEOUT_S) -> Any:
        """Send a request and return its response."""
        return self.receive(request, version, self.send(request, version), timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _version(request: Any, version: int | None) -> int:
    key = spec_of(type(request)).api_key
    assert key is not None
    return APIS[key].max_version if version is None else version
