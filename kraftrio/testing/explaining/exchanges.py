"""What clients asked of brokers in a run, and how far each request and its answer came.

Owns: `Exchange`, and `Exchanges`, which listens to an `Internet`. Rules:
1. Frames are kept as they are and decoded when somebody asks: a run that nobody asks about pays for
   cutting alone.
2. Kept are the newest, of `KEPT_BYTES` in all; `is_whole` tells whether any is missing.
3. Requests between nodes are left out.

Called by: `kafka_world`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

from kraftrio.testing.simulation.frames import FrameCutter
from kraftrio.testing.simulation.network import Internet, SimSocket
from kraftrio.wire.codec.message import decode
from kraftrio.wire.protocol.api import APIS, ApiKey, decode_request, response_header_version
from kraftrio.wire.protocol.framing import RequestStart, parse_request_start

KEPT_BYTES = 64 << 20
_START = struct.Struct(">hhi")  # api key, version, correlation id
_ID = struct.Struct(">i")
# What says nothing about a record, and comes all the time.
_LEFT_OUT = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.HEARTBEAT, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS}
)


class Exchange:
    """A request, and its answer if there was one.

    Attributes:
        number: the order in which requests were sent.
        connection: tells the connections of a run apart.
        machine, node: who asked whom, such as "program" and "n1".
        sent_s, reached_s, answered_s, arrived_s: when the request was sent and reached the broker,
            and when the answer was sent and came back; None: it has not.
    """

    def __init__(
        self, number: int, connection: int, sock: SimSocket, sent_s: float, frame: bytes
    ) -> None:
        self.number = number
        self.connection = connection
        self.machine = sock.host.name
        self.node = sock.peer.host.name
        self.sent_s = sent_s
        self.reached_s: float | None = None
        self.answered_s: float | None = None
        self.arrived_s: float | None = None
        self.answer_frame = b""
        self._frame = frame

    def __repr__(self) -> str:
        return f"<{self.api_key.name} of {self.machine} to {self.node} at {self.sent_s:.6f}>"

    @property
    def size_bytes(self) -> int:
        return len(self._frame) + len(self.answer_frame)

    @cached_property
    def start(self) -> RequestStart:
        """The header of the request."""
        return parse_request_start(memoryview(self._frame), lambda key: APIS[key].flexible_from)

    @property
    def api_key(self) -> ApiKey:
        return ApiKey(self.start.api_key)

    @property
    def reader(self) -> tuple[str, str]:
        """Which client it is of: its machine and client id."""
        return self.machine, self.start.client_id or ""

    @cached_property
    def request(self) -> Any:
        """The request's message."""
        start = self.start
        return decode_request(
            APIS[start.api_key], start.api_version, memoryview(self._frame), start.body_position
        )

    @cached_property
    def answer(self) -> Any:
        """The message that the broker answered with; None: it has not."""
        if self.answered_s is None:
            return None
        key, version = self.start.api_key, self.start.api_version
        position = _ID.size + response_header_version(key, version)  # no tagged fields, from ours
        found, _ = decode(APIS[key].response, version, memoryview(self.answer_frame), position)
        return found


class _Conversation:
    """One connection of a client: the four ends that frames come by, and what is not answered."""

    def __init__(self) -> None:
        self.sent, self.reached, self.answered, self.arrived = (FrameCutter() for _ in range(4))
        self.open: dict[int, Exchange] = {}


class Exchanges:
    """See the module.

    Args:
        node_names: the machines of the cluster's nodes.
        port: where brokers listen for clients.
    """

    def __init__(self, internet: Internet, node_names: Collection[str], port: int) -> None:
        self._world = internet.world
        self._node_names = node_names
        self._port = port
        self.has_past = False  # the nodes began from a snapshot
        self._conversations: dict[int, _Conversation] = {}
        self._kept: deque[Exchange] = deque()
        self._kept_bytes = 0
        self._count = 0
        self._internet = internet
        internet.observers.append(self._on_send)
        internet.arrival_observers.append(self._on_arrival)

    def end(self) -> None:
        """Look at no more."""
        self._internet.observers.remove(self._on_send)
        self._internet.arrival_observers.remove(self._on_arrival)

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._kept)

    @property
    def is_whole(self) -> bool:
        """Whether everything that was ever asked of these nodes is kept."""
        return not self.has_past and self._count == len(self._kept)

    def _conversation(self, sock: SimSocket) -> _Conversation | None:
        """The connection of a socket of a client."""
        if (
            sock.peer_port != self._port
            or sock.host.is_node
            or sock.peer.host.name not in self._node_names
        ):
            return None
        return self._conversations.setdefault(sock.connection_id, _Conversation())

    def _on_send(self, sock: SimSocket, chunk: bytes) -> None:
        talk = self._conversation(sock)
        if talk is not None:
            for frame in talk.sent.cut(chunk):
                self._add(talk, sock, frame)
        elif (talk := self._conversation(sock.peer)) is not None:
            for frame in talk.answered.cut(chunk):
                found = talk.open.get(_ID.unpack_from(frame)[0])
                if found is not None and found.answered_s is None:
                    found.answered_s, found.answer_frame = self._world.now_s, frame
                    self._kept_bytes += len(frame)

    def _add(self, talk: _Conversation, sock: SimSocket, frame: bytes) -> None:
        key, _, correlation_id = _START.unpack_from(frame)
        if key in _LEFT_OUT:
            return
        self._count += 1
        found = Exchange(self._count, sock.connection_id, sock, self._world.now_s, frame)
        talk.open[correlation_id] = found
        self._kept.append(found)
        self._kept_bytes += len(frame)
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= self._kept.popleft().size_bytes

    def _on_arrival(self, sock: SimSocket, piece: bytes) -> None:
        talk = self._conversation(sock)
        if talk is not None:
            for frame in talk.reached.cut(piece):
                found = talk.open.get(_START.unpack_from(frame)[2])
                if found is not None and found.reached_s is None:
                    found.reached_s = self._world.now_s
        elif (talk := self._conversation(sock.peer)) is not None:
            for frame in talk.arrived.cut(piece):
                found = talk.open.pop(_ID.unpack_from(frame)[0], None)
                if found is not None:
                    found.arrived_s = self._world.now_s
