"""The traffic of a world in virtual time.

Owns: `SimTraffic`, which listens to the network of a cluster, and `SimulatedConnection`.

Called by: `kafka_world`.
"""

from __future__ import annotations

import trio

from kraftrio.broker.server.context import RequestContext
from kraftrio.testing.simulation.cluster import BROKER_PORT, SimCluster
from kraftrio.testing.simulation.network import HostNetwork, SimSocket
from kraftrio.testing.traffic.frames import FRAME_SIZE, FrameCutter
from kraftrio.testing.traffic.traffic import TEST_MACHINE, Traffic, WatchedConnection

_DUPLICATE_DEADLINE_S = 30.0


class SimulatedConnection(WatchedConnection):
    """See `WatchedConnection`; with the four ends that frames come by."""

    def __init__(self, sock: SimSocket, cluster: SimCluster) -> None:
        self.number = sock.connection_id
        self.machine = sock.host.name
        self.node = sock.peer.host.name
        self.sent, self.reached, self.answered, self.arrived = (FrameCutter() for _ in range(4))
        self._sock = sock  # the client's end
        self._cluster = cluster

    def lose_answers(self, frame: bytes, after_s: float) -> None:
        self._cluster.internet.cut(self._sock, lose_answers_s=after_s)

    def hold_up(self, seconds: float) -> None:
        internet, sock = self._cluster.internet, self._sock
        internet.stall(sock, True)
        internet.world.after(seconds, lambda: internet.stall(sock, False))

    def send_again(self, frame: bytes, after_s: float) -> None:
        self._cluster.nursery.start_soon(self._send_again, frame, after_s)

    async def _send_again(self, frame: bytes, after_s: float) -> None:
        await trio.sleep(after_s)
        internet = self._cluster.internet
        with trio.move_on_after(_DUPLICATE_DEADLINE_S):
            try:
                sock = await HostNetwork(internet, self.machine).connect(self.node, BROKER_PORT)
            except OSError as error:
                internet.world.note("world", "fault", f"it came once: {error}")
                return
            try:
                internet.carry(sock, FRAME_SIZE.pack(len(frame)) + frame)
                await sock.wait_readable()
            finally:
                sock.close()


class SimTraffic(Traffic):
    """See `Traffic`; it ends with `end`."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._internet = cluster.internet
        self._nodes = {node.name for node in cluster.nodes.values()}
        self._connections: dict[int, SimulatedConnection] = {}
        self._machines: dict[str, str] = {}  # by address
        self._internet.observers.append(self._on_send)
        self._internet.arrival_observers.append(self._on_arrival)

    def end(self) -> None:
        """Look at no more."""
        self._internet.observers.remove(self._on_send)
        self._internet.arrival_observers.remove(self._on_arrival)

    def now_s(self) -> float:
        return self._internet.world.now_s

    def note(self, kind: str, text: str) -> None:
        self._internet.world.note("world", kind, text)

    def is_one(self, machine: str, name: str) -> bool:
        return machine == name

    def check_client(self, name: str) -> None:
        clients = [
            known
            for known, host in self._internet.hosts.items()
            if not host.is_node and known != TEST_MACHINE
        ]
        if name not in clients:
            raise ValueError(
                f"there is no machine {name!r} of the program's: there are {', '.join(clients)};"
                " others are there once `with machine(...)` was entered"
            )

    def sender(self, context: RequestContext) -> str | None:
        hosts = self._internet.hosts
        address = context.client.host
        if address not in self._machines:
            self._machines = {host.address: name for name, host in hosts.items()}
        machine = self._machines.get(address)
        return None if machine is None or hosts[machine].is_node else machine

    def _connection_of(self, sock: SimSocket) -> SimulatedConnection | None:
        """The connection of a socket of a client; None: it is none, or with another cluster."""
        if (
            sock.peer_port != BROKER_PORT
            or sock.host.is_node
            or sock.peer.host.name not in self._nodes
        ):
            return None
        found = self._connections.get(sock.connection_id)
        if found is None:
            found = self._connections[sock.connection_id] = SimulatedConnection(sock, self._cluster)
        return found

    def _on_send(self, sock: SimSocket, chunk: bytes) -> None:
        if (connection := self._connection_of(sock)) is not None:
            for frame in connection.sent.cut(chunk):
                self.notify(self.on_sent, connection, frame)
        elif (connection := self._connection_of(sock.peer)) is not None:
            for frame in connection.answered.cut(chunk):
                self.notify(self.on_answered, connection, frame)

    def _on_arrival(self, sock: SimSocket, piece: bytes) -> None:
        if (connection := self._connection_of(sock)) is not None:
            for frame in connection.reached.cut(piece):
                self.notify(self.on_reached, connection, frame)
        elif (connection := self._connection_of(sock.peer)) is not None:
            for frame in connection.arrived.cut(piece):
                self.notify(self.on_arrived, connection, frame)
