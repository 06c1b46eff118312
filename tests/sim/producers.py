"""Producers and readers of a simulation: they write numbered records, and report to the history.

Owns: `PartitionProducer` (pipelined, with resends, idempotent or not) and `Reader`. Rules:
1. A producer goes on until it is told to stop, then until everything is answered for good: after
   the faults are over, that must come.
2. Batches that are not acknowledged are sent again in order, as Kafka's producer does; those
   acknowledged meanwhile are not.
3. Whatever a broker must never answer fails the simulation at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import trio

from kraftrio.net.connection import Connection, ConnectionLost, Reply
from kraftrio.testing.simulation.world import START_WALL_MS, SimulationFailure
from kraftrio.wire.errors import CorruptBatchError, ErrorCode
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Record, build_batch, iter_headers, iter_records, verify_crc
from tests.sim.client import SimClient, Unavailable, version_of
from tests.sim.history import History, Promise, Sender

DAMAGED_RECORDS = "damaged records"  # tolerated where faults damage them


RecordMaker: TypeAlias = Callable[[str, int], tuple[bytes, bytes | None]]
"""Makes key and value of a sender's record by its number; as built: some padding, `name/n`."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How one producer works."""

    acks: int = -1
    idempotent: bool = True
    max_in_flight: int = 5
    interval_s: float = 0.1
    largest_batch: int = 5
    padding: int = 20
    timeout_ms: int = 3_000


@dataclass(eq=False, slots=True)
class _Batch:
    first: int
    count: int
    data: bytes
    sent_s: float = 0.0  # when it was sent last


class PartitionProducer:
    """One producer of one partition."""

    def __init__(
        self,
        client: SimClient,
        history: History,
        topic_partition: TopicPartition,
        options: ProducerOptions,
        make_record: RecordMaker | None = None,
    ) -> None:
        self._client = client
        self._history = history
        self._tp = topic_partition
        self._options = options
        self._make_record = make_record
        promise = Promise(options.acks == -1, options.idempotent)
        name = f"{client.name}:{topic_partition.topic}-{topic_partition.partition}"
        self._sender: Sender = history.sender(name, topic_partition, promise)
        self._producer: tuple[int, int] = (-1, -1)
        self._unanswered: deque[_Batch] = deque()
        self.is_stopping = False
        self.is_done = False

    def describe(self) -> str:
        """Tell what still waits."""
        return f"{self._sender.name} with {len(self._unanswered)} batches"

    async def run(self) -> None:
        """Produce until told to stop and everything is answered."""
        while not self.is_done:
            try:
                await self._produce()
            except Unavailable as error:
                self._client.note(f"produce to {_name(self._tp)} again: {error}")
                self._client.forget(self._tp.topic)
                await self._client.pause()

    async def _produce(self) -> None:
        options = self._options
        if options.idempotent and self._producer[0] < 0:
            await self._init_producer()
        leader, _ = await self._client.leader(*self._tp)
        address = self._client.addresses.get(leader)
        if address is None:
            raise Unavailable(f"no address of leader {leader}")
        connection = await self._client.connection(address)
        replies: deque[tuple[_Batch, Reply]] = deque()
        resend = list(self._unanswered)
        try:
            while True:
                self._fill(connection, replies, resend)
                if replies:
                    batch, reply = replies.popleft()
                    self._on_answer(batch, await self._answer(batch, reply))
                elif self.is_stopping:
                    self.is_done = True
                    return
                await trio.sleep(self._client.rng.expovariate(1 / options.interval_s))
        except ConnectionLost as lost:
            self._client.drop(address)
            raise Unavailable(lost.reason) from lost
        except Unavailable:
            await self._drain(replies, address)
            raise

    def _fill(
        self,
        connection: Connection,
        replies: deque[tuple[_Batch, Reply]],
        resend: list[_Batch],
    ) -> None:
        options = self._options
        while len(replies) < options.max_in_flight:
            if resend:
                batch = resend.pop(0)
            elif self.is_stopping or (replies and self._client.rng.random() < 0.3):
                return
            else:
                batch = self._new_batch()
            data = PartitionProduceData(index=self._tp.partition, records=memoryview(batch.data))
            request = ProduceRequest(
                acks=options.acks,
                timeout_ms=options.timeout_ms,
                topic_data=[TopicProduceData(name=self._tp.topic, partition_data=[data])],
            )
            version = version_of(request, None)
            if options.acks == 0:
                connection.send_oneway(request, version)
                self._unanswered.remove(batch)
                return
            batch.sent_s = self._client.world.now_s
            timeout_s = self._client.timeout_s + options.timeout_ms / 1000
            replies.append((batch, connection.send(request, version, timeout_s)))

    async def _answer(self, batch: _Batch, reply: Reply) -> object:
        try:
            return await reply.wait()
        except ConnectionLost as lost:
            self._client.judge("Produce", batch.sent_s, lost)
            raise

    def _new_batch(self) -> _Batch:
        options, sender, rng = self._options, self._sender, self._client.rng
        first, count = sender.sent, rng.randint(1, options.largest_batch)
        sender.sent += count
        padding = b"." * rng.randrange(options.padding)
        now_ms = START_WALL_MS + int(self._client.world.now_s * 1000)

        def plain(name: str, number: int) -> tuple[bytes, bytes | None]:
            return padding, f"{name}/{number}".encode()

        make = self._make_record or plain
        contents = [make(sender.name, first + i) for i in range(count)]
        records = [Record(0, now_ms, key, value) for key, value in contents]
        data = build_batch(
            records,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=first if options.idempotent else -1,
        )
        batch = _Batch(first, count, bytes(data))
        self._unanswered.append(batch)
        return batch

    def _on_answer(self, batch: _Batch, response: object) -> None:
        answer = response.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            offset = answer.base_offset if code is ErrorCode.NONE else None
            if batch in self._unanswered:
                self._on_acknowledged(batch, offset)
            return
        # A leader of the past may answer OUT_OF_ORDER_SEQUENCE_NUMBER: it lacks what came after it.
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not code.retriable:
            raise SimulationFailure(f"produce to {_name(self._tp)} was answered {code.name}")
        raise Unavailable(code.name)

    def _on_acknowledged(self, batch: _Batch, offset: int | None) -> None:
        if self._options.idempotent:
            # What timed out before a later batch is acknowledged is in the log: sequences tell.
            while self._unanswered[0] is not batch:
                earlier = self._unanswered.popleft()
                self._history.acknowledge(self._sender, earlier.first, earlier.count, None)
        self._history.acknowledge(self._sender, batch.first, batch.count, offset)
        self._unanswered.remove(batch)

    async def _drain(self, replies: deque[tuple[_Batch, Reply]], address: tuple[str, int]) -> None:
        """Take the answers to what is still under way, so that a resend meets a quiet line."""
        while replies:
            batch, reply = replies.popleft()
            try:
                self._on_answer(batch, await reply.wait())
            except ConnectionLost:
                self._client.drop(address)
                return
            except Unavailable:
                continue

    async def _init_producer(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, producer_id=-1)
        response = await self._client.call_any(request, 4)
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            raise Unavailable(code.name)
        self._producer = (response.producer_id, response.producer_epoch)


