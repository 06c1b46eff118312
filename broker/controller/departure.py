"""How a broker leaves the cluster: a controlled shutdown, while anybody is left to grant it.

Rules:
1. The controller moves the leaderships away and then lets the broker go (KIP-631).
2. That is given up when nobody can grant it: no controller is known for `_WITHOUT_CONTROLLER_S`, or
   so many voters refuse connections for `_WITHOUT_MAJORITY_S` that the others are no majority. A
   process that ends closes its sockets, so the last nodes of a cluster need not wait for timeouts
   to know that they are. A node that is paused or cut off refuses nothing.
3. After `timeout_s` the broker goes in any case.

Called by: `broker_role`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import trio

from kraftrio.net.connection import ConnectionLost, open_connection
from kraftrio.net.transport import Network

_log = logging.getLogger("kraftrio.node")

_WITHOUT_CONTROLLER_S = 1.0
_WITHOUT_MAJORITY_S = 0.15
_POLL_S = 0.05
_CONNECT_TIMEOUT_S = 0.5


class Channel(Protocol):
    """The way to the controller."""

    async def controlled_shutdown(self) -> None:
        """Ask until the controller lets this broker go."""


class Departure:
    """See the module.

    Args:
        voters: where the other voters of the quorum listen, by node id.
        is_voter: whether this node is one, too.
        has_controller: whether some node is known to lead the quorum.
    """

    def __init__(
        self,
        network: Network,
        channel: Channel,
        client_id: str,
        voters: Mapping[int, tuple[str, int]],
        *,
        is_voter: bool,
        has_controller: Callable[[], bool],
    ) -> None:
        self._network = network
        self._channel = channel
        self._client_id = client_id
        self._voters = voters
        self._majority = (len(voters) + is_voter) // 2 + 1
        self._is_voter = is_voter
        self._has_controller = has_controller

    async def leave(self, timeout_s: float) -> None:
        """Leave, granted or not."""
        with trio.move_on_after(timeout_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    self._give_up_after, nursery, _WITHOUT_CONTROLLER_S, self._is_without_controller
                )
                nursery.start_soon(
                    self._give_up_after, nursery, _WITHOUT_MAJORITY_S, self._is_without_majority
                )
                await self._channel.controlled_shutdown()
                nursery.cancel_scope.cancel()

    async def _give_up_after(
        self, nursery: trio.Nursery, patience_s: float, is_hopeless: Callable[[], Awaitable[bool]]
    ) -> None:
        """End the nursery when something was so at every look for a while."""
        hopeful_at = trio.current_time()
        while trio.current_time() - hopeful_at < patience_s:
            await trio.sleep(_POLL_S)
            if not await is_hopeless():
                hopeful_at = trio.current_time()
        _log.info("no controller is left to move the leaderships away")
        nursery.cancel_scope.cancel()

    async def _is_without_controller(self) -> bool:
        await trio.lowlevel.checkpoint()
        return not self._has_controller()

    async def _is_without_majority(self) -> bool:
        gone: list[bool] = []

        async def try_voter(address: tuple[str, int]) -> None:
            gone.append(await self._refuses(*address))

        async with trio.open_nursery() as nursery:
            for address in self._voters.values():
                nursery.start_soon(try_voter, address)
        return gone.count(False) + self._is_voter < self._majority

    async def _refuses(self, host: str, port: int) -> bool:
        try:
            async with open_connection(
                self._network,
                host,
                port,
                client_id=self._client_id,
                connect_timeout_s=_CONNECT_TIMEOUT_S,
            ):
                return False
        except ConnectionLost as lost:
            return lost.refused
