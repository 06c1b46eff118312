"""Reads a topic's records for a page, and searches among them, in small steps.

Owns `browse` and `search`. Rules:
1. Nothing of a topic is kept but the records that are shown, and of these what is shown: memory is
   bounded, however large records are and however many there are.
2. Between steps of at most `_STEP_RECORDS` records others have their turn.
3. Where nothing comes for `timeout_s`, the reading ends with an error that says so.
4. A page never reads for longer than that; it then shows what it has.

Called by: the pages of records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Final

import trio

from kraftrio.clients.cli.times import moment_text
from kraftrio.clients.console.records.query import EVERYTHING, Begin, Query, RecordFilter
from kraftrio.clients.console.records.shown import Form, Shown, show
from kraftrio.clients.console.records.windows import Window, plan_rounds
from kraftrio.clients.console.settings import ConsoleSettings
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.errors import TimedOutError
from kraftrio.wire.primitives import TopicPartition

Spans = tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]
"""The first offset of each partition, and where it ends."""

MAX_HEADERS: Final = 100

_STEP_RECORDS: Final = 2_000
_LOOK_AGAIN_MS: Final = 100
_FETCH_BYTES: Final = 4 << 20
_FETCH_WAIT_MS: Final = 20  # a fetch that waits at an end holds up what is read next
_SEARCH_WINDOW: Final = 2_000
_REPORT_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record as a page shows it."""

    topic: str
    partition: int
    offset: int
    time: str | None
    key: Shown
    value: Shown
    headers: tuple[tuple[str, Shown], ...]
    more_headers: int


