"""The producer: `async with Producer("localhost:9092") as producer`.

Owns what programs call; the core is `accumulator`, the task behind it `sender`. Rules:
1. `send` puts a record into its batch and returns its `Delivery`, which may be awaited or not.
   It waits only while the topic is not known yet or the buffer is full, max_block_ms at most.
2. A `send` that is cancelled or raises has accepted nothing; one that returns has accepted the
   record, which is then delivered or given up, and its `Delivery` says which.
3. Leaving `async with` waits until every record is written or given up. Leaving it cancelled gives
   up what is not written yet: its deliveries raise `ClosedError`.
4. A program that only sends lets other tasks run at least every _YIELD_BYTES.
5. With a transactional_id records are accepted in a transaction only (`transactions`); entering
   `async with` fences every other producer of that id, and leaving it aborts what is open.

Names and defaults of the settings are those of the Java producer in snake_case. Kafka
documentation, "Producer API".
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Generic, Self, Unpack

import trio

from kraftrio.base.background import run_aside
from kraftrio.base.clock import wall_ms
from kraftrio.clients import surroundings
from kraftrio.clients.arguments.times import Moment, moment_ms
from kraftrio.clients.arguments.values import (
    MAX_INT32,
    HeadersLike,
    check_function,
    content,
    text,
    whole_number,
)
from kraftrio.clients.arguments.values import headers as as_headers
from kraftrio.clients.cluster import Cluster, open_cluster, open_shielded_cluster
from kraftrio.clients.config import (
    ProducerConfig,
    ProducerSettings,
    describe_client,
    fit_delivery_timeout,
    make_config,
)
from kraftrio.clients.diagnostics.open_clients import noted_as_open
from kraftrio.clients.diagnostics.statistics import ProducerStatistics
from kraftrio.clients.errors import (
    BufferExhaustedError,
    ClosedError,
    KafkaClientError,
    TimedOutError,
    TransactionStateError,
    UnknownTopicOrPartitionError,
)
from kraftrio.clients.producer.accumulator import Accumulator
from kraftrio.clients.producer.batch import (
    RECORD_OVERHEAD_BYTES,
    SHORT_BYTES,
    Batch,
    Delivery,
    Headers,
    RecordMetadata,
    record_size,
    wait_batch,
)
from kraftrio.clients.producer.bulk import Values
from kraftrio.clients.producer.queues import PartitionQueue, TopicQueues
from kraftrio.clients.producer.sender import Sender
from kraftrio.clients.producer.transactions.manager import TransactionManager
from kraftrio.clients.producer.transactions.transaction import Transaction
from kraftrio.clients.serialization import K, Serializer, V
from kraftrio.net.transport import Network

__all__ = ["Delivery", "Producer", "RecordMetadata", "Transaction"]

_USE_TOPIC_EVERY_MS = 1_000
_YIELD_BYTES = 64 << 10


class _MemoryWaiter:
    """A `send` that waits for room in the buffer."""

    __slots__ = ("event", "granted", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.event = trio.Event()
        self.granted = False


class Producer(Generic[K, V]):
    """Sends records; to be entered with `async with`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such.
        key_serializer: makes bytes of a key; None: keys are bytes. See `serialization`.
        value_serializer: the same for values.
        network: makes connections, instead of the system's sockets.
        rng: source of randomness, for tests that must be repeatable.
        settings: see `ProducerConfig`.

    Raises:
        ConfigError: a setting is wrong.
        TypeError: a serializer is not a function.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        network: Network | None = None,
        rng: random.Random | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self.config = make_config(ProducerConfig, bootstrap_servers, fit_delivery_timeout(settings))
        check_function("key_serializer", key_serializer)
        check_function("value_serializer", value_serializer)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._network = network
        self._rng = rng or surroundings.chance.get()()
        self._core = Accumulator(self.config, self._rng)
        self._memory = self._core.memory
        self._schedule = self._core.schedule
        self._topics = self._core.topics
        self._partitioner = self.config.partitioner
        self._stack = AsyncExitStack()
        self._cluster: Cluster | None = None
        self._sender: Sender | None = None
        self._transactions: TransactionManager | None = None
        self._is_open = False
        # Open, and without a partitioner or serializers of the program's own.
        self._is_plain = False
        self._yield_at = 0
        self._waiters: deque[_MemoryWaiter] = deque()

    def __repr__(self) -> str:
        return describe_client(self, self.config, is_open=self._is_open)

    async def __aenter__(self) -> Self:
        assert self._cluster is None, "a producer is entered once"
        config, is_transactional = self.config, self.config.transactional_id is not None
        # A task that is cancelled in a transaction still aborts it.
        open_tasks = open_shielded_cluster if is_transactional else open_cluster
        cluster = await self._stack.enter_async_context(
            open_tasks(
                config=config,
                network=self._network,
                rng=self._rng,
                topic_idle_ms=config.metadata_max_idle_ms,
            )
        )
        self._stack.enter_context(noted_as_open(self))
        self._cluster = cluster
        self._sender = Sender(cluster, self._core, config, cluster.nursery, self._grant_memory)
        cluster.nursery.start_soon(run_aside, self._sender.run)
        if is_transactional:
            manager = TransactionManager(cluster, self._core, self._sender, config, self._rng)
            try:
                await manager.initialize()
            except BaseException as error:
                await self._stack.__aexit__(type(error), error, error.__traceback__)
                raise
            self._transactions = manager
        self._is_open = True
        self._is_plain = not (self._partitioner or self._key_serializer or self._value_serializer)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_open = self._is_plain = False
        try:
            if self._transactions is not None:
                await self._transactions.close(error)
            elif error is None or isinstance(error, Exception):
                await self._flush()
        finally:
            self._core.outcomes.abort(
                ClosedError("the producer was closed before the record was written")
            )
            await self._stack.__aexit__(kind, error, traceback)

    # -- sending --------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp_ms: Moment | None = None,
    ) -> Delivery:
        """Accept a record to be sent, and return the `Delivery` that will say where it was written.

        Args:
            headers: a dict, or pairs if a name comes twice.
            partition: None: that of the key, or one that the partitioner chooses.
            timestamp_ms: milliseconds since 1970, or a datetime with a time zone; None: now.

        Raises:
            TimedOutError: within max_block_ms the topic or the partition was not found
                (UnknownTopicOrPartitionError if brokers say so), or no broker answered.
            BufferExhaustedError: the buffer had no room within max_block_ms.
            RecordTooLargeError: the record is larger than max_request_size or buffer_memory.
            InvalidTopicError: no topic can have this name.
            TypeError, ValueError: an argument is of the wrong type, or cannot be written.
            TransactionStateError: the producer has a transactional_id, and no transaction is open.
            TransactionAbortedError, FatalProducerError: the transaction has failed.
            ClosedError: the producer is not open.
        """
        if self._schedule.wants_sender and self._is_open:
            assert self._sender is not None
            self._sender.pump()
            if self._schedule.closed_bytes >= self._yield_at:
                self._yield_at = self._schedule.closed_bytes + _YIELD_BYTES
                # Before the record is accepted: a call that is cancelled here has sent nothing.
                await trio.lowlevel.checkpoint()
        known = self._topics.get(topic)
        if (
            known is None
            or type(value) is not bytes
            or partition is not None
            or headers
            or timestamp_ms is not None
            or not self._is_plain
            or (key is not None and type(key) is not bytes)
        ):
            return await self._send_checked(topic, value, key, headers, partition, timestamp_ms)
        now_ms = time.time_ns() // 1_000_000  # as `wall_ms`, whose call would be felt here
        if (
            key is None
            and (queue := known.sticky) is not None
            and (batch := queue.open) is not None
            and (length := len(value)) <= SHORT_BYTES
            and (size_bytes := batch.size_bytes + RECORD_OVERHEAD_BYTES + length)
            <= batch.limit_bytes
        ):
            # The core's append for the most frequent case: a call costs as much as the rest.
            batch.size_bytes = size_bytes
            index = len(batch.values)
            batch.values.append(value)
            batch.keys.append(None)
            batch.timestamps.append(now_ms)
            return Delivery(batch, index)
        accepted = self._core.append(known, None, key, value, (), now_ms)  # type: ignore[arg-type]
        if isinstance(accepted, Delivery):
            return accepted
        return await self._send_to_new(accepted, known, None, key, value, (), now_ms)  # type: ignore[arg-type]

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp_ms: Moment | None = None,
    ) -> RecordMetadata:
        """Send a record, wait until the broker has it, and return where it was written.

        It waits out linger_ms, too. For many records call `send`, and await the deliveries later.

        Raises:
            KafkaClientError: the record was given up; or as `send`.
        """
        delivery = await self.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return await delivery

    async def send_values(
        self, topic: str, values: Sequence[V], *, partition: int | None = None
    ) -> list[Batch]:
        """Accept records that have nothing but a value, faster than one by one.

        A call that is cancelled may have accepted the first ones.

        Args:
            partition: None: the partitioner chooses one for each batch.

        Returns:
            the batches they were put into; `wait_batch` waits for one, `Batch.raise_failure` raises
            the error if a record of it was given up.

        Raises:
            TimedOutError, BufferExhaustedError, ...: as `send`; the first values may be accepted.
        """
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            raise TypeError(f"values must be a list of values, not {values!r}")
        if self._partitioner is not None or self._value_serializer is not None:  # one by one
            deliveries = [await self.send(topic, each, partition=partition) for each in values]
            return list(dict.fromkeys(each.batch for each in deliveries))
        batches: list[Batch] = []
        if not values:
            await trio.lowlevel.checkpoint()
            return batches
        if not self._is_open or self._sender is None:
            raise ClosedError("the producer is not open")
        plain: Sequence[Any] = values
        if set(map(type, values)) != {bytes}:
            plain = [content("value", each) or b"" for each in values]
        left = Values(plain, wall_ms())
        while not left.is_empty:
            if self._schedule.wants_sender:
                self._sender.pump()
                if self._schedule.closed_bytes >= self._yield_at:
                    self._yield_at = self._schedule.closed_bytes + _YIELD_BYTES
                    await trio.lowlevel.checkpoint()
            known = self._topics.get(topic)
            queue = None if known is None else self._core.queue_without_key(known, partition)
            batch = None if queue is None else queue.open
            self._open_transaction()
            if batch is not None and self._is_open and left.fill(batch):
                if not batches or batches[-1] is not batch:
                    batches.append(batch)
                continue
            # No batch takes it: the next value goes the way of all others, which opens one.
            first: Any = left.take()
            delivery = await self.send(
                topic, first, partition=partition, timestamp_ms=left.timestamp_ms
            )
            if not batches or batches[-1] is not delivery.batch:
                batches.append(delivery.batch)
        return batches

    async def _send_checked(
        self,
        topic: str,
        value: object,
        key: object,
        headers: HeadersLike,
        partition: int | None,
        timestamp_ms: Moment | None,
    ) -> Delivery:
        """As `send`, with all arguments checked and converted."""
        if not self._is_open:
            raise ClosedError("the producer is not open")
        topic = text("topic", topic)
        key_bytes = self._serialized("key", topic, key, self._key_serializer)
        value_bytes = self._serialized("value", topic, value, self._value_serializer)
        checked = as_headers(headers)
        at_ms = wall_ms() if timestamp_ms is None else moment_ms("timestamp_ms", timestamp_ms)
        if partition is not None:
            partition = whole_number("partition", partition, 0, MAX_INT32)
        number = self._open_transaction()
        known = self._topics.get(topic) or await self._learn_topic(topic)
        if partition is None and self._partitioner is not None:
            chosen = self._partitioner(topic, key_bytes, value_bytes, len(known.queues))
            partition = whole_number("the partitioner's choice", chosen, 0, MAX_INT32)
        if partition is not None and partition >= len(known.queues):
            await self._wait_partition(known, partition)
        if self._transactions is not None:
            self._transactions.core.check_may_send(number)
        accepted = self._core.append(known, partition, key_bytes, value_bytes, checked, at_ms)
        if isinstance(accepted, Delivery):
            return accepted
        return await self._send_to_new(
            accepted, known, partition, key_bytes, value_bytes, checked, at_ms
        )

    def _serialized(
        self, name: str, topic: str, given: Any, serializer: Serializer[Any] | None
    ) -> bytes | None:
        """Return a key or value as bytes.

        Raises:
            TypeError: it is not bytes, and the serializer did not make it bytes.
            Exception: whatever the serializer raises.
        """
        if given is None or serializer is None:
            return content(name, given)
        try:
            made = serializer(given)
        except Exception as error:
            error.add_note(f"by the {name}_serializer, for a record to the topic {topic!r}")
            raise
        return content(f"what the {name}_serializer returns", made)

    def _open_transaction(self) -> int:
        """Return the number of the transaction that records go into; 0 without any.

        Raises:
            TransactionStateError, TransactionAbortedError, FatalProducerError: as `send`.
        """
        manager = self._transactions
        if manager is None:
            return 0
        manager.core.check_may_send(manager.core.number)
        return manager.core.number

    async def _learn_topic(self, topic: str) -> TopicQueues:
        assert self._cluster is not None
        timeout_s = self.config.max_block_ms / 1000
        described = await self._cluster.topic(topic, timeout_s=timeout_s)
        # Another task may have added it meanwhile.
        return self._topics.get(topic) or self._core.add_topic(described)

    async def _wait_partition(self, known: TopicQueues, partition: int) -> None:
        """Wait for a partition that the topic does not have yet."""
        assert self._cluster is not None
        timeout_ms = self.config.max_block_ms
        deadline = trio.current_time() + timeout_ms / 1000
        while partition >= len(known.queues):
            try:
                await self._cluster.refresh((known.name,), timeout_s=deadline - trio.current_time())
            except TimedOutError:
                raise UnknownTopicOrPartitionError(
                    f"topic {known.name!r} has {len(known.queues)} partition(s), and no partition"
                    f" {partition} after {timeout_ms} ms"
                ) from None

    async def _send_to_new(
        self,
        queue: PartitionQueue,
        known: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> Delivery:
        """Accept a record for which no batch is open; waits while there is no memory for one."""
        core = self._core
        cluster, sender, transactions = self._cluster, self._sender, self._transactions
        assert cluster is not None and sender is not None
        number = self._open_transaction()
        record_bytes = record_size(key, value, headers)
        memory_bytes = core.memory_for(queue, record_bytes)
        if not self._memory.reserve(memory_bytes):
            await self._wait_memory(memory_bytes)
            if transactions is not None:
                self._check_still_open(transactions, number, memory_bytes)
            # Another task may have opened a batch meanwhile.
            accepted = core.append(known, partition, key, value, headers, timestamp_ms)
            if isinstance(accepted, Delivery):
                self._memory.release(memory_bytes)
                self._grant_memory()
                return accepted
            queue = accepted
        now_ms = trio.current_time() * 1000
        delivery = core.append_to_new(
            queue, memory_bytes, record_bytes, key, value, headers, timestamp_ms, now_ms
        )
        if now_ms - known.used_ms > _USE_TOPIC_EVERY_MS:
            known.used_ms = now_ms
            cluster.use_topic(known.name)
        if transactions is not None:
            transactions.on_new_batch(queue)
        sender.on_new_batch(now_ms)
        if self._schedule.wants_sender:  # without lingering
            sender.pump()
        return delivery

    def _check_still_open(
        self, transactions: TransactionManager, number: int, memory_bytes: int
    ) -> None:
        """Give memory back and raise if the transaction ended while it was waited for."""
        try:
            transactions.core.check_may_send(number)
        except KafkaClientError:
            self._memory.release(memory_bytes)
            self._grant_memory()
            raise

    # -- transactions ---------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """Return a transaction to be entered with `async with`; see `Transaction`.

        Raises:
            TransactionStateError: the producer has no transactional_id.
            ClosedError: the producer is not open.
        """
        if self.config.transactional_id is None:
            raise TransactionStateError("transactions need a transactional_id")
        if not self._is_open or self._transactions is None:
            raise ClosedError("the producer is not open")
        return Transaction(self._transactions)

    # -- memory ---------------------------------------------------------------------------------

    async def _wait_memory(self, size_bytes: int) -> None:
        """Wait for memory, in the order of the calls, and take it."""
        waiter = _MemoryWaiter(size_bytes)
        self._waiters.append(waiter)
        self._core.on_memory_waiters(len(self._waiters))
        self._wake_sender()
        max_block_ms = self.config.max_block_ms
        try:
            with trio.move_on_after(max_block_ms / 1000):
                await waiter.event.wait()
        except BaseException:
            if waiter.granted:
                self._memory.release(size_bytes)
            raise
        finally:
            if not waiter.granted:
                self._waiters.remove(waiter)
            self._core.on_memory_waiters(len(self._waiters))
            self._grant_memory()
        if not waiter.granted:
            raise BufferExhaustedError(
                f"the buffer of {self.config.buffer_memory} bytes had no room for {size_bytes}"
                f" within {max_block_ms} ms"
            )
        if not self._is_open:
            self._memory.release(size_bytes)
            raise ClosedError("the producer is not open")

    def _grant_memory(self) -> None:
        """Give free memory to the sends that wait for it, in their order."""
        waiters = self._waiters
        while waiters and self._memory.grant(waiters[0].size_bytes):
            waiter = waiters.popleft()
            waiter.granted = True
            waiter.event.set()

    # -- flushing -------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Send all that was accepted so far without lingering, and wait until it is written.

        For records that are given up instead their deliveries raise, not this call.
        """
        if not self._is_open:
            raise ClosedError("the producer is not open")
        await self._flush()

    async def _flush(self) -> None:
        self._core.close_all()
        self._wake_sender()
        await trio.lowlevel.checkpoint()
        for batch in list(self._core.incomplete):
            await wait_batch(batch)

    def _wake_sender(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    # -- what is known --------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic.

        Raises:
            TimedOutError, UnknownTopicOrPartitionError, InvalidTopicError: as `send`.
        """
        if not self._is_open or self._cluster is None:
            raise ClosedError("the producer is not open")
        topic = text("topic", topic)
        timeout_s = self.config.max_block_ms / 1000
        described = await self._cluster.topic(topic, timeout_s=timeout_s)
        return sorted(described.partitions)

    def statistics(self) -> ProducerStatistics:
        """Return figures of this moment.

        Raises:
            ClosedError: the producer is not open.
        """
        if not self._is_open or self._cluster is None:
            raise ClosedError("the producer is not open")
        return ProducerStatistics(
            cluster=self._cluster.statistics(),
            buffered_bytes=self.buffered_bytes,
            waiting_sends=len(self._waiters),
            undecided_batches=len(self._core.incomplete),
            delivered_records=self._core.outcomes.delivered_records,
            failed_records=self._core.outcomes.failed_records,
        )

    @property
    def buffered_bytes(self) -> int:
        """How much of buffer_memory is taken."""
        return self.config.buffer_memory - self._memory.free_bytes
