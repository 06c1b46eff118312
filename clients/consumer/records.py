"""What a consumer hands over: records, and batches that are decoded only when they are read.

Owns `ConsumerRecord`, `ConsumerBatch`, and `split_records`, which splits what a broker sent for one
partition into batches. Rules:
1. A batch is a view of the broker's answer: until its records are asked for there is no object
   per record, and no decompression. They are then decoded all at once and kept.
2. Control batches, aborted transactions (for read_committed) and records before the position asked
   for are left out; where the next fetch begins counts them all the same.
3. An incomplete batch at the end of the answer is left out: it comes again, whole.

Pure. Called by: the fetch core; programs get these objects. KIP-98 ("Record Batch"), KIP-74.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, cast

from kraftrio.clients.aborted_transactions import AbortedFilter
from kraftrio.clients.serialization import K, V
from kraftrio.wire.errors import CorruptBatchError, KafkaError
from kraftrio.wire.messages.data import AbortedTransaction
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    Compression,
    Record,
    TimestampType,
    iter_headers,
    records_data,
    verify_crc,
)
from kraftrio.wire.records.rows import batch_rows
from kraftrio.wire.records.values import batch_values

Headers = tuple[tuple[str, bytes | None], ...]


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record; `timestamp` is -1 when its producer gave none.

    Key and value are bytes, unless the consumer has deserializers for them.
    """

    topic: str
    partition: int
    leader_epoch: int
    timestamp_type: TimestampType
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """Where it comes from."""
        return TopicPartition(self.topic, self.partition)


# Without parameters, which are for type checkers only.
_ROW: type[ConsumerRecord[Any, Any]] = ConsumerRecord


