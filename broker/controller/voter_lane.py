"""One connection to one voter of the quorum, made when there is something to send: `VoterLane`.

Rules:
1. What waits for the connection is the newest message of each kind.
2. A message about elections whose connection broke is sent once more over a new one: such messages
   may come twice. A fetch is left to the consensus core, which knows whether it still wants it.
3. There is no back-off: the consensus core decides when to try again.

Called by: quorum_peers.py. Protocol: KIP-595.
Tested by: tests/unit/broker/controller/test_quorum_peers.py, by whole nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import trio

from kraftrio.kraft_meta.quorum.raft_wire import SENT_VERSIONS, decode_response
from kraftrio.kraft_meta.raft.messages import Fetch, Request, Response
from kraftrio.net.connection import Connection, ConnectionLost, Reply, RequestTimedOut
from kraftrio.net.link import Link, Loss
from kraftrio.wire.errors import KafkaError, RemoteProtocolError


class LaneReports(Protocol):
    """Takes what becomes of the messages of a lane."""

    def on_answer(self, node_id: int, answer: Response) -> None:
        """The voter has answered."""

    def on_refusal(self, node_id: int, error: KafkaError | RemoteProtocolError) -> None:
        """The voter has refused a request as a whole, or its answer makes no sense."""

    def on_unreachable(self, node_id: int, reason: str, *, refused: bool) -> None:
        """A message is lost; refused: nothing listens at the voter's address."""


class VoterLane:
    """See the module.

    Args:
        encode: makes a request of the protocol from a message of the core.
    """

    def __init__(
        self,
        node_id: int,
        link: Link,
        timeout_s: float,
        encode: Callable[[Request], Any],
        reports: LaneReports,
    ) -> None:
        self._node_id = node_id
        self._link = link
        self._timeout_s = timeout_s
        self._encode = encode
        self._reports = reports
        self._queue: dict[type[Request], tuple[Request, bool]] = {}  # and whether sent before
        self._wake = trio.Event()
        self._scope = trio.CancelScope()

    def send(self, message: Request) -> None:
        """Send over the connection, or queue for the one that is made."""
        connection = self._link.connection
        if connection is not None:
            self._transmit(connection, message, False)
        else:
            self._queue[type(message)] = (message, False)
            self._wake.set()

    async def run(self) -> None:
        """Make connections as long as there is something to send, until ended."""
        with self._scope:
            while True:
                if not self._queue:
                    self._wake = trio.Event()
                    await self._wake.wait()
                await self._link.keep(self._serve, self._on_loss, wanted=lambda: bool(self._queue))

    def end(self) -> None:
        """End `run`: nothing is sent to this voter any more."""
        self._scope.cancel()

    async def _serve(self, connection: Connection) -> None:
        while self._queue:
            self._transmit(connection, *self._queue.pop(next(iter(self._queue))))
        await connection.wait_closed()

    def _on_loss(self, loss: Loss) -> None:
        if not loss.was_ready:  # else the requests under way have reported it
            self._queue.clear()
            self._reports.on_unreachable(self._node_id, loss.reason, refused=loss.refused)

    def _transmit(self, connection: Connection, message: Request, is_retry: bool) -> None:
        request = self._encode(message)
        try:
            reply = connection.send(request, SENT_VERSIONS[type(request)], self._timeout_s)
        except ConnectionLost as lost:
            self._lose(message, is_retry, lost)
        else:
            reply.then(partial(self._on_reply, message, is_retry))

    def _on_reply(self, message: Request, is_retry: bool, reply: Reply) -> None:
        try:
            response = reply.value()
        except ConnectionLost as lost:
            self._lose(message, is_retry, lost)
            return
        try:
            answer = decode_response(message, response)
        except (KafkaError, RemoteProtocolError) as error:
            self._reports.on_refusal(self._node_id, error)
            return
        self._reports.on_answer(self._node_id, answer)

    def _lose(self, message: Request, is_retry: bool, lost: ConnectionLost) -> None:
        if is_retry or isinstance(message, Fetch) or isinstance(lost, RequestTimedOut):
            self._reports.on_unreachable(self._node_id, lost.reason, refused=False)
        else:
            self._queue.setdefault(type(message), (message, True))
            self._wake.set()
