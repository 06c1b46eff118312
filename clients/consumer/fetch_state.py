"""What a consumer knows of its partitions, and what it has fetched of them: a state machine.

Owns positions, pauses, and the answers of brokers that nobody has looked at yet. Rules:
1. A partition's `position` moves only when records are handed over (`handed_over`), or over what
   is never handed over (control batches, aborted transactions, gaps). Fetching runs ahead of it,
   from `fetch_offset` on. `settle` is called before a position is looked at or changed: whoever
   hands over records may take note of them later than he does so.
2. Each change of the position from outside (`seek`, a reset, a new leader epoch) throws away what
   was fetched ahead and makes `version` grow, so that nobody goes on with what was taken before,
   and answers that are still under way are not taken; `interrupt` tells.
3. States of a partition:

       INITIALIZING  nothing known: the committed offset is looked up       -> any
       RESETTING     `reset` says where to begin; looked up at the leader   -> FETCHING, VALIDATING
       VALIDATING    the leader is new: is its log still the one read?      -> FETCHING, RESETTING
       FETCHING                                                             -> any

   KIP-320: with the leader epoch of the last record read, the new leader tells where logs part.
   A topic that was made anew (`topic_id`) has another log, of which no position says anything:
   VALIDATING with `is_log_new`, and no leader is asked.
4. Bounded: a broker is asked for no more than `fetch_max_bytes` at a time, less what of its answers
   nobody has taken yet, and not at all before each partition that it leads has but one answer
   left; so one busy partition does not keep the others waiting for its long poll.
5. What a broker answers beside records (an error, an offset out of range) waits its turn behind
   the records that came before it.

Called by: `fetcher` and `positions`, which talk to brokers, and `consumer`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from kraftrio.clients.consumer.config import OffsetReset
from kraftrio.clients.consumer.records import ConsumerBatch
from kraftrio.clients.metadata import ClusterMetadata, is_another
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.primitives import ZERO_UUID, TopicPartition

NO_EPOCH = -1


class FetchStatus(Enum):
    """What has to happen to a partition; see the module's rules."""

    INITIALIZING = "initializing"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


class Position(NamedTuple):
    """The next offset to be handed over, and the leader epoch of the record before it."""

    offset: int
    leader_epoch: int = NO_EPOCH


class Answer:
    """One broker's answer; it is in memory as long as one of its parts is."""

    __slots__ = ("node_id", "parts", "size_bytes")

    def __init__(self, node_id: int, size_bytes: int) -> None:
        self.node_id = node_id
        self.size_bytes = size_bytes
        self.parts = 0


