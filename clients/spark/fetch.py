"""Reads one range of offsets: fetched by a Trio thread ahead of the decoding, as Arrow batches.

Owns the way from a partition's leader to Arrow batches, which a Spark task pulls. Rules:
1. Spark's tasks are plain threads that pull, so each range has a thread with a Trio loop of its
   own, which fetches at most `_PREFETCHED` answers ahead. It ends with the iterator, also when
   that is dropped half way.
2. What may go away by itself (a leader that moves, a connection that is lost) is tried again, until
   nothing new has come for `kafkaConsumer.pollTimeoutMs`.
3. Records that are gone before they were read are an error, or with failOnDataLoss=false skipped;
   so are all of a topic that was re-created since the query was planned.
4. Control batches are never shown; with read_committed neither are aborted transactions.

Called by: the data source, in the executors. Protocol guide, "Fetch"; KIP-74, KIP-98.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import outcome
import pyarrow as pa
import trio

from kraftrio.clients.aborted_transactions import AbortedFilter
from kraftrio.clients.cluster import Cluster, open_cluster
from kraftrio.clients.errors import (
    KafkaClientError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RetriableError,
    TimedOutError,
    error_for,
)
from kraftrio.clients.metadata import is_another
from kraftrio.clients.spark.arrow import RecordColumns, RowBounds
from kraftrio.clients.spark.options import (
    EARLIEST,
    LATEST,
    FetchOptions,
    IsolationLevel,
    partition_text,
)
from kraftrio.clients.spark.planning import list_offsets
from kraftrio.clients.spark.ranges import OffsetRange
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kraftrio.wire.primitives import ZERO_UUID, Buffer, TopicPartition
from kraftrio.wire.records.batch import BatchHeader, iter_headers, verify_crc

logger = logging.getLogger(__name__)

_PREFETCHED: Final = 2
_MAX_VERSION_BY_NAME: Final = 12  # from 13 on topics go by id
_RESPONSE_MAX_BYTES: Final = 50 << 20
_REPEATS_UNTIL_BELIEVED: Final = 4  # of a topic re-created: a single broker may be behind

DATA_LOSS_ADVICE: Final = (
    "It was deleted, or the topic was, before the query could read it; with failOnDataLoss=false"
    " the query goes on without it."
)


class Fetched(NamedTuple):
    """An answer of a partition's leader: bytes, the whole batches in them, what was aborted.

    Its first batch may also hold records that are gone, before `skipped_to`.
    """

    records: Buffer
    headers: list[BatchHeader]
    aborted: Sequence[AbortedTransaction]
    skipped_to: int


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Which timestamps are wanted, in microseconds; both ends are included."""

    min_us: int | None = None
    max_us: int | None = None


