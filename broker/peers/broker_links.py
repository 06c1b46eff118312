"""Requests to other brokers: a pipelined connection to each of them, dialled when it is needed.

Rules
1. A request to this broker itself is a call of its handler (`local_calls`).
2. A request leaves at once where there is a connection; else it waits for the attempt that is under
   way, or to come, and fails with it. So it is sent once, or fails: the sender decides whether
   to try again. A lost answer says nothing about what the request did.
3. What is not answered yet is bounded for each broker: above that `ConnectionBusy` at once.
4. A broker that the newest image does not have fails its requests at once; one that has moved, or
   came back, is dialled again.
5. Brokers are independent of each other. Requests to one of them are answered in their order, so
   what may wait long there does not belong on links with what is urgent: each use has its own.
6. A connection is kept until it ends, and made again for the next request.

Called by: the transaction coordinator's `marker_sender`, the verification of transactions
(`replica/verification`); the metadata publisher (`metadata_changed`); the node (`run`).
"""

from __future__ import annotations

import logging
import random
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import trio

from kraftrio.base.deferred import Deferred
from kraftrio.base.owned_tasks import OwnedTasks
from kraftrio.base.statistics import Statistics
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.peers.local_calls import LocalCalls, newest_version
from kraftrio.net.connection import (
    Connection,
    ConnectionBusy,
    ConnectionLost,
    Reply,
    RequestTimedOut,
)
from kraftrio.net.link import Address, Link, LinkSettings, Loss
from kraftrio.net.transport import Network

_log = logging.getLogger("kraftrio.peers")

_MAX_UNANSWERED: Final = 1000  # requests to one broker


class _Waiting(NamedTuple):
    """A request that waits for a connection."""

    request: Any
    answer: Deferred[Any]
    deadline: float


class _Target(NamedTuple):
    """Where a broker is, and which life of it."""

    host: str
    port: int
    broker_epoch: int


@dataclass(slots=True)
class _Figures:
    requests_total: int = 0
    failures_total: int = 0


