"""Reports the node's state to the service manager (systemd): sd_notify(3), in a few lines.

Owns: `ServiceManager`. The manager that started the node names a socket in NOTIFY_SOCKET; where
none is named, nothing is sent. With WATCHDOG_USEC it expects a message at least that often, which
the node sends while its event loop runs, and restarts a node that does not.

Called by: `observation`, in processes, not in simulations.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

import trio


class ServiceManager:
    """See the module.

    Args:
        environ: the process's environment.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        interval_us = environ.get("WATCHDOG_USEC", "")
        self._interval_s = int(interval_us) / 2_000_000 if interval_us.isdigit() else 0.0

    def notify(self, state: str) -> None:
        """Send a state, such as READY=1, to the manager if there is one."""
        if not self._address:
            return
        # A name that begins with @ is one of Linux' abstract ones.
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            try:
                sock.sendto(state.encode(), address)
            except OSError:
                return

    async def run(self, stopping: trio.Event) -> None:
        """Report that the event loop runs and, once it is so, that the node stops."""
        async with trio.open_nursery() as nursery:
            if self._interval_s:
                nursery.start_soon(self._feed_watchdog)
            await stopping.wait()
            self.notify("STOPPING=1")

    async def _feed_watchdog(self) -> None:
        while True:
            self.notify("WATCHDOG=1")
            await trio.sleep(self._interval_s)