class Chunk:
    """What an answer holds for one partition, or what went wrong after the records before."""

    __slots__ = ("answer", "batches", "failure", "fetch_offset", "next_offset")

    def __init__(
        self,
        fetch_offset: int,
        next_offset: int,
        batches: Iterable[ConsumerBatch] = (),
        answer: Answer | None = None,
        failure: KafkaError | None = None,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.next_offset = next_offset
        self.batches = deque(batches)
        self.answer = answer
        self.failure = failure


class PartitionState:
    """One partition that is assigned."""

    __slots__ = (
        "chunks",
        "current_leader_epoch",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "is_log_new",
        "is_paused",
        "is_queued",
        "last_stable_offset",
        "log_start_offset",
        "position",
        "preferred_node",
        "preferred_until",
        "reset",
        "retry_at",
        "served",
        "status",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.topic_id = ZERO_UUID  # of the topic that the position is in; zeros: not known
        self.is_log_new = False  # the position is that of a topic that had the same name before
        self.status = FetchStatus.INITIALIZING
        self.position: Position | None = None
        self.fetch_offset = 0
        self.fetch_epoch = NO_EPOCH
        self.current_leader_epoch = NO_EPOCH  # with which leader the position was compared
        self.reset: OffsetReset | None = None
        self.chunks: deque[Chunk] = deque()
        self.is_paused = False
        self.is_queued = False  # among those whose turn comes
        self.version = 0
        self.retry_at = 0.0
        self.served = 0  # grows with each answer that held records
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.preferred_node = -1
        self.preferred_until = 0.0

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return f"<{topic}-{partition} {self.status.value} at {self.position}>"

    @property
    def is_deliverable(self) -> bool:
        """Whether its records may be handed over."""
        return self.status is FetchStatus.FETCHING and not self.is_paused


class FetchState:
    """All partitions that are assigned.

    Attributes:
        settle: called before positions are looked at.
        interrupt: called when something that was taken may no longer be handed over.
        wants_more: called when there is room for the next answer.
    """

    def __init__(self, *, check_crcs: bool = True, read_committed: bool = False) -> None:
        self.settle: Callable[[], None] = _nothing
        self.interrupt: Callable[[], None] = _nothing
        self.wants_more: Callable[[], None] = _nothing
        self.read_committed = read_committed
        self._check_crcs = check_crcs
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._ready: deque[PartitionState] = deque()  # those with chunks, in turn
        self._buffered: dict[int, int] = {}  # node id -> bytes of answers in memory
        self._version = 0
        self._taken_version = 0

    # -- the assignment -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._partitions

    def get(self, topic_partition: TopicPartition) -> PartitionState | None:
        """Return a partition's state; None when it is not assigned."""
        return self._partitions.get(topic_partition)

    def reads(self, topic: str) -> bool:
        """Whether some partition of a topic is assigned."""
        return any(assigned == topic for assigned, _ in self._partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned."""
        return frozenset(self._partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Have these partitions and no others; those that stay keep their state."""
        self.settle()
        wanted = dict.fromkeys(partitions)
        for topic_partition in [each for each in self._partitions if each not in wanted]:
            self._drop_chunks(self._partitions.pop(topic_partition))
        for topic_partition in wanted:
            if topic_partition not in self._partitions:
                self._partitions[topic_partition] = PartitionState(topic_partition)
        self.interrupt()
        self.wants_more()

    def in_status(self, status: FetchStatus, now: float) -> list[PartitionState]:
        """Return the partitions in a status that do not back off."""
        return [s for s in self._partitions.values() if s.status is status and s.retry_at <= now]

    def next_retry_at(self, now: float) -> float | None:
        """Return when the next partition has backed off; None if none does."""
        return min(
            (s.retry_at for s in self._partitions.values() if s.retry_at > now), default=None
        )

    # -- positions ------------------------------------------------------------------------------

    def pause(self, state: PartitionState, is_paused: bool) -> None:
        """Hand over no more of a partition, or again."""
        state.is_paused = is_paused
        self.interrupt()
        self.wants_more()

    def seek(self, state: PartitionState, position: Position, *, validate: bool) -> None:
        """Continue at a position.

        Args:
            validate: the leader's log is compared with the position's leader epoch, if that is
                another one than the leader's own.
        """
        self.settle()
        self._start_over(state)
        state.position = position
        state.is_log_new = False
        state.reset = None
        state.fetch_offset, state.fetch_epoch = position
        needs_validation = validate and position.leader_epoch not in (
            NO_EPOCH,
            state.current_leader_epoch,
        )
        state.status = FetchStatus.VALIDATING if needs_validation else FetchStatus.FETCHING

    def request_reset(self, state: PartitionState, reset: OffsetReset) -> None:
        """Forget the position and look up where to begin."""
        self.settle()
        self._start_over(state)
        state.position = None
        state.is_log_new = False
        state.reset = reset
        state.status = FetchStatus.RESETTING

    def note_metadata(self, state: PartitionState, metadata: ClusterMetadata) -> None:
        """Take note of the topic that has the partition, and of who leads it."""
        topic, partition = state.topic_partition
        self.topic_seen(state, metadata.topic_id(topic))
        leader = metadata.leader(topic, partition)
        if leader is not None:
            self.leader_seen(state, leader[1])

    def topic_seen(self, state: PartitionState, topic_id: bytes) -> None:
        """Take note of the topic's id; one that was made anew has nothing of what was read."""
        if is_another(topic_id, state.topic_id):
            self._begin_new_log(state)
        if topic_id != ZERO_UUID:
            state.topic_id = topic_id

    def leader_seen(self, state: PartitionState, leader_epoch: int) -> None:
        """Take note of the partition's leader; the log of a new one is compared."""
        if leader_epoch <= state.current_leader_epoch:
            return
        self.settle()
        state.current_leader_epoch = leader_epoch
        position = state.position
        if state.status is FetchStatus.FETCHING and position is not None:
            if position.leader_epoch not in (NO_EPOCH, leader_epoch):
                self.seek(state, position, validate=True)
            elif state.chunks and state.fetch_epoch != leader_epoch:
                self.seek(state, position, validate=False)  # fetched ahead from another's log

    def _begin_new_log(self, state: PartitionState) -> None:
        """The partition is another topic's now: nothing of the former one counts any more."""
        self.settle()
        self._start_over(state)
        state.current_leader_epoch = state.fetch_epoch = NO_EPOCH
        state.high_watermark = state.last_stable_offset = state.log_start_offset = -1
        if state.position is not None:
            state.is_log_new = True
            state.status = FetchStatus.VALIDATING

    def validated(self, state: PartitionState) -> None:
        """The leader's log is the one that was read."""
        assert state.status is FetchStatus.VALIDATING
        state.status = FetchStatus.FETCHING
        self.wants_more()

    def _start_over(self, state: PartitionState) -> None:
        self._drop_chunks(state)
        state.retry_at = 0.0
        state.preferred_node = -1

    def _drop_chunks(self, state: PartitionState) -> None:
        self._version += 1
        state.version = self._version
        for chunk in state.chunks:
            self._release(chunk)
        state.chunks.clear()
        self.interrupt()
        self.wants_more()

    # -- what was fetched -----------------------------------------------------------------------

    def buffered_bytes(self, node_id: int) -> int:
        """How much of a broker's answers is still in memory."""
        return self._buffered.get(node_id, 0)

    def wants_fetch(self, state: PartitionState) -> bool:
        """Whether more records are wanted of a partition: it is neither paused nor in doubt."""
        return state.is_deliverable and not (state.chunks and state.chunks[-1].failure)

    def has_room(self, state: PartitionState) -> bool:
        """Whether the next answer for a partition may come."""
        return len(state.chunks) <= 1

    def add(self, state: PartitionState, chunk: Chunk, leader_epoch: int = NO_EPOCH) -> None:
        """Take what was answered for a partition, in order."""
        assert chunk.fetch_offset == state.fetch_offset, "an answer to another question"
        state.fetch_offset = chunk.next_offset
        if leader_epoch != NO_EPOCH:
            state.fetch_epoch = leader_epoch
        if chunk.next_offset == chunk.fetch_offset and chunk.failure is None:
            return  # nothing new
        if chunk.answer is not None:
            if not chunk.answer.parts:
                node_id = chunk.answer.node_id
                self._buffered[node_id] = self.buffered_bytes(node_id) + chunk.answer.size_bytes
            chunk.answer.parts += 1
        state.chunks.append(chunk)
        if not state.is_queued:
            state.is_queued = True
            self._ready.append(state)

    def _release(self, chunk: Chunk) -> None:
        answer = chunk.answer
        if answer is None:
            return
        answer.parts -= 1
        if not answer.parts:
            self._buffered[answer.node_id] -= answer.size_bytes

    def take(self) -> ConsumerBatch | None:
        """Return the next batch to hand over; None when there is none now.

        Raises:
            FetchFailure: something went wrong that the application, or the policy, must decide on.
        """
        self.settle()
        ready = self._ready
        for _ in range(2 * len(ready)):
            state = ready[0]
            if not state.chunks:
                ready.popleft()
                state.is_queued = False
            elif not state.is_deliverable:
                ready.rotate(-1)
            elif self._is_finished(state.chunks[0]):
                self._finish(state)
                ready.rotate(-1)
            else:
                return self._take_from(state)
            if not ready:
                break
        return None

    def _is_finished(self, chunk: Chunk) -> bool:
        return not chunk.batches and chunk.failure is None

    def _finish(self, state: PartitionState) -> None:
        """All of a chunk is handed over; the position skips what is behind its last batch."""
        chunk = state.chunks.popleft()
        self._release(chunk)
        self.wants_more()
        position = state.position
        assert position is not None
        if chunk.next_offset > position.offset:
            state.position = Position(chunk.next_offset, position.leader_epoch)

    def _take_from(self, state: PartitionState) -> ConsumerBatch:
        chunk = state.chunks[0]
        if chunk.failure is not None:
            offset, cause = chunk.fetch_offset, chunk.failure
        else:
            batch = chunk.batches.popleft()
            try:
                if self._check_crcs:
                    batch.verify()
            except KafkaError as error:
                offset, cause = batch.first_offset, error
            else:
                self._taken_version = state.version
                return batch
        self.fetch_again(state.topic_partition)
        raise FetchFailure(state, offset, cause)

    def fetch_again(self, topic_partition: TopicPartition) -> None:
        """Drop what was fetched ahead: what is fetched again may be better."""
        state = self._partitions[topic_partition]
        assert state.position is not None
        self.seek(state, state.position, validate=False)

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
                break  # it is told when its turn comes
            run.append(waiting.popleft())
        return run

    @property
    def taken_version(self) -> int:
        """The version of the partition that the last batch was taken from."""
        return self._taken_version

    def put_back(self, *batches: ConsumerBatch) -> None:
        """Take back what was taken of a partition, of this version, and not handed over."""
        state = self._partitions[batches[0].topic_partition]
        state.chunks[0].batches.extendleft(reversed(batches))
        if state.is_queued:
            self._ready.remove(state)
        state.is_queued = True
        self._ready.appendleft(state)

    def handed_over(self, topic_partition: TopicPartition, position: Position) -> None:
        """Move the position: everything before is the application's now."""
        state = self._partitions.get(topic_partition)
        if state is not None and state.position is not None:
            state.position = position


class FetchFailure(Exception):
    """What stopped a partition at an offset; the next `take` tries again from its position."""

    def __init__(self, state: PartitionState, offset: int, cause: KafkaError) -> None:
        super().__init__(str(cause))
        self.state = state
        self.offset = offset
        self.cause = cause


def _nothing() -> None:
    """What is called before somebody wants to know."""