class _BrokerLink:
    """The way to one broker."""

    def __init__(self, links: BrokerLinks, broker_id: int) -> None:
        self._links = links
        self._broker_id = broker_id
        self._target: _Target | None = None  # where the link goes
        self._link = Link(links.network, self._address, links.link_settings, rng=links.rng)
        self._waiting: deque[_Waiting] = deque()
        self._in_flight_count = 0
        self._is_interrupted = False
        self.is_running = False

    @property
    def unanswered_count(self) -> int:
        return len(self._waiting) + self._in_flight_count

    def send(self, waiting: _Waiting) -> None:
        if self.unanswered_count >= _MAX_UNANSWERED:
            waiting.answer.fail(ConnectionBusy(f"{_MAX_UNANSWERED} requests wait for answers"))
            return
        self._waiting.append(waiting)
        connection = self._link.connection
        if connection is not None:
            self._flush(connection)

    def follow(self, target: _Target | None) -> None:
        """The newest image is published."""
        connection = self._link.connection
        if self._target in (None, target):
            self._link.retry_now()
        elif connection is not None:
            connection.close()
        else:
            self._link.redial("the broker is gone" if target is None else "the broker has moved")

    def fail(self, reason: str) -> None:
        """Fail what waits."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            self._links.figures.failures_total += 1
            one.answer.fail(ConnectionLost(reason))

    async def run(self) -> None:
        """Keep a connection; without one, try to make one while a request waits for it."""
        self.is_running = True
        try:
            await self._link.keep(self._use, self._on_loss, wanted=lambda: bool(self._waiting))
        finally:
            self.is_running = False

    def _address(self) -> Address | None:
        self._target = target = self._links.target(self._broker_id)
        return None if target is None else (target.host, target.port)

    async def _use(self, connection: Connection) -> None:
        self._flush(connection)
        await connection.wait_closed()

    def _on_loss(self, loss: Loss) -> None:
        if loss.was_ready:
            return  # what waits has come since, and has never left
        if self._waiting and not self._is_interrupted:
            self._is_interrupted = True
            _log.warning(
                'broker not reached use=%s node=%d reason="%s"',
                self._links.name, self._broker_id, loss.reason,
            )  # fmt: skip
        self.fail(loss.reason)

    def _flush(self, connection: Connection) -> None:
        while self._waiting:
            request, answer, deadline = self._waiting.popleft()
            timeout_s = deadline - trio.current_time()
            if timeout_s <= 0:
                self._links.figures.failures_total += 1
                answer.fail(RequestTimedOut("there was no connection in time"))
                continue
            try:
                reply = connection.send(request, newest_version(request), timeout_s)
            except ConnectionBusy as busy:
                self._links.figures.failures_total += 1
                answer.fail(busy)
            except ConnectionLost:
                self._waiting.appendleft(_Waiting(request, answer, deadline))
                return  # it never left; the link notices its end
            else:
                self._in_flight_count += 1
                reply.then(partial(self._on_reply, answer))

    def _on_reply(self, answer: Deferred[Any], reply: Reply) -> None:
        self._in_flight_count -= 1
        try:
            response = reply.value()
        except ConnectionLost as lost:
            self._links.figures.failures_total += 1
            answer.fail(lost)
        else:
            self._is_interrupted = False
            self._link.succeeded()
            answer.complete(response)


class BrokerLinks:
    """The ways to all brokers, for one use; see the module.

    Args:
        name: the use, for log lines.
        broker_id: this broker.
        listener_name: where brokers listen for each other.
        link_settings: how each of them is dialled.
    """

    def __init__(
        self,
        name: str,
        broker_id: int,
        metadata: MetadataCache,
        local_calls: LocalCalls,
        network: Network,
        listener_name: str,
        link_settings: LinkSettings,
        rng: random.Random,
    ) -> None:
        self.name = name
        self._broker_id = broker_id
        self._metadata = metadata
        self._local_calls = local_calls
        self.network = network
        self._listener_name = listener_name
        self.link_settings = link_settings
        self.rng = rng
        self.figures = _Figures()
        self._links: dict[int, _BrokerLink] = {}
        self._tasks = OwnedTasks()
        self._has_ended = False

    @property
    def broker_id(self) -> int:
        """This broker: requests to it are direct calls."""
        return self._broker_id

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        """Send a request to a broker, in the newest version of its API.

        Args:
            timeout_ms: for the answer; the connection is closed if there is none by then. This
                broker's own handlers are given no time.

        Returns:
            The response. It fails with ConnectionLost, or one of its kinds (RequestTimedOut,
            ConnectionBusy), where there will be none.
        """
        self.figures.requests_total += 1
        if broker_id == self._broker_id:
            return self._local_calls.call(request)
        answer: Deferred[Any] = Deferred()
        if self._has_ended:
            answer.fail(ConnectionLost("this broker stops"))
        elif self.target(broker_id) is None:
            self.figures.failures_total += 1
            answer.fail(ConnectionLost(f"no address of node {broker_id} is known"))
        else:
            deadline = trio.current_time() + timeout_ms / 1000
            link = self._links.get(broker_id)
            if link is None:
                link = self._links[broker_id] = _BrokerLink(self, broker_id)
            link.send(_Waiting(request, answer, deadline))
            self._start(link)
        return answer

    def _start(self, link: _BrokerLink) -> None:
        if not link.is_running and link.unanswered_count:
            link.is_running = self._tasks.start(link.run)

    def target(self, broker_id: int) -> _Target | None:
        """Where a broker listens for others, by the newest image."""
        broker = self._metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener_name)
        if broker is None or endpoint is None:
            return None
        return _Target(endpoint.host, endpoint.port, broker.broker_epoch)

    def metadata_changed(self) -> None:
        """A new image is published: brokers may have moved, or come back."""
        for broker_id, link in list(self._links.items()):
            target = self.target(broker_id)
            link.follow(target)
            if target is None:
                link.fail("the broker is gone")
                if not link.is_running:
                    del self._links[broker_id]

    def statistics(self) -> Statistics:
        """Figures of the requests to other brokers and to this one."""
        return {
            "brokers": len(self._links),
            "unanswered_requests": sum(link.unanswered_count for link in self._links.values()),
            "requests_total": self.figures.requests_total,
            "failures_total": self.figures.failures_total,
        }

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send until cancelled; requests that were sent before have waited."""
        async with self._tasks.open():
            try:
                for link in self._links.values():
                    self._start(link)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._has_ended = True
                for link in self._links.values():
                    link.fail("this broker stops")
