"""What becomes of a producer's batches: delivered, sent again, split or given up.

Rules, as in Kafka's Sender:
1. A batch that fails is sent again while Kafka's clients would (a retriable error, retries left,
   younger than delivery_timeout_ms), after a backoff that grows, and in its old place; at once if
   the partition's leader has changed. MESSAGE_TOO_LARGE splits it.
2. A batch older than delivery_timeout_ms is given up, sent or not. Late answers are ignored.
3. Nothing more of a failed transaction is sent: what waits is given up, and what is in flight is
   not sent again (`transaction_state`).

Sans-IO. Made by: `accumulator`. Called by: `sender`, `transactions/manager`. KIP-91, KIP-360,
KIP-951.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.errors import KafkaClientError, TimedOutError, error_for
from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.buffer_pool import BufferPool
from kraftrio.clients.producer.incomplete import IncompleteBatches
from kraftrio.clients.producer.queues import PartitionQueue, TopicQueues
from kraftrio.clients.producer.schedule import SendSchedule
from kraftrio.clients.producer.sequences import Sequences
from kraftrio.clients.producer.transaction_state import Transactions
from kraftrio.clients.producer.unseen import UnseenFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import BATCH_OVERHEAD


class BatchOutcomes:
    """Decides about the batches of one `Accumulator`, whose parts it is given."""

    def __init__(
        self,
        config: ProducerConfig,
        rng: random.Random,
        topics: Mapping[str, TopicQueues],
        schedule: SendSchedule,
        memory: BufferPool,
        incomplete: IncompleteBatches,
        sequences: Sequences | None,
        transactions: Transactions | None,
    ) -> None:
        self.delivered_records = 0
        self.failed_records = 0
        self._config = config
        self._rng = rng
        self._topics = topics
        self._schedule = schedule
        self._memory = memory
        self._incomplete = incomplete
        self._sequences = sequences
        self._transactions = transactions
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._short_backoff = config.concurrent_transactions_backoff

    # -- answers --------------------------------------------------------------------------------

    def _queue_of(self, batch: Batch) -> PartitionQueue:
        return self._topics[batch.topic].all_queues[batch.partition]

    def on_delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        """A broker has written the batch."""
        queue = self._queue_of(batch)
        self._returned(queue, batch)
        if batch.is_done:
            return
        if self._sequences is not None:
            self._sequences.on_delivered(queue.sequence, batch, base_offset)
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
        self.fail(queue, batch, batch.last_failure, refused=has_retries and not code.retriable)

    def _returned(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.is_sent = False
        queue.is_muted = False
        if queue.batches and queue.batches[0].is_closed:
            self._schedule.add(queue)

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
        if self._transactions is not None and not self._transactions.is_sending:
            return False
        if self._sequences is None:
            return code.retriable
        return self._sequences.may_retry(queue.sequence, batch, code, log_start_offset)

    def _retry(self, queue: PartitionQueue, batch: Batch, code: ErrorCode, now_ms: float) -> None:
        # The previous transaction is still being ended, which takes milliseconds.
        is_brief = code == ErrorCode.CONCURRENT_TRANSACTIONS
        backoff = self._short_backoff if is_brief else self._backoff
        backoff_ms = backoff.jittered(batch.attempts, self._rng)
        batch.attempts += 1
        batch.retry_at_ms = now_ms + backoff_ms
        self._schedule.back_off(queue, batch)
        queue.put_back(batch)
        self._schedule.add(queue)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        """Split a batch that is too large for the broker into parts that are put back."""
        size_bytes = batch.size_bytes
        limit_bytes = min(self._config.batch_size, size_bytes // 2 + BATCH_OVERHEAD)
        queue.topic_queues.ratio = max(1.0, len(batch.data) / size_bytes)
        parts = batch.split(limit_bytes)
        self._incomplete.replace(batch, parts)
        if self._sequences is not None:
            self._sequences.on_split(queue.sequence, batch, parts)
        # The parts together count as much as the whole, or a little more for their headers.
        self._memory.release(batch.reserved_bytes - sum(part.reserved_bytes for part in parts))
        for part in parts:
            queue.put_back(part)
        self._schedule.add(queue)

    # -- the end of batches ---------------------------------------------------------------------

    def _complete(self, batch: Batch) -> None:
        self._incomplete.remove(batch)
        self._memory.release(batch.reserved_bytes)

    def fail(
        self, queue: PartitionQueue, batch: Batch, error: KafkaClientError, *, refused: bool
    ) -> None:
        """Fail a batch.

        Args:
            refused: a broker has refused it for good, so its sequences were not used.
        """
        if self._sequences is not None and batch.has_sequence:
            self._sequences.on_failed(queue.sequence, batch, refused=refused)
        if self._transactions is not None:
            error = self._transactions.on_batch_failed(error, has_sequence=batch.has_sequence)
        self._complete(batch)
        self._end(batch, error)

    def _end(self, batch: Batch, error: KafkaClientError) -> None:
        self.failed_records += batch.record_count
        if self._transactions is None:  # a transaction reports the failure itself
            where = f"{batch.topic}-{batch.partition}"
            batch.unseen = UnseenFailure(where, batch.record_count, error)
        batch.fail(error)

    def give_up_old(self, now_ms: float) -> None:
        """Give up the batches that are older than delivery_timeout_ms."""
        for batch in self._incomplete.older_than(now_ms - self._config.delivery_timeout_ms):
            self._give_up(batch)

    def _take_out(self, batch: Batch) -> PartitionQueue:
        """Take a batch out of its queue, if it waits there; return the queue."""
        queue = self._queue_of(batch)
        if batch is queue.open:
            self._schedule.close(queue)
        if batch in queue.batches:
            queue.batches.remove(batch)
        return queue

    def _give_up(self, batch: Batch) -> None:
        queue = self._take_out(batch)
        because = f": {batch.last_failure}" if batch.last_failure is not None else ""
        if queue.is_gone:
            because = ": the topic was re-created, without that partition"
        error = TimedOutError(
            f"{batch.record_count} record(s) for {queue.topic}-{queue.partition} were not written"
            f" within {self._config.delivery_timeout_ms} ms{because}"
        )
        self.fail(queue, batch, error, refused=False)

    def give_up_waiting(self, error: KafkaClientError) -> None:
        """Give up what is not in flight: the transaction will not be committed."""
        self._drop([batch for batch in self._incomplete if not batch.is_sent], error)

    def give_up_all(self, error: KafkaClientError) -> None:
        """Give up what is in flight, too: its answers do not matter any more."""
        self._drop(list(self._incomplete), error)

    def _drop(self, batches: list[Batch], error: KafkaClientError) -> None:
        for batch in batches:
            self.fail(self._take_out(batch), batch, error, refused=False)

    def abort(self, error: KafkaClientError) -> None:
        """Give up everything: the producer is closed, or can never send."""
        for batch in list(self._incomplete):
            queue = self._queue_of(batch)
            if batch is queue.open:
                self._schedule.close(queue)
            queue.batches.clear()
            self._complete(batch)
            self._end(batch, error)
