"""Fetch, with incremental sessions and long polls.

Behaviour (Apache Kafka's)
- A fetch answers at once when it has `min_bytes`, an error (other than of a topic that does not
  exist), or nothing to wait for; else it parks until enough was committed or `max_wait_ms` is over,
  and then reads again.
- The byte budget: the first batch of the first partition that has data comes whole, whatever the
  limits (KIP-74); after that `max_bytes` and each partition's limit hold.
- A consumer sees up to the high watermark, or with read_committed up to the last stable offset,
  with the aborted transactions of what it was given.
- An empty partition is an empty record set with valid offsets, never null, never an error.
- A follower sees up to the log end, and is woken by appends alone.  Its fetch shows its progress,
  which is noted before anything is read, so that the answer has the high watermark which that
  progress made; a fetch that diverges, or is out of range, shows none.
- A follower's session reads only what is due (rule 6 of `session`).
- What was parked is read and answered in a turn of its own, never in that of the producer or the
  follower whose request brought what it waited for: an error in it is its own.
- Records are not held for the answer: what is more than a little stays in its file until the socket
  takes it (`StoredBytes`).
- A consumer is served by any replica from version 11 on, up to the high watermark known there; a
  leader may name it a nearer one (KIP-392, `nearest_replica`).
- A consumer gets no more at once than its quota allows in all windows; what would make it wait is
  not given, but how long to wait (KIP-219). Its session stays as it was; a new one is not made.
- Followers outside of the ISR get nothing of a throttled partition while the quota is used up.

Version notes: 5 log start offsets, 7 sessions (KIP-227), 9 leader epochs (KIP-320), 11 the
consumer's rack (KIP-392), 12 divergence by last fetched epoch (KIP-595), 13 topic ids (KIP-516),
15 the follower's broker epoch (KIP-903), 16 the leader beside an error (KIP-951).
"""

from __future__ import annotations

import itertools

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.timers import Timers
from kraftrio.broker.api.fetch.answers import FetchAnswer
from kraftrio.broker.api.fetch.long_fetch import LongFetch, LongFetches, names_many
from kraftrio.broker.api.fetch.reads import (
    Entries,
    FetchReader,
    FetchSettings,
    OngoingFetch,
    ReadOutcome,
    asked_at_once,
    forgotten_of,
    replica_id_of,
    uses_topic_ids,
)
from kraftrio.broker.api.fetch.session import FetchSessions, ParkedFetch
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.waiting.waiters import FetchWaiter
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import FetchRequest, FetchResponse
from kraftrio.wire.protocol.api import ApiKey


class FetchHandlers:
    """The handler of Fetch.

    Args:
        settings: what the broker's settings say of fetches.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        sessions: FetchSessions,
        timers: Timers,
        clock: Clock,
        settings: FetchSettings,
    ) -> None:
        self._metadata = metadata
        self._sessions = sessions
        self._timers = timers
        self._clock = clock
        self._throttle = settings.throttle
        self._reader = FetchReader(replica_manager, metadata, settings)
        self._long = LongFetches(self._reader, metadata, sessions, timers, clock, settings.throttle)

    def table(self) -> HandlerTable:
        return {ApiKey.FETCH: self.fetch}

    def fetch(
        self, request: FetchRequest, context: RequestContext
    ) -> FetchResponse | Deferred[FetchResponse] | LongFetch:
        """Read, and answer now or when there is enough."""
        if names_many(request):
            return self._long.plan_and_fetch(request, context)
        by_id = uses_topic_ids(context)
        now_ms = self._clock.monotonic_ms()
        replica_id = replica_id_of(request)
        if replica_id >= 0:
            superseded = self._sessions.superseded_by(request.session_id, request.session_epoch)
            if superseded is not None:
                superseded.answer()
        plan = self._sessions.plan(
            request.session_id,
            request.session_epoch,
            asked_at_once(request, by_id),
            [key for topic in request.forgotten_topics_data for key in forgotten_of(topic, by_id)],
            uses_topic_ids=by_id,
            now_ms=now_ms,
            is_follower=replica_id >= 0,
        )
        if plan.error is not ErrorCode.NONE:
            return FetchResponse(error_code=plan.error)
        fetch = self._reader.ask(request, replica_id, plan, context, now_ms)
        if plan.parts is not None and len(plan.parts) > PART_ENTRIES:
            return self._long.answer(fetch, context)
        if replica_id >= 0:
            self._reader.note_progress(fetch, plan.partitions(), now_ms)
        reading = self._read(fetch, plan.partitions())
        if (
            request.max_wait_ms <= 0
            or reading.records_bytes >= request.min_bytes
            or reading.must_answer
        ):
            return self._respond(fetch, reading, context)
        return self._wait(fetch, reading, context)

    def _wait(
        self, fetch: OngoingFetch, reading: ReadOutcome, context: RequestContext
    ) -> Deferred[FetchResponse]:
        """Answer when there is enough, or the time is up."""
        request, plan, client = fetch.request, fetch.plan, context.client
        response: Deferred[FetchResponse] = Deferred()
        waiter = FetchWaiter(request.min_bytes - reading.records_bytes)
        on_close = client.on_close

        def answer() -> None:
            if response.done or client.is_closed:  # a later fetch has answered it, or nobody waits
                return
            waiter.drop()
            on_close.remove(waiter.drop)
            # Of a follower's partitions very many may have become due: its next fetch reads more.
            few = itertools.islice(plan.partitions(), PART_ENTRIES)
            response.resolve(lambda: self._respond(fetch, self._read(fetch, few), context))

        on_close.append(waiter.drop)
        waiter.woken.then(lambda _: answer())
        waiter.park(reading.waiters, self._timers, request.max_wait_ms)
        if fetch.session is not None:  # it is notified of every partition of the session
            fetch.session.parked = ParkedFetch(waiter, answer)
        return response

    def _read(self, fetch: OngoingFetch, entries: Entries) -> ReadOutcome:
        reading = self._reader.reading(fetch)
        self._reader.read_some(fetch, reading, entries)
        return reading

    def _respond(
        self, fetch: OngoingFetch, reading: ReadOutcome, context: RequestContext
    ) -> FetchResponse:
        throttle, wait_ms = self._throttle, 0
        if (
            throttle is not None
            and throttle.quotas.is_on
            and fetch.replica_id < 0
            and reading.records_bytes
        ):
            is_granted, wait_ms = throttle.try_to_consume(context, reading.records_bytes)
            if not is_granted:
                session_id = self._sessions.leave(fetch.plan)
                return FetchResponse(throttle_time_ms=wait_ms, session_id=session_id)
        answer = FetchAnswer(fetch.plan, self._metadata, context)
        answer.add(reading)
        response = answer.response()
        response.throttle_time_ms = wait_ms
        return response
