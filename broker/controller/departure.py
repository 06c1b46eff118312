"""How a broker leaves the cluster: a controlled shutdown, while any controller is left to grant it.

Rules:
1. The controller moves the leaderships away and then lets the broker go (KIP-631).
2. The broker stops waiting when no controller can grant it: no controller is known for
   `_WITHOUT_CONTROLLER_S`, or so many voters refuse connections for `_WITHOUT_MAJORITY_S` that the
   rest is not a majority. A process that ends closes its sockets, so the last nodes of a cluster
   need not wait for timeouts to know that they are. A node that is paused or cut off refuses
   nothing.
3. After `timeout_s` the broker goes in any case.

Called by: `broker_role`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from kraftrio.broker.ports import MetadataQuorum
from kraftrio.net.connection import ConnectionLost, open_connection
from kraftrio.net.transport import Network

_log = logging.getLogger("kraftrio.node")

_WITHOUT_CONTROLLER_S = 1.0
_WITHOUT_MAJORITY_S = 0.15
_POLL_S = 0.05
_CONNECT_TIMEOUT_S = 0.5
_NO_LEADER = -1


class Departure:
    """See the module.

    Args:
        quorum: who leads, and where the voters listen.
        controlled_shutdown: asks until the controller lets this broker go.
    """

    def __init__(
        self,
        network: Network,
        quorum: MetadataQuorum,
        node_id: int,
        controlled_shutdown: Callable[[], Awaitable[None]],
    ) -> None:
        self._network = network
        self._quorum = quorum
        self._node_id = node_id
        self._controlled_shutdown = controlled_shutdown

    async def leave(self, timeout_s: float) -> None:
        """Leave, whether the controller grants it or not."""
        with trio.move_on_after(timeout_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    self._give_up_after, nursery, _WITHOUT_CONTROLLER_S, self._is_without_controller
                )
                nursery.start_soon(
                    self._give_up_after, nursery, _WITHOUT_MAJORITY_S, self._is_without_majority
                )
                await self._controlled_shutdown()
                nursery.cancel_scope.cancel()

    async def _give_up_after(
        self, nursery: trio.Nursery, patience_s: float, is_hopeless: Callable[[], Awaitable[bool]]
    ) -> None:
        """End the nursery when a condition held at every check for a while."""
        hopeful_at = trio.current_time()
        while trio.current_time() - hopeful_at < patience_s:
            await trio.sleep(_POLL_S)
            if not await is_hopeless():
                hopeful_at = trio.current_time()
        _log.info("no controller is left to move the leaderships away")
        nursery.cancel_scope.cancel()

    async def _is_without_controller(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self._quorum.leader_id == _NO_LEADER

    async def _is_without_majority(self) -> bool:
        voters = self._quorum.voters.current
        present = {self._node_id} & set(voters)

        async def try_voter(node_id: int) -> None:
            address = voters.address(node_id)
            if address is not None and not await self._refuses(*address):
                present.add(node_id)

        async with trio.open_nursery() as nursery:
            for node_id in voters.others(self._node_id):
                nursery.start_soon(try_voter, node_id)
        return len(present) < voters.majority

    async def _refuses(self, host: str, port: int) -> bool:
        try:
            async with open_connection(
                self._network,
                host,
                port,
                client_id=f"kraftrio-broker-{self._node_id}",
                connect_timeout_s=_CONNECT_TIMEOUT_S,
            ):
                return False
        except ConnectionLost as lost:
            return lost.refused
