"""`ingest`: the files into the topics, at once or as if it all happened again.

Planes and airlines come first, since they are looked up; then flights and weather as one stream in
the order of their times. Topics that are missing are made, planes and airlines compacted. What is
there already is not sent again (`resume`), so an ingest that was interrupted, however that was,
goes on where it ended, and one that was done does nothing.

Pace: `--rate` is records per second, `--speedup` seconds of 2013 per second of now; with both, the
slower one counts. Without either it goes as fast as the brokers take it.

Called by: `cli`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.pipeline import dataset, topics
from kraftrio.clients.pipeline.brokers import BrokerAccess
from kraftrio.clients.pipeline.dataset import Row, Rows
from kraftrio.clients.pipeline.display import Bars
from kraftrio.clients.pipeline.failures import PipelineError
from kraftrio.clients.pipeline.resume import DOUBT, PresentRows, find_present
from kraftrio.clients.pipeline.schemas import (
    AIRLINES,
    FLIGHTS,
    PLANES,
    ROW_HEADER,
    SCHEMA_HEADER,
    TABLES,
    VERSION_HEADER,
    WEATHER,
    Table,
)
from kraftrio.clients.producer.producer import Delivery, Producer

_ROWS_PER_UPDATE: Final = 250  # of a bar
_LOOKS: Final = 5  # at topics that others write to, too
_PACED_LINGER_MS: Final = 5
_LINGER_MS: Final = 50
_BATCH_SIZE_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """The options of the command line."""

    brokers: BrokerAccess
    rate: float | None = None
    speedup: float | None = None
    partitions: int = topics.DEFAULT_PARTITIONS
    replication_factor: int | None = None


@dataclass(slots=True)
class _Pace:
    """When a row may be sent."""

    rate: float | None
    speedup: float | None
    begun_at: float = field(default_factory=trio.current_time)
    sent: int = 0
    first_due_ms: int | None = None

    async def wait(self, row: Row) -> None:
        """Wait until a row is due, in the order of the rows."""
        moment = self.begun_at
        if self.rate is not None:
            moment = max(moment, self.begun_at + self.sent / self.rate)
        if self.speedup is not None:
            if self.first_due_ms is None:
                self.first_due_ms = row.due_ms
            elapsed_s = (row.due_ms - self.first_due_ms) / 1000
            moment = max(moment, self.begun_at + elapsed_s / self.speedup)
        self.sent += 1
        if moment > trio.current_time():
            await trio.sleep_until(moment)


async def ingest(options: IngestOptions, bars: Bars) -> None:
    """Bring the topics to where they hold the whole data set.

    Raises:
        PipelineError, KafkaClientError: that could not be done; what was sent stays.
    """
    data = dataset.folder()
    bars.print_line(f"reading {data}")
    rows = {table.name: await trio.to_thread.run_sync(Rows, table, data) for table in TABLES}
    brokers = options.brokers
    async with Admin(brokers.servers, client_id="flights-ingest", **brokers.security) as admin:
        _, broker_count = await topics.brokers_of(admin, brokers.servers)
        present = await _prepare(options, admin, broker_count)
    for name, found in present.items():
        bars.add(name, found.count, len(rows[name]))
    paced = options.rate is not None or options.speedup is not None
    async with Producer(
        brokers.servers,
        client_id="flights-ingest",
        compression_type="lz4",
        linger_ms=_PACED_LINGER_MS if paced else _LINGER_MS,
        batch_size=_BATCH_SIZE_BYTES,
        **brokers.security,
    ) as producer:
        sender = _Sender(producer, bars, present)
        for table in (PLANES, AIRLINES):
            for row in rows[table.name].from_row(0):
                await sender.send(table, row)
        sender.show()
        pace = _Pace(options.rate, options.speedup)
        for table, row in _stream(rows, present):
            if paced and row.number not in present[table.name]:
                await pace.wait(row)
            await sender.send(table, row)
        await sender.finish()
    bars.print_line("all rows are in their topics")


async def _prepare(
    options: IngestOptions, admin: Admin, broker_count: int
) -> dict[str, PresentRows]:
    """Make the topics and find out what they have."""
    wanted = {table.name: table.configs for table in TABLES}
    made = await topics.make(
        admin,
        wanted,
        broker_count,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
    )
    starts = await topics.starts(admin, made)
    present: dict[str, PresentRows] = {}
    for _ in range(_LOOKS):
        ends = await topics.ends(admin, made)
        for name in wanted:
            mine = {where: start for where, start in starts.items() if where.topic == name}
            present[name] = await find_present(
                options.brokers, mine, {where: ends[where] for where in mine}
            )
        # A broker may still be busy with what a killed ingest had sent.
        if await topics.ends(admin, made) == ends:
            break
    return present


def _stream(
    rows: Mapping[str, Rows], present: Mapping[str, PresentRows]
) -> Iterator[tuple[Table, Row]]:
    """Yield flights and weather in the order of their times, from where something is missing."""
    tables = (WEATHER, FLIGHTS)
    parts = [rows[table.name].from_row(present[table.name].complete_to) for table in tables]
    return ((tables[index], row) for index, row in dataset.in_event_order(parts))


class _Sender:
    """Sends rows that are missing, never more than DOUBT of them undecided."""

    def __init__(self, producer: Producer, bars: Bars, present: Mapping[str, PresentRows]) -> None:
        self._producer = producer
        self._bars = bars
        self._present = present
        self._undecided: deque[Delivery] = deque()
        self._counts = {name: found.count for name, found in present.items()}
        self._headers = {
            table.name: (
                (SCHEMA_HEADER, table.name.encode()),
                (VERSION_HEADER, str(table.version).encode()),
            )
            for table in TABLES
        }

    async def send(self, table: Table, row: Row) -> None:
        """Send a row, unless it is there; waits for the one DOUBT rows before it."""
        name = table.name
        if row.number in self._present[name]:
            return
        while len(self._undecided) >= DOUBT or (self._undecided and self._undecided[0].done):
            await self._decide()
        try:
            delivery = await self._producer.send(
                name,
                row.value,
                key=row.key,
                headers=(*self._headers[name], (ROW_HEADER, b"%d" % row.number)),
                timestamp_ms=row.timestamp_ms,
            )
        except KafkaClientError as error:
            raise _failure(error) from error
        self._undecided.append(delivery)
        self._counts[name] += 1
        if self._counts[name] % _ROWS_PER_UPDATE == 0:
            self._bars.advance(name, self._counts[name])

    async def _decide(self) -> None:
        delivery = self._undecided.popleft()
        try:
            if delivery.done:
                delivery.result()
            else:
                await delivery.wait()
        except KafkaClientError as error:
            raise _failure(error) from error

    async def finish(self) -> None:
        """Wait for all that is undecided."""
        await self._producer.flush()
        while self._undecided:
            await self._decide()
        self.show()

    def show(self) -> None:
        """Let the bars stand where we are."""
        for name, count in self._counts.items():
            self._bars.advance(name, count)


def _failure(error: KafkaClientError) -> PipelineError:
    return PipelineError(
        f"the brokers accept no records: {error}; start the same command again to go on"
    )
