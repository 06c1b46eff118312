"""The producer's core: records become batches, batches wait, are sent, sent again or given up.

Owns the queues of all partitions, and leaves to others: when something is sent (`schedule`), what
memory is free (`buffer_pool`), what is not decided yet (`incomplete`), where records without a key
go (`partitioner`), the order of idempotent records (`sequences`) and what belongs to a transaction
(`transactions`). Rules, as in Kafka's
RecordAccumulator and Sender:
1. A batch may be sent when it is full, when it is older than linger_ms, or when somebody flushes or
   waits for memory. Of each partition one batch at a time goes into a request.
2. A batch holds memory from its first record until it ends. Nothing is accepted beyond
   buffer_memory; who has to wait comes back when `grant` says so.
3. A batch that fails is sent again while Kafka's clients would (a retriable error, retries left,
   younger than delivery_timeout_ms), after a backoff that grows, and in its old place; at once if
   the partition's leader has changed. MESSAGE_TOO_LARGE splits it.
   What cannot be encoded fails alone.
4. A batch older than delivery_timeout_ms is given up, sent or not. Late answers are ignored.
5. The size of a batch counts before compression; the ratio seen before says how much fits.
6. Of a transaction that failed nothing is sent any more: what waits is given up, and what is in
   flight is not sent again (`transactions`).
7. A topic that was re-created is the same topic with other partitions: what waits for a partition
   that it still has is written there, what waits for one that is gone waits for it to come back.

Sans-IO: time comes in as milliseconds of a clock that never goes back; leaders come from `update`.
Called by: `producer`. KIP-91, KIP-98, KIP-360, KIP-480, KIP-794, KIP-951.
"""

from __future__ import annotations

import random
from itertools import count

from kraftrio.base.backoff import ExponentialBackoff
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
from kraftrio.clients.producer.buffer_pool import BufferPool
from kraftrio.clients.producer.incomplete import IncompleteBatches
from kraftrio.clients.producer.partitioner import StickyPartitioner, hash_of_key
from kraftrio.clients.producer.queues import NO_LEADER, PartitionQueue, TopicQueues
from kraftrio.clients.producer.schedule import SendSchedule
from kraftrio.clients.producer.sequences import Sequences
from kraftrio.clients.producer.transactional_sequences import TransactionalSequences
from kraftrio.clients.producer.transactions import Transactions
from kraftrio.clients.producer.unseen import UnseenFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.records.batch import BATCH_OVERHEAD