def read_range(
    item: OffsetRange,
    options: FetchOptions,
    times: TimeBounds,
    *,
    topic_id: bytes = ZERO_UUID,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as Arrow batches.

    Args:
        topic_id: of the topic that the range is of; zeros: of whichever has that name.

    Raises:
        KafkaClientError: they cannot be read, or some are gone and that is not allowed.
        KafkaError: they are malformed.
    """
    bounds = RowBounds(item.start, item.end, times.min_us, times.max_us)
    columns = RecordColumns(
        item.topic, item.partition, bounds, include_headers=options.include_headers
    )
    with _Prefetch(item, options, topic_id) as answers:
        skipped_to = item.start
        for answer in answers:
            if answer.skipped_to > skipped_to:
                if (batch := columns.take()) is not None:
                    yield batch
                skipped_to = answer.skipped_to
                columns.skip_to(skipped_to)
            for header in _visible(answer, options):
                columns.add(answer.records, header)
                if columns.is_full and (batch := columns.take()) is not None:
                    yield batch
    if (batch := columns.take()) is not None:
        yield batch


def _visible(answer: Fetched, options: FetchOptions) -> Iterator[BatchHeader]:
    """Yield the batches that a consumer may see, their checksums compared."""
    aborted = None
    if options.isolation_level is IsolationLevel.READ_COMMITTED:
        aborted = AbortedFilter(answer.aborted)
    for header in answer.headers:
        if options.check_crcs:
            verify_crc(answer.records, header)
        if aborted is not None and aborted.leaves_out(answer.records, header):
            continue
        if not header.is_control:
            yield header


class _Prefetch:
    """The answers for a range, in order, fetched by a thread; to be entered with `with`."""

    def __init__(self, item: OffsetRange, options: FetchOptions, topic_id: bytes) -> None:
        self._item = item
        self._options = options
        self._topic_id = topic_id
        self._outcome: outcome.Outcome[None] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"fetch {item.topic}-{item.partition}", daemon=True
        )

    def __enter__(self) -> _Prefetch:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            trio.from_thread.run_sync(self._stop, trio_token=self._token)
        self._thread.join()

    def __iter__(self) -> Iterator[Fetched]:
        """Yield the answers; then raise what ended them early."""
        while True:
            try:
                answer = trio.from_thread.run(self._receive.receive, trio_token=self._token)
            except trio.EndOfChannel:
                break
            yield answer
        trio.from_thread.run_sync(self._drained.set, trio_token=self._token)
        self._thread.join()
        assert self._outcome is not None
        self._outcome.unwrap()

    def _stop(self) -> None:
        self._scope.cancel()
        self._drained.set()

    def _run(self) -> None:
        self._outcome = outcome.capture(trio.run, self._fetch)

    async def _fetch(self) -> None:
        send, self._receive = trio.open_memory_channel[Fetched](_PREFETCHED)
        self._token = trio.lowlevel.current_trio_token()
        self._drained = trio.Event()
        with trio.CancelScope() as self._scope:
            self._ready.set()
            try:
                async with send, open_cluster(config=self._options.config) as cluster:
                    fetcher = _Fetcher(cluster, self._item, self._options, self._topic_id, send)
                    await fetcher.run()
            finally:
                with trio.CancelScope(shield=True):
                    await self._drained.wait()  # until then there is somebody to receive from


class _Fetcher:
    """Fetches a range from whichever broker leads the partition."""

    def __init__(
        self,
        cluster: Cluster,
        item: OffsetRange,
        options: FetchOptions,
        topic_id: bytes,
        send: trio.MemorySendChannel[Fetched],
    ) -> None:
        self._cluster = cluster
        self._item = item
        self._topic_partition = TopicPartition(item.topic, item.partition)
        self._name = partition_text(self._topic_partition)
        self._options = options
        self._send = send
        self._offset = self._skipped_to = item.start
        self._failure: KafkaClientError | None = None
        self._topic_id = topic_id
        self._other_topics = 0  # how often metadata named another one

    async def run(self) -> None:
        """Fetch until the end of the range."""
        timeout_s = self._options.poll_timeout_ms / 1000
        deadline = trio.current_time() + timeout_s
        while self._offset < self._item.end:
            if trio.current_time() >= deadline:
                self._give_up()
                return
            before = self._offset
            try:
                await self._fetch()
                self._failure = None
            except RetriableError as error:
                self._failure = error
                await self._recover(deadline)
            if self._offset > before:
                deadline = trio.current_time() + timeout_s

    async def _recover(self, deadline: float) -> None:
        """Wait a little and ask again who leads."""
        await trio.sleep(self._cluster.config.retry_backoff_ms / 1000)
        left_s = max(deadline - trio.current_time(), 0.001)
        try:
            await self._cluster.refresh((self._item.topic,), timeout_s=left_s)
        except TimedOutError as error:
            self._failure = error

    def _give_up(self) -> None:
        waited = f"within {self._options.poll_timeout_ms} ms"
        if self._failure is not None:
            raise TimedOutError(f"{self._name} could not be read {waited}: {self._failure}")
        message = (
            f"{self._name} gave nothing from offset {self._offset} on {waited}, but the query reads"
            f" to offset {self._item.end}"
        )
        if self._options.fail_on_data_loss:
            raise TimedOutError(message)
        logger.warning("%s", message)

    async def _fetch(self) -> None:
        leader = await self._leader()
        topic_id = self._cluster.metadata.topic_id(self._item.topic)
        if is_another(topic_id, self._topic_id):
            self._other_topics += 1
            if self._other_topics < _REPEATS_UNTIL_BELIEVED:
                raise RetriableError(f"{self._name} is another topic's, or a broker is behind")
            self._leave_out(self._item.end, "the topic was re-created since the query was planned")
            return
        data = await self._ask(leader, topic_id)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._skip_lost()
            return
        if data.error_code != ErrorCode.NONE:
            raise error_for(data.error_code)
        records = data.records
        if records is None or not len(records):
            return
        assert isinstance(records, memoryview)
        headers = [
            header
            for header in iter_headers(records, allow_partial=True)
            if header.next_offset > self._offset
        ]
        if not headers:
            raise RecordTooLargeError(
                f"the batch at offset {self._offset} of {self._name} does not fit into"
                f" kafka.max.partition.fetch.bytes ({self._options.max_partition_fetch_bytes})"
            )
        self._offset = headers[-1].next_offset
        aborted = data.aborted_transactions or ()
        await self._send.send(Fetched(records, headers, aborted, self._skipped_to))

    async def _leader(self) -> tuple[int, int]:
        leader = self._cluster.metadata.leader(*self._topic_partition)
        if leader is None:
            await self._cluster.refresh((self._item.topic,))
            leader = self._cluster.metadata.leader(*self._topic_partition)
            if leader is None:
                raise LeaderNotAvailableError(f"{self._name} has no leader")
        return leader

    async def _ask(self, leader: tuple[int, int], topic_id: bytes) -> PartitionData:
        options = self._options
        partition = FetchPartition(
            partition=self._item.partition,
            current_leader_epoch=leader[1],
            fetch_offset=self._offset,
            partition_max_bytes=options.max_partition_fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=max(options.max_partition_fetch_bytes, _RESPONSE_MAX_BYTES),
            isolation_level=int(options.isolation_level),
            topics=[FetchTopic(topic=self._item.topic, topic_id=topic_id, partitions=[partition])],
        )
        response: FetchResponse = await self._cluster.request(
            leader[0],
            request,
            max_version=_MAX_VERSION_BY_NAME if topic_id == ZERO_UUID else None,
        )
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code)
        return response.responses[0].partitions[0]

    async def _skip_lost(self) -> None:
        """Raise for records that are no longer there, or go on after them."""
        look = functools.partial(list_offsets, self._cluster, level=self._options.isolation_level)
        item = self._topic_partition
        earliest = (await look(wanted={item: EARLIEST}))[item]
        latest = (await look(wanted={item: LATEST}))[item]
        if earliest <= self._offset <= latest:
            return  # it has come back
        lost_to = min(earliest, self._item.end) if self._offset < earliest else self._item.end
        self._leave_out(lost_to)

    def _leave_out(self, lost_to: int, because: str = "") -> None:
        message = f"{self._name} has no offsets {self._offset} to {lost_to - 1} any more"
        if because:
            message += f": {because}"
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(f"{message}. {DATA_LOSS_ADVICE}")
        logger.warning("%s: they are left out", message)
        self._offset = self._skipped_to = lost_to
