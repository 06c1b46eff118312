"""Faults of the next request of a kind: held up, refused, done twice, or its answer lost.

Owns: `RequestFaults`, which looks at the requests of a `Traffic`, and stands before the brokers'
handlers, and `DisturbedRequests`, the calls of tests for it. Rules:
1. A fault waits for its request as long as it takes, and is gone then.
2. A request whose answer is lost is done by its broker; the connection then breaks, as it does when
   a broker dies after it has written. What the client does about it is what is under test.
3. A request that is refused is not done; it is answered with the error in its turn.
4. A request that is done twice comes a second time over another connection, as from a client that
   has given up the first one; nobody reads the second answer.

Called by: `on_demand` and `player`; `kafka_world` and `cluster`, which are `DisturbedRequests`.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraftrio.broker.api.shared.refusals import refuse
from kraftrio.broker.node.node import Node
from kraftrio.broker.server.context import Handler, RequestContext
from kraftrio.testing.arguments import known_name
from kraftrio.testing.arguments import seconds as check_seconds
from kraftrio.testing.traffic.traffic import (
    PROGRAM,
    TEST_MACHINE,
    OnFrame,
    Traffic,
    WatchedConnection,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import APIS, BROKER, ApiKey
from kraftrio.wire.protocol.fitting import fit_version

_API_KEY = struct.Struct(">h")


def api_key_of(name: str) -> ApiKey:
    """The API that Kafka's protocol calls so, such as "OffsetCommit".

    Raises:
        ValueError: there is none, and the text names the nearest one; or clients do not ask it.
    """
    by_name = {key.name.title().replace("_", ""): key for key in ApiKey}
    key = by_name[known_name("request", name, list(by_name), "OffsetCommit")]
    if APIS[key].listeners.isdisjoint(BROKER):
        raise ValueError(f"{name} is asked by nodes alone: faults are of what clients ask")
    return key


def error_code_of(error: str) -> ErrorCode:
    """The error that Kafka's protocol calls so, such as "NOT_COORDINATOR".

    Raises:
        ValueError: there is none, or it is NONE; the text names the nearest one.
    """
    names = [code.name for code in ErrorCode if code is not ErrorCode.NONE]
    return ErrorCode[known_name("error", error, names, "NOT_COORDINATOR")]


@dataclass(slots=True)
class _Awaited:
    """A fault that waits for its request; machine None: any of the program's."""

    api_key: ApiKey
    machine: str | None
    text: str
    happen: OnFrame | None = None
    refusal: ErrorCode = ErrorCode.NONE


