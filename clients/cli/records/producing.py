"""What `kraftrio produce` does: make records of lines, and count what is written.

Owns `Producing`. Rules:
1. Lines that are values and nothing else go to the producer many at a time.
2. A line that is not a record ends the command, but the lines before it are written, and the error
   says how many. It is the same when a broker refuses records, or the input cannot be read.

Called by: the command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.output import size_text
from kraftrio.clients.cli.records.json_lines import Headers, InputRecord
from kraftrio.clients.cli.records.lines import LineSource
from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.producer.batch import Batch, wait_batch
from kraftrio.clients.producer.producer import Producer

_TICK_S = 0.05

Parse = Callable[[bytes], InputRecord]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where records go, unless a line says otherwise.

    Attributes:
        parse: makes a record of a line; None: a line is a value and nothing else.
        rate: records a second; None: as fast as they are taken.
    """

    topic: str
    partition: int | None = None
    key: bytes | None = None
    headers: Headers = ()
    parse: Parse | None = None
    rate: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether records are values and nothing else."""
        return self.parse is None and self.key is None and not self.headers


class Producing:
    """See the module.

    Attributes:
        sent_records, sent_bytes: what was handed to the producer.
        written_records: how many brokers have written.
    """

    def __init__(self, producer: Producer, destination: Destination) -> None:
        self._producer = producer
        self._to = destination
        self._waiting: dict[Batch, None] = {}  # in the order they were begun
        self._failure: KafkaClientError | None = None
        self.sent_records = 0
        self.sent_bytes = 0
        self.written_records = 0

    async def run(self, source: LineSource) -> None:
        """Produce all lines.

        Raises:
            CommandError: not all were written; it says how many were.
        """
        reason = None
        try:
            async for lines in source.chunks():
                await self._send(lines)
                self._settle(only_done=True)
                if self._failure is not None:
                    break
        except (ValueError, OSError, KafkaClientError) as error:
            reason = str(error)
        await self._producer.flush()
        for batch in self._waiting:
            await wait_batch(batch)
        self._settle(only_done=False)
        if self._failure is not None:
            reason = str(self._failure)
        if reason is not None:
            raise CommandError(f"{reason}; {self.summary}")

    @property
    def summary(self) -> str:
        """What was written, in words."""
        count, size = self.written_records, size_text(self.sent_bytes)
        noun, verb = ("record", "is") if count == 1 else ("records", "are")
        return f"{count} {noun} ({size} of values) {verb} in topic {self._to.topic}"

    async def _send(self, lines: list[bytes]) -> None:
        rate = self._to.rate
        if rate is None:
            await self._send_all(lines)
            return
        step = max(1, round(rate * _TICK_S))
        for start in range(0, len(lines), step):
            began_at = trio.current_time()
            part = lines[start : start + step]
            await self._send_all(part)
            await trio.sleep_until(began_at + len(part) / rate)

    async def _send_all(self, lines: list[bytes]) -> None:
        to = self._to
        if to.is_plain:
            batches = await self._producer.send_values(to.topic, lines, partition=to.partition)
            self._waiting |= dict.fromkeys(batches)
            self.sent_records += len(lines)
            self.sent_bytes += sum(map(len, lines))
            return
        for line in lines:
            number = self.sent_records + 1
            try:
                record = InputRecord(line) if to.parse is None else to.parse(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
            await self._send_one(record)

    async def _send_one(self, record: InputRecord) -> None:
        to = self._to
        delivery = await self._producer.send(
            to.topic,
            record.value,
            key=to.key if record.key is None else record.key,
            headers=(*to.headers, *record.headers),
            partition=to.partition if record.partition is None else record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        self._waiting[delivery.batch] = None
        self.sent_records += 1
        self.sent_bytes += len(record.value or b"")

    def _settle(self, *, only_done: bool) -> None:
        """Count the records of batches that have ended, the oldest first."""
        while self._waiting:
            batch = next(iter(self._waiting))
            if only_done and not batch.is_done:
                break
            del self._waiting[batch]
            self._count(batch)

    def _count(self, batch: Batch) -> None:
        if batch.parts is not None:
            for part in batch.parts:
                self._count(part)
        elif batch.error is not None:
            self._failure = self._failure or batch.error
        else:
            self.written_records += batch.record_count
