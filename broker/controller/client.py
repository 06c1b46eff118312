"""The way to the active controller, wherever it is: `ControllerClient`.

Owns: one pipelined connection to the controller listener of the node that leads the metadata
quorum, and the requests that wait for an answer or for a leader. Rules:
1. While this node leads, a request is a call into its own quorum service.
2. Else requests go over the connection, which is dialled as soon as a leader is known and again as
   soon as it is lost; a new leader is followed at once. Without a leader requests wait for one.
3. A request that the active controller did not take (NOT_CONTROLLER, no connection, a full one) is
   sent again, after at most 50 ms; one whose answer was lost is sent again only where that does no
   harm (`controller/requests`), else it is answered REQUEST_TIMED_OUT: it may have happened. Lost
   is also the answer of a controller that stops leading after it has decided.
4. Every request has a deadline: its own timeout_ms, or the time configured for its kind. When it is
   over the answer is REQUEST_TIMED_OUT, as a Kafka broker gives it for a forwarded request.
5. Forwarded requests that wait are bounded in number; above that the answer is NOT_CONTROLLER,
   which clients send again later.
6. After a change of leaders the old connection, unless it was silent for long, is kept a moment
   for requests that should not be sent twice: a leader that resigned has often answered them. The
   others go to the new leader at once.
7. A request that times out on a connection without any answer since closes the connection.

Called by: `node` (builds it), `services` (runs it), `controller/channel`, `isr_proposals`, the
handlers that forward. Kafka's counterparts: NodeToControllerChannelManager, ForwardingManager
(KIP-590).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.base.deferred import Deferred
from kraftrio.base.statistics import Statistics
from kraftrio.base.timers import Timer, Timers
from kraftrio.broker.controller.envelopes import ENVELOPE_VERSION, unwrap_response, wrap
from kraftrio.broker.controller.requests import (
    ANSWER_LOST,
    Resending,
    client_timeout_ms,
    is_not_controller,
    is_own,
    put_doubt,
    refusal,
    resending,
)
from kraftrio.broker.ports import MetadataQuorum
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.kraft_meta.quorum.active_controller import NotController
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.net.connection import (
    Connection,
    ConnectionBusy,
    ConnectionLost,
    Reply,
)
from kraftrio.net.link import Link, LinkSettings, Loss
from kraftrio.net.transport import Network
from kraftrio.wire.errors import ErrorCode

_log = logging.getLogger("kraftrio.controller_client")

_NO_LEADER = -1
_FIRST_BACKOFF_MS = 20
_MAX_BACKOFF_MS = 50
_MAX_DIAL_BACKOFF_MS = 100


@dataclass(frozen=True, slots=True)
class ControllerClientConfig:
    """Times and bounds.

    Attributes:
        request_timeout_ms: for forwarded requests that name no time (request.timeout.ms).
        own_timeout_ms: for what the broker asks on its own account (Kafka's heartbeat channel:
            half of broker.session.timeout.ms).
        connect_timeout_ms: socket.connection.setup.timeout.ms.
        linger_ms: rule 6.
        max_waiting: rule 5.
    """

    client_id: str = "kraftrio-broker"
    request_timeout_ms: float = 30_000
    own_timeout_ms: float = 4_500
    connect_timeout_ms: float = 10_000
    linger_ms: float = 500
    max_waiting: int = 1_000


@dataclass(slots=True, eq=False)
class _Pending:
    """A request without an answer yet."""

    number: int
    request: Any
    api_version: int
    answer: Deferred[Any]
    is_own: bool
    sender: RequestSender | None = None
    timer: Timer | None = None
    line: _LeaderConnection | None = None
    sent_at: float = 0.0
    sent_to_active: bool = False
    in_doubt: bool = False

    @property
    def is_wrapped(self) -> bool:
        """Whether the controller has to know who sends it."""
        return self.sender is not None or isinstance(self.request, TokenRequest)

    @property
    def urgency(self) -> tuple[bool, int]:
        """Sorts the broker's own requests first, then by age."""
        return (not self.is_own, self.number)


