"""How many handshakes go on at a time: in all, for each address, and in one turn of the event loop.

A handshake costs a millisecond of computing and some memory, and its peer may take its time. So
many may go on; those of one address are few of them, so that a crowd from there leaves room for
others; and in one turn of the event loop few compute, so that whoever is connected gets a turn.
A connection that finds no room waits for it, within the time that its handshake has.

Called by: the admissions of one listener.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

IN_ALL: Final = 1000
OF_ONE_ADDRESS: Final = 100
IN_ONE_TURN: Final = 4


class HandshakeSlots:
    """See the module.

    Attributes:
        pace: held while a handshake computes.
    """

    def __init__(
        self,
        in_all: int = IN_ALL,
        of_one_address: int = OF_ONE_ADDRESS,
        in_one_turn: int = IN_ONE_TURN,
    ) -> None:
        self.pace = trio.Semaphore(in_one_turn)
        self._of_one_address = of_one_address
        self._in_all = trio.Semaphore(in_all)
        self._addresses: dict[str, _Address] = {}

    @asynccontextmanager
    async def taken(self, host: str) -> AsyncIterator[None]:
        """Wait for room, and have it while the body runs."""
        address = self._addresses.get(host)
        if address is None:
            address = self._addresses[host] = _Address(self._of_one_address)
        address.users += 1
        try:
            async with address.slots, self._in_all:
                yield
        finally:
            address.users -= 1
            if not address.users:
                del self._addresses[host]


class _Address:
    """What one address has; forgotten when no peer comes from there any more."""

    def __init__(self, slots: int) -> None:
        self.slots = trio.Semaphore(slots)
        self.users = 0
