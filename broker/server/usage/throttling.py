"""Holds clients to their quotas: counts what requests use, and lets those over a quota wait.

Owns: `Throttle`, which stands between a dispatcher and its handlers while any quota is set. Rules
1. A response is never held back: it says how long its client has to wait, and the connection takes
   no request for that long (KIP-219). Requests that came before are finished.
2. Counted are a Produce's bytes, records that consumers get (their handlers ask), and the time that
   a request takes on the event loop, until it is handled and for encoding its response. Of several
   waits the longest counts, also what the controller or a handler has said already.
3. A Produce without a response is not asked for its time, as in Kafka; what it brings counts.
4. Requests of the cluster's nodes are not counted, and never wait.

Called by: `dispatch`, and handlers of fetches. Kafka's counterpart: RequestHandlerHelper.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import Any, Final

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.statistics import Statistics
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation
from kraftrio.broker.security.quotas.client_quota import Permit
from kraftrio.broker.security.quotas.client_quotas import ClientQuotas
from kraftrio.broker.server.context import ClientInfo, Handler, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.wire.protocol.api import ApiKey

_PERCENT_A_MS: Final = 0.1  # a second of the loop's time is all of it
_NOTED_AT_ONCE_MS: Final = 1.0

_BETWEEN_NODES: Final = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
_OF_FOLLOWERS: Final = frozenset(
    {ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH}
)
_OFTEN_OF_NODES: Final = frozenset(
    map(int, (*_BETWEEN_NODES, *_OF_FOLLOWERS, ApiKey.ADD_PARTITIONS_TO_TXN))
)
_FIRST_BROKER_ADD_PARTITIONS: Final = 4
_PRODUCE: Final = int(ApiKey.PRODUCE)


class Throttle:
    """See the module.

    Attributes:
        quotas: what clients may use; nothing is asked of this class while they are off.
    """

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self.quotas = quotas
        self._clock = clock
        self._muted_total = 0

    # -- requests -------------------------------------------------------------------------------

    def handle(
        self, handler: Handler, request: Any, context: RequestContext, size_bytes: int
    ) -> Any:
        """Have a request of so many bytes handled; what comes of it says what its client owes."""
        if context.client.is_peer or is_of_a_node(request, context):
            return handler(request, context)
        if not self.quotas.request.limits:
            return self._settle_outcome(handler(request, context), context, size_bytes)
        began_ms = self._clock.monotonic_ms()
        outcome = handler(request, context)
        self._count_time(context, self._clock.monotonic_ms() - began_ms)
        return self._settle_outcome(outcome, context, size_bytes)

    def _settle_outcome(self, outcome: Any, context: RequestContext, size_bytes: int) -> Any:
        if type(outcome) is GeneratorType:
            return self._settle_work(outcome, context, size_bytes)
        if isinstance(outcome, Deferred):
            if outcome.done and outcome.error is None:
                return self._settle_outcome(outcome.value, context, size_bytes)
            return outcome.map(lambda value: self._settle_outcome(value, context, size_bytes))
        self._settle(outcome, context, size_bytes)
        return outcome

    def _settle_work(self, work: Work[Any], context: RequestContext, size_bytes: int) -> Work[Any]:
        outcome = yield from self.count_steps(work, context)
        return self._settle_outcome(outcome, context, size_bytes)

    def _settle(self, response: Any, context: RequestContext, size_bytes: int) -> None:
        """Report to a client how long it has to wait, and make it (rules 1 to 3)."""
        quotas, now_ms = self.quotas, self._clock.monotonic_ms()
        user, client_id = context.client.principal.name, context.client_id or ""
        wait_ms: int = getattr(response, "throttle_time_ms", 0)
        if context.api_key == _PRODUCE:
            wait_ms = max(wait_ms, quotas.producer.use(user, client_id, size_bytes, now_ms))
        if response is not None and quotas.request.limits:
            wait_ms = max(wait_ms, quotas.request.use(user, client_id, 0, now_ms))
        if wait_ms > 0:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = wait_ms
            self._mute(context.client, (now_ms + wait_ms) / 1000)

    def _mute(self, client: ClientInfo, until_s: float) -> None:
        client.muted_until_s = max(client.muted_until_s, until_s)
        self._muted_total += 1

    def statistics(self) -> Statistics:
        """How often a client had to wait, and for how many there are measures now."""
        quotas = self.quotas
        return {
            "muted_total": self._muted_total,
            "producers": quotas.producer.client_count,
            "consumers": quotas.consumer.client_count,
            "requesters": quotas.request.client_count,
        }

    # -- time -----------------------------------------------------------------------------------

    def _count_time(self, context: RequestContext, spent_ms: float) -> None:
        self.quotas.request.note(
            context.client.principal.name,
            context.client_id or "",
            spent_ms * _PERCENT_A_MS,
            self._clock.monotonic_ms(),
        )

    def count_steps(self, work: Work[Any], context: RequestContext) -> Work[Any]:
        """Do some work, and count the time that its steps take."""
        if not self.quotas.request.limits:
            return (yield from work)
        clock_ms = self._clock.monotonic_ms
        spent_ms = 0.0
        try:
            while True:
                began_ms = clock_ms()
                try:
                    awaited = next(work)
                except StopIteration as end:
                    return end.value
                finally:
                    spent_ms += clock_ms() - began_ms
                if spent_ms > _NOTED_AT_ONCE_MS or awaited is not None:
                    self._count_time(context, spent_ms)
                    spent_ms = 0.0
                yield awaited
        finally:
            self._count_time(context, spent_ms)

    def count_call(self, call: Callable[[], Any], context: RequestContext) -> Callable[[], Any]:
        """Return the same call, the time of which is counted."""
        if not self.quotas.request.limits:
            return call

        def counted() -> Any:
            began_ms = self._clock.monotonic_ms()
            try:
                return call()
            finally:
                self._count_time(context, self._clock.monotonic_ms() - began_ms)

        return counted

    # -- records for consumers ------------------------------------------------------------------

    def most_consumed_bytes(self, context: RequestContext) -> float:
        """Return how much a consumer may be given at once without having to wait."""
        return self.quotas.consumer.most_at_once(*sender_of(context)[:2])

    def consume(self, context: RequestContext, size_bytes: int) -> int:
        """Count what a consumer is given; return how long it has to wait, for its response."""
        now_ms = self._clock.monotonic_ms()
        return self.quotas.consumer.use(*sender_of(context)[:2], size_bytes, now_ms)

    def try_to_consume(self, context: RequestContext, size_bytes: int) -> Permit:
        """Ask whether a consumer may be given so much now; it is counted if so."""
        now_ms = self._clock.monotonic_ms()
        return self.quotas.consumer.try_to_use(*sender_of(context)[:2], size_bytes, now_ms)


def sender_of(context: RequestContext) -> RequestSender:
    """Return whom quotas know as the sender of a request."""
    client = context.client
    return RequestSender(client.principal.name, context.client_id or "", client.host)


def is_of_a_node(request: Any, context: RequestContext) -> bool:
    """Whether a broker of the cluster sends a request: no other client would, or may."""
    api_key = context.api_key
    if api_key not in _OFTEN_OF_NODES:
        return False
    if api_key in _OF_FOLLOWERS:
        is_one = request.replica_id >= 0
        if api_key == ApiKey.FETCH:
            is_one = is_one or request.replica_state.replica_id >= 0
    elif api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        is_one = context.api_version >= _FIRST_BROKER_ADD_PARTITIONS
    else:
        is_one = True
    return is_one and context.is_authorized(AclOperation.CLUSTER_ACTION, CLUSTER)