class _LeaderConnection:
    """The connection to one leader, dialled until another node leads.

    Attributes:
        decides: by its last answer that node is the active controller.
    """

    def __init__(
        self, network: Network, leader_id: int, host: str, port: int, settings: LinkSettings
    ) -> None:
        self.leader_id = leader_id
        self.scope = trio.CancelScope()
        self.link = Link(network, lambda: (host, port), settings)
        self.unanswered: dict[_Pending, Reply] = {}
        self.last_answer_at = -1.0
        self.decides = False
        self.is_retired = False

    def end_if_idle(self) -> None:
        """End a retired line without requests that are waited for."""
        if self.is_retired and not self.unanswered:
            self.scope.cancel()


class ControllerClient:
    """Sends requests to the active controller; see the module.

    Args:
        quorum: who leads, where the voters listen, and this node's own controller.
        timers: for deadlines; must run.
    """

    def __init__(
        self,
        network: Network,
        quorum: MetadataQuorum,
        node_id: int,
        timers: Timers,
        config: ControllerClientConfig | None = None,
    ) -> None:
        self._network = network
        self._quorum = quorum
        self._voters = quorum.voters.current
        self._node_id = node_id
        self._timers = timers
        self._config = config if config is not None else ControllerClientConfig()
        self._link_settings = LinkSettings(
            client_id=self._config.client_id,
            connect_timeout=ExponentialBackoff(
                self._config.connect_timeout_ms, self._config.connect_timeout_ms
            ),
            backoff=ExponentialBackoff(_FIRST_BACKOFF_MS, _MAX_DIAL_BACKOFF_MS),
        )
        self._numbers = itertools.count()
        self._waiting: dict[_Pending, None] = {}
        self._line: _LeaderConnection | None = None
        self._changed = trio.Event()
        self._pause: Timer | None = None
        self._backoff_ms: float = _FIRST_BACKOFF_MS
        self._last_leader = _NO_LEADER
        self._connected_callbacks: list[Callable[[], object]] = []
        self._requests_total = self._timeouts_total = 0
        self._lost_answers_total = self._connections_total = 0
        quorum.on_leader_change(self._on_leader_change)
        quorum.voters.subscribe(self._on_voters)

    # -- requests -------------------------------------------------------------------------------

    def submit(
        self, request: Any, *, api_version: int, timeout_ms: float | None = None
    ) -> Deferred[Any]:
        """Send a request to the active controller; the answer always comes.

        Args:
            timeout_ms: how long to try; by default what the request says, or its kind has.
        """
        return self._submit(None, request, api_version, timeout_ms)

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        """The same for a client whose changes are to be counted."""
        return self._submit(sender, request, api_version, None)

    def _submit(
        self, sender: RequestSender | None, request: Any, api_version: int, timeout_ms: float | None
    ) -> Deferred[Any]:
        self._requests_total += 1
        decision: Deferred[Any] | None = None
        if self._quorum.leader_id == self._node_id and self._pause is None:
            decision = self._decide_here(sender, request, api_version)
            if decision.done and not isinstance(decision.value, NotController):
                return decision
        own = is_own(request)
        if decision is None and not own and self._unanswered_count() >= self._config.max_waiting:
            return Deferred.completed(refusal(request, ErrorCode.NOT_CONTROLLER))
        pending = _Pending(next(self._numbers), request, api_version, Deferred(), own, sender)
        if timeout_ms is None:
            default_ms = self._config.own_timeout_ms if own else self._config.request_timeout_ms
            timeout_ms = client_timeout_ms(request) or default_ms
        pending.timer = self._timers.schedule(timeout_ms, lambda: self._on_deadline(pending))
        if decision is not None:
            decision.then(partial(self._on_decision, pending))
        else:
            self._dispatch(pending)
        return pending.answer

    def _decide_here(
        self, sender: RequestSender | None, request: Any, api_version: int
    ) -> Deferred[Any]:
        if sender is None:
            return self._quorum.submit(request, api_version=api_version)
        return self._quorum.submit_for(sender, request, api_version=api_version)

    def on_connected(self, callback: Callable[[], object]) -> None:
        """Call `callback()` whenever there is a new way to the active controller: a connection to
        it was made, or this node has begun to lead.
        """
        self._connected_callbacks.append(callback)

    def statistics(self) -> Statistics:
        """Figures of the requests to the active controller, whichever node it is."""
        return {
            "waiting_requests": len(self._waiting),
            "unanswered_requests": self._unanswered_count(),
            "requests_total": self._requests_total,
            "timeouts_total": self._timeouts_total,
            "lost_answers_total": self._lost_answers_total,
            "connections_total": self._connections_total,
        }

    def _unanswered_count(self) -> int:
        line = self._line
        return len(self._waiting) + (0 if line is None else len(line.unanswered))

    def _dispatch(self, pending: _Pending) -> None:
        """Send a request where the leader is, or let it wait."""
        leader_id, line = self._quorum.leader_id, self._line
        connection = None if line is None else line.link.connection
        if self._pause is not None or leader_id == _NO_LEADER:
            self._waiting[pending] = None
        elif leader_id == self._node_id:
            decision = self._decide_here(pending.sender, pending.request, pending.api_version)
            decision.then(partial(self._on_decision, pending))
        elif line is not None and connection is not None and line.leader_id == leader_id:
            self._send(pending, line, connection)
        else:
            self._waiting[pending] = None

    def _flush(self) -> None:
        """Send what waits, unless there still is no way."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for pending in sorted(waiting, key=lambda pending: pending.urgency):
            self._dispatch(pending)

    def _send(self, pending: _Pending, line: _LeaderConnection, connection: Connection) -> None:
        request, api_version = pending.request, pending.api_version
        if pending.is_wrapped:
            request, api_version = wrap(request, api_version, pending.sender), ENVELOPE_VERSION
        try:
            reply = connection.send(request, api_version)
        except ConnectionBusy:
            self._send_later(pending)
            return
        except ConnectionLost:
            self._waiting[pending] = None  # it never left; the line notices its end
            return
        pending.line = line
        pending.sent_at = trio.current_time()
        pending.sent_to_active = line.decides
        line.unanswered[pending] = reply
        reply.then(lambda reply: self._on_reply(pending, line, reply))

    # -- answers --------------------------------------------------------------------------------

    def _on_reply(self, pending: _Pending, line: _LeaderConnection, reply: Reply) -> None:
        if line.unanswered.get(pending) is not reply:
            return  # timed out, or sent to the next leader meanwhile
        del line.unanswered[pending]
        pending.line = None
        try:
            response = reply.value()
        except ConnectionLost:
            self._on_lost(pending)
        else:
            if pending.is_wrapped:
                response = unwrap_response(pending.request, pending.api_version, response)
            line.last_answer_at = trio.current_time()
            decision: Any = response
            line.decides = not is_not_controller(response)
            if not line.decides:  # a former controller may have decided before it stopped leading
                decision = NotController(may_be_decided=pending.sent_to_active)
            self._on_decision(pending, decision)
        line.end_if_idle()

    def _on_decision(self, pending: _Pending, decision: Any) -> None:
        """Take a response, or that the node asked is not the active controller."""
        if pending.answer.done:
            return
        if isinstance(decision, NotController):
            if decision.may_be_decided:
                self._on_lost(pending)
            else:
                self._send_later(pending)
            return
        self._backoff_ms = _FIRST_BACKOFF_MS
        if pending.in_doubt:
            put_doubt(decision)
        self._finish(pending, decision)

    def _on_lost(self, pending: _Pending) -> None:
        """The answer will not come, and it is unknown whether the request had an effect."""
        if pending.answer.done:
            return
        self._lost_answers_total += 1
        how = resending(pending.request)
        if how is Resending.NEVER:
            code = ErrorCode.REQUEST_TIMED_OUT
            self._finish(pending, refusal(pending.request, code, ANSWER_LOST))
            return
        pending.in_doubt = how is Resending.IN_DOUBT
        self._waiting[pending] = None
        self._changed.set()

    def _on_deadline(self, pending: _Pending) -> None:
        self._timeouts_total += 1
        self._waiting.pop(pending, None)
        line, pending.line = pending.line, None
        self._finish(pending, refusal(pending.request, ErrorCode.REQUEST_TIMED_OUT))
        if line is None:
            return
        line.unanswered.pop(pending, None)
        last_seen_at = max(pending.sent_at, line.last_answer_at)
        quiet_s = self._config.own_timeout_ms / 2 / 1000
        connection = line.link.connection
        if connection is not None and trio.current_time() - last_seen_at >= quiet_s:
            _log.info("the controller does not answer node=%d", line.leader_id)
            connection.close()
        line.end_if_idle()

    def _finish(self, pending: _Pending, response: Any) -> None:
        if pending.timer is not None:
            pending.timer.cancel()
        pending.answer.complete(response)

    def _send_later(self, pending: _Pending) -> None:
        """Send again after a pause, in which nothing else is sent either."""
        self._waiting[pending] = None
        if self._pause is None:
            self._pause = self._timers.schedule(self._backoff_ms, self._end_pause)
            self._backoff_ms = min(self._backoff_ms * 2, _MAX_BACKOFF_MS)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._flush()

    # -- the connection -------------------------------------------------------------------------

    def _on_leader_change(self, *_arguments: object) -> None:
        self._backoff_ms = _FIRST_BACKOFF_MS
        self._changed.set()

    def _on_voters(self, voters: VoterSet) -> None:
        self._voters = voters
        self._changed.set()

    async def run(self) -> None:
        """Follow the leader until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._changed = trio.Event()
                self._follow(nursery)
                await self._changed.wait()

    def _follow(self, nursery: trio.Nursery) -> None:
        leader_id, line = self._quorum.leader_id, self._line
        if line is not None and leader_id not in (_NO_LEADER, line.leader_id):
            self._line = None
            self._retire(line)
        has_changed = leader_id != self._last_leader
        self._last_leader = leader_id
        if leader_id == self._node_id:
            if has_changed:
                self._notify_connected()
        elif self._line is None and (address := self._voters.address(leader_id)) is not None:
            self._line = _LeaderConnection(self._network, leader_id, *address, self._link_settings)
            nursery.start_soon(self._run_line, self._line)
        if has_changed and leader_id != _NO_LEADER:
            self._end_pause()
        elif self._pause is None:
            self._flush()

    def _retire(self, line: _LeaderConnection) -> None:
        """Rule 6."""
        line.is_retired = True
        for pending in list(line.unanswered):
            if resending(pending.request) is Resending.FREELY:
                del line.unanswered[pending]
                pending.line = None
                self._waiting[pending] = None
        if line.unanswered:
            oldest = min(pending.sent_at for pending in line.unanswered)
            silent_ms = (trio.current_time() - max(oldest, line.last_answer_at)) * 1000
            self._timers.schedule(self._config.linger_ms - silent_ms, line.scope.cancel)
        line.end_if_idle()

    async def _run_line(self, line: _LeaderConnection) -> None:
        def on_loss(loss: Loss) -> None:
            if loss.authentication_failed:
                _log.warning(
                    "the controller does not let this node in node=%d reason=%s",
                    line.leader_id,
                    loss.reason,
                )
            elif not loss.was_ready:
                _log.debug("no controller node=%d reason=%s", line.leader_id, loss.reason)

        with line.scope:
            await line.link.keep(
                partial(self._serve, line), on_loss, wanted=lambda: not line.is_retired
            )

    async def _serve(self, line: _LeaderConnection, connection: Connection) -> None:
        """Send over the leader's connection until it ends."""
        if line.is_retired:
            return
        self._connections_total += 1
        line.link.succeeded()
        line.decides = False
        _log.debug("connected to the controller node=%d", line.leader_id)
        self._flush()
        self._notify_connected()
        await connection.wait_closed()

    def _notify_connected(self) -> None:
        for callback in self._connected_callbacks:
            callback()