class RequestFaults:
    """See the module."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._awaited: list[_Awaited] = []
        traffic.on_sent.append(self._on_sent)

    @property
    def is_awaited(self) -> bool:
        """Whether a fault still waits for its request."""
        return bool(self._awaited)

    def lose_answer(self, request: str, machine: str | None, *, after_s: float = 0.05) -> None:
        """Let the next request of this kind be done, and its answer be lost.

        Args:
            request: as Kafka's protocol calls it, such as "OffsetCommit".
            machine: which sends it; None: any of the program's.
            after_s: how long after that the client finds its connection broken.
        """
        check_seconds("after_s", after_s)
        self._await(
            request,
            machine,
            "its answer is lost",
            lambda connection, frame: connection.lose_answers(frame, after_s),
        )

    def delay(self, request: str, machine: str | None, *, seconds: float) -> None:
        """Let the next request of this kind arrive so much later, with all that follows it."""
        check_seconds("seconds", seconds)
        self._await(
            request,
            machine,
            f"is {seconds:g} s late",
            lambda connection, _: connection.hold_up(seconds),
        )

    def duplicate(self, request: str, machine: str | None, *, after_s: float = 0.05) -> None:
        """Let the next request of this kind come to its broker twice.

        Args:
            after_s: how much later the second one is sent.
        """
        check_seconds("after_s", after_s)
        self._await(
            request,
            machine,
            "comes twice",
            lambda connection, frame: connection.send_again(frame, after_s),
        )

    def refuse(self, request: str, machine: str | None, *, error: str) -> None:
        """Let the next request of this kind not be done, but be answered with an error."""
        code = error_code_of(error)
        self._await(request, machine, f"is refused with {error}", refusal=code)

    def _await(
        self,
        request: str,
        machine: str | None,
        text: str,
        happen: OnFrame | None = None,
        refusal: ErrorCode = ErrorCode.NONE,
    ) -> None:
        api_key = api_key_of(request)
        if machine is not None:
            self._traffic.check_client(machine)
        self._awaited.append(_Awaited(api_key, machine, text, happen, refusal))

    def _take(self, api_key: int, machine: str, *, is_refusal: bool) -> _Awaited | None:
        """Take the fault that has waited for this request, if there is one."""
        for awaited in self._awaited:
            if (
                awaited.api_key == api_key
                and (awaited.machine is None or self._traffic.is_one(machine, awaited.machine))
                and (awaited.happen is None) is is_refusal
            ):
                self._awaited.remove(awaited)
                text = f"{awaited.api_key.name} of {machine} {awaited.text}"
                self._traffic.note("fault", text)
                return awaited
        return None

    # -- on the way -----------------------------------------------------------------------------

    def _on_sent(self, connection: WatchedConnection, frame: bytes) -> None:
        if not self._awaited or connection.machine == TEST_MACHINE:
            return
        awaited = self._take(_API_KEY.unpack_from(frame)[0], connection.machine, is_refusal=False)
        if awaited is not None and awaited.happen is not None:
            awaited.happen(connection, frame)

    # -- before the handlers ----------------------------------------------------------------------

    def stand_before(self, node: Node) -> None:
        """See every request that a node is to handle for a client."""
        services = node._broker and node._broker.services
        if services:
            services._handlers = {
                key: self._refusing(handler) for key, handler in services._handlers.items()
            }

    def _refusing(self, handler: Handler) -> Handler:
        def handle(request: Any, context: RequestContext) -> Any:
            awaited = self._awaited and self._refusal_of(context)
            if not awaited:
                return handler(request, context)
            if context.api_key == ApiKey.PRODUCE and request.acks == 0:
                return None  # nobody is told
            response = refuse(context.api_key, request, awaited.refusal)
            return fit_version(response, context.api_version)

        return handle

    def _refusal_of(self, context: RequestContext) -> _Awaited | None:
        machine = self._traffic.sender(context)
        if machine is None or machine == TEST_MACHINE:
            return None
        return self._take(context.api_key, machine, is_refusal=True)


class DisturbedRequests(ABC):
    """The calls by which a test disturbs requests; whose they are is the cluster's to say."""

    @abstractmethod
    def _disturb(self, ask: Callable[[RequestFaults], None]) -> None:
        """Ask this cluster's faults for one."""

    def lose_answer(self, request: str, *, machine: str = PROGRAM, after_s: float = 0.05) -> None:
        """Let the next request of a kind be done, its answer be lost, and the connection break.

        Args:
            request: as Kafka's protocol calls it, such as "OffsetCommit".
            machine: whose; with real sockets, "program" is any client, and others are client ids.
            after_s: how long after that the client finds its connection broken.

        Raises:
            ValueError: Kafka has no such request, or the program no such machine.
        """
        self._disturb(lambda faults: faults.lose_answer(request, machine, after_s=after_s))

    def delay(self, request: str, *, seconds: float, machine: str = PROGRAM) -> None:
        """Let the next request of a kind arrive so much later, with what follows it."""
        self._disturb(lambda faults: faults.delay(request, machine, seconds=seconds))

    def refuse(self, request: str, error: str, *, machine: str = PROGRAM) -> None:
        """Let the next request of a kind not be done, but be answered with an error.

        Args:
            error: as Kafka's protocol calls it, such as "NOT_COORDINATOR".

        Raises:
            ValueError: Kafka has no such request, or no such error.
        """
        self._disturb(lambda faults: faults.refuse(request, machine, error=error))

    def duplicate(self, request: str, *, machine: str = PROGRAM, after_s: float = 0.05) -> None:
        """Let the next request of a kind come to its broker twice, as when a client that has given
        it up sends it again.
        """
        self._disturb(lambda faults: faults.duplicate(request, machine, after_s=after_s))
