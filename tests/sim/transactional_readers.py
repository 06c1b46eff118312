"""Readers of transactional topics, on the wire: they tell aborted data by what Fetch says of it.

Owns: `TransactionalReader`, of committed data (it leaves out what the aborted transactions of an
answer and the markers between the batches say, as KIP-98 wants it) or of all data.

Called by: the transactional programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import CorruptBatchError, ErrorCode
from kraftrio.wire.messages.data import FetchPartition, FetchRequest, FetchTopic
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import BatchHeader, iter_headers, iter_records, verify_crc
from kraftrio.wire.records.control import read_end_transaction_marker
from tests.sim.client import SimClient, Unavailable
from tests.sim.producers import DAMAGED_RECORDS
from tests.sim.transaction_model import Passage, TransactionHistory


class TransactionalReader:
    """Reads one partition; each passage begins where `begin_at` says."""

    def __init__(
        self,
        client: SimClient,
        history: TransactionHistory,
        topic_partition: TopicPartition,
        *,
        committed_only: bool,
    ) -> None:
        self._client = client
        self._history = history
        self._tp = topic_partition
        self._committed_only = committed_only
        self.passage = self._passage(0)
        self.is_at_end = False
        self.is_stopping = False

    @property
    def position(self) -> int:
        return self.passage.position

    def _passage(self, offset: int) -> Passage:
        return self._history.passage(
            self._client.name, self._tp, offset, committed_only=self._committed_only
        )

    def begin_at(self, offset: int) -> None:
        """Read from this offset on."""
        self.passage = self._passage(offset)

    async def run(self) -> None:
        """Read until cancelled, again and again from the beginning, unless told to stop that."""
        world, rng = self._client.world, self._client.rng
        reread_count = world.reread_count
        while True:
            try:
                await self.read()
            except Unavailable as error:
                self._client.note(f"read {_name(self._tp)} again: {error}")
                self._client.forget(self._tp.topic)
                await self._client.pause()
            again = rng.random() < 0.01 and not self.is_stopping
            if again or world.reread_count != reread_count:
                reread_count = world.reread_count
                self.begin_at(0)

    async def read(self, max_wait_ms: int = 500) -> list[int]:
        """Fetch once; return the offsets of the records that came.

        Raises:
            Unavailable: nothing is to be had now.
        """
        tp = self._tp
        leader, epoch = await self._client.leader(*tp)
        partition = FetchPartition(
            partition=tp.partition,
            current_leader_epoch=epoch,
            fetch_offset=self.position,
            partition_max_bytes=self._client.rng.choice((200, 4_000, 100_000)),
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_epoch=-1,
            isolation_level=int(self._committed_only),
            topics=[FetchTopic(topic=tp.topic, partitions=[partition])],
        )
        passage, before = self.passage, self.position
        response = await self._client.call_node(leader, request)
        if not response.responses and response.throttle_time_ms:
            raise Unavailable(f"throttled for {response.throttle_time_ms} ms")
        answer = response.responses[0].partitions[0]
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            if not code.retriable:
                raise SimulationFailure(
                    f"fetch of {_name(tp)} from {self.position} was answered {code.name}"
                )
            raise Unavailable(code.name)
        self._history.see_stable(tp, answer.last_stable_offset, answer.high_watermark)
        offsets: list[int] = []  # what came before damage counts
        try:
            for offset, _ in self._take(passage, answer):
                offsets.append(offset)
        except CorruptBatchError as error:
            if not self._client.world.tolerates(DAMAGED_RECORDS):
                raise SimulationFailure(f"{self._client.name} was given damage: {error}") from error
            if not offsets:
                raise Unavailable(str(error)) from error
        limit = answer.last_stable_offset if self._committed_only else answer.high_watermark
        if passage.position > max(limit, before):  # another leader may know of less than the last
            raise SimulationFailure(
                f"{self._client.name} was given {_name(tp)} up to {passage.position}, beyond"
                f" {limit}"
            )
        self.is_at_end = passage.position == answer.high_watermark
        return offsets

    def _take(self, passage: Passage, answer: Any) -> Iterator[tuple[int, str]]:
        data = answer.records or b""
        aborted = _Aborted(answer.aborted_transactions or [])
        end = 0
        for header in iter_headers(data, allow_partial=True):
            verify_crc(data, header)
            end = header.position + header.size_bytes
            skips = self._committed_only and aborted.covers(data, header)
            if not (skips or header.is_control):
                for record in iter_records(data, header):
                    if record.offset >= passage.position:
                        value = (record.value or b"").decode()
                        self._history.see(passage, record.offset, value)
                        yield record.offset, value
            self._history.move(passage, header.next_offset)
        if len(data) and not end:
            raise CorruptBatchError("no whole batch")


class _Aborted:
    """The aborted transactions that an answer names, batch by batch."""

    def __init__(self, transactions: list[Any]) -> None:
        self._coming = sorted(((t.first_offset, t.producer_id) for t in transactions), reverse=True)
        self._open: set[int] = set()

    def covers(self, data: Any, header: BatchHeader) -> bool:
        """Return whether a batch is of an aborted transaction; batches come in order."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        if header.is_control:
            marker = read_end_transaction_marker(data, header)
            if marker is not None and not marker.commit:
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"
