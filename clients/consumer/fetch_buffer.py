"""What was fetched and not taken yet: chunks of partitions, whose turn comes round.

Rules:
1. Partitions take turns: one batch, or one run of batches, of each.
2. What a broker answers beside records (an error, an offset out of range) waits its turn after
   the records that came before it.
3. An answer is in memory as long as one of its chunks is; `buffered_bytes` counts those of a
   broker, so that it is not asked for more than may be held.

Sans-IO. Called by: `assigned_partitions`; `fetcher` asks what is buffered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kraftrio.clients.consumer.partition import (
    NO_EPOCH,
    AssignedPartition,
    Chunk,
    FetchFailure,
    Position,
)
from kraftrio.clients.consumer.records import ConsumerBatch
from kraftrio.wire.errors import KafkaError


class FetchBuffer:
    """Holds the chunks of all partitions, through the partitions themselves.

    Attributes:
        on_room: called when there is room for the next answer.
        taken_version: the version of the partition that the last batch was taken from.
        fetched_records: how many records have come.
    """

    def __init__(self, *, check_crcs: bool) -> None:
        self.on_room: Callable[[], None] = _nothing
        self.taken_version = 0
        self.fetched_records = 0
        self._check_crcs = check_crcs
        self._ready: deque[AssignedPartition] = deque()  # those with chunks, in turn
        self._bytes: dict[int, int] = {}  # node id -> bytes of answers in memory

    @property
    def all_buffered_bytes(self) -> int:
        """How much of all brokers' answers is still in memory."""
        return sum(self._bytes.values())

    def buffered_bytes(self, node_id: int) -> int:
        """How much of a broker's answers is still in memory."""
        return self._bytes.get(node_id, 0)

    def add(self, partition: AssignedPartition, chunk: Chunk) -> None:
        """Take what was answered for a partition, in order."""
        assert chunk.fetch_offset == partition.fetch_offset, "an answer to another question"
        partition.fetch_offset = chunk.next_offset
        if chunk.leader_epoch != NO_EPOCH:
            partition.fetch_epoch = chunk.leader_epoch
        if chunk.next_offset == chunk.fetch_offset and chunk.failure is None:
            return  # nothing new
        if chunk.answer is not None:
            if not chunk.answer.parts:
                node_id = chunk.answer.node_id
                self._bytes[node_id] = self.buffered_bytes(node_id) + chunk.answer.size_bytes
            chunk.answer.parts += 1
        self.fetched_records += sum(batch.record_count for batch in chunk.batches)
        partition.chunks.append(chunk)
        if not partition.is_queued:
            partition.is_queued = True
            self._ready.append(partition)

    def drop(self, partition: AssignedPartition) -> None:
        """Throw away what was fetched of a partition."""
        for chunk in partition.chunks:
            self._release(chunk)
        partition.chunks.clear()

    def _release(self, chunk: Chunk) -> None:
        answer = chunk.answer
        if answer is None:
            return
        answer.parts -= 1
        if not answer.parts:
            self._bytes[answer.node_id] -= answer.size_bytes

    def take(self) -> ConsumerBatch | None:
        """Return the next batch to hand over; None when there is none now.

        Raises:
            FetchFailure: something went wrong that the application, or the policy, must decide on.
        """
        ready = self._ready
        for _ in range(2 * len(ready)):
            partition = ready[0]
            if not partition.chunks:
                ready.popleft()
                partition.is_queued = False
            elif not partition.is_deliverable:
                ready.rotate(-1)
            elif _is_finished(partition.chunks[0]):
                self._finish(partition)
                ready.rotate(-1)
            else:
                return self._take_from(partition)
            if not ready:
                break
        return None

    def _finish(self, partition: AssignedPartition) -> None:
        """All of a chunk is handed over; the position skips what is behind its last batch."""
        chunk = partition.chunks.popleft()
        self._release(chunk)
        self.on_room()
        position = partition.position
        assert position is not None
        if chunk.next_offset > position.offset:
            partition.position = Position(chunk.next_offset, chunk.leader_epoch)

    def _take_from(self, partition: AssignedPartition) -> ConsumerBatch:
        chunk = partition.chunks[0]
        if chunk.failure is not None:
            raise FetchFailure(partition, chunk.fetch_offset, chunk.failure)
        batch = chunk.batches.popleft()
        try:
            if self._check_crcs:
                batch.verify()
        except KafkaError as error:
            raise FetchFailure(partition, batch.first_offset, error) from None
        self.taken_version = partition.version
        return batch

    def take_run(self, most_records: int) -> list[ConsumerBatch]:
        """Return batches of one partition that follow each other, one at least if there is any.

        Args:
            most_records: enough of them, if it takes several batches.

        Raises:
            FetchFailure: as `take`.
        """
        first = self.take()
        if first is None:
            return []
        run = [first]
        count = first.record_count
        waiting = self._ready[0].chunks[0].batches
        while waiting and (count := count + waiting[0].record_count) <= most_records:
            try:
                if self._check_crcs:
                    waiting[0].verify()
            except KafkaError:
                break  # it is raised when its turn comes
            run.append(waiting.popleft())
        return run

    def put_back(self, partition: AssignedPartition, batches: tuple[ConsumerBatch, ...]) -> None:
        """Take back what was taken of a partition and not handed over; its turn comes next."""
        partition.chunks[0].batches.extendleft(reversed(batches))
        if partition.is_queued:
            self._ready.remove(partition)
        partition.is_queued = True
        self._ready.appendleft(partition)


def _is_finished(chunk: Chunk) -> bool:
    return not chunk.batches and chunk.failure is None


def _nothing() -> None:
    """What is called before the buffer is looked at."""
