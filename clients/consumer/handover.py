"""How fetched batches become what the program gets: one by one, by batch, or several at once.

Rules:
1. What is returned is consumed, and the position moves then; records handed over one by one move
   it when somebody looks at it (`settle`), or when the next is asked for.
2. A program that asks for more has finished with what it got before (`finish`). If it ends with an
   error instead, what it has in hand goes back (`take_back`).
3. The three ways may be mixed: what is left of a run that was handed over one by one goes back to
   the fetched batches before anything is taken in another way.
4. With deserializers, what is handed over is read before; a record that cannot be is not consumed,
   so that it comes again unless the program goes on after it.

No await comes between taking something and handing it over, so that a cancelled call loses nothing.

Sans-IO. Called by: `polling`; `consumer` takes the records of an open run by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.config import OffsetReset, ResetTo
from kraftrio.clients.consumer.partition import AssignedPartition, FetchFailure, Position
from kraftrio.clients.consumer.records import ConsumerBatch, ConsumerRecord
from kraftrio.clients.errors import (
    KafkaClientError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    unreadable,
)
from kraftrio.clients.group_offsets import OffsetAndMetadata
from kraftrio.clients.serialization import Deserializers
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)

RECORDS_PER_TURN = 350
_NO_RECORDS: Sequence[ConsumerRecord[Any, Any]] = ()
_new_tuple = tuple.__new__
_KEY = ConsumerRecord._fields.index("key")

T = TypeVar("T")


class Handover:
    """See the module.

    Args:
        offset_reset: where to go on where the position's offset is not there any more.
        deserializers: read keys and values, before they are handed over.

    Attributes:
        records: what is left of the run that is handed over one by one.
        handed: the last of them that was returned; the code that takes one from `records` sets it.
    """

    def __init__(
        self,
        partitions: AssignedPartitions,
        offset_reset: OffsetReset,
        deserializers: Deserializers | None = None,
    ) -> None:
        self.records: Iterator[ConsumerRecord[Any, Any]] = iter(_NO_RECORDS)
        self.handed: ConsumerRecord[Any, Any] | None = None
        self._partitions = partitions
        self._offset_reset = offset_reset
        self._deserializers = deserializers or None
        self._run: list[ConsumerBatch[Any, Any]] = []  # where `records` come from
        self._run_version = 0
        self._in_hand: dict[TopicPartition, int] = {}  # where what was returned last begins
        self._seen: object = None
        partitions.settle = self.settle

    # -- taking ---------------------------------------------------------------------------------

    @property
    def has_run(self) -> bool:
        """Whether a run is handed over one by one, though perhaps none of its records is left."""
        return bool(self._run)

    def next_record(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record; None when none is there, or the next run begins without one.

        Raises:
            KafkaError: a partition cannot be read; the next call tries again.
        """
        self.settle()
        record = self._current_record()
        if record is None:
            run = self._take(lambda: self._partitions.take_run(RECORDS_PER_TURN))
            if not run:
                return None
            self._open_run(run)
            record = next(self.records, None)
            if record is None:
                return None
        self.handed = record
        return record

    def next_batch(self) -> ConsumerBatch[Any, Any] | None:
        """Return the next batch; None when none is there.

        Raises:
            KafkaError: as `next_record`.
        """
        self._stop_records()
        batch = self._take(self._partitions.take)
        if batch is not None:
            batch = self._read_batch(batch)
            self._hand_over(batch)
        return batch

    def next_batches(self, limit: int) -> list[ConsumerBatch[Any, Any]]:
        """Return what is there, `limit` records at most.

        Raises:
            KafkaError: as `next_record`.
        """
        self._stop_records()
        batches: list[ConsumerBatch[Any, Any]] = []
        while limit > 0:
            try:
                batch = self._take(self._partitions.take)
                if batch is None:
                    break
                batch, rest = batch.split(limit)
                if rest is not None:
                    self._partitions.put_back(rest)
                batch = self._read_batch(batch)
            except KafkaError:
                if batches:
                    break  # it comes again with the next call
                raise
            limit -= len(batch)
            self._hand_over(batch)
            batches.append(batch)
        return batches

    def _hand_over(self, batch: ConsumerBatch[Any, Any]) -> None:
        self._in_hand.setdefault(batch.topic_partition, batch.first_offset)
        position = Position(batch.next_offset, batch.leader_epoch)
        self._partitions.handed_over(batch.topic_partition, position)

    def _take(self, take: Callable[[], T]) -> T | None:
        try:
            return take()
        except FetchFailure as failure:
            cause, partition = failure.cause, failure.partition
            if cause.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise _located(cause, partition.topic_partition, failure.offset) from None
            topic, index = partition.topic_partition
            if self._offset_reset.to is ResetTo.NONE:
                raise OffsetOutOfRangeError(
                    f"{topic}-{index} has no offset {failure.offset}, and auto_offset_reset is none"
                ) from None
            logger.info("%s-%s has no offset %s: reset", topic, index, failure.offset)
            self._partitions.request_reset(partition, self._offset_reset)
            return None

    # -- deserializers --------------------------------------------------------------------------

    def _read_batch(self, batch: ConsumerBatch[Any, Any]) -> ConsumerBatch[Any, Any]:
        """Return the batch with keys and values read, up to the first record that cannot be.

        Raises:
            RecordDeserializationError: that is the first one; it comes again.
        """
        if self._deserializers is None:
            return batch
        read: list[ConsumerRecord[Any, Any]] = []
        for record in self._records_of(batch):
            try:
                read.append(self._read_record(record))
            except RecordDeserializationError:
                self._partitions.put_back(batch.starting_at(record.offset))
                if not read:
                    raise
                return batch.read_as(read, record.offset)
        return batch.read_as(read, batch.next_offset)

    def _read(self, record: ConsumerRecord[Any, Any]) -> ConsumerRecord[Any, Any]:
        """Return a record of the open run, read.

        Raises:
            RecordDeserializationError: it cannot be; it comes again.
        """
        try:
            return self._read_record(record)
        except RecordDeserializationError:
            self._stop_records()
            raise

    def _read_record(self, record: ConsumerRecord[Any, Any]) -> ConsumerRecord[Any, Any]:
        assert self._deserializers is not None
        key, value = self._deserializers.read(
            record.topic_partition, record.offset, record.key, record.value, record.headers
        )
        return _new_tuple(ConsumerRecord, (*record[:_KEY], key, value, record.headers))

    def _records_of(self, batch: ConsumerBatch[Any, Any]) -> list[ConsumerRecord[Any, Any]]:
        """Return the records of a batch that is to be handed over; it is fetched again if need be.

        Raises:
            KafkaError: they cannot be decoded.
        """
        try:
            return batch.records()
        except KafkaError as error:
            self._partitions.fetch_again(batch.topic_partition)
            raise _located(error, batch.topic_partition, batch.first_offset) from None

    # -- one by one -----------------------------------------------------------------------------

    def _open_run(self, run: list[ConsumerBatch[Any, Any]]) -> None:
        """Begin to hand over some batches one by one."""
        records: list[ConsumerRecord[Any, Any]] = []
        for index, batch in enumerate(run):
            try:
                records += batch.records()
            except KafkaError as error:
                if index:
                    self._partitions.put_back(*run[index:])  # it is raised when its turn comes
                    del run[index:]
                    break
                self._partitions.fetch_again(batch.topic_partition)
                raise _located(error, batch.topic_partition, batch.first_offset) from None
        self.records = iter(records)
        if self._deserializers is not None:
            self.records = map(self._read, records)
        self._run = run
        self._run_version = self._partitions.buffer.taken_version

    def _current_record(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of the open run, if it still may be handed over."""
        partition = self._run_partition()
        if partition is None:
            self._drop_run()
        elif not partition.is_deliverable:
            self._stop_records()
        else:
            for record in self.records:
                return record
            last = self._run[-1]
            position = Position(last.next_offset, last.leader_epoch)
            self._partitions.handed_over(last.topic_partition, position)
            self._drop_run()
        return None

    def _run_partition(self) -> AssignedPartition | None:
        """Return the partition of the open run, if that is still wanted."""
        if not self._run:
            return None
        partition = self._partitions.get(self._run[0].topic_partition)
        if partition is None or partition.version != self._run_version:
            return None
        return partition

    def _stop_records(self) -> None:
        """Give what is left of the open run back, to be taken in another way."""
        self.settle()
        partition = self._run_partition()
        if partition is not None and partition.position is not None:
            offset = partition.position.offset
            left = [batch.starting_at(offset) for batch in self._run if batch.next_offset > offset]
            if left:
                self._partitions.put_back(*left)
        self._drop_run()

    def _drop_run(self) -> None:
        self._run = []
        self.records = iter(_NO_RECORDS)

    # -- what the program has -------------------------------------------------------------------

    def settle(self) -> None:
        """Move the position over what was handed over one by one."""
        handed = self.handed
        if handed is not None:
            self.handed = None
            topic_partition = self._run[0].topic_partition
            self._in_hand = {topic_partition: handed.offset}
            position = Position(handed.offset + 1, handed.leader_epoch)
            self._partitions.handed_over(topic_partition, position)

    def finish(self) -> None:
        """The program has finished with everything it was given."""
        self.settle()
        self._in_hand = {}

    def give_back(self) -> None:
        """Have come again what the program was given last: its work on that is not done."""
        self._stop_records()
        for topic_partition, offset in self._in_hand.items():
            partition = self._partitions.get(topic_partition)
            if partition is not None and partition.position is not None:
                position = Position(offset, partition.position.leader_epoch)
                self._partitions.seek(partition, position, validate=False)
        self._in_hand = {}

    def take_back(self) -> None:
        """The program was stopped by an error while it worked: that work is not done."""
        for topic_partition, offset in self._in_hand.items():
            partition = self._partitions.get(topic_partition)
            if partition is not None and partition.position is not None:
                partition.position = Position(
                    min(offset, partition.position.offset), partition.position.leader_epoch
                )

    def consumed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of some partitions, or of all, to be committed, where there are any.

        Everything that was returned counts as consumed.
        """
        self.settle()
        wanted = self._partitions.assignment if partitions is None else partitions
        found = (self._partitions.get(topic_partition) for topic_partition in sorted(wanted))
        return {
            partition.topic_partition: OffsetAndMetadata(
                partition.position.offset, partition.position.leader_epoch
            )
            for partition in found
            if partition is not None and partition.position is not None
        }

    def has_moved(self) -> bool:
        """Whether the program has taken a record by itself since it was asked the last time."""
        handed = self.handed
        is_new = handed is not None and handed is not self._seen
        self._seen = handed
        return is_new


def _located(error: KafkaError, where: TopicPartition, offset: int) -> KafkaClientError:
    """Say where it happened."""
    return unreadable(error, f"{where.topic}-{where.partition} at offset {offset}: {error}")
