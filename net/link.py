"""A link to one node: a connection that is dialled again whenever it ends.

Rules:
1. There is at most one connection, and one attempt to make one, at a time. Others see it as
   `Link.connection` once it is ready: connected, and prepared if the link prepares connections.
2. Each attempt that fails and each connection that ends is reported once, as one `Loss`.
3. The next attempt waits for a back-off, twice as long after each failure in a row up to a limit,
   with 20% jitter where randomness is given. Only the owner knows what success is: it calls
   `succeeded`, and the back-off starts over.
4. `retry_now` ends the wait for the next attempt; `redial` drops the connection as well, for a node
   that has moved.

Called by: what needs a node for longer than one call: the clients' nodes, the replica
fetchers, the controller client, the quorum's peers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.net.connection import (
    AuthenticationFailed,
    Connection,
    ConnectionLost,
    open_connection,
)
from kraftrio.net.transport import Network

Address = tuple[str, int]
Use = Callable[[Connection], Awaitable[object]]


class Loss(NamedTuple):
    """What became of an attempt to connect, or of a connection.

    Attributes:
        reason: what happened, in words.
        refused: nothing listens there.
        was_ready: the connection had been made.
        kind: the class of error that it would be raised as.
    """

    reason: str
    refused: bool = False
    was_ready: bool = False
    kind: type[ConnectionLost] = ConnectionLost

    @property
    def authentication_failed(self) -> bool:
        """Whether the node does not let this side in."""
        return issubclass(self.kind, AuthenticationFailed)


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How a link connects.

    Attributes:
        client_id: what the requests are signed with.
        connect_timeout: how long an attempt may take.
        backoff: how long the next attempt waits after one that failed.
        spare_frames: see `open_connection`.
    """

    client_id: str
    connect_timeout: ExponentialBackoff
    backoff: ExponentialBackoff
    spare_frames: int = 0


class Link:
    """The connection to one node; see the module.

    Args:
        address: where the node is now, asked before each attempt; None: unknown.
        prepare: what has to be done on a new connection before others may see it. ConnectionLost
            in it is a failed attempt; any other error comes out of `attempt`.
        rng: for jitter; without it there is none.
    """

    def __init__(
        self,
        network: Network,
        address: Callable[[], Address | None],
        settings: LinkSettings,
        *,
        prepare: Use | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._network = network
        self._address = address
        self._settings = settings
        self._prepare = prepare
        self._rng = rng
        self._connection: Connection | None = None
        self._failures = 0
        self._retry_at = -math.inf
        self._attempt = trio.CancelScope()
        self._rest = trio.CancelScope()
        self._redial_reason: str | None = None

    @property
    def connection(self) -> Connection | None:
        """The connection while it is ready and has not ended."""
        connection = self._connection
        return None if connection is None or connection.is_closed else connection

    @property
    def loss(self) -> str | None:
        """Why the connection has ended, until the attempt that made it returns."""
        return None if self._connection is None else self._connection.loss

    @property
    def failures(self) -> int:
        """How many attempts have failed in a row, or lost their connection."""
        return self._failures

    @property
    def retry_at(self) -> float:
        """When the next attempt is due: Trio's time."""
        return self._retry_at

    def succeeded(self) -> bool:
        """Let the back-off start over: the node does what it is asked.

        Returns:
            Whether attempts had failed before.
        """
        failures, self._failures = self._failures, 0
        return failures > 0

    def retry_now(self) -> None:
        """Make the next attempt due now."""
        now = trio.current_time()
        self._retry_at = min(self._retry_at, now)
        self._rest.deadline = min(self._rest.deadline, now)

    def redial(self, reason: str) -> None:
        """Give up the attempt or connection that there is; the next attempt is due at once."""
        self._redial_reason = reason
        self._attempt.cancel()
        self.retry_now()

    async def attempt(self, use: Use) -> Loss | None:
        """Connect once, and stay connected as long as `use` runs.

        Args:
            use: called with the ready connection; it returns when the connection has ended, or
                is needed no longer.

        Returns:
            Why there is no connection any more; None: `use` ended before the connection did.
        """
        loss: Loss | None = None
        has_failed = True
        self._redial_reason = None
        with trio.CancelScope() as self._attempt:
            try:
                loss = await self._connect(use)
                has_failed = loss is not None
            finally:
                self._back_off()
                self._failures += has_failed
        if self._redial_reason is not None:
            loss = Loss(self._redial_reason)
            self.retry_now()
        return loss

    async def rest(self) -> None:
        """Wait until the next attempt is due."""
        with trio.CancelScope(deadline=self._retry_at) as self._rest:
            await trio.sleep_forever()

    async def keep(
        self,
        use: Use,
        on_loss: Callable[[Loss], object],
        *,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Connect, and again after each loss, as long as the link is wanted.

        Args:
            use: as for `attempt`.
            on_loss: called with every loss, once.
            wanted: asked before each attempt, and before each wait for one.
        """
        while wanted():
            loss = await self.attempt(use)
            if loss is not None:
                on_loss(loss)
                if wanted():
                    await self.rest()

    async def _connect(self, use: Use) -> Loss | None:
        address = self._address()
        if address is None:
            return Loss("no address is known")
        try:
            async with open_connection(
                self._network,
                *address,
                client_id=self._settings.client_id,
                connect_timeout_s=self._settings.connect_timeout.after(self._failures) / 1000,
                spare_frames=self._settings.spare_frames,
            ) as connection:
                if self._prepare is not None:
                    await self._prepare(connection)
                return await self._use(connection, use)
        except ConnectionLost as lost:
            return Loss(lost.reason, refused=lost.refused, kind=type(lost))

    async def _use(self, connection: Connection, use: Use) -> Loss | None:
        self._connection = connection
        try:
            await use(connection)
            if connection.loss is not None:
                return Loss(connection.loss, was_ready=True, kind=connection.loss_kind)
            return None
        finally:
            connection.close()  # replies fail before the connection is forgotten
            self._connection = None

    def _back_off(self) -> None:
        backoff = self._settings.backoff
        backoff_ms = (
            backoff.after(self._failures)
            if self._rng is None
            else backoff.jittered(self._failures, self._rng)
        )
        self._retry_at = trio.current_time() + backoff_ms / 1000
