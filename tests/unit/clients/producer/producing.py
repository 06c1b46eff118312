"""What the tests of the producer's core share: a core with a vocabulary, and a broker's memory.

`Partition` decides about batches as a broker does: the next sequence, duplicates, epochs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from kraftrio.clients.config import ProducerConfig, ProducerSettings, make_config
from kraftrio.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kraftrio.clients.producer.accumulator import Accumulator
from kraftrio.clients.producer.batch import Batch, Delivery, Headers, record_size
from kraftrio.clients.producer.queues import PartitionQueue, TopicQueues
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import (
    MAX_SEQUENCE,
    Record,
    iter_records,
    parse_header,
    verify_crc,
)

TOPIC = "orders"
PRODUCER_ID = 4000


class Core:
    """An accumulator for one topic, led by node 1, with a producer id unless told otherwise.

    It has sent 2^31 records to each partition before, so that sequences begin at 0 and yet no batch
    is the first one, unless it is `fresh`.
    """

    def __init__(
        self,
        partitions: int = 1,
        *,
        producer_id: int | None = PRODUCER_ID,
        fresh: bool = False,
        **settings: Any,
    ) -> None:
        wanted: ProducerSettings = settings  # type: ignore[assignment]
        self.config = make_config(ProducerConfig, "localhost:9092", wanted)
        self.accumulator = Accumulator(self.config, random.Random(7))
        self.leaders = dict.fromkeys(range(partitions), (1, 0))
        self.topic = self.accumulator.add_topic(self.metadata().topics[TOPIC])
        self.now_ms = 1000.0
        sequences = self.accumulator.sequences
        if sequences is not None and producer_id is not None:
            sequences.set_producer_id(producer_id, 0)
            if not fresh:
                for queue in self.topic.queues:
                    queue.sequence.producer_id = producer_id
                    queue.sequence.producer_epoch = 0
                    queue.sequence.last_acked_sequence = MAX_SEQUENCE

    def metadata(self) -> ClusterMetadata:
        partitions = {
            index: PartitionMetadata(index, leader, epoch, (1, 2), (1, 2))
            for index, (leader, epoch) in self.leaders.items()
        }
        return ClusterMetadata(topics={TOPIC: TopicMetadata(TOPIC, partitions=partitions)})

    def lead(self, partition: int, node_id: int, epoch: int) -> None:
        """Let another node lead a partition."""
        self.leaders[partition] = (node_id, epoch)
        self.accumulator.update(self.metadata())

    def queue(self, partition: int = 0) -> PartitionQueue:
        return self.topic.queues[partition]

    @property
    def topic_queues(self) -> TopicQueues:
        return self.topic

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int = 5000,
    ) -> Delivery | None:
        """Accept a record as the producer does; None: there is no memory for it."""
        core = self.accumulator
        accepted = core.append(self.topic, partition, key, value, headers, timestamp_ms)
        if isinstance(accepted, Delivery):
            return accepted
        record_bytes = record_size(key, value, headers)
        memory_bytes = core.memory_for(accepted, record_bytes)
        if not core.memory.reserve(memory_bytes):
            return None
        return core.append_to_new(
            accepted, memory_bytes, record_bytes, key, value, headers, timestamp_ms, self.now_ms
        )

    def accept(self, value: bytes | None, key: bytes | None = None, **options: Any) -> Delivery:
        """As `send`, where there is memory."""
        delivery = self.send(value, key, **options)
        assert delivery is not None
        return delivery

    def fill(self, batches: int, partition: int = 0) -> list[Delivery]:
        """Accept as many records as fill some batches, and one more."""
        size = self.config.batch_size // 2 - 80
        values = [b"%04d" % index * (size // 4) for index in range(2 * batches + 1)]
        return [self.accept(value, partition=partition) for value in values]

    def wait(self, ms: float) -> float:
        """Let time pass."""
        self.now_ms += ms
        return self.poll()

    def poll(self) -> float:
        if self.accumulator.sequences is not None:
            self.accumulator.sequences.settle()
        return self.accumulator.poll(self.now_ms)

    def drain(self, node_id: int = 1) -> list[Batch]:
        """Take the batches of the next request to a node."""
        self.poll()
        return self.accumulator.drain(node_id, self.now_ms)

    def drain_one(self, node_id: int = 1) -> Batch:
        (batch,) = self.drain(node_id)
        return batch

    def flush(self) -> None:
        self.accumulator.close_all()

    def deliver(self, batch: Batch, base_offset: int = 0) -> None:
        self.accumulator.outcomes.on_delivered(batch, base_offset, -1)

    def refuse(self, batch: Batch, code: ErrorCode, *, log_start_offset: int = -1) -> None:
        self.accumulator.outcomes.on_error(
            batch, code, None, self.now_ms, log_start_offset=log_start_offset
        )


def records_of(batch: Batch) -> list[Record]:
    """Read a batch as it would be sent; its checksum must be right."""
    header = parse_header(batch.data)
    verify_crc(batch.data, header)
    return list(iter_records(batch.data, header))


@dataclass
class ProducerMemory:
    """What a broker remembers of one producer: its last batches as (epoch, first, last, offset)."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)


class Partition:
    """The log of one partition and what its leader says to batches."""

    def __init__(self, max_batch_bytes: int = 1 << 30) -> None:
        self.records: list[Record] = []
        self.max_batch_bytes = max_batch_bytes
        self.producers: dict[int, ProducerMemory] = {}

    def append(self, data: bytes | bytearray | memoryview) -> tuple[ErrorCode, int]:
        """Append a batch: (error code, base offset)."""
        header = parse_header(data)
        verify_crc(data, header)
        if header.size_bytes > self.max_batch_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if header.producer_id >= 0:
            code, offset = self._check(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
            )
            if code != ErrorCode.NONE or offset >= 0:
                return code, offset
        base_offset = len(self.records)
        self.records += iter_records(data, header)
        if header.producer_id >= 0:
            memory = self.producers[header.producer_id]
            memory.batches.append((header.base_sequence, header.last_sequence, base_offset))
            del memory.batches[:-5]
        return ErrorCode.NONE, base_offset

    def _check(self, producer_id: int, epoch: int, first: int, last: int) -> tuple[ErrorCode, int]:
        memory = self.producers.get(producer_id)
        if memory is None:  # a producer that is not known may begin anywhere
            self.producers[producer_id] = ProducerMemory(epoch)
            return ErrorCode.NONE, -1
        if epoch < memory.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if epoch > memory.epoch:
            if first:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.producers[producer_id] = ProducerMemory(epoch)
            return ErrorCode.NONE, -1
        for known_first, known_last, offset in memory.batches:
            if (known_first, known_last) == (first, last):
                return ErrorCode.NONE, offset
        if memory.batches and first != (memory.batches[-1][1] + 1) & 0x7FFF_FFFF:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1
