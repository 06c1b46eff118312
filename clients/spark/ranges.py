"""Which offsets a query reads, and in which pieces: the arithmetic of Spark's `kafka` format.

Owns `OffsetRange` and what is computed from maps of offsets: the ranges of a batch, their split by
`minPartitions` and `maxRecordsPerPartition`, the share of each partition in `maxOffsetsPerTrigger`,
and what counts as data loss. Rules:
1. All of it is as Spark does it, rounding included, so that a query that changes its format reads
   the same batches.
2. Data loss is reported, in words, to a callback, which raises or lets it pass.

Pure. Called by: the data sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kraftrio.clients.spark.options import partition_text
from kraftrio.wire.primitives import TopicPartition

Offsets = Mapping[TopicPartition, int]


class OffsetRange(NamedTuple):
    """Offsets of one partition from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many records it has at most."""
        return self.end - self.start


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets as Spark's `kafka` format writes them into checkpoints."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Read what `to_json` made."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def batch_ranges(
    starts: Offsets, ends: Offsets, earliest: Offsets, report: Callable[[str], None]
) -> list[OffsetRange]:
    """Return what lies between the two ends of a micro-batch.

    Args:
        earliest: where the partitions start that are new since `starts`; those missing are gone.
        report: called with what may have been lost.
    """
    new = sorted(ends.keys() - starts.keys())
    gone = [item for item in new if item not in earliest]
    if gone:
        report(f"The partitions {_texts(gone)} are gone before they could be read")
    for item in new:
        if earliest.get(item, 0) != 0:
            report(f"The new partition {partition_text(item)} starts at {earliest[item]}, not at 0")
    deleted = sorted(starts.keys() - ends.keys())
    if deleted:
        report(f"The partitions {_texts(deleted)} are gone")
    ranges = []
    for item, end in sorted(ends.items()):
        start = starts.get(item, earliest.get(item))
        if start is None:
            continue
        if end < start:
            report(f"{partition_text(item)} went back from offset {start} to {end}")
        ranges.append(OffsetRange(item.topic, item.partition, start, end))
    return ranges


def split_ranges(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Leave out empty ranges and split large ones, so that there are about as many as wanted."""
    found = [item for item in ranges if item.size > 0]
    if max_records_per_partition is not None:
        found = [
            piece
            for item in found
            for piece in _divide(item, math.ceil(item.size / max_records_per_partition))
        ]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(item.size for item in found)
    whole = [item for item in found if _part_count(item.size, total, min_partitions) == 1]
    left = total - sum(item.size for item in whole)
    parts_left = max(min_partitions - len(whole), 1)
    pieces = []
    for item in found:
        parts = 1 if item in whole else _part_count(item.size, left, parts_left)
        pieces += _divide(item, parts)
    return pieces


def _part_count(size: int, total: int, min_partitions: int) -> int:
    return max(math.floor(size / total * min_partitions + 0.5), 1)


def _divide(item: OffsetRange, parts: int) -> list[OffsetRange]:
    """Split into equal pieces; what does not divide goes to the later ones."""
    pieces = []
    start = item.start
    for part in range(parts):
        end = start + (item.end - start) // (parts - part)
        if end > start:
            pieces.append(item._replace(start=start, end=end))
        start = end
    return pieces


def limit_rows(limit: int, starts: Offsets, ends: Offsets, earliest: Offsets) -> Offsets:
    """Return the ends of a micro-batch of about `limit` offsets, shared out by what is there.

    Args:
        earliest: where the partitions start that are not in `starts`.
    """
    begins = {
        item: begin for item in ends if (begin := starts.get(item, earliest.get(item))) is not None
    }
    sizes = {item: ends[item] - begin for item, begin in begins.items() if ends[item] > begin}
    total = sum(sizes.values())
    if total < 1:
        return ends
    limited = dict(ends)
    for item, size in sizes.items():
        share = limit * (size / total)
        # No partition starves: each moves by one at least.
        count = math.ceil(share) if share < 1 else math.floor(share)
        limited[item] = min(ends[item], begins[item] + count)
    return limited


def row_count(starts: Offsets, ends: Offsets) -> int:
    """Return how many offsets lie between the two, new partitions counted from 0."""
    return sum(end - starts.get(item, 0) for item, end in ends.items())


def _texts(items: Sequence[TopicPartition]) -> str:
    return ", ".join(map(partition_text, items))
