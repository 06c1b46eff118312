"""The console over real sockets: it is found under its address, and ends when it is to."""

from __future__ import annotations

import socket

import pytest
import trio

from kraftrio.clients.cli.connect import TargetCluster
from kraftrio.clients.console.server import listen, serve, url_of
from kraftrio.clients.console.settings import ConsoleSettings


async def fetch(port: int, path: str) -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    received = b""
    async for data in stream:
        received += data
        head, end, body = received.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().split(b"content-length: ")[1].split()[0]):
            break
    await stream.aclose()
    return received


async def test_pages_are_served_until_it_is_cancelled() -> None:
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    assert url_of("127.0.0.1", sock) == f"http://127.0.0.1:{port}/"
    async with trio.open_nursery() as nursery:
        settings = ConsoleSettings(TargetCluster("127.0.0.1:1"))  # where no broker is
        nursery.start_soon(serve, settings, sock)
        with trio.fail_after(20):
            script = await fetch(port, "/static/console.js")
            assert b"200" in script.splitlines()[0]
            assert b"text/javascript" in script
            assert b"404" in (await fetch(port, "/nowhere")).splitlines()[0]
        nursery.cancel_scope.cancel()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_port_that_is_taken() -> None:
    taken = listen("127.0.0.1", 0)
    with taken, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", taken.getsockname()[1])
