"""The producer's core: records become batches, and batches wait until they are sent.

Owns the queues of all partitions. Other modules decide when batches are sent (`schedule`), what
answers mean for them (`outcomes`), what memory is free (`buffer_pool`), where records without a key
go (`partitioner`), the order of idempotent records (`sequences`) and what belongs to a transaction
(`transaction_state`); `incomplete` holds the batches without a result. Rules, as in Kafka's
RecordAccumulator and Sender:
1. A batch may be sent when it is full, when it is older than linger_ms, or when somebody flushes or
   waits for memory. A request has one batch of a partition at most.
2. A batch holds memory from its first record until it ends. Nothing is accepted beyond
   buffer_memory; a call that has to wait goes on when `BufferPool.grant` gives it memory.
3. A batch that cannot be encoded fails alone.
4. The size of a batch counts before compression; the compression ratio of the topic's earlier
   batches decides how much fits.
5. A topic that was re-created is the same topic with other partitions: what waits for a partition
   that it still has is written there, what waits for one that is gone waits for it to come back.

Sans-IO: time comes in as milliseconds of a monotonic clock; leaders come in by `update`.
Called by: `producer`. KIP-91, KIP-98, KIP-360, KIP-480, KIP-794, KIP-951.
"""

from __future__ import annotations

import random
from itertools import count

from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.errors import (
    InvalidRecordError,
    RecordTooLargeError,
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
from kraftrio.clients.producer.outcomes import BatchOutcomes
from kraftrio.clients.producer.partitioner import StickyPartitioner, hash_of_key
from kraftrio.clients.producer.queues import NO_LEADER, PartitionQueue, TopicQueues
from kraftrio.clients.producer.schedule import SendSchedule
from kraftrio.clients.producer.sequences import Sequences
from kraftrio.clients.producer.transaction_state import Transactions
from kraftrio.clients.producer.transactional_sequences import TransactionalSequences
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.records.batch import BATCH_OVERHEAD


class Accumulator:
    """See the module."""

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
        self.has_dropped = False  # `drain` has failed a batch that cannot be encoded
        self.outcomes = BatchOutcomes(
            config,
            rng,
            self.topics,
            self.schedule,
            self.memory,
            self.incomplete,
            self.sequences,
            self.transactions,
        )
        self._config = config
        self._ignores_keys = config.partitioner_ignore_keys
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
            self.schedule.close(queue)
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
        """Return where the next record without a key goes; None: the partition is not known."""
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

    def close_all(self) -> None:
        """Close all open batches, so that everything is sent without lingering."""
        for topic in self.topics.values():
            for queue in topic.all_queues:
                self.schedule.close(queue)

    def on_memory_waiters(self, waiters: int) -> None:
        """Set how many sends wait for memory; while some do, no batch lingers."""
        if waiters and not self.memory.waiters:
            self.close_all()
        self.memory.waiters = waiters

    # -- metadata -------------------------------------------------------------------------------

    def update(self, metadata: ClusterMetadata) -> None:
        """Apply new metadata: leaders, new partitions, topics that were re-created."""
        for topic in self.topics.values():
            described = metadata.topics.get(topic.name)
            if described is not None and described.partitions:
                self._update_topic(topic, described)
        self.schedule.leaders_changed()

    def add_topic(self, described: TopicMetadata) -> TopicQueues:
        """Begin to accept records for a topic, whose metadata has partitions."""
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
        """Do what is due: batches that lingered long enough may be sent, too old ones are given up.

        Returns:
            when to poll again at the latest.
        """
        transactions = self.transactions
        if transactions is not None and transactions.has_failed:
            assert transactions.failure is not None
            self.outcomes.give_up_waiting(transactions.failure)
        for queue in self.schedule.end_lingering(now_ms):
            self.schedule.close(queue)
        self.schedule.end_back_offs(now_ms)
        self.wants_metadata = self.schedule.lacks_leader
        self.outcomes.give_up_old(now_ms)
        oldest_ms = self.incomplete.oldest_ms
        return min(oldest_ms + self._config.delivery_timeout_ms, self.schedule.next_due_ms)

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
        """An open batch is the first of its queue: let it linger, or be sent without linger_ms."""
        if self._config.linger_ms and not self.memory.waiters:
            self.schedule.linger(queue, batch, batch.created_ms + self._config.linger_ms)
        else:
            self.schedule.add(queue)

    def _take(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Take the first batch off its queue, and encode it; False if that is impossible."""
        if batch is queue.open:
            self.schedule.close(queue)
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
            except Exception as error:  # whatever it is, it concerns these records alone
                failure = InvalidRecordError(
                    f"{batch.record_count} record(s) for {queue.topic}-{queue.partition} cannot be"
                    f" written: {error!r}"
                )
                queue.is_muted = False
                self.has_dropped = True
                self.outcomes.fail(queue, batch, failure, refused=True)
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
