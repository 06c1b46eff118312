"""Faults of the next request of a kind that a machine sends: held up, or its answer lost.

Owns: `RequestFaults`, which reads the headers of requests as they leave a machine. Rules:
1. A fault waits for its request as long as it takes, and is gone then.
2. A request whose answer is lost is done by its broker; the connection then breaks, as it does when
   a broker dies after it has written. What the client does about it is what is under test.

Called by: `kafka_world`, `fault_plan`.
"""

from __future__ import annotations

import difflib
import struct
from collections.abc import Callable
from dataclasses import dataclass

from kraftrio.testing.simulation.cluster import BROKER_PORT
from kraftrio.testing.simulation.network import Internet, SimSocket
from kraftrio.wire.protocol.api import ApiKey

_HEAD = struct.Struct(">ih")  # size of the frame, api key
_SIZE_BYTES = 4


def api_key_of(name: str) -> ApiKey:
    """The API that Kafka's protocol calls so, such as "OffsetCommit".

    Raises:
        ValueError: there is none; the text names the nearest one.
    """
    by_name = {key.name.title().replace("_", ""): key for key in ApiKey}
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name, by_name, 1) or ["OffsetCommit"]
    raise ValueError(f"there is no request {name!r}; do you mean {near[0]!r}?")


@dataclass(slots=True)
class _Awaited:
    api_key: ApiKey
    machine: str
    happen: Callable[[SimSocket], None]


class RequestFaults:
    """See the module."""

    def __init__(self, internet: Internet) -> None:
        self._internet = internet
        self._awaited: list[_Awaited] = []
        self._partial: dict[int, bytes] = {}  # the beginning of a frame, by socket
        self._left: dict[int, int] = {}  # bytes of a frame that are still to come
        internet.observers.append(self._on_send)

    @property
    def awaited_count(self) -> int:
        """How many faults still wait for their request."""
        return len(self._awaited)

    def lose_answer(self, request: str, machine: str, *, after_s: float = 0.05) -> None:
        """Let the next request of this kind be done, and its answer be lost.

        Args:
            request: as Kafka's protocol calls it, such as "OffsetCommit".
            machine: which sends it.
            after_s: when the client finds its connection broken.
        """
        self._await(request, machine, lambda sock: self._internet.cut(sock, lose_answers_s=after_s))

    def delay(self, request: str, machine: str, *, seconds: float) -> None:
        """Let the next request of this kind arrive so much later, with all that follows it."""

        def hold_up(sock: SimSocket) -> None:
            self._internet.stall(sock, True)
            self._internet.world.after(seconds, lambda: self._internet.stall(sock, False))

        self._await(request, machine, hold_up)

    def _await(self, request: str, machine: str, happen: Callable[[SimSocket], None]) -> None:
        self._awaited.append(_Awaited(api_key_of(request), machine, happen))

    def _on_send(self, sock: SimSocket, chunk: bytes) -> None:
        if sock.peer_port != BROKER_PORT:
            return
        for api_key in self._requests_in(sock.serial, chunk):
            for awaited in self._awaited:
                if awaited.api_key == api_key and awaited.machine == sock.host.name:
                    self._awaited.remove(awaited)
                    self._internet.world.note(
                        "world", "fault", f"{awaited.api_key.name} of {awaited.machine}"
                    )
                    awaited.happen(sock)
                    break

    def _requests_in(self, serial: int, chunk: bytes) -> list[int]:
        """The API keys of the requests that begin in what a socket sends."""
        found = []
        left = self._left.get(serial, 0)
        data = chunk[left:]
        left = max(0, left - len(chunk))
        data = self._partial.pop(serial, b"") + data
        while len(data) >= _HEAD.size:
            size, api_key = _HEAD.unpack_from(data)
            found.append(api_key)
            left = max(0, _SIZE_BYTES + size - len(data))
            data = data[_SIZE_BYTES + size :]
        if data:
            self._partial[serial] = data
        self._left[serial] = left
        return found
