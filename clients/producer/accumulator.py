"""The producer's core: records become batches, batches wait, are sent, sent again or given up.

Owns the queues of all partitions, the memory of the producer and its `Sequences`. Rules, as in
Kafka's RecordAccumulator and Sender:
1. A batch may be sent when it is full, when it is older than linger_ms, or when somebody flushes or
   waits for memory. Of each partition one batch at a time goes into a request.
2. A batch holds memory from its first record until it ends. Nothing is accepted beyond
   buffer_memory; who has to wait comes back when `grant` says so.
3. A batch that fails is sent again while Kafka's clients would (a retriable error, retries left,
   younger than delivery_timeout_ms), after a backoff that grows, and in its old place; at once if
   the partition's leader has changed. MESSAGE_TOO_LARGE splits it.
   What cannot be encoded fails alone.
4. A batch older than delivery_timeout_ms is given up, sent or not. Late answers are ignored.
5. The size of a batch counts before compression; what was compressed before tells how much fits.
6. A topic that was made anew is the same topic with other partitions: what waits for a partition
   that it still has is written there, what waits for one that is gone waits for it to come back.

Sans-IO: time comes in as milliseconds of a clock that never goes back; leaders come from `update`.
Called by: `producer`. KIP-91, KIP-98, KIP-360, KIP-480, KIP-794, KIP-951.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection
from heapq import heappop, heappush
from itertools import count
from math import inf

from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.errors import (
    InvalidRecordError,
    KafkaClientError,
    RecordTooLargeError,
    TimedOutError,
    error_for,
)
from kraftrio.clients.metadata import ClusterMetadata, TopicMetadata, is_another
from kraftrio.clients.producer.batch import (
    LONG_BYTES,
    RECORD_OVERHEAD_BYTES,
    SHORT_BYTES,
    Batch,
    Delivery,
    Headers,
    headers_size,
)
from kraftrio.clients.producer.partitioner import draw_partition, hash_of_key
from kraftrio.clients.producer.sequences import PartitionSequence, Sequences
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.records.batch import BATCH_OVERHEAD
from kraftrio.wire.records.compression import Compression

NO_LEADER = -1

# How the estimate of a topic's compression ratio follows what is seen (Kafka's constants).
_RATIO_STEP_DOWN = 0.005
_RATIO_STEP_UP = 0.05
_LEAST_RATIO = 0.05


class PartitionQueue:
    """What waits for one partition, and who leads it."""

    __slots__ = (
        "batches",
        "is_muted",
        "leader_epoch",
        "leader_id",
        "open",
        "partition",
        "sequence",
        "topic",
        "topic_queues",
    )

    def __init__(self, topic_queues: TopicQueues, topic: str, partition: int) -> None:
        self.topic_queues = topic_queues
        self.topic = topic
        self.partition = partition
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.batches: deque[Batch] = deque()  # waiting, the oldest first
        self.open: Batch | None = None  # the last of them, if it takes more records
        self.is_muted = False  # one batch is out and no other may be
        self.sequence = PartitionSequence()


class TopicQueues:
    """The partitions of one topic and what its records without a key go by."""

    __slots__ = (
        "all_queues",
        "name",
        "queues",
        "ratio",
        "sticky",
        "sticky_bytes",
        "topic_id",
        "used_ms",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = ZERO_UUID
        self.used_ms = 0.0  # when it was last said that it is in use
        self.queues: list[PartitionQueue] = []  # of the partitions it has
        self.all_queues: list[PartitionQueue] = []  # and of those it had before it was made anew
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0  # that went there
        self.ratio = 1.0  # compressed to uncompressed, as expected

    def resize(self, partition_count: int) -> None:
        """Have so many partitions."""
        if partition_count == len(self.queues):
            return
        for index in range(len(self.all_queues), partition_count):
            self.all_queues.append(PartitionQueue(self, self.name, index))
        self.queues = self.all_queues[:partition_count]
        if self.sticky not in self.queues:
            self.sticky = None


class Accumulator:
    """See the module's text.

    Args:
        now_ms: of the clock that all times come from.
    """

    def __init__(self, config: ProducerConfig, rng: random.Random) -> None:
        self.sequences: Sequences | None = Sequences() if config.is_idempotent else None
        self.free_bytes = config.buffer_memory
        self.topics: dict[str, TopicQueues] = {}
        self.incomplete: dict[Batch, None] = {}  # by age, but for parts of batches
        self.wants_metadata = False  # a leader is not known, or not the right one
        self.wants_sender = False  # something may be sent since it was looked at last
        self.has_dropped = False  # `drain` has given up what cannot be encoded
        self.closed_bytes = 0  # of all batches that were filled
        self.slow_nodes: set[int] = set()  # that took nothing for partitioner_availability_timeout
        self._config = config
        self._rng = rng
        self._ignores_keys = config.partitioner_ignore_keys
        self._compression = config.compression
        self._level = config.compression_level
        self._serials = count()
        self._sendable: dict[int, dict[PartitionQueue, None]] = {}  # by leader
        self._lingering: list[tuple[float, int, Batch]] = []
        self._backing_off: list[tuple[float, int, Batch]] = []
        self._parts: dict[Batch, None] = {}  # of split batches: not by age
        self._waiters = 0

    # -- accepting records ----------------------------------------------------------------------

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> Delivery | PartitionQueue:
        """Put a record into the open batch of its partition.

        Returns:
            its delivery, or, if no batch is open that takes it, the queue for `append_to_new`.
        """
        if partition is not None:
            queue = topic.queues[partition]
        elif key is not None and not self._ignores_keys:
            queue = topic.queues[hash_of_key(key) % len(topic.queues)]
        else:
            queue = topic.sticky or self._draw(topic)
            if queue.open is None and topic.sticky_bytes >= self._config.batch_size:
                queue = self._draw(topic)
        batch = queue.open
        if batch is None:
            return queue
        # As record_size, which would cost a call.
        size_bytes = batch.size_bytes + RECORD_OVERHEAD_BYTES
        if value is not None:
            size_bytes += length if (length := len(value)) <= SHORT_BYTES else length + LONG_BYTES
        if key is not None:
            size_bytes += length if (length := len(key)) <= SHORT_BYTES else length + LONG_BYTES
        if headers:
            size_bytes += headers_size(headers)
        if size_bytes > batch.limit_bytes:
            self._close(queue)
            return self.append(topic, partition, key, value, headers, timestamp_ms)
        batch.size_bytes = size_bytes
        values = batch.values
        index = len(values)
        if headers:
            batch.headers[index] = headers
        values.append(value)
        batch.keys.append(key)
        batch.timestamps.append(timestamp_ms)
        return Delivery(batch, index)

    def memory_for(self, queue: PartitionQueue, record_bytes: int) -> int:
        """Return how much memory a new batch takes that begins with a record of this size.

        Raises:
            RecordTooLargeError: the record is larger than max_request_size or buffer_memory.
        """
        config = self._config
        size_bytes = BATCH_OVERHEAD + record_bytes
        if size_bytes > config.max_request_size or size_bytes > config.buffer_memory:
            limit = "max_request_size"
            if size_bytes <= config.max_request_size:
                limit = "buffer_memory"
            raise RecordTooLargeError(
                f"the record takes {size_bytes} bytes, but {limit} is {getattr(config, limit)}"
            )
        return max(size_bytes, min(self._batch_limit(queue.topic_queues), config.buffer_memory))

    def append_to_new(
        self,
        queue: PartitionQueue,
        reserved_bytes: int,
        record_bytes: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: float,
    ) -> Delivery:
        """Open a batch with memory that was reserved for it, and put a record into it."""
        assert queue.open is None, "a partition has one open batch at most"
        batch = Batch(queue, (next(self._serials),), now_ms, reserved_bytes, reserved_bytes)
        batch.size_bytes += record_bytes
        if headers:
            batch.headers[0] = headers
        batch.values.append(value)
        batch.keys.append(key)
        batch.timestamps.append(timestamp_ms)
        queue.open = batch
        queue.batches.append(batch)
        self.incomplete[batch] = None
        if len(queue.batches) == 1:
            self._linger(batch)
        return Delivery(batch, 0)

    def _batch_limit(self, topic: TopicQueues) -> int:
        if self._compression is Compression.NONE:
            return self._config.batch_size
        # Five per cent of margin: a batch shall rather be a little smaller than wanted.
        return int(self._config.batch_size / max(topic.ratio * 1.05, _LEAST_RATIO))

    def _close(self, queue: PartitionQueue) -> None:
        """Let the open batch take no more records: it may be sent now."""
        batch = queue.open
        if batch is None:
            return
        queue.open = None
        batch.is_closed = True
        batch.record_count = len(batch.values)
        self.closed_bytes += batch.size_bytes
        if queue is queue.topic_queues.sticky:
            queue.topic_queues.sticky_bytes += batch.size_bytes
        self._make_sendable(queue)

    def close_all(self) -> None:
        """Let everything that waits be sent without lingering: somebody flushes."""
        for topic in self.topics.values():
            for queue in topic.all_queues:
                self._close(queue)

    def _draw(self, topic: TopicQueues) -> PartitionQueue:
        """Choose the partition for the next records without a key."""
        topic.sticky_bytes = 0
        if len(topic.queues) == 1:
            topic.sticky = topic.queues[0]
            return topic.sticky
        led = [queue for queue in topic.queues if queue.leader_id != NO_LEADER] or topic.queues
        if self.slow_nodes:
            led = [queue for queue in led if queue.leader_id not in self.slow_nodes] or led
        waiting = None
        if self._config.partitioner_adaptive_partitioning_enable:
            waiting = [len(queue.batches) for queue in led]
        topic.sticky = led[draw_partition(range(len(led)), waiting, self._rng)]
        return topic.sticky

    # -- memory ---------------------------------------------------------------------------------

    def reserve(self, size_bytes: int) -> bool:
        """Take memory if there is as much and nobody waits for it."""
        if self._waiters or size_bytes > self.free_bytes:
            return False
        self.free_bytes -= size_bytes
        return True

    def grant(self, size_bytes: int) -> bool:
        """Take memory for the first of those that wait."""
        if size_bytes > self.free_bytes:
            return False
        self.free_bytes -= size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give memory back that no batch holds."""
        self.free_bytes += size_bytes

    def on_memory_waiters(self, waiters: int) -> None:
        """Somebody waits for memory, or no longer: then nothing lingers."""
        if waiters and not self._waiters:
            self.close_all()
        self._waiters = waiters

    # -- metadata -------------------------------------------------------------------------------

    def update(self, metadata: ClusterMetadata) -> None:
        """Take over who leads which partition, and new partitions."""
        for topic in self.topics.values():
            described = metadata.topics.get(topic.name)
            if described is not None and described.partitions:
                self._update_topic(topic, described)
        waiting = [queue for queues in self._sendable.values() for queue in queues]
        self._sendable.clear()
        for queue in waiting:
            self._make_sendable(queue)
        for _, _, batch in self._backing_off:
            if not batch.is_done and batch.leader_epoch < batch.queue.leader_epoch:
                self._make_sendable(batch.queue)  # a new leader is asked at once

    def add_topic(self, described: TopicMetadata) -> TopicQueues:
        """Begin to accept records for a topic; it has partitions."""
        topic = self.topics[described.name] = TopicQueues(described.name)
        self._update_topic(topic, described)
        return topic

    def _update_topic(self, topic: TopicQueues, described: TopicMetadata) -> None:
        partition_count = max(described.partitions) + 1
        if is_another(described.topic_id, topic.topic_id):
            for queue in topic.all_queues:
                self._begin_new_log(queue)
        elif described.topic_id != ZERO_UUID:
            # A broker that is behind may not know of all partitions yet: none is ever taken away.
            partition_count = max(partition_count, len(topic.queues))
        topic.topic_id = described.topic_id
        topic.resize(partition_count)
        for queue in topic.all_queues:
            partition = described.partitions.get(queue.partition)
            queue.leader_id = NO_LEADER if partition is None else partition.leader_id
            if partition is not None:
                queue.leader_epoch = partition.leader_epoch

    def _begin_new_log(self, queue: PartitionQueue) -> None:
        """The partition is another topic's now, whose leader epochs begin again."""
        for batch in queue.batches:
            batch.leader_epoch = -1
        if self.sequences is not None:
            self.sequences.on_new_log(queue)

    # -- sending --------------------------------------------------------------------------------

    def _make_sendable(self, queue: PartitionQueue) -> None:
        self._sendable.setdefault(queue.leader_id, {})[queue] = None
        self.wants_sender = True

    def poll(self, now_ms: float) -> float:
        """Move on with time: what lingered long enough may be sent, what is too old is given up.

        Returns:
            when to poll again at the latest.
        """
        lingering = self._lingering
        # Batches that were filled before stay in the heap until they are due: else each new batch
        # would be the only one, and wake the sender.
        while lingering and lingering[0][0] <= now_ms:
            batch = heappop(lingering)[2]
            if not batch.is_closed:
                self._close(batch.queue)
        backing_off = self._backing_off
        while backing_off and (backing_off[0][0] <= now_ms or backing_off[0][2].is_done):
            batch = heappop(backing_off)[2]
            if not batch.is_done:
                self._make_sendable(batch.queue)
        self.wants_metadata = bool(self._sendable.get(NO_LEADER))
        return min(self._expire(now_ms), self.next_due_ms)

    @property
    def next_due_ms(self) -> float:
        """When the next batch has waited long enough: draining may bring one closer."""
        next_ms = self._lingering[0][0] if self._lingering else inf
        return min(next_ms, self._backing_off[0][0]) if self._backing_off else next_ms

    def nodes(self) -> list[int]:
        """Return the leaders that something may be sent to."""
        self.wants_sender = False
        return [node_id for node_id, queues in self._sendable.items() if queues and node_id >= 0]

    def is_waiting(self, node_id: int) -> bool:
        """Whether there is something for a broker that must not be sent yet."""
        return bool(self._sendable.get(node_id))

    def drain(self, node_id: int, now_ms: float) -> list[Batch]:
        """Take what goes into the next request to a broker: the oldest batch of each partition."""
        queues = self._sendable.get(node_id)
        if not queues:
            return []
        batches: list[Batch] = []
        size_bytes = 0
        more: list[PartitionQueue] = []
        for queue in list(queues):
            batch = queue.batches[0] if queue.batches else None
            if batch is None:
                del queues[queue]
                continue
            if batch.retry_at_ms > now_ms and batch.leader_epoch >= queue.leader_epoch:
                del queues[queue]  # `poll` brings it back when its backoff is over
                continue
            if queue.is_muted:
                continue
            if self.sequences is not None and not self.sequences.may_send(queue, batch):
                continue
            if batches and size_bytes + batch.size_bytes > self._config.max_request_size:
                break
            if self._take(queue, batch):
                size_bytes += len(batch.data)
                batches.append(batch)
            del queues[queue]
            if queue.batches:
                if queue.batches[0].is_closed:
                    more.append(queue)
                else:
                    self._linger(queue.batches[0])
        for queue in more:  # last in turn for the next request
            self._make_sendable(queue)
        return batches

    def _linger(self, batch: Batch) -> None:
        """An open batch is the first of its queue: let it wait for more records."""
        if self._config.linger_ms and not self._waiters:
            due_ms = batch.created_ms + self._config.linger_ms
            heappush(self._lingering, (due_ms, next(self._serials), batch))
        else:
            self._make_sendable(batch.queue)

    def _take(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Take the first batch off its queue, ready to be sent; False if it cannot be encoded."""
        if batch is queue.open:
            self._close(queue)
        queue.batches.popleft()
        if self._config.max_in_flight_requests_per_connection == 1:
            queue.is_muted = True
        if self.sequences is not None:
            self.sequences.on_send(queue, batch)
        if not batch.data:
            try:
                batch.encode(self._compression, self._level)
            except Exception as error:  # whatever it is, it is of these records alone
                failure = InvalidRecordError(
                    f"{batch.record_count} record(s) for {queue.topic}-{queue.partition} cannot be"
                    f" written: {error!r}"
                )
                queue.is_muted = False
                self.has_dropped = True
                self._fail(batch, failure, refused=True)
                return False
            self._learn_ratio(queue.topic_queues, len(batch.data) / batch.size_bytes)
            if batch.reserved_bytes > batch.size_bytes:
                self.release(batch.reserved_bytes - batch.size_bytes)
                batch.reserved_bytes = batch.size_bytes
        batch.is_sent = True
        batch.leader_epoch = queue.leader_epoch
        return True

    def _learn_ratio(self, topic: TopicQueues, seen: float) -> None:
        if seen > topic.ratio:
            topic.ratio = max(topic.ratio + _RATIO_STEP_UP, seen)
        else:
            topic.ratio = max(topic.ratio - _RATIO_STEP_DOWN, seen)

    # -- answers --------------------------------------------------------------------------------

    def on_delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        """A broker has the batch."""
        self._returned(batch)
        if batch.is_done:
            return
        if self.sequences is not None:
            self.sequences.on_delivered(batch.queue, batch, base_offset)
        self._complete(batch)
        batch.deliver(base_offset, log_append_time_ms)

    def on_error(
        self,
        batch: Batch,
        code: ErrorCode,
        message: str | None,
        now_ms: float,
        *,
        log_start_offset: int = -1,
    ) -> None:
        """A batch was refused, or its answer did not come."""
        self._returned(batch)
        if batch.is_done:
            return
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._split(batch)
            return
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # It was written, but so long ago that the broker no longer knows where.
            self.on_delivered(batch, -1, -1)
            return
        batch.last_failure = error_for(code, message)
        if self._may_retry(batch, code, now_ms, log_start_offset):
            self._retry(batch, now_ms)
            return
        has_retries = batch.attempts < self._config.retries
        self._fail(batch, batch.last_failure, refused=has_retries and not code.retriable)

    def _returned(self, batch: Batch) -> None:
        batch.is_sent = False
        batch.queue.is_muted = False
        if batch.queue.batches and batch.queue.batches[0].is_closed:
            self._make_sendable(batch.queue)

    def _may_retry(
        self, batch: Batch, code: ErrorCode, now_ms: float, log_start_offset: int
    ) -> bool:
        if now_ms - batch.created_ms >= self._config.delivery_timeout_ms:
            return False
        if batch.attempts >= self._config.retries:
            return False
        if self.sequences is None:
            return code.retriable
        return self.sequences.may_retry(batch.queue, batch, code, log_start_offset)

    def _retry(self, batch: Batch, now_ms: float) -> None:
        config = self._config
        backoff_ms = min(
            config.retry_backoff_ms * 2.0 ** min(batch.attempts, 30),
            float(config.retry_backoff_max_ms),
        )
        batch.attempts += 1
        batch.retry_at_ms = now_ms + backoff_ms * self._rng.uniform(0.8, 1.2)
        # From now on `poll` counts with it, whoever looks at the queue before it is due.
        heappush(self._backing_off, (batch.retry_at_ms, next(self._serials), batch))
        self._put_back([batch])

    def _put_back(self, returned: Collection[Batch]) -> None:
        """Put batches to where they were among those that wait."""
        for batch in returned:
            waiting = batch.queue.batches
            index = 0
            while index < len(waiting) and waiting[index].serial < batch.serial:
                index += 1
            waiting.insert(index, batch)
            self._make_sendable(batch.queue)

    def _split(self, batch: Batch) -> None:
        """Make batches that a broker takes of one that is too large for it."""
        topic = batch.queue.topic_queues
        size_bytes = batch.size_bytes
        limit_bytes = min(self._config.batch_size, size_bytes // 2 + BATCH_OVERHEAD)
        topic.ratio = max(1.0, len(batch.data) / size_bytes)
        del self.incomplete[batch]
        self._parts.pop(batch, None)
        parts = batch.split(limit_bytes)
        if self.sequences is not None:
            self.sequences.on_split(batch.queue, batch, parts)
        # The parts together count as much as the whole, or a little more for their headers.
        self.free_bytes += batch.reserved_bytes - sum(part.reserved_bytes for part in parts)
        for part in parts:
            self.incomplete[part] = None
            self._parts[part] = None
        self._put_back(parts)

    # -- the end of batches ---------------------------------------------------------------------

    def _complete(self, batch: Batch) -> None:
        del self.incomplete[batch]
        self._parts.pop(batch, None)
        self.free_bytes += batch.reserved_bytes

    def _fail(self, batch: Batch, error: KafkaClientError, *, refused: bool) -> None:
        if self.sequences is not None and batch.has_sequence:
            self.sequences.on_failed(batch.queue, batch, refused=refused)
        self._complete(batch)
        batch.fail(error)

    def _expire(self, now_ms: float) -> float:
        """Give up what is too old; return when the next batch will be."""
        timeout_ms = self._config.delivery_timeout_ms
        limit_ms = now_ms - timeout_ms
        for batch in [part for part in self._parts if part.created_ms <= limit_ms]:
            self._give_up(batch)
        next_ms = min([part.created_ms for part in self._parts], default=inf)
        while self.incomplete:
            oldest = next(iter(self.incomplete))
            if oldest.created_ms > limit_ms:
                next_ms = min(next_ms, oldest.created_ms)
                break
            self._give_up(oldest)
        return next_ms + timeout_ms

    def _give_up(self, batch: Batch) -> None:
        queue = batch.queue
        if batch is queue.open:
            self._close(queue)
        if batch in queue.batches:
            queue.batches.remove(batch)
        because = f": {batch.last_failure}" if batch.last_failure is not None else ""
        if queue.partition >= len(queue.topic_queues.queues):
            because = ": the topic was made anew, without that partition"
        error = TimedOutError(
            f"{batch.record_count} record(s) for {queue.topic}-{queue.partition} were not written"
            f" within {self._config.delivery_timeout_ms} ms{because}"
        )
        self._fail(batch, error, refused=False)

    def abort(self, error: KafkaClientError) -> None:
        """Give up everything: the producer ends."""
        for batch in list(self.incomplete):
            if batch is batch.queue.open:
                self._close(batch.queue)
            batch.queue.batches.clear()
            self._complete(batch)
            batch.fail(error)
