"""The HTTP server of the metrics listener, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kraftrio.broker.metrics.http_server import MAX_CONNECTIONS, HttpServer, Page, Request
from kraftrio.net.transport import SystemNetwork


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """A server of one page; yields its port."""

    async def pages(request: Request) -> Page:
        return Page(200, f"{request.path} {request.accept}".encode())

    network = SystemNetwork()
    sock = network.bind("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(HttpServer(network, sock, pages).run)
        yield sock.getsockname()[1]
        nursery.cancel_scope.cancel()


async def ask(port: int, request: bytes) -> bytes:
    """Send some bytes, and receive until the server closes, or rests."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        received = b""
        with trio.move_on_after(2):
            async for data in stream:
                received += data
        return received


async def test_pages_one_after_the_other_on_a_connection() -> None:
    async with served() as port:
        first = b"GET /a?x=1 HTTP/1.1\r\nHost: h\r\nAccept: text/x\r\n\r\n"
        last = b"GET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        answers = await ask(port, first + last)
        assert answers.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert b"/a text/x" in answers and answers.endswith(b"/b ")


async def test_only_what_reads_is_served() -> None:
    async with served() as port:
        posted = await ask(
            port, b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab"
        )
        assert posted.startswith(b"HTTP/1.1 405 ") and b"GET, HEAD" in posted
        head = await ask(port, b"HEAD /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ") and head.endswith(b"\r\n\r\n")


async def test_what_is_no_http_is_refused_once() -> None:
    async with served() as port:
        assert (await ask(port, b"\x00\x01garbage\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        long_head = b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 17_000
        assert (await ask(port, long_head)).startswith(b"HTTP/1.1 431 ")
        assert b"200 OK" in await ask(
            port, b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        )


async def test_so_many_connections_at_a_time() -> None:
    async with served() as port, trio.open_nursery() as nursery:
        streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        for stream in streams:
            await stream.send_all(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
            assert b"200 OK" in await stream.receive_some()
        assert await ask(port, b"") == b"", "one more is closed at once"
        for stream in streams:
            nursery.start_soon(stream.aclose)
