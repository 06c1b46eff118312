"""A controller that answers, and a clock that goes on, when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kraftrio.base.deferred import Deferred
from kraftrio.wire.codec.message import decode, encode

Request = TypeVar("Request")
Response = TypeVar("Response")


class FakeTimer:
    def cancel(self) -> None:
        raise AssertionError("nothing here is taken back")


class AskedController(Generic[Request, Response]):
    """Both ports: what is submitted, as it arrives over the wire, and what is scheduled."""

    def __init__(self, kind: type[Request]) -> None:
        self._kind = kind
        self.requests: list[Request] = []
        self.answers: list[Deferred[Response]] = []
        self.now_ms = 0.0
        self._scheduled: list[tuple[float, Callable[[], None]]] = []

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        decoded, _ = decode(self._kind, api_version, encode(request, api_version))
        self.requests.append(decoded)
        self.answers.append(Deferred())
        return self.answers[-1]

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> FakeTimer:
        self._scheduled.append((self.now_ms + delay_ms, callback))
        return FakeTimer()

    def pass_time(self, by_ms: float = 0) -> None:
        """Let time pass, and call what is due."""
        self.now_ms += by_ms
        while due := [entry for entry in self._scheduled if entry[0] <= self.now_ms]:
            for entry in due:
                self._scheduled.remove(entry)
                entry[1]()
