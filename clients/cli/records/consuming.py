"""What `kraftrio consume` does: print records as lines, up to a count, an end, or a signal.

Owns `Consuming`. Rules:
1. What a poll brings is printed at once and in one piece. Where only values are wanted, nothing but
   values is decoded.
2. A partition that is read up to an end is done when the consumer's position is there: the last
   offsets may have no records (markers, compaction).
3. No offset of a record that is not printed is committed: no record beyond the count is taken.

Called by: the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import trio

from kraftrio.clients.cli.interrupts import until_interrupted
from kraftrio.clients.cli.records.rendering import Renderer
from kraftrio.clients.cli.records.writing import Writer
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.consumer.records import ConsumerBatch, ConsumerRecord
from kraftrio.wire.primitives import TopicPartition

_RECORDS_PER_POLL = 20_000
_CHECK_EVERY_MS = 100
_WRITE_BYTES = 512 << 10

Wanted = Callable[[ConsumerRecord], bool]


class Consuming:
    """See the module.

    Args:
        render: makes the lines; None: print the values as they are, a line each.
        wanted: which records are printed and counted; None: all.
        count: how many; None: as many as there are.
        ends: where to stop in each partition; None: nowhere.

    Attributes:
        printed_records: how many.
    """

    def __init__(
        self,
        consumer: Consumer,
        writer: Writer,
        render: Renderer | None,
        *,
        wanted: Wanted | None = None,
        count: int | None = None,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._consumer = consumer
        self._writer = writer
        self._render = render
        self._wanted = wanted
        self._count = count
        self._ends = ends
        self.printed_records = 0

    async def run(self) -> None:
        """Print until the count or all ends are reached, or a signal comes."""
        async with until_interrupted():
            while not await self._is_done():
                timeout_ms = None if self._ends is None else _CHECK_EVERY_MS
                left = _RECORDS_PER_POLL
                if self._count is not None and self._wanted is None:
                    left = min(left, self._count - self.printed_records)
                records = await self._consumer.poll(timeout_ms, max_records=left)
                with trio.CancelScope(shield=True):  # what was taken is printed
                    await self._print(records.batches)

    async def _is_done(self) -> bool:
        if self._count is not None and self.printed_records >= self._count:
            return True
        if self._ends is None:
            return False
        assigned = self._consumer.assignment
        if not assigned:
            return False  # the group has not decided yet
        for item in assigned:
            end = self._ends.get(item)
            if end and await self._consumer.position(item) < end:
                return False
        return True

    async def _print(self, batches: Iterable[ConsumerBatch]) -> None:
        if self._render is None:
            await self._print_values(batches)
            return
        records = [record for batch in batches for record in self._chosen(batch)]
        if self._count is not None:
            records = records[: self._count - self.printed_records]
        if records:
            self.printed_records += len(records)
            await self._writer.write(self._render(records))

    async def _print_values(self, batches: Iterable[ConsumerBatch]) -> None:
        """Print values as they are, a line each, with few large writes."""
        lines: list[bytes] = []
        size_bytes = 0
        for batch in batches:
            if self._is_beyond(batch):
                values = [record.value for record in self._chosen(batch)]
            else:
                values = batch.values()
            if None in values:
                values = [value or b"" for value in values]
            self.printed_records += len(values)
            lines += values  # type: ignore[arg-type]  # none is null
            size_bytes += batch.size_bytes
            if size_bytes >= _WRITE_BYTES:
                await self._writer.write(b"\n".join([*lines, b""]))
                lines, size_bytes = [], 0
        if lines:
            await self._writer.write(b"\n".join([*lines, b""]))

    def _chosen(self, batch: ConsumerBatch) -> Iterable[ConsumerRecord]:
        records: Iterable[ConsumerRecord] = batch.records()
        if self._ends is not None and self._is_beyond(batch):
            end = self._ends[batch.topic_partition]
            records = [record for record in records if record.offset < end]
        if self._wanted is not None:
            records = filter(self._wanted, records)
        return records

    def _is_beyond(self, batch: ConsumerBatch) -> bool:
        """Whether some of the batch is beyond the end: more was written meanwhile."""
        if self._ends is None:
            return False
        return batch.next_offset > self._ends.get(batch.topic_partition, batch.next_offset)
