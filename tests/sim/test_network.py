"""The network in memory keeps what TCP promises, and breaks what a network may break."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest
import trio

from kraftrio.testing.simulation.network import HostNetwork, Internet, LinkQuality, SimSocket
from kraftrio.testing.simulation.world import World


class Pair:
    """Two hosts, a listener on the second, and a connection."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.internet = Internet(world, LinkQuality(0.001, 0.01, 1e6, 0.3))
        self.left = HostNetwork(self.internet, "left")
        self.right = HostNetwork(self.internet, "right")
        self.listener = self.right.bind("", 9)

    async def connect(self) -> tuple[SimSocket, SimSocket]:
        client = await self.left.connect("right", 9)
        await self.right.wait_readable(self.listener)
        server, address = self.listener.accept()
        assert address == client.getsockname()
        return client, server

    async def send(self, sock: SimSocket, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[sock.send(view) :]
            except BlockingIOError:
                await sock.wait_writable()

    async def receive(self, sock: SimSocket, count: int) -> bytes:
        received = bytearray()
        buffer = bytearray(1000)
        while len(received) < count:
            try:
                got = sock.recv_into(buffer)
            except BlockingIOError:
                await sock.wait_readable()
                continue
            if not got:
                break
            received += buffer[:got]
        return bytes(received)


def run(script: Callable[[Pair], Awaitable[None]]) -> None:
    world = World("network")
    world.run(lambda: script(Pair(world)))


def test_bytes_arrive_in_order_through_bounded_buffers() -> None:
    """A long message comes whole, though both sides are slow and buffers small."""
    message = bytes(range(256)) * 4_000

    async def script(pair: Pair) -> None:
        client, server = await pair.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.send, client, message)
            await trio.sleep(1)
            with pytest.raises(BlockingIOError):
                client.send(b"more than fits")
            assert await pair.receive(server, len(message)) == message
        client.close()
        assert await pair.receive(server, 1) == b""

    run(script)


def test_a_hung_link_delays_and_loses_nothing() -> None:
    """Nothing passes in that direction until the link is mended; the other one works."""

    async def script(pair: Pair) -> None:
        client, server = await pair.connect()
        pair.internet.hang("left", "right")
        await pair.send(client, b"hello")
        await pair.send(server, b"world")
        assert await pair.receive(client, 5) == b"world"
        with trio.move_on_after(100) as scope:
            await server.wait_readable()
        assert scope.cancelled_caught
        pair.internet.mend("left", "right")
        assert await pair.receive(server, 5) == b"hello"

    run(script)


def test_connecting_without_a_listener() -> None:
    """A dead process refuses; a machine without power, or behind a hung link, says nothing."""

    async def script(pair: Pair) -> None:
        client, _server = await pair.connect()
        pair.internet.kill_process(pair.right.host)
        assert await pair.receive(client, 1) == b""
        with pytest.raises(ConnectionRefusedError):
            await pair.left.connect("right", 9)
        pair.internet.cut_power(pair.right.host)
        with trio.move_on_after(100) as scope:
            await pair.left.connect("right", 9)
        assert scope.cancelled_caught
        with pytest.raises(OSError, match="no such host"):
            await pair.left.connect("nowhere", 9)

    run(script)


def test_a_machine_that_was_without_power_resets_what_it_does_not_know() -> None:
    """The peer learns it when it sends, not before."""

    async def script(pair: Pair) -> None:
        client, _server = await pair.connect()
        pair.internet.cut_power(pair.right.host)
        await trio.sleep(10)
        assert not client.is_readable
        pair.internet.restore_power(pair.right.host)
        await pair.send(client, b"are you there")
        await client.wait_readable()
        with pytest.raises(ConnectionResetError):
            client.recv_into(bytearray(10))

    run(script)


def test_keep_alives_find_out_that_a_machine_has_lost_its_power() -> None:
    """Who only waits for an answer learns that none will come."""

    async def script(pair: Pair) -> None:
        client, _server = await pair.connect()
        pair.internet.cut_power(pair.right.host)
        with trio.fail_after(61):
            await client.wait_readable()
        with pytest.raises(TimeoutError):
            client.recv_into(bytearray(10))

    run(script)


def test_a_cut_connection() -> None:
    """Both ends find it broken; answers may be lost while requests still arrive."""

    async def script(pair: Pair) -> None:
        client, server = await pair.connect()
        pair.internet.cut(client, lose_answers_s=1)
        await pair.send(client, b"request")
        assert await pair.receive(server, 7) == b"request"
        await pair.send(server, b"answer")
        await client.wait_readable()
        with pytest.raises(ConnectionResetError):
            client.recv_into(bytearray(10))
        with pytest.raises(ConnectionResetError):
            server.recv_into(bytearray(10))

    run(script)


def test_a_stalled_connection_leaves_others_alone() -> None:
    """One connection hangs for a while, another between the same hosts does not."""

    async def script(pair: Pair) -> None:
        client, server = await pair.connect()
        other, other_server = await pair.connect()
        pair.internet.stall(client, True)
        await pair.send(client, b"late")
        await pair.send(other, b"soon")
        assert await pair.receive(other_server, 4) == b"soon"
        await trio.sleep(10)
        assert not server.is_readable
        pair.internet.stall(client, False)
        assert await pair.receive(server, 4) == b"late"

    run(script)


def test_waiting_tasks_learn_that_a_socket_closes() -> None:
    """notify_closing wakes the reader with ClosedResourceError, as Trio does."""

    async def script(pair: Pair) -> None:
        client, _server = await pair.connect()

        async def close() -> None:
            await trio.sleep(1)
            pair.left.notify_closing(client)
            client.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            with pytest.raises(trio.ClosedResourceError):
                await client.wait_readable()
        with pytest.raises(OSError) as caught:
            client.send(b"x")
        assert caught.value.errno == errno.EBADF

    run(script)