class Reader:
    """Reads one partition from its beginning, again and again.

    Args:
        find_beginning: of a partition that may lose records there: tells where it begins.
    """

    def __init__(
        self,
        client: SimClient,
        history: History,
        topic_partition: TopicPartition,
        find_beginning: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        self._find_beginning = find_beginning
        self._client = client
        self._history = history
        self._tp = topic_partition
        self.position = 0
        self.high_watermark = -1
        self._reread_count = 0

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                await self.read()
            except Unavailable as error:
                self._client.note(f"read {_name(self._tp)} again: {error}")
                self._client.forget(self._tp.topic)
                await self._client.pause()
            reread_count = self._client.world.reread_count
            if self._client.rng.random() < 0.004 or reread_count != self._reread_count:
                self._reread_count = reread_count
                self.position = 0

    async def read(self, max_wait_ms: int = 500) -> int:
        """Fetch once from the leader; return how many records came.

        Raises:
            Unavailable: it is not to be had now.
        """
        tp, rng = self._tp, self._client.rng
        leader, epoch = await self._client.leader(*tp)
        partition = FetchPartition(
            partition=tp.partition,
            current_leader_epoch=epoch,
            fetch_offset=self.position,
            partition_max_bytes=rng.choice((200, 4_000, 100_000)),
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic=tp.topic, partitions=[partition])],
        )
        response = await self._client.call_node(leader, request)
        if not response.responses and response.throttle_time_ms:
            raise Unavailable(f"throttled for {response.throttle_time_ms} ms")
        answer = response.responses[0].partitions[0]
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self._find_beginning is not None:
            beginning = await self._find_beginning()
            if beginning < self.position:
                raise Unavailable(f"{beginning} to {self.position} are not there")
            self.position = beginning
            return 0
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise SimulationFailure(
                f"{self._client.name} read {_name(tp)} up to {self.position}, but its leader"
                f" {leader} has no such offset"
            )
        if code is not ErrorCode.NONE:
            if not code.retriable:
                raise SimulationFailure(f"fetch of {_name(tp)} was answered {code.name}")
            raise Unavailable(code.name)
        self.high_watermark = answer.high_watermark
        try:
            return self._take(answer.records)
        except CorruptBatchError as error:
            if not self._client.world.tolerates(DAMAGED_RECORDS):
                raise SimulationFailure(f"{self._client.name} was given damage: {error}") from error
            raise Unavailable(str(error)) from error

    def _take(self, data: memoryview | None) -> int:
        count = end = 0
        for header in iter_headers(data or b"", allow_partial=True):
            assert data is not None
            verify_crc(data, header)
            end = header.position + header.size_bytes
            for record in iter_records(data, header):
                if record.offset < self.position:
                    continue
                if record.offset != self.position:
                    raise SimulationFailure(
                        f"{self._client.name} asked {_name(self._tp)} for {self.position} and got"
                        f" {record.offset}"
                    )
                assert record.value is not None
                self._history.see(self._client.name, self._tp, record.offset, record.value.decode())
                self.position += 1
                count += 1
        if data and not end:
            raise CorruptBatchError("no whole batch")
        if count and self.position > self.high_watermark:
            raise SimulationFailure(
                f"{self._client.name} was given {_name(self._tp)} up to {self.position} with a"
                f" high watermark of {self.high_watermark}"
            )
        return count


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"
