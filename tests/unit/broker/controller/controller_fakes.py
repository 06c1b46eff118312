"""A quorum of the test's making and nodes that answer as its active controller, over loopback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import trio

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.server import ServerListener, bind
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.image import BrokerImage, Endpoint, MetadataImage
from kraftrio.kraft_meta.quorum.voter_changes import CurrentVoters
from kraftrio.kraft_meta.raft.voters import Voter, VoterEndpoint, VoterSet
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import ApiKey
from tests.support.server_limits import LIMITS

SERVED = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ENVELOPE,
)

Answer = Callable[[Any], Any]
"""Gives the response to a request, a Deferred of one, or None to leave it without an answer."""


def not_controller(request: Any) -> Any:
    """Answer as a node that is not the active controller does on the wire."""
    return error_response(request, ErrorCode.NOT_CONTROLLER)


def voters_at(addresses: Mapping[int, tuple[str, int]]) -> VoterSet:
    """Give voters that listen at these addresses."""
    return VoterSet(
        tuple(
            Voter(node_id, (VoterEndpoint("CONTROLLER", *address),))
            for node_id, address in addresses.items()
        )
    )


def accept(request: Any) -> Any:
    """Answer that all went well."""
    return error_response(request, ErrorCode.NONE)


def silence(_request: Any) -> Any:
    """Never answer."""
    return Deferred()


class FakeQuorum:
    """Who leads is what the test says; requests of this node are answered by `answer`."""

    def __init__(
        self, node_id: int = 1, answer: Answer = accept, voters: VoterSet | None = None
    ) -> None:
        self.node_id = node_id
        self.leader_id = -1
        self.leader_epoch = 0
        self.is_active_controller = False
        self.image = MetadataImage()
        self.answer = answer
        self.submitted: list[Any] = []
        self.senders: list[RequestSender] = []
        self.fenced: list[tuple[int, int]] = []
        self.voters = CurrentVoters(voters or VoterSet.of_ids([node_id]))
        self._callbacks: list[Callable[..., object]] = []

    def elect(self, leader_id: int) -> None:
        """Let another node lead, -1: nobody; this one is active at once if it is the one."""
        if leader_id != -1:
            self.leader_epoch += 1
        self.leader_id = leader_id
        self.is_active_controller = leader_id == self.node_id
        for callback in self._callbacks:
            callback(leader_id, self.leader_epoch)

    def on_leader_change(self, callback: Callable[..., object], /) -> None:
        self._callbacks.append(callback)

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        self.submitted.append(request)
        response = self.answer(request)
        return response if isinstance(response, Deferred) else Deferred.completed(response)

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        self.senders.append(sender)
        return self.submit(request, api_version=api_version)

    def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        self.fenced.append((broker_id, broker_epoch))

    def register(
        self, broker_id: int, broker_epoch: int, port: int, *, fenced: bool = False
    ) -> None:
        """Put a broker into the image."""
        broker = BrokerImage(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            incarnation_id=bytes(16),
            endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", port, 0),),
            rack=None,
            fenced=fenced,
            in_controlled_shutdown=False,
        )
        brokers = self.image.brokers.set(broker_id, broker)
        self.image = replace(
            self.image, offset=max(self.image.offset, broker_epoch), brokers=brokers
        )


class ControllerNode:
    """A node that serves the controller's APIs on a loopback port while it is up."""

    def __init__(self, nursery: trio.Nursery, answer: Answer = accept) -> None:
        self.answer = answer
        self.requests: list[Any] = []
        self.clients: list[ClientInfo] = []
        self._nursery = nursery
        self._scope = trio.CancelScope()
        self._arrived = trio.Event()
        self._sock: Any = bind("127.0.0.1", 0)
        self.address: tuple[str, int] = ("127.0.0.1", self._sock.getsockname()[1])
        self.start()

    def start(self) -> None:
        """Serve, again at the same address after `stop`."""
        if self._sock is None:
            self._sock = bind(*self.address)
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._serve, self._sock, self._scope)

    async def _serve(self, sock: Any, scope: trio.CancelScope) -> None:
        dispatcher = Dispatcher(dict.fromkeys(SERVED, self._handle))
        with scope:
            await ServerListener("CONTROLLER", sock, dispatcher, LIMITS).run()

    def stop(self) -> None:
        """Die: every connection ends, and new ones are refused."""
        self._scope.cancel()
        self._sock.close()
        self._sock = None

    def _handle(self, request: Any, context: RequestContext) -> Any:
        self.requests.append(request)
        if not any(client is context.client for client in self.clients):
            self.clients.append(context.client)
        self._arrived.set()
        return self.answer(request)

    async def wait_requests(self, count: int) -> None:
        """Wait until so many requests have come in all."""
        while len(self.requests) < count:
            self._arrived = trio.Event()
            await self._arrived.wait()
