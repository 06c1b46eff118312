"""What a share consumer hands over: records that are to be acknowledged.

Owns `ShareRecord`, `ShareBatch` (what one broker delivered of one partition at once), and
`read_acquired`, which finds the acquired records in what the broker sent. Rules:
1. A broker sends whole record batches, and names the offsets in them that it has acquired for this
   member: only those are handed over.
2. An acquired offset without a record (of a marker, or compacted away) is a gap, which is
   acknowledged as such; one in a batch that cannot be read is rejected, so that nobody gets it
   again.

Pure. Called by: `fetcher`; programs get these objects. KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple

from kraftrio.clients.serialization import K, V
from kraftrio.clients.share.acknowledgements import AcknowledgeType, TopicIdPartition
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.messages.share_fetch import AcquiredRecords
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import (
    BatchHeader,
    Record,
    TimestampType,
    iter_headers,
    verify_crc,
)
from kraftrio.wire.records.rows import batch_rows

Headers = tuple[tuple[str, bytes | None], ...]
Acknowledge = Callable[["ShareRecord[Any, Any]", AcknowledgeType], None]


class ShareRecord(Generic[K, V]):
    """One record; `timestamp` is -1 when its producer gave none.

    Attributes:
        delivery_count: how often it was delivered, including this time.
    """

    __slots__ = (
        "batch",
        "delivery_count",
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "timestamp",
        "timestamp_type",
        "value",
    )

    def __init__(self, batch: ShareBatch[K, V], row: Any, found: Found) -> None:
        self.batch = batch
        self.offset = row.offset
        self.timestamp = row.timestamp
        self.key: K | None = row.key
        self.value: V | None = row.value
        self.headers = row.headers
        self.leader_epoch = found.leader_epoch
        self.timestamp_type = found.timestamp_type
        self.delivery_count = found.delivery_count

    def __repr__(self) -> str:
        return f"<ShareRecord {self.topic}-{self.partition} at {self.offset}>"

    @property
    def topic(self) -> str:
        return self.batch.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.batch.topic_partition.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """Where it comes from."""
        return self.batch.topic_partition

    # Each raises AcknowledgementStateError if the record cannot be acknowledged, or not any more.

    def accept(self) -> None:
        """Acknowledge it as done."""
        self.batch.acknowledge_record(self, AcknowledgeType.ACCEPT)

    def release(self) -> None:
        """Have it delivered again, to any member."""
        self.batch.acknowledge_record(self, AcknowledgeType.RELEASE)

    def reject(self) -> None:
        """Have it never delivered again: it cannot be processed."""
        self.batch.acknowledge_record(self, AcknowledgeType.REJECT)

    def renew(self) -> None:
        """Have its lock begin again: it is still being processed."""
        self.batch.acknowledge_record(self, AcknowledgeType.RENEW)


class ShareBatch(Generic[K, V]):
    """Records of one partition that one broker delivered at once.

    Attributes:
        node_id: the broker, which their acknowledgements go to.
        locked_until_s: when the broker delivers again those that are not acknowledged (Trio's
            clock).
    """

    __slots__ = ("acknowledge_record", "locked_until_s", "node_id", "partition_key", "records")

    def __init__(
        self,
        partition: TopicIdPartition,
        node_id: int,
        found: Sequence[Found],
        locked_until_s: float,
        acknowledge: Acknowledge,
    ) -> None:
        self.partition_key = partition
        self.node_id = node_id
        self.locked_until_s = locked_until_s
        self.acknowledge_record = acknowledge
        self.records: list[ShareRecord[K, V]] = [
            ShareRecord(self, each.row, each) for each in found
        ]

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return f"<ShareBatch {topic}-{partition}, {len(self.records)} records>"

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        return iter(self.records)

    @property
    def topic_partition(self) -> TopicPartition:
        """Where they come from."""
        return self.partition_key.topic_partition

    def acknowledge(self, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge all records in the same way.

        Raises:
            AcknowledgementStateError: one cannot be acknowledged, or not any more.
        """
        for record in self.records:
            self.acknowledge_record(record, kind)

    def split(self, count: int) -> tuple[ShareBatch[K, V], ShareBatch[K, V] | None]:
        """Return the first `count` records and the rest, if there is one."""
        if len(self.records) <= count:
            return self, None
        return self._part(self.records[:count]), self._part(self.records[count:])

    def _part(self, records: list[ShareRecord[K, V]]) -> ShareBatch[K, V]:
        part: ShareBatch[K, V] = ShareBatch(
            self.partition_key, self.node_id, (), self.locked_until_s, self.acknowledge_record
        )
        part.records = records
        for record in records:
            record.batch = part
        return part


class ShareRecords(Generic[K, V]):
    """What one `poll` hands over: batches, and their records one by one."""

    __slots__ = ("batches",)

    def __init__(self, batches: list[ShareBatch[K, V]]) -> None:
        self.batches = batches

    def __repr__(self) -> str:
        return f"<ShareRecords, {len(self)} in {len(self.batches)} batches>"

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches)

    def __bool__(self) -> bool:
        return bool(self.batches)

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        return (record for batch in self.batches for record in batch.records)


# Reading a broker's answer


class Found(NamedTuple):
    """One acquired record."""

    row: Record
    leader_epoch: int
    timestamp_type: TimestampType
    delivery_count: int


class Acquired(NamedTuple):
    """The acquired records of a partition, and the offsets of gaps and unreadable records.

    Attributes:
        failure: the first error for which records are rejected.
    """

    found: list[Found]
    gaps: list[int]
    rejected: list[int]
    failure: KafkaError | None


def read_acquired(
    buffer: memoryview, acquired: Sequence[AcquiredRecords], *, check_crcs: bool
) -> Acquired:
    """Find the acquired records in what a broker sent for one partition."""
    counts = {
        offset: each.delivery_count
        for each in acquired
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    found: list[Found] = []
    rejected: list[int] = []
    failure: KafkaError | None = None
    damaged_from: int | None = None  # up to the next batch: its own header may be what is damaged
    try:
        for header in iter_headers(buffer, allow_partial=True):
            if damaged_from is not None:
                rejected += [each for each in counts if damaged_from <= each < header.base_offset]
                damaged_from = None
            try:
                if check_crcs:
                    verify_crc(buffer, header)  # before the header is believed
                if header.is_control:
                    continue
                found += _in_batch(buffer, header, counts)
            except KafkaError as error:
                failure = failure or error
                damaged_from = header.base_offset
    except KafkaError as error:
        failure = failure or error  # where the next batch begins is unknown
        if damaged_from is None:
            known = [-1, *(each.row.offset for each in found), *rejected]
            damaged_from = max(known) + 1
    if damaged_from is not None:
        rejected += [offset for offset in counts if offset >= damaged_from]
    left = counts.keys() - {each.row.offset for each in found} - set(rejected)
    return Acquired(found, sorted(left), rejected, failure)


def _in_batch(buffer: memoryview, header: BatchHeader, counts: dict[int, int]) -> list[Found]:
    return [
        Found(row, header.partition_leader_epoch, header.timestamp_type, counts[row.offset])
        for row in batch_rows(buffer, header, Record)
        if row.offset in counts
    ]
