"""Which rows a topic already has: how an interrupted ingest finds the place where it ended.

The topic itself is the only witness. An idempotent producer keeps its own retries from doubling,
but the next process is another producer, and a place noted elsewhere would be older or newer than
what the brokers have. So each record carries its row's number, and:

1. The sender never has more than DOUBT rows undecided: when row n is sent, all rows up to n - DOUBT
   are in the topic, whatever partition they went to.
2. So after an interruption, with M the highest number found, rows up to M - DOUBT are there; of
   those above some may be and some not. These are looked for one by one, at the partitions' ends.
3. A tail is long enough when it begins with a row below M - 2 DOUBT, or with the partition; records
   of others in between only make it longer.

Called by: `ingest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.pipeline.brokers import BrokerAccess
from kraftrio.clients.pipeline.schemas import ROW_HEADER
from kraftrio.wire.primitives import TopicPartition

DOUBT: Final = 5_000
_FIRST_TAIL: Final = 2 * DOUBT


@dataclass(frozen=True, slots=True)
class PresentRows:
    """The rows that are in a topic: those before `complete_to`, and `others` above."""

    complete_to: int = 0
    others: frozenset[int] = field(default_factory=frozenset)

    def __contains__(self, number: int) -> bool:
        return number < self.complete_to or number in self.others

    @property
    def count(self) -> int:
        """How many rows are there."""
        return self.complete_to + len(self.others)


def present_rows(found: set[int]) -> PresentRows:
    """Return what the numbers found at the ends of all partitions say."""
    if not found:
        return PresentRows()
    complete_to = max(0, max(found) - DOUBT)
    return PresentRows(complete_to, frozenset(number for number in found if number >= complete_to))


def is_long_enough(lowest: int | None, highest: int) -> bool:
    """Return whether a tail that begins with this row shows all that is in doubt; rule 3."""
    return lowest is not None and lowest <= highest - 2 * DOUBT


async def find_present(
    brokers: BrokerAccess,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> PresentRows:
    """Read the ends of a topic's partitions and return which rows are there.

    Raises:
        KafkaClientError: the topic cannot be read.
    """
    open_ = {where for where in ends if ends[where] > starts[where]}
    tails = {where: max(starts[where], ends[where] - _FIRST_TAIL) for where in open_}
    found: dict[TopicPartition, dict[int, int]] = {where: {} for where in open_}  # offset -> row
    read_to = {where: ends[where] for where in open_}
    async with Consumer(
        brokers.servers, client_id="flights-ingest", **brokers.security
    ) as consumer:
        while open_:
            for where in open_:
                found[where] |= await _read(consumer, where, tails[where], read_to[where])
                read_to[where] = tails[where]
            rows = [row for numbers in found.values() for row in numbers.values()]
            highest = max(rows, default=0)
            for where in list(open_):
                numbers = found[where]
                lowest = numbers[min(numbers)] if numbers else None
                if tails[where] == starts[where] or is_long_enough(lowest, highest):
                    open_.discard(where)
                else:
                    length = 2 * (ends[where] - tails[where])
                    tails[where] = max(starts[where], ends[where] - length)
    return present_rows({row for numbers in found.values() for row in numbers.values()})


async def _read(consumer: Consumer, where: TopicPartition, first: int, end: int) -> dict[int, int]:
    """Return the row numbers by offset in a span of one partition's offsets."""
    consumer.assign([where])
    consumer.seek(where, first)
    found: dict[int, int] = {}
    while await consumer.position(where) < end:
        for record in await consumer.poll(1000):
            number = row_number(record)
            if number is not None and record.offset < end:
                found[record.offset] = number
    return found


def row_number(record: ConsumerRecord) -> int | None:
    """Return the row that a record says it is; None if the pipeline did not write it."""
    for name, content in record.headers:
        if name == ROW_HEADER and content is not None and content.isdigit():
            return int(content)
    return None
