"""Fences brokers whose process is gone before their sessions time out: `BrokerSessions`.

Owns, on a controller: which connection each broker heartbeats on. A process that dies takes its
sockets along: its connection ends and nothing listens at its address any more. Rules:
1. When the connection of a broker's last heartbeat ends, and when this node becomes the active
   controller for each broker that does not heartbeat soon, the broker's listener is tried. Refused:
   the broker is fenced at once. The former controller is tried without delay: it may have died, and
   may have been a broker, too, which had no connection here.
2. Accepted: tried again for a moment, since a process that dies closes its sockets one by one. A
   heartbeat meanwhile ends the attempts.
3. Neither refused nor accepted (a link that is cut), or accepted for good (a process that is
   paused, a connection that was reset on its way): left to broker.session.timeout.ms.
4. This only speeds up what the session timeout would do. A broker that is fenced in error is
   unfenced by its next heartbeat.

Called by: api/controller.py (`heartbeat_seen`), `controller_role` (`run`). Not in Kafka.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio

from kraftrio.base.owned_tasks import OwnedTasks
from kraftrio.broker.ports import MetadataQuorum
from kraftrio.broker.server.context import ClientInfo
from kraftrio.kraft_meta.metadata.image import BrokerImage, Endpoint
from kraftrio.net.connection import ConnectionLost, open_connection
from kraftrio.net.transport import Network

_log = logging.getLogger("kraftrio.broker_sessions")

_PROBE_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_CONNECT_TIMEOUT_S = 1.0
_NOT_LEADING = -1
_NO_LEADER = -1
_FIRST_HEARTBEAT_S = 0.1  # brokers heartbeat to a new controller at once


@dataclass(frozen=True, slots=True, eq=False)
class _Session:
    """One incarnation of a broker on one connection."""

    broker_id: int
    broker_epoch: int
    client: ClientInfo


class BrokerSessions:
    """See the module; one per node with the controller role.

    Args:
        listener_name: the listener at which brokers are tried (inter.broker.listener.name).
    """

    def __init__(
        self, network: Network, quorum: MetadataQuorum, node_id: int, listener_name: str
    ) -> None:
        self._network = network
        self._quorum = quorum
        self._node_id = node_id
        self._listener_name = listener_name
        self._sessions: dict[int, _Session] = {}
        self._probes: set[tuple[int, int]] = set()
        self._known_epoch = _NOT_LEADING
        self._former_leader = _NO_LEADER
        self._tasks = OwnedTasks()
        quorum.on_leader_change(self._on_leader_change)

    def heartbeat_seen(self, broker_id: int, broker_epoch: int, client: ClientInfo) -> None:
        """Note the connection that a broker heartbeats on, unless its incarnation is outdated."""
        session = self._sessions.get(broker_id)
        if (
            session is not None
            and session.client is client
            and session.broker_epoch == broker_epoch
        ):
            return
        broker = self._quorum.image.broker(broker_id)
        if client.is_closed or broker is None or broker.broker_epoch != broker_epoch:
            return
        session = _Session(broker_id, broker_epoch, client)
        self._sessions[broker_id] = session
        client.on_close.append(lambda: self._on_close(session))

    def _on_close(self, session: _Session) -> None:
        if self._sessions.get(session.broker_id) is not session:
            return  # it heartbeats on another connection, or with another epoch
        del self._sessions[session.broker_id]
        if self._quorum.is_active_controller:
            self._tasks.start(
                self._probe_broker, session.broker_id, session.broker_epoch, self._epoch_led()
            )

    def _on_leader_change(self, *_arguments: object) -> None:
        leader_id = self._quorum.leader_id
        if leader_id not in (_NO_LEADER, self._node_id):
            self._former_leader = leader_id
        leader_epoch = self._epoch_led()
        if leader_epoch in (_NOT_LEADING, self._known_epoch):
            return
        if self._tasks.start(self._on_leading, leader_epoch):
            self._known_epoch = leader_epoch

    def _epoch_led(self) -> int:
        """The epoch that this node leads, or _NOT_LEADING."""
        quorum = self._quorum
        return quorum.leader_epoch if quorum.leader_id == self._node_id else _NOT_LEADING

    async def run(self) -> None:
        """Watch until cancelled."""
        async with self._tasks.open():
            self._on_leader_change()
            await trio.sleep_forever()

    async def _on_leading(self, leader_epoch: int) -> None:
        """Try every broker that does not heartbeat soon after this node has begun to lead."""
        while not self._quorum.is_active_controller:
            if self._epoch_led() != leader_epoch:
                return
            await trio.sleep(_PROBE_PAUSES_S[0])
        async with trio.open_nursery() as nursery:
            former = self._quorum.image.broker(self._former_leader)
            if former is not None:
                nursery.start_soon(
                    self._probe_broker, former.broker_id, former.broker_epoch, leader_epoch
                )
            await trio.sleep(_FIRST_HEARTBEAT_S)
            for broker in self._quorum.image.alive_brokers():
                if broker.broker_id != self._node_id:
                    nursery.start_soon(
                        self._probe_broker, broker.broker_id, broker.broker_epoch, leader_epoch
                    )

    # -- the probe ------------------------------------------------------------------------------

    async def _probe_broker(self, broker_id: int, broker_epoch: int, leader_epoch: int) -> None:
        """Fence a broker that does not heartbeat and whose listener refuses; once at a time."""
        probe = (broker_id, broker_epoch)
        if probe in self._probes:
            return
        self._probes.add(probe)
        try:
            if await self._is_refused(broker_id, broker_epoch, leader_epoch):
                self._quorum.fence_broker(broker_id, broker_epoch)
        finally:
            self._probes.discard(probe)

    async def _is_refused(self, broker_id: int, broker_epoch: int, leader_epoch: int) -> bool:
        for pause_s in _PROBE_PAUSES_S:
            endpoint = self._endpoint_to_probe(broker_id, broker_epoch, leader_epoch)
            if endpoint is None:
                return False
            try:
                async with open_connection(
                    self._network,
                    endpoint.host,
                    endpoint.port,
                    client_id=f"kraftrio-controller-{self._node_id}",
                    connect_timeout_s=_CONNECT_TIMEOUT_S,
                ) as connection:
                    # A listener that is about to go resets what it had accepted.
                    with trio.move_on_after(pause_s):
                        await connection.wait_closed()
            except ConnectionLost as lost:
                if not lost.refused:
                    return False
                if self._endpoint_to_probe(broker_id, broker_epoch, leader_epoch) is None:
                    return False  # it heartbeats again
                _log.debug(  # that it is fenced is logged once it is
                    "broker is gone, fencing it broker=%d epoch=%d reason=%s",
                    broker_id,
                    broker_epoch,
                    lost.reason,
                )
                return True
        return False

    def _endpoint_to_probe(
        self, broker_id: int, broker_epoch: int, leader_epoch: int
    ) -> Endpoint | None:
        """Where to connect to a broker; None when that is not needed any more."""
        quorum = self._quorum
        if broker_id in self._sessions or not quorum.is_active_controller:
            return None
        if self._epoch_led() != leader_epoch:
            return None
        broker = quorum.image.broker(broker_id)
        if broker is None or broker.fenced or broker.broker_epoch != broker_epoch:
            return None
        return self._endpoint(broker)

    def _endpoint(self, broker: BrokerImage) -> Endpoint | None:
        endpoint = broker.endpoint(self._listener_name)
        if endpoint is None and broker.endpoints:
            return broker.endpoints[0]
        return endpoint