@dataclass(frozen=True, slots=True)
class Browsed:
    """What a page shows; `is_whole`: all that might belong to it was looked at."""

    records: list[ShownRecord]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search is, in offsets."""

    seen: int
    total: int
    found: int
    elapsed_s: float


class RecordReader:
    """Reads parts of partitions with a consumer of its own.

    Attributes:
        seen: how many offsets were passed.
    """

    def __init__(self, consumer: Consumer, timeout_s: float) -> None:
        self._consumer = consumer
        self._timeout_s = timeout_s
        self.seen = 0

    async def records(
        self, windows: Sequence[Window], wanted: RecordFilter = EVERYTHING
    ) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Yield the records that are wanted of parts of different partitions, step by step.

        Raises:
            TimedOutError: nothing comes.
        """
        consumer = self._consumer
        ends = {window.item: window.end for window in windows}
        positions = {window.item: window.begin for window in windows}
        consumer.assign(positions)
        consumer.resume(*positions)  # those of an earlier round are still paused
        for item, begin in positions.items():
            consumer.seek(item, begin)
        moved_at = trio.current_time()
        while positions:
            polled = await consumer.poll(_LOOK_AGAIN_MS, max_records=_STEP_RECORDS)
            yield [
                record
                for batch in polled.batches
                if wanted.may_be_in(batch)
                for record in batch.records()
                if record.offset < ends[batch.topic_partition] and wanted(record)
            ]
            await trio.lowlevel.checkpoint()
            if await self._move(positions, ends):
                moved_at = trio.current_time()
            elif trio.current_time() - moved_at > self._timeout_s:
                (topic, partition), position = min(positions.items())
                raise TimedOutError(
                    f"no records of {topic}-{partition} from offset {position} on"
                    f" within {self._timeout_s:g} s"
                )

    async def _move(
        self, positions: dict[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> bool:
        """Bring positions up to date; drop those at their ends; return whether one has moved."""
        has_moved = False
        for item, before in list(positions.items()):
            position = min(await self._consumer.position(item), ends[item])
            has_moved |= position != before
            self.seen += max(position - before, 0)
            positions[item] = position
            if position >= ends[item]:
                self._consumer.pause(item)
                del positions[item]
        return has_moved


@asynccontextmanager
async def open_reading(settings: ConsoleSettings) -> AsyncIterator[RecordReader]:
    """Open a consumer for one page or search."""
    ours = {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "fetch_max_bytes": _FETCH_BYTES,
        "fetch_max_wait_ms": _FETCH_WAIT_MS,
        "isolation_level": "read_uncommitted",
        "default_api_timeout_ms": settings.timeout_ms,
    }
    chosen = settings.client(ConsumerConfig) | ours
    async with Consumer(settings.target.servers, network=settings.network, **chosen) as consumer:
        yield RecordReader(consumer, settings.timeout_s)


async def browse(settings: ConsoleSettings, query: Query, spans: Spans) -> Browsed:
    """Return the records of a page: the newest first, or the oldest from where it begins.

    Raises:
        KafkaClientError: they cannot be read.
    """
    newest_first = query.begin is Begin.NEWEST
    found: list[tuple[tuple[int, int, int], ShownRecord | ConsumerRecord]] = []
    is_whole = False
    async with open_reading(settings) as reading:
        with trio.move_on_after(settings.timeout_s) as time_limit:
            rounds = plan_rounds(*spans, query.limit, newest_first=newest_first)
            for windows in rounds:
                async for records in reading.records(windows):
                    _merge(found, records, query, newest_first)
                if len(found) >= query.limit:
                    break
            is_whole = True
        if time_limit.cancelled_caught:
            is_whole = False
    shown = [each for _, each in found if isinstance(each, ShownRecord)]
    return Browsed(shown, is_whole)


def _merge(
    found: list[tuple[tuple[int, int, int], ShownRecord | ConsumerRecord]],
    records: Sequence[ConsumerRecord],
    query: Query,
    newest_first: bool,
) -> None:
    """Add records to those that are shown, as far as they belong there; keep only what is shown."""
    sign = -1 if newest_first else 1
    places = [(sign * each.timestamp, each.partition, sign * each.offset) for each in records]
    found += zip(places, records, strict=True)
    found.sort(key=itemgetter(0))
    del found[query.limit :]
    for index, (place, each) in enumerate(found):
        if isinstance(each, ConsumerRecord):
            found[index] = (place, shown_record(each, query.form))


async def search(
    settings: ConsoleSettings,
    query: Query,
    spans: Spans,
    on_found: Callable[[list[ConsumerRecord]], Awaitable[None]],
    on_progress: Callable[[SearchProgress], Awaitable[None]],
) -> SearchProgress:
    """Find the records that pass the query's tests, up to its limit; return how far it came.

    Args:
        on_found: gets them as they are found; round by round, if the newest come first.

    Raises:
        KafkaClientError: they cannot be read.
    """
    begins, ends = spans
    total = sum(max(ends[item] - begins[item], 0) for item in begins)
    newest_first = query.begin is Begin.NEWEST
    began_at = reported_at = trio.current_time()
    found = 0
    async with open_reading(settings) as reading:

        def progress() -> SearchProgress:
            return SearchProgress(reading.seen, total, found, trio.current_time() - began_at)

        for windows in plan_rounds(begins, ends, _SEARCH_WINDOW, newest_first=newest_first):
            last: deque[ConsumerRecord] = deque(maxlen=query.limit - found)
            async with aclosing(reading.records(windows, query.wanted)) as steps:
                async for matches in steps:
                    if newest_first:
                        last.extend(matches)
                    elif matches:
                        matches = matches[: query.limit - found]
                        found += len(matches)
                        await on_found(matches)
                    if trio.current_time() - reported_at > _REPORT_S:
                        reported_at = trio.current_time()
                        await on_progress(progress())
                    if found >= query.limit:
                        return progress()
            if last:
                found += len(last)
                await on_found(sorted(last, key=attrgetter("timestamp"), reverse=True))
            if found >= query.limit:
                return progress()
        return progress()


def shown_record(record: ConsumerRecord, form: Form, *, pretty: bool = False) -> ShownRecord:
    """Return a record as a page shows it.

    Args:
        pretty: all of it, instead of what it can be recognized by.
    """
    headers = record.headers[:MAX_HEADERS]
    return ShownRecord(
        record.topic,
        record.partition,
        record.offset,
        moment_text(record.timestamp),
        show(record.key, form, pretty=pretty),
        show(record.value, form, pretty=pretty),
        tuple(
            (show(name.encode(), Form.TEXT).text, show(value, form, pretty=pretty))
            for name, value in headers
        ),
        len(record.headers) - len(headers),
    )
