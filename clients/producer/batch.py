"""One batch of records on its way to one partition, and the result of each record.

Owns `Batch` (records as columns while it fills, bytes once it is sent) and `Delivery`, the result
of one record. Rules:
1. A record adds no object of its own to a batch: values, keys and timestamps are columns. They
   become bytes when the batch is sent for the first time and are given up then.
2. A batch ends once: delivered with a base offset, failed with an error, or split into parts, which
   then hold its records. A task that waits for a record goes on waiting for its part.
3. Sequences may be changed while older bytes are still being sent, so bytes are never changed
   in place.

Sans-IO but for `Delivery.wait` and `wait_batch`. Called by: the producer's cores, and `producer`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import trio

from kraftrio.clients.errors import KafkaClientError, renewed
from kraftrio.clients.producer.unseen import UnseenFailure
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    build_from_columns,
    iter_records,
    parse_header,
    with_producer,
)
from kraftrio.wire.records.compression import Compression

Headers = tuple[tuple[str, bytes | None], ...]

RECORD_OVERHEAD_BYTES = 11
"""What is counted for lengths, deltas and attributes of each record."""
SHORT_BYTES = 8000
LONG_BYTES = 4
"""What is counted in addition for a key or value longer than SHORT_BYTES."""


class RecordMetadata(NamedTuple):
    """Where a record was written; the offset is -1 if the broker did not answer (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


_new_tuple = tuple.__new__


class Batch:
    """Records of one partition.

    Args:
        serial: orders the batches of a partition; parts of a split batch come where it was.
        limit_bytes: how large the records may get before they are compressed.
        reserved_bytes: how much of the producer's memory it was given.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "callbacks",
        "created_ms",
        "data",
        "error",
        "headers",
        "is_closed",
        "is_done",
        "is_sent",
        "keys",
        "last_failure",
        "leader_epoch",
        "limit_bytes",
        "log_append_time_ms",
        "partition",
        "parts",
        "producer_epoch",
        "producer_id",
        "record_count",
        "reserved_bytes",
        "retry_at_ms",
        "sequence_was_reset",
        "serial",
        "size_bytes",
        "timestamps",
        "topic",
        "unseen",
        "values",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        serial: tuple[int, ...],
        created_ms: float,
        limit_bytes: int,
        reserved_bytes: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.serial = serial
        self.created_ms = created_ms
        self.limit_bytes = limit_bytes
        self.reserved_bytes = reserved_bytes
        self.size_bytes = BATCH_OVERHEAD
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Headers] = {}
        self.record_count = 0  # once closed
        self.data: bytes | bytearray = b""
        self.is_closed = False  # no record is added any more
        self.is_sent = False  # and not answered yet
        self.attempts = 0
        self.retry_at_ms = -1.0
        self.leader_epoch = -1  # of the leader it was sent to last
        self.last_failure: KafkaClientError | None = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.sequence_was_reset = False
        self.is_done = False
        self.error: KafkaClientError | None = None
        self.unseen: UnseenFailure | None = None  # once it has failed outside a transaction
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.parts: list[Batch] | None = None
        self.callbacks: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        count = self.record_count or len(self.values)
        return f"<Batch to {self.topic}-{self.partition}, {count} records>"

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence >= 0

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.record_count - 1) & 0x7FFF_FFFF

    # -- bytes ----------------------------------------------------------------------------------

    def encode(
        self, compression: Compression, level: int | None, *, is_transactional: bool = False
    ) -> None:
        """Turn the columns into bytes; the batch is closed."""
        assert self.is_closed and not self.data, "a batch is encoded once, when it is closed"
        self.data = build_from_columns(
            self.timestamps,
            self.keys,
            self.values,
            self.headers,
            compression=compression,
            level=level,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            transactional=is_transactional,
        )
        self.values = self.keys = []
        self.headers = {}

    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the producer's id and epoch, and the sequence of the first record."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        if self.data:
            self.data = with_producer(self.data, producer_id, producer_epoch, base_sequence)

    def records(self) -> Iterator[tuple[int, bytes | None, bytes | None, Headers]]:
        """Yield (timestamp, key, value, headers) of each record, also when it was encoded."""
        if self.data:
            # What is decoded was encoded by this process: no bound is needed.
            header = parse_header(self.data)
            for record in iter_records(self.data, header, max_decompressed_bytes=1 << 40):
                yield record.timestamp, record.key, record.value, record.headers
        else:
            rows = zip(self.timestamps, self.keys, self.values, strict=True)
            for index, (timestamp, key, value) in enumerate(rows):
                yield timestamp, key, value, self.headers.get(index, ())

    def split(self, limit_bytes: int) -> list[Batch]:
        """Return parts of at most `limit_bytes` each (or one record) that hold its records.

        They have its age and its place in the queue. The batch itself is done then, without a
        result.
        """
        parts: list[Batch] = []
        part: Batch | None = None
        for timestamp, key, value, headers in self.records():
            size_bytes = record_size(key, value, headers)
            if part is None or part.size_bytes + size_bytes > limit_bytes:
                serial = (*self.serial, len(parts))
                part = Batch(self.topic, self.partition, serial, self.created_ms, limit_bytes, 0)
                part.is_closed = True
                parts.append(part)
            if headers:
                part.headers[len(part.values)] = headers
            part.size_bytes += size_bytes
            part.timestamps.append(timestamp)
            part.keys.append(key)
            part.values.append(value)
            part.record_count += 1
        for part in parts:
            part.reserved_bytes = part.size_bytes
        self.data = b""
        self.parts = parts
        self._end()
        return parts

    # -- the end --------------------------------------------------------------------------------

    def deliver(self, base_offset: int, log_append_time_ms: int) -> None:
        """End the batch: the broker has written it."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._end()

    def fail(self, error: KafkaClientError) -> None:
        """End the batch: it is given up."""
        self.error = error
        self._end()

    def _end(self) -> None:
        assert not self.is_done, "a batch ends once"
        self.is_done = True
        self.data = b""
        self.values = self.keys = []
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()

    def raise_failure(self) -> None:
        """Raise the error of a part that was given up, if one was; all must have ended."""
        assert self.is_done, "the batch has not ended yet"
        for part in self.parts or ():
            part.raise_failure()
        self.raise_own_failure()

    def raise_own_failure(self) -> None:
        """Raise the batch's own error, if it was given up; that failure then counts as seen."""
        if self.error is not None:
            if self.unseen is not None:
                self.unseen.is_seen = True
            raise renewed(self.error)

    def locate(self, index: int) -> tuple[Batch, int]:
        """Return the batch that holds the record now, and its index there."""
        batch = self
        while batch.parts is not None:
            for part in batch.parts:
                if index < part.record_count:
                    batch = part
                    break
                index -= part.record_count
        return batch, index


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound of a record's size in a batch."""
    size_bytes = RECORD_OVERHEAD_BYTES
    for part in (key, value):
        if part is not None:
            size_bytes += len(part) + (LONG_BYTES if len(part) > SHORT_BYTES else 0)
    return size_bytes + headers_size(headers) if headers else size_bytes


def headers_size(headers: Headers) -> int:
    """Return an upper bound of the size of a record's headers."""
    return sum(
        6 + 4 * len(name) + (0 if content is None else len(content)) for name, content in headers
    )


class Delivery:
    """The result of one record: `await delivery` waits until the broker has written it.

    With acks=0 no broker answers, so it waits until this machine's socket has taken it.
    Waiting may be cancelled and repeated; the record is sent all the same.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        batch, _ = self._batch.locate(self._index)
        state = "not decided" if not batch.is_done else "failed" if batch.error else "delivered"
        return f"<Delivery to {self.topic}-{self.partition}, {state}>"

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The partition that the record goes to."""
        return self._batch.partition

    @property
    def batch(self) -> Batch:
        """The batch that holds the record; for very many records it is cheaper to keep."""
        return self._batch

    @property
    def done(self) -> bool:
        """Whether there is a result: the record was written, or given up."""
        return self._batch.locate(self._index)[0].is_done

    def result(self) -> RecordMetadata:
        """Return where the record was written, once it is `done`.

        Raises:
            KafkaClientError: it was given up.
            AssertionError: it is not done.
        """
        batch, index = self._batch, self._index
        if batch.parts is not None:
            batch, index = batch.locate(index)
        assert batch.is_done, "the delivery is not decided yet"
        if batch.error is not None:
            batch.raise_own_failure()
        append_time_ms = batch.log_append_time_ms
        return _new_tuple(  # RecordMetadata(...) would cost twice as much
            RecordMetadata,
            (
                batch.topic,
                batch.partition,
                batch.base_offset + index if batch.base_offset >= 0 else -1,
                append_time_ms if append_time_ms >= 0 else batch.timestamps[index],
            ),
        )

    async def wait(self) -> RecordMetadata:
        """Wait until the broker has the record and return where it was written.

        Raises:
            KafkaClientError: it was given up: timed out, refused, or the producer was closed.
        """
        while not (batch := self._batch.locate(self._index)[0]).is_done:
            event = trio.Event()
            batch.callbacks.append(event.set)
            try:
                await event.wait()
            finally:
                if not batch.is_done and event.set in batch.callbacks:
                    batch.callbacks.remove(event.set)
        return self.result()

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self.wait().__await__()


async def wait_batch(batch: Batch) -> None:
    """Wait until a batch, or all its parts, have ended."""
    while not batch.is_done:
        event = trio.Event()
        batch.callbacks.append(event.set)
        await event.wait()
    for part in batch.parts or ():
        await wait_batch(part)
