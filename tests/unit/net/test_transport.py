"""The system's own sockets, as everybody here gets them."""

from __future__ import annotations

import socket

import pytest

from kraftrio.net.transport import SystemNetwork


async def test_both_ends_of_a_connection_find_out_that_the_other_machine_is_gone() -> None:
    network = SystemNetwork()
    listener = network.bind("127.0.0.1", 0)
    with listener:
        dialled = await network.connect(*listener.getsockname())
        await network.wait_readable(listener)
        accepted, _ = listener.accept()
        network.tune(accepted, 0, 0)
    with dialled, accepted:
        for sock in (dialled, accepted):
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if not hasattr(socket, "TCP_KEEPIDLE"):
                pytest.skip("this system has no such settings for a socket")
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            idle_s, interval_s, count = (sock.getsockopt(socket.IPPROTO_TCP, n) for n in names)
            assert idle_s + interval_s * count <= 60
