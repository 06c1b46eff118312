"""Loads shards: replays the partitions that this broker was elected to lead.

Rules
1. What a partition holds at the election is committed before it is loaded; partitions whose
   followers are away keep no other waiting.
2. Records are replayed a few at a time, and other tasks run in between. A partition that is
   resigned meanwhile is left at once.
3. A record that cannot be read is passed over: one of a newer Kafka must not take the whole
   partition away. A log that cannot be read fails the load.

`run` is the one task; it loads one partition after the other.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.led_partition import LedPartition, ShardT
from kraftrio.broker.coordinator.outcome import COMMITTED, Now
from kraftrio.broker.coordinator.ports import Replicas
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import (
    NO_PRODUCER_ID,
    BatchHeader,
    iter_headers,
    iter_records,
    verify_crc,
)
from kraftrio.wire.records.control import read_end_transaction_marker

_SLICE_RECORDS = 500  # replayed before others get their turn


class ShardLoader(Generic[ShardT]):
    """See the module.

    Args:
        on_loaded: called with each partition that was replayed whole.
        on_failed: called with each partition that could not be, and the reason.
    """

    def __init__(
        self,
        replicas: Replicas,
        clock: Clock,
        settings: CoordinatorSettings,
        log: logging.Logger,
        on_loaded: Callable[[LedPartition[ShardT]], None],
        on_failed: Callable[[LedPartition[ShardT], Exception], None],
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._settings = settings
        self._log = log
        self._on_loaded = on_loaded
        self._on_failed = on_failed
        self._queue: deque[LedPartition[ShardT]] = deque()
        self._wanted = trio.Event()

    def load_when_committed(self, led: LedPartition[ShardT]) -> None:
        """Load a partition once its followers have all of it."""

        def load(_code: ErrorCode) -> None:
            self._queue.append(led)  # loading finds out what is wrong, if anything is
            self._wanted.set()

        try:
            end_offset = self._replicas.log(led.topic_partition).log_end_offset
        except KafkaError as error:
            load(error.code)
        else:
            self._replicas.when_committed(led.topic_partition, end_offset, None, load)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what is queued, one partition after the other, until cancelled."""
        task_status.started()
        while True:
            partition_count = record_count = 0
            while self._queue:
                record_count += await self._load(self._queue.popleft())
                partition_count += 1
            if record_count:
                self._log.info(
                    "%s loaded partitions=%d records=%d",
                    self._settings.name, partition_count, record_count,
                )  # fmt: skip
            self._wanted = trio.Event()
            await self._wanted.wait()

    async def _load(self, led: LedPartition[ShardT]) -> int:
        """Replay a partition into its shard; return the number of records."""
        if not led.is_led:
            return 0
        try:
            record_count = await self._replay_log(led)
        except (KafkaError, RemoteProtocolError) as error:
            if led.is_led:
                self._on_failed(led, error)
            return 0
        if led.is_led:
            self._log.debug("loaded partition=%s records=%d", led.topic_partition, record_count)
            self._on_loaded(led)
        return record_count

    async def _replay_log(self, led: LedPartition[ShardT]) -> int:
        end_offset = self._replicas.log(led.topic_partition).log_end_offset
        await self._wait_committed(led, end_offset)
        record_count = 0
        if led.is_led:
            for _ in self._records(led, end_offset):
                record_count += 1
                if record_count % _SLICE_RECORDS == 0:
                    await trio.lowlevel.checkpoint()
                    if not led.is_led:
                        break
        return record_count

    async def _wait_committed(self, led: LedPartition[ShardT], end_offset: int) -> None:
        committed: Deferred[ErrorCode] = Deferred()
        self._replicas.when_committed(led.topic_partition, end_offset, None, committed.complete)
        error = await committed.wait()
        if error not in COMMITTED:
            raise KafkaError(error)

    def _records(self, led: LedPartition[ShardT], end_offset: int) -> Iterator[None]:
        """Replay the records up to an offset; pauses after each."""
        topic_partition = led.topic_partition
        offset = self._replicas.log(topic_partition).log_start_offset
        while offset < end_offset:
            read = self._replicas.read_log(topic_partition, offset, self._settings.load_buffer_size)
            if not len(read.records):
                break  # the tail holds no batches any more
            start = offset
            for header in iter_headers(read.records, allow_partial=True):
                verify_crc(read.records, header)
                offset = header.next_offset
                yield from self._records_of_batch(led, read.records, header)
            if offset == start:
                raise CorruptBatchError(f"no whole batch at offset {offset}")

    def _records_of_batch(
        self, led: LedPartition[ShardT], buf: Buffer, header: BatchHeader
    ) -> Iterator[None]:
        now = Now(self._clock.monotonic_ms(), self._clock.wall_ms())
        if header.is_control:
            marker = read_end_transaction_marker(buf, header)
            if marker is not None:
                led.shard.replay_end_transaction(
                    header.producer_id, header.next_offset, now, commit=marker.commit
                )
            yield
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for offset, _, key, value, _ in iter_records(buf, header):
            if key is not None:
                try:
                    led.shard.replay(offset, key, value, now, producer_id=producer_id)
                except RemoteProtocolError as error:
                    self._log.warning(
                        "record skipped partition=%s offset=%d reason=%s",
                        led.topic_partition, offset, error,
                    )  # fmt: skip
            yield
