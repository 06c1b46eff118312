"""A fetch of very many partitions, worked on in parts.

Behaviour: as of any other (`fetch/fetch`), but that the partitions are not all read at the same
moment. Each part is read and answered in one step. A fetch that may have to wait looks first, until
it has found enough, and notes nothing of what it saw; what comes meanwhile counts from the moment
when a partition was looked at. A later fetch of the same session ends an earlier one, which answers
with what it has read so far. A consumer with a quota gets what was read, and how long to wait.

Called by `fetch/fetch`; what drives the work is `sliced_work`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.timers import Timers
from kraftrio.broker.api.fetch.answers import FetchAnswer
from kraftrio.broker.api.fetch.reads import (
    Entries,
    FetchReader,
    OngoingFetch,
    asked_of,
    forgotten_of,
    replica_id_of,
    uses_topic_ids,
)
from kraftrio.broker.api.fetch.session import (
    FINAL_EPOCH,
    FetchKey,
    FetchPart,
    FetchPlan,
    FetchSessions,
    PackedParts,
    ParkedFetch,
)
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.waiting.waiters import FetchWaiter
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES, parts
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.wire.codec.lazy_arrays import each, each_dropped
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import FetchRequest, FetchResponse, PartitionData

LongFetch: TypeAlias = Work[FetchResponse | Deferred[Work[FetchResponse]]]

_READ_AT_ONCE = 4  # partitions; the first use of one makes its log
_FREED_AT_ONCE = 64


def names_many(request: FetchRequest) -> bool:
    """Whether a request names more partitions than are looked up at once."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    count = len(topics) + len(forgotten)
    if count > PART_ENTRIES:
        return True
    for topic in topics:
        count += len(topic.partitions)
    for dropped in forgotten:
        count += len(dropped.partitions)
    return count > PART_ENTRIES


class LongFetches:
    """See the module."""

    def __init__(
        self,
        reader: FetchReader,
        metadata: MetadataCache,
        sessions: FetchSessions,
        timers: Timers,
        clock: Clock,
        throttle: Throttle | None = None,
    ) -> None:
        self._throttle = throttle
        self._reader = reader
        self._metadata = metadata
        self._sessions = sessions
        self._timers = timers
        self._clock = clock

    def plan_and_fetch(self, request: FetchRequest, context: RequestContext) -> LongFetch:
        """Serve a request that names many partitions."""
        by_id = uses_topic_ids(context)
        asked: dict[FetchKey, FetchPart] | PackedParts
        asked = PackedParts() if request.session_epoch == FINAL_EPOCH else {}
        for topic in request.topics:
            for key, part in asked_of(topic, by_id):
                asked[key] = part
                yield None
            yield None
        replica_id = replica_id_of(request)
        if replica_id >= 0:
            superseded = self._sessions.superseded_by(request.session_id, request.session_epoch)
            if superseded is not None:
                superseded.answer()
        now_ms = self._clock.monotonic_ms()
        plan = yield from self._sessions.plan_slices(
            request.session_id,
            request.session_epoch,
            asked,
            (key for topic in request.forgotten_topics_data for key in forgotten_of(topic, by_id)),
            uses_topic_ids=by_id,
            now_ms=now_ms,
            is_follower=replica_id >= 0,
        )
        if plan.error is not ErrorCode.NONE:
            return FetchResponse(error_code=plan.error)
        del asked
        fetch = self._reader.ask(request, replica_id, plan, context, now_ms)
        return (yield from self.answer(fetch, context))

    def answer(self, fetch: OngoingFetch, context: RequestContext) -> LongFetch:
        """Read in parts, and answer now or when there is enough."""
        if fetch.replica_id >= 0:
            now_ms = self._clock.monotonic_ms()
            for entries in _parts(fetch.plan):
                self._reader.note_progress(fetch, entries, now_ms)
                yield None
        request = fetch.request
        if request.max_wait_ms > 0 and request.min_bytes > 0:
            later = yield from self._look(fetch, context)
            if later is not None:
                return later
        return (yield from self._read(fetch, context))

    def _look(
        self, fetch: OngoingFetch, context: RequestContext
    ) -> Work[Deferred[Work[FetchResponse]] | None]:
        """Look whether there is enough; if not, return the answer that will come."""
        on_close = context.client.on_close
        min_bytes = fetch.request.min_bytes
        waiter = FetchWaiter(min_bytes)
        on_close.append(waiter.drop)
        waiter.woken.then(lambda _: on_close.remove(waiter.drop))
        if fetch.session is not None:
            fetch.session.parked = ParkedFetch(waiter, waiter.finish)
        reading = self._reader.reading(fetch, only_looks=True)
        for entries in _parts(fetch.plan):
            self._reader.read_some(fetch, reading, entries)
            waiter.watch(reading.waiters)
            reading.waiters.clear()
            if reading.has_news or reading.records_bytes >= min_bytes or not waiter.is_parked:
                break
            yield None
        if waiter.is_parked and not reading.must_answer:
            waiter.count(reading.records_bytes)
        if not waiter.is_parked:
            return None
        if reading.must_answer:
            waiter.finish()
            return None
        waiter.park([], self._timers, fetch.request.max_wait_ms)
        return waiter.woken.map(lambda _: self._read(fetch, context))

    def _read(self, fetch: OngoingFetch, context: RequestContext) -> Work[FetchResponse]:
        plan = fetch.plan
        answer = FetchAnswer(plan, self._metadata, context, _packed)
        reading = self._reader.reading(fetch)
        for entries in _parts(plan):
            if plan.is_superseded:
                break
            self._reader.read_some(fetch, reading, entries)
            answer.add(reading)
            reading.clear()
            yield None
        response = answer.response()
        throttle = self._throttle
        if throttle is not None and throttle.quotas.is_on and fetch.replica_id < 0:
            response.throttle_time_ms = throttle.consume(context, reading.records_bytes)
        for topic in response.responses:
            topic.partitions = each(_unpacked, each_dropped(topic.partitions))
            yield None
        response.responses = each_dropped(response.responses)
        yield from _free(plan)
        return response


def _parts(plan: FetchPlan) -> Iterator[Entries]:
    """The partitions to read, a few at a time."""
    return parts(plan.partitions(), _READ_AT_ONCE)


_Packed: TypeAlias = PartitionData | tuple[int, int, int, int, int, bool]


def _packed(answer: PartitionData) -> _Packed:
    """Keep an answer without records as a tuple: many objects would hold up garbage collection."""
    if (
        answer.records
        or answer.aborted_transactions
        or answer.diverging_epoch is not None
        or answer.current_leader is not None
        or answer.preferred_read_replica >= 0
    ):
        return answer
    return (
        answer.partition_index,
        int(answer.error_code),  # a tuple of plain numbers is no matter of the collector
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        answer.aborted_transactions is None,
    )


def _unpacked(packed: _Packed) -> PartitionData:
    if isinstance(packed, PartitionData):
        return packed
    index, code, high_watermark, last_stable_offset, log_start_offset, no_transactions = packed
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode(code) if code else ErrorCode.NONE,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=None if no_transactions else [],
        records=b"",
    )


def _free(plan: FetchPlan) -> Work[None]:
    """Forget what no session keeps: so much at once would take long."""
    entries = plan.parts
    while plan.session is None and entries:
        for _ in range(min(_FREED_AT_ONCE, len(entries))):
            entries.popitem()
        yield None
