"""What clients asked of brokers in a run, and how far each request and its answer came.

Owns: `Exchange`, and `Exchanges`, which looks at a `Traffic`. Rules:
1. Frames are kept as they are and decoded on demand: a run that is not asked about pays for
   cutting alone.
2. Kept are the newest, of `KEPT_BYTES` in all; `is_whole` says whether none is missing.

Called by: `kafka_world` and `cluster`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from kraftrio.testing.traffic.traffic import Traffic, WatchedConnection
from kraftrio.wire.codec.message import decode
from kraftrio.wire.protocol.api import APIS, ApiKey, decode_request, response_header_version
from kraftrio.wire.protocol.framing import RequestStart, parse_request_start

KEPT_BYTES = 64 << 20
_START = struct.Struct(">hhi")  # api key, version, correlation id
_ID = struct.Struct(">i")
_KEYS = frozenset(map(int, ApiKey))
# What says nothing about a record, and comes all the time.
_LEFT_OUT = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.HEARTBEAT, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS}
)


class Exchange:
    """A request, and its answer if there was one.

    Attributes:
        number: the order in which requests were sent.
        connection: the number of the connection in the run.
        key: the connection and the correlation id, which is used once at a time.
        machine, node: who asked whom, such as "program" and "n1".
        sent_s, reached_s, answered_s, arrived_s: when the request was sent and reached the broker,
            and when the answer was sent and came back; None: it has not.
    """

    def __init__(
        self,
        number: int,
        connection: WatchedConnection,
        correlation_id: int,
        sent_s: float,
        frame: bytes,
    ) -> None:
        self.number = number
        self.connection = connection.number
        self.machine = connection.machine
        self.node = connection.node
        self.key = connection.number, correlation_id
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


def _is_served(key: int, version: int) -> bool:
    """Whether a request can be read: a client may ask for what there is not."""
    api = APIS.get(ApiKey(key)) if key in _KEYS else None
    return api is not None and api.min_version <= version <= api.max_version


class Exchanges:
    """See the module; it looks at traffic from now on.

    Args:
        kept_bytes: how much is kept.
    """

    def __init__(self, traffic: Traffic, kept_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = kept_bytes
        self.has_past = False  # the nodes began from a snapshot
        self._traffic = traffic
        self._open: dict[tuple[int, int], Exchange] = {}  # by connection and correlation id
        self._kept: deque[Exchange] = deque()
        self._kept_bytes = 0
        self._count = 0
        traffic.on_sent.append(self._on_sent)
        traffic.on_reached.append(self._on_reached)
        traffic.on_answered.append(self._on_answered)
        traffic.on_arrived.append(self._on_arrived)

    def forget(self) -> None:
        """Begin again: what was asked so far is of no interest any more."""
        self._open.clear()
        self._kept.clear()
        self._kept_bytes = self._count = 0

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._kept)

    @property
    def is_whole(self) -> bool:
        """Whether everything that was ever asked of these nodes is kept."""
        return not self.has_past and self._count == len(self._kept)

    def _on_sent(self, connection: WatchedConnection, frame: bytes) -> None:
        key, version, correlation_id = _START.unpack_from(frame)
        if key in _LEFT_OUT or not _is_served(key, version):
            return
        self._count += 1
        found = Exchange(self._count, connection, correlation_id, self._traffic.now_s(), frame)
        self._open[found.key] = found
        self._kept.append(found)
        self._kept_bytes += len(frame)
        while self._kept_bytes > self._limit_bytes:
            oldest = self._kept.popleft()
            self._kept_bytes -= oldest.size_bytes
            if self._open.get(oldest.key) is oldest:
                del self._open[oldest.key]

    def _on_reached(self, connection: WatchedConnection, frame: bytes) -> None:
        found = self._open.get((connection.number, _START.unpack_from(frame)[2]))
        if found is not None and found.reached_s is None:
            found.reached_s = self._traffic.now_s()

    def _on_answered(self, connection: WatchedConnection, frame: bytes) -> None:
        found = self._open.get((connection.number, _ID.unpack_from(frame)[0]))
        if found is not None and found.answered_s is None:
            found.answered_s, found.answer_frame = self._traffic.now_s(), frame
            self._kept_bytes += len(frame)

    def _on_arrived(self, connection: WatchedConnection, frame: bytes) -> None:
        found = self._open.pop((connection.number, _ID.unpack_from(frame)[0]), None)
        if found is not None:
            found.arrived_s = self._traffic.now_s()
