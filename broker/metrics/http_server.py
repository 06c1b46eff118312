"""A small HTTP/1.1 server for monitoring: GET and HEAD, on the node's network, spoken by `h11`.

Owns: `HttpServer`, its listening socket and connections. Rules
1. It is for a few clients: above `MAX_CONNECTIONS` new ones are closed at once, and each has
   `IDLE_S` for its next request, and for taking the answer.
2. A request has a small head and no body worth reading; what is not HTTP is answered 400, once.
3. A page is made by a function of the path, which may wait; an error in it is ours: the run ends.

Called by: `endpoint`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

import h11
import trio

from kraftrio.net.transport import ListeningSocket, Network, Socket

MAX_CONNECTIONS: Final = 64
IDLE_S: Final = 30.0
_READ_BYTES = 16 << 10
_MAX_HEAD_BYTES = 16 << 10
_ACCEPT_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    path: str
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Pages: TypeAlias = Callable[[Request], Awaitable[Page]]


class HttpServer:
    """See the module.

    Args:
        sock: bound by `network`.
        pages: makes the answer to a request.
    """

    def __init__(self, network: Network, sock: ListeningSocket, pages: Pages) -> None:
        self._network = network
        self._sock = sock
        self._pages = pages
        self._connections = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    await self._network.wait_readable(self._sock)
                    try:
                        sock, _ = self._sock.accept()
                    except BlockingIOError:
                        continue
                    except OSError:  # out of files, say: those who have one go on
                        await trio.sleep(_ACCEPT_PAUSE_S)
                        continue
                    if self._connections >= MAX_CONNECTIONS:
                        sock.close()
                        continue
                    self._connections += 1
                    nursery.start_soon(self._serve, sock)
        finally:
            self._sock.close()

    async def _serve(self, sock: Socket) -> None:
        try:
            self._network.tune(sock, 0, 0)
            await self._serve_requests(sock)
        except (OSError, trio.TooSlowError, trio.ClosedResourceError, h11.LocalProtocolError):
            pass  # gone, too slow, or away before the answer: it may come again
        finally:
            self._connections -= 1
            sock.close()

    async def _serve_requests(self, sock: Socket) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        while True:
            try:
                with trio.fail_after(IDLE_S):
                    request = await self._next_request(sock, connection)
            except h11.RemoteProtocolError as error:
                if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    page = Page(error.error_status_hint, f"{error}\n".encode())
                    await self._answer(sock, connection, page, with_body=True)
                return
            if request is None:
                return
            page, with_body = await self._page(request), request.method != b"HEAD"
            await self._answer(sock, connection, page, with_body=with_body)
            if connection.our_state is h11.MUST_CLOSE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _next_request(self, sock: Socket, connection: h11.Connection) -> h11.Request | None:
        """Read a request to its end; None: the client has closed."""
        request: h11.Request | None = None
        buffer = bytearray(_READ_BYTES)
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                try:
                    count = sock.recv_into(buffer)
                except BlockingIOError:
                    await self._network.wait_readable(sock)
                    continue
                connection.receive_data(bytes(buffer[:count]))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.EndOfMessage):
                return request
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return None
            await trio.lowlevel.checkpoint()

    async def _page(self, request: h11.Request) -> Page:
        if request.method not in (b"GET", b"HEAD"):
            return Page(405, b"only GET and HEAD are served\n")
        headers = dict(request.headers)
        path = request.target.decode("ascii", "replace").partition("?")[0]
        return await self._pages(Request(path, headers.get(b"accept", b"").decode("latin-1")))

    async def _answer(
        self, sock: Socket, connection: h11.Connection, page: Page, *, with_body: bool
    ) -> None:
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(page.body))),
            ("Cache-Control", "no-store"),
        ]
        if page.status == 405:
            headers.append(("Allow", "GET, HEAD"))
        data = (
            connection.send(
                h11.Response(
                    status_code=page.status, headers=headers, reason=HTTPStatus(page.status).phrase
                )
            )
            or b""
        )
        if with_body:
            data += connection.send(h11.Data(data=page.body)) or b""
        data += connection.send(h11.EndOfMessage()) or b""
        with trio.fail_after(IDLE_S):
            await self._send(sock, data)

    async def _send(self, sock: Socket, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[sock.send(rest) :]
            except BlockingIOError:
                await self._network.wait_writable(sock)