class ConsumerBatch(Generic[K, V]):
    """Records of one partition that lie next to each other, decoded when asked for.

    Attributes:
        topic_partition: where they come from.
        first_offset: no record comes before it.
        next_offset: the position after them.
    """

    __slots__ = (
        "_buffer",
        "_header",
        "_is_read",
        "_records",
        "_values",
        "_whole",
        "first_offset",
        "next_offset",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        buffer: memoryview,
        header: BatchHeader,
        first_offset: int,
        next_offset: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.first_offset = first_offset
        self.next_offset = next_offset
        self._buffer = buffer
        self._header = header
        self._records: list[ConsumerRecord[K, V]] | None = None
        self._is_read = False  # by deserializers
        self._values: list[V | None] | None = None  # once a part was asked for its own
        self._whole: ConsumerBatch[K, V] | None = None  # which this is a part of

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return f"<ConsumerBatch {topic}-{partition} {self.first_offset}..{self.next_offset - 1}>"

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that wrote them."""
        return self._header.partition_leader_epoch

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether producers or the broker gave the timestamps."""
        return self._header.timestamp_type

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp in the batch as it was written."""
        return self._header.max_timestamp

    @property
    def compression(self) -> Compression:
        """How the records were compressed."""
        return self._header.compression

    @property
    def record_count(self) -> int:
        """How many records were written as one batch, also if only a part of them is here."""
        return self._header.record_count

    @property
    def size_bytes(self) -> int:
        """The size of the batch as it was written, compressed."""
        return self._header.size_bytes

    def __len__(self) -> int:
        if self._records is None and self._is_dense:
            return self.next_offset - self.first_offset
        return len(self.records())

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return iter(self.records())

    def rows(self) -> list[Record]:
        """Return the records as plain rows: (offset, timestamp, key, value, headers).

        Raises:
            KafkaError: the records cannot be read.
        """
        return [
            Record(record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in cast("list[ConsumerRecord]", self.records())
        ]

    def records(self) -> list[ConsumerRecord[K, V]]:
        """Return the records.

        Raises:
            KafkaError: the records cannot be read.
        """
        records = self._records
        if records is None:
            if self._whole is not None:
                records = self._whole.records()
            else:
                header = self._header
                where = (
                    *self.topic_partition,
                    header.partition_leader_epoch,
                    header.timestamp_type,
                )
                records = batch_rows(self._buffer, header, _ROW, where)
            self._records = records = _between(records, self.first_offset, self.next_offset)
        return records

    def values(self) -> list[V | None]:
        """Return the values alone.

        Raises:
            KafkaError: the records cannot be read.
        """
        whole = self._whole or self
        if self._records is None and whole._records is None and self._is_dense:
            values = whole._values
            if values is None:
                values = cast("list[V | None]", batch_values(self._buffer, self._header))
            if self._whole is not None:
                whole._values = values  # other parts of it are asked for theirs soon
            first = self.first_offset - self._header.base_offset
            last = self.next_offset - self._header.base_offset
            return values[first:last]
        return [record.value for record in self.records()]

    def may_contain(self, part: bytes) -> bool:
        """Return whether a key, value or header of the whole batch may have these bytes within.

        False is certain, and is found without an object for each record. The bytes are those that
        were sent, before any deserializer.

        Raises:
            KafkaError: the records cannot be decompressed.
        """
        return part in records_data(self._buffer, self._header, DEFAULT_MAX_DECOMPRESSED_BYTES)

    def starting_at(self, offset: int) -> ConsumerBatch[K, V]:
        """Return what is left of the batch from an offset on."""
        return self._part(max(offset, self.first_offset), self.next_offset)

    def split(self, count: int) -> tuple[ConsumerBatch[K, V], ConsumerBatch[K, V] | None]:
        """Return the first `count` records and the rest, if there is one."""
        if len(self) <= count:
            return self, None
        middle = self.first_offset + count
        if self._records is not None or not self._is_dense:
            middle = self.records()[count].offset
        return self._part(self.first_offset, middle), self._part(middle, self.next_offset)

    def read_as(
        self, records: list[ConsumerRecord[Any, Any]], next_offset: int
    ) -> ConsumerBatch[Any, Any]:
        """Return the batch up to an offset, with these records, which deserializers have read."""
        part: ConsumerBatch[Any, Any] = self._part(self.first_offset, next_offset)
        part._records = records
        part._is_read = True
        return part

    def _part(self, first_offset: int, next_offset: int) -> ConsumerBatch[K, V]:
        part: ConsumerBatch[K, V] = ConsumerBatch(
            self.topic_partition, self._buffer, self._header, first_offset, next_offset
        )
        part._whole = self if self._is_read or self._whole is None else self._whole
        return part

    @property
    def _is_dense(self) -> bool:
        """Whether there is a record for each offset, which compaction may change."""
        header = self._header
        return header.record_count == header.last_offset_delta + 1

    def verify(self) -> None:
        """Compare the checksum.

        Raises:
            CorruptBatchError: the bytes are not those that were written.
        """
        verify_crc(self._buffer, self._header)


class ConsumerRecords(Generic[K, V]):
    """What one `poll` hands over: batches, and their records one by one."""

    __slots__ = ("batches",)

    def __init__(self, batches: list[ConsumerBatch[K, V]]) -> None:
        self.batches = batches

    def __repr__(self) -> str:
        partitions = ", ".join(map(str, self.partitions))
        return f"<ConsumerRecords, {len(self)} of {partitions or 'no partition'}>"

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches)

    def __bool__(self) -> bool:
        return bool(self.batches)

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return (record for batch in self.batches for record in batch.records())

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that the records are of."""
        return list(dict.fromkeys(batch.topic_partition for batch in self.batches))

    def records(self, topic_partition: TopicPartition) -> list[ConsumerRecord[K, V]]:
        """Return the records of one partition."""
        return [
            record
            for batch in self.batches
            if batch.topic_partition == topic_partition
            for record in batch.records()
        ]


def _between(
    records: list[ConsumerRecord[K, V]], first_offset: int, next_offset: int
) -> list[ConsumerRecord[K, V]]:
    """Return the records from one offset on to before another."""
    if not records or (records[0].offset >= first_offset and records[-1].offset < next_offset):
        return records
    start = bisect_left(records, first_offset, key=_offset)
    end = bisect_left(records, next_offset, start, key=_offset)
    return records[start:end]


_offset = attrgetter("offset")


class SplitRecords(NamedTuple):
    """The batches worth handing over, and where the next fetch begins."""

    batches: list[ConsumerBatch]
    next_offset: int
    leader_epoch: int  # of the last batch; -1 without one


def split_records(
    topic_partition: TopicPartition,
    buffer: memoryview,
    fetch_offset: int,
    aborted: Sequence[AbortedTransaction] | None,
    *,
    read_committed: bool,
    check_crcs: bool,
) -> SplitRecords:
    """Split what a broker sent for one partition into batches, up to the first damage.

    Args:
        aborted: the aborted transactions that the broker named.
        check_crcs: compare the checksums of batches that are not handed over, whose headers alone
            say so; those of the others are compared when they are.

    Raises:
        KafkaError: it begins with damage, or holds no whole batch.
    """
    batches: list[ConsumerBatch] = []
    next_offset, leader_epoch = fetch_offset, -1
    filter_ = AbortedFilter(aborted or ()) if read_committed else None
    try:
        for header in iter_headers(buffer, allow_partial=True):
            batch_end = header.next_offset
            is_before = batch_end <= fetch_offset
            is_left_out = is_before or header.is_control or not header.record_count
            if is_left_out and check_crcs:
                verify_crc(buffer, header)
            if is_before:
                continue
            if filter_ is not None and filter_.leaves_out(buffer, header) and not is_left_out:
                is_left_out = True
                if check_crcs:
                    verify_crc(buffer, header)
            next_offset, leader_epoch = batch_end, header.partition_leader_epoch
            if not is_left_out:
                first_offset = max(header.base_offset, fetch_offset)
                batches.append(
                    ConsumerBatch(topic_partition, buffer, header, first_offset, batch_end)
                )
    except KafkaError:
        if next_offset == fetch_offset:
            raise  # else it comes again, as the first that is fetched
    if next_offset == fetch_offset and len(buffer):
        raise CorruptBatchError(
            f"{len(buffer)} bytes of {topic_partition.topic}-{topic_partition.partition} from"
            f" offset {fetch_offset} on hold no whole batch"
        )
    return SplitRecords(batches, next_offset, leader_epoch)
