"""systemd is notified when the node serves, that its loop runs, and that it stops."""

from __future__ import annotations

import socket
from pathlib import Path

import trio

from kraftrio.broker.node.watch.service_manager import ServiceManager


async def test_what_the_manager_is_sent(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        receiver.setblocking(False)
        manager = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"})
        manager.notify("READY=1")
        assert receiver.recv(100) == b"READY=1"
        stopping = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.run, stopping)
            for _ in range(3):
                with trio.fail_after(5):
                    await trio.lowlevel.wait_readable(receiver)
                assert receiver.recv(100) == b"WATCHDOG=1"
            stopping.set()
            states = {b"WATCHDOG=1"}
            while b"STOPPING=1" not in states:
                with trio.fail_after(5):
                    await trio.lowlevel.wait_readable(receiver)
                states.add(receiver.recv(100))
            nursery.cancel_scope.cancel()


def test_without_a_socket_nothing_is_sent(tmp_path: Path) -> None:
    ServiceManager({}).notify("READY=1")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).notify("READY=1")
    assert not list(tmp_path.iterdir())
    ServiceManager({"NOTIFY_SOCKET": "@kraftrio-nobody", "WATCHDOG_USEC": "x"}).notify("READY=1")
