"""Two sides of a TLS connection in memory: sockets whose room and whose end the test decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from kraftrio.net.tls.contexts import TlsMaterial
from kraftrio.net.tls.settings import TlsSettings
from kraftrio.net.tls.socket import TlsBuffer, TlsSocket
from tests.security.certificates import Authority, Identity, key_store, trust_store

CA = Authority()
SERVER = CA.server()
CLIENT = CA.client("alice")


class End:
    """One end of a connection; what is sent lands in the other's inbox as far as it has room."""

    def __init__(self) -> None:
        self.inbox = bytearray()
        self.room_bytes = 1 << 30
        self.has_ended = False  # the other side
        self.is_closed = False
        self.changed = trio.Event()
        self.other: End = self

    def notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def recv_into(self, buffer: Any, /) -> int:
        if not self.inbox:
            if self.has_ended:
                return 0
            raise BlockingIOError
        view = memoryview(buffer)
        count = min(len(view), len(self.inbox))
        view[:count] = self.inbox[:count]
        del self.inbox[:count]
        self.other.notify()
        return count

    def recvmsg_into(self, buffers: Iterable[Any], /) -> tuple[int, Any, int, Any]:
        return self.recv_into(next(iter(buffers))), (), 0, None

    def send(self, data: Any, /) -> int:
        if self.other.is_closed:
            raise BrokenPipeError("broken pipe")
        room = self.other.room_bytes - len(self.other.inbox)
        if room <= 0:
            raise BlockingIOError
        taken = bytes(memoryview(data)[:room])
        self.other.inbox += taken
        self.other.notify()
        return len(taken)

    def sendmsg(self, buffers: Iterable[Any], /) -> int:
        return self.send(b"".join(map(bytes, buffers)))

    def close(self) -> None:
        self.is_closed = True
        self.other.has_ended = True
        self.other.notify()


class MemoryNetwork:
    """Waits for ends in memory."""

    async def wait_readable(self, sock: End) -> None:
        await trio.lowlevel.checkpoint()
        while not sock.inbox and not sock.has_ended:
            await sock.changed.wait()

    async def wait_writable(self, sock: End) -> None:
        await trio.lowlevel.checkpoint()
        while len(sock.other.inbox) >= sock.other.room_bytes:
            await sock.changed.wait()


NETWORK: Any = MemoryNetwork()


def ends() -> tuple[End, End]:
    one, other = End(), End()
    one.other, other.other = other, one
    return one, other


def material(own: Identity | None, *trusted: Authority, **settings: str) -> TlsMaterial:
    """What a side has, from settings by their names without `ssl.`, with `_` for a dot."""
    properties = {f"ssl.{name.replace('_', '.')}": text for name, text in settings.items()}
    if own is not None:
        properties |= key_store(_NOWHERE, own, "PEM_INLINE")
    if trusted:
        properties |= trust_store(_NOWHERE, *trusted, kind="PEM_INLINE")
    return TlsMaterial.load(TlsSettings.from_properties(properties))


_NOWHERE: Any = None  # inline stores need no folder


class Pair:
    """Both sides of a connection, not shaken hands yet."""

    def __init__(
        self,
        server: TlsMaterial | None = None,
        client: TlsMaterial | None = None,
        host: str = "localhost",
    ) -> None:
        server = material(SERVER, CA) if server is None else server
        client = material(None, CA) if client is None else client
        self.server_end, self.client_end = ends()
        self.server = TlsSocket(self.server_end, server.server_context(), TlsBuffer())
        self.client = TlsSocket(self.client_end, client.client_context(), TlsBuffer(), host)

    async def shake_hands(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.server.shake_hands, NETWORK)
            nursery.start_soon(self.client.shake_hands, NETWORK)

    async def outcomes(self) -> tuple[BaseException | None, BaseException | None]:
        """How the handshake ends on the server's side, and on the client's."""
        found: dict[str, BaseException | None] = {}

        async def run(name: str, side: TlsSocket) -> None:
            try:
                await side.shake_hands(NETWORK)
                found[name] = None
            except OSError as error:
                side.close()
                found[name] = error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "server", self.server)
            nursery.start_soon(run, "client", self.client)
        return found["server"], found["client"]


def received(sock: TlsSocket, size: int = 1 << 20) -> bytes:
    """Receive all that is there now."""
    found = bytearray()
    buffer = bytearray(size)
    while True:
        try:
            count = sock.recv_into(buffer)
        except BlockingIOError:
            return bytes(found)
        if not count:
            return bytes(found)
        found += buffer[:count]