class Accumulator:
    """See the module's text."""

    def __init__(self, config: ProducerConfig, rng: random.Random) -> None:
        self.sequences: Sequences | None = None
        self.transactions: Transactions | None = None
        if config.transactional_id is not None:
            self.sequences = TransactionalSequences()
            self.transactions = Transactions(config.transactional_id)
        elif config.is_idempotent:
            self.sequences = Sequences()
        self.memory = BufferPool(config.buffer_memory)
        self.schedule = SendSchedule()
        self.incomplete = IncompleteBatches()
        self.sticky = StickyPartitioner(
            config.batch_size,
            is_adaptive=config.partitioner_adaptive_partitioning_enable,
            rng=rng,
        )
        self.topics: dict[str, TopicQueues] = {}
        self.wants_metadata = False  # a leader is not known, or not the right one
        self.delivered_records = 0
        self.failed_records = 0
        self.has_dropped = False  # `drain` has given up what cannot be encoded
        self.closed_bytes = 0  # of all batches that were filled
        self._config = config
        self._rng = rng
        self._ignores_keys = config.partitioner_ignore_keys
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._short_backoff = config.concurrent_transactions_backoff
        self._serials = count()

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
            queue = self.sticky.choose(topic)
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

    def queue_without_key(self, topic: TopicQueues, partition: int | None) -> PartitionQueue | None:
        """Return where the next record without a key goes; None: the partition is not there."""
        if partition is None:
            return self.sticky.choose(topic)
        return topic.queues[partition] if 0 <= partition < len(topic.queues) else None

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
        limit_bytes = queue.topic_queues.batch_limit(config.batch_size, config.compression)
        return max(size_bytes, min(limit_bytes, config.buffer_memory))

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
        serial = (next(self._serials),)
        batch = Batch(queue.topic, queue.partition, serial, now_ms, reserved_bytes, reserved_bytes)
        batch.size_bytes += record_bytes
        if headers:
            batch.headers[0] = headers
        batch.values.append(value)
        batch.keys.append(key)
        batch.timestamps.append(timestamp_ms)
        queue.open = batch
        queue.batches.append(batch)
        self.incomplete.add(batch)
        if len(queue.batches) == 1:
            self._linger(queue, batch)
        return Delivery(batch, 0)

    def _close(self, queue: PartitionQueue) -> None:
        """Close the open batch to further records: it may be sent now."""
        batch = queue.open
        if batch is None:
            return
        queue.open = None
        batch.is_closed = True
        batch.record_count = len(batch.values)
        self.closed_bytes += batch.size_bytes
        if queue is queue.topic_queues.sticky:
            queue.topic_queues.sticky_bytes += batch.size_bytes
        self.schedule.add(queue)

    def close_all(self) -> None:
        """Let everything that waits be sent without lingering: somebody flushes."""
        for topic in self.topics.values():
            for queue in topic.all_queues:
                self._close(queue)

    def on_memory_waiters(self, waiters: int) -> None:
        """Somebody waits for memory, or no longer: then nothing lingers."""
        if waiters and not self.memory.waiters:
            self.close_all()
        self.memory.waiters = waiters

    # -- metadata -------------------------------------------------------------------------------

    def update(self, metadata: ClusterMetadata) -> None:
        """Take over who leads which partition, and new partitions."""
        for topic in self.topics.values():
            described = metadata.topics.get(topic.name)
            if described is not None and described.partitions:
                self._update_topic(topic, described)
        self.schedule.leaders_changed()

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
            self.sequences.on_new_log(queue.sequence)

    # -- sending --------------------------------------------------------------------------------

    def poll(self, now_ms: float) -> float:
        """Move on with time: what lingered long enough may be sent, what is too old is given up.

        Returns:
            when to poll again at the latest.
        """
        transactions = self.transactions
        if transactions is not None and transactions.has_failed:
            assert transactions.failure is not None
            self.give_up_waiting(transactions.failure)
        for queue in self.schedule.end_lingering(now_ms):
            self._close(queue)
        self.schedule.end_back_offs(now_ms)
        self.wants_metadata = self.schedule.lacks_leader
        timeout_ms = self._config.delivery_timeout_ms
        for batch in self.incomplete.older_than(now_ms - timeout_ms):
            self._give_up(batch)
        return min(self.incomplete.oldest_ms + timeout_ms, self.schedule.next_due_ms)

    def drain(self, node_id: int, now_ms: float) -> list[Batch]:
        """Take what goes into the next request to a broker: the oldest batch of each partition."""
        queues = self.schedule.queues(node_id)
        transactions = self.transactions
        if not queues or (transactions is not None and not transactions.is_sending):
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
            if self.sequences is not None and not self.sequences.may_send(queue.sequence, batch):
                continue
            if transactions is not None and not transactions.may_send(queue.topic, queue.partition):
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
                    self._linger(queue, queue.batches[0])
        for queue in more:  # last in turn for the next request
            self.schedule.add(queue)
        return batches

    def _linger(self, queue: PartitionQueue, batch: Batch) -> None:
        """An open batch is the first of its queue: let it wait for more records."""
        if self._config.linger_ms and not self.memory.waiters:
            self.schedule.linger(queue, batch, batch.created_ms + self._config.linger_ms)
        else:
            self.schedule.add(queue)

    def _take(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Take the first batch off its queue, ready to be sent; False if it cannot be encoded."""
        if batch is queue.open:
            self._close(queue)
        queue.batches.popleft()
        if self._config.max_in_flight_requests_per_connection == 1:
            queue.is_muted = True
        if self.sequences is not None:
            self.sequences.on_send(queue.sequence, batch)
        if not batch.data:
            try:
                batch.encode(
                    self._config.compression,
                    self._config.compression_level,
                    is_transactional=self.transactions is not None,
                )
            except Exception as error:  # whatever it is, it is of these records alone
                failure = InvalidRecordError(
                    f"{batch.record_count} record(s) for {queue.topic}-{queue.partition} cannot be"
                    f" written: {error!r}"
                )
                queue.is_muted = False
                self.has_dropped = True
                self._fail(queue, batch, failure, refused=True)
                return False
            queue.topic_queues.learn_ratio(len(batch.data) / batch.size_bytes)
            if batch.reserved_bytes > batch.size_bytes:
                self.memory.release(batch.reserved_bytes - batch.size_bytes)
                batch.reserved_bytes = batch.size_bytes
        if self.transactions is not None:
            self.transactions.on_sent()
        batch.is_sent = True
        batch.leader_epoch = queue.leader_epoch
        return True

    # -- answers --------------------------------------------------------------------------------

    def _queue_of(self, batch: Batch) -> PartitionQueue:
        return self.topics[batch.topic].all_queues[batch.partition]

    def on_delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        """A broker has the batch."""
        queue = self._queue_of(batch)
        self._returned(queue, batch)
        if batch.is_done:
            return
        if self.sequences is not None:
            self.sequences.on_delivered(queue.sequence, batch, base_offset)
        self._complete(batch)
        self.delivered_records += batch.record_count
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
        queue = self._queue_of(batch)
        self._returned(queue, batch)
        if batch.is_done:
            return
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._split(queue, batch)
            return
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # It was written, but so long ago that the broker no longer knows where.
            self.on_delivered(batch, -1, -1)
            return
        batch.last_failure = error_for(code, message)
        if self._may_retry(queue, batch, code, now_ms, log_start_offset):
            self._retry(queue, batch, code, now_ms)
            return
        has_retries = batch.attempts < self._config.retries
        self._fail(queue, batch, batch.last_failure, refused=has_retries and not code.retriable)

    def _returned(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.is_sent = False
        queue.is_muted = False
        if queue.batches and queue.batches[0].is_closed:
            self.schedule.add(queue)

    def _may_retry(
        self,
        queue: PartitionQueue,
        batch: Batch,
        code: ErrorCode,
        now_ms: float,
        log_start_offset: int,
    ) -> bool:
        if now_ms - batch.created_ms >= self._config.delivery_timeout_ms:
            return False
        if batch.attempts >= self._config.retries:
            return False
        if self.transactions is not None and not self.transactions.is_sending:
            return False
        if self.sequences is None:
            return code.retriable
        return self.sequences.may_retry(queue.sequence, batch, code, log_start_offset)

    def _retry(self, queue: PartitionQueue, batch: Batch, code: ErrorCode, now_ms: float) -> None:
        # The transaction before is still being ended, which is a matter of milliseconds.
        is_brief = code == ErrorCode.CONCURRENT_TRANSACTIONS
        backoff = self._short_backoff if is_brief else self._backoff
        backoff_ms = backoff.jittered(batch.attempts, self._rng)
        batch.attempts += 1
        batch.retry_at_ms = now_ms + backoff_ms
        self.schedule.back_off(queue, batch)
        queue.put_back(batch)
        self.schedule.add(queue)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        """Make batches that a broker takes of one that is too large for it."""
        size_bytes = batch.size_bytes
        limit_bytes = min(self._config.batch_size, size_bytes // 2 + BATCH_OVERHEAD)
        queue.topic_queues.ratio = max(1.0, len(batch.data) / size_bytes)
        parts = batch.split(limit_bytes)
        self.incomplete.replace(batch, parts)
        if self.sequences is not None:
            self.sequences.on_split(queue.sequence, batch, parts)
        # The parts together count as much as the whole, or a little more for their headers.
        self.memory.release(batch.reserved_bytes - sum(part.reserved_bytes for part in parts))
        for part in parts:
            queue.put_back(part)
        self.schedule.add(queue)

    # -- the end of batches ---------------------------------------------------------------------

    def _complete(self, batch: Batch) -> None:
        self.incomplete.remove(batch)
        self.memory.release(batch.reserved_bytes)

    def _fail(
        self, queue: PartitionQueue, batch: Batch, error: KafkaClientError, *, refused: bool
    ) -> None:
        if self.sequences is not None and batch.has_sequence:
            self.sequences.on_failed(queue.sequence, batch, refused=refused)
        if self.transactions is not None:
            error = self.transactions.on_batch_failed(error, has_sequence=batch.has_sequence)
        self._complete(batch)
        self._end(batch, error)

    def _end(self, batch: Batch, error: KafkaClientError) -> None:
        self.failed_records += batch.record_count
        if self.transactions is None:  # which tells of all of its records
            where = f"{batch.topic}-{batch.partition}"
            batch.unseen = UnseenFailure(where, batch.record_count, error)
        batch.fail(error)

    def _give_up(self, batch: Batch) -> None:
        queue = self._queue_of(batch)
        if batch is queue.open:
            self._close(queue)
        if batch in queue.batches:
            queue.batches.remove(batch)
        because = f": {batch.last_failure}" if batch.last_failure is not None else ""
        if queue.is_gone:
            because = ": the topic was re-created, without that partition"
        error = TimedOutError(
            f"{batch.record_count} record(s) for {queue.topic}-{queue.partition} were not written"
            f" within {self._config.delivery_timeout_ms} ms{because}"
        )
        self._fail(queue, batch, error, refused=False)

    def give_up_waiting(self, error: KafkaClientError) -> None:
        """Give up what is not in flight: the transaction is not to be committed."""
        self._drop([batch for batch in self.incomplete if not batch.is_sent], error)

    def give_up_all(self, error: KafkaClientError) -> None:
        """Give up what is in flight, too: its answers do not matter any more."""
        self._drop(list(self.incomplete), error)

    def _drop(self, batches: list[Batch], error: KafkaClientError) -> None:
        for batch in batches:
            queue = self._queue_of(batch)
            if batch is queue.open:
                self._close(queue)
            if batch in queue.batches:
                queue.batches.remove(batch)
            self._fail(queue, batch, error, refused=False)

    def abort(self, error: KafkaClientError) -> None:
        """Give up everything: the producer ends."""
        for batch in list(self.incomplete):
            queue = self._queue_of(batch)
            if batch is queue.open:
                self._close(queue)
            queue.batches.clear()
            self._complete(batch)
            self._end(batch, error)
