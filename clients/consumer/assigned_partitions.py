"""What a consumer knows of the partitions it reads: where it is, and what has to be found out.

Owns positions and pauses; what was fetched is `fetch_buffer`'s. Rules:
1. A partition's `position` moves only when records are handed over (`handed_over`), or over what
   is never handed over (control batches, aborted transactions, gaps). Fetching runs ahead of it,
   from `fetch_offset` on. `settle` is called before a position is looked at or changed: the caller
   that hands over records may report them later.
2. Each change of the position from outside (`seek`, a reset, a new leader epoch) throws away what
   was fetched ahead and makes `version` grow, so that no caller goes on with what was taken before,
   and answers that are still under way are not taken; `interrupt` is called.
3. Bounded: a broker is asked for at most `fetch_max_bytes` at a time, less what of its answers
   nobody has taken yet, and not at all before each partition that it leads has but one answer
   left; so one busy partition does not keep the others waiting for its long poll.

Sans-IO. Called by: `fetcher` and `positions`, which talk to brokers, `handover` and `consumer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kraftrio.clients.arguments.several import Partitions, all_partitions
from kraftrio.clients.arguments.several import topic_partition as as_partition
from kraftrio.clients.consumer.config import OffsetReset
from kraftrio.clients.consumer.fetch_buffer import FetchBuffer
from kraftrio.clients.consumer.partition import (
    NO_EPOCH,
    AssignedPartition,
    FetchFailure,
    FetchStatus,
    Position,
)
from kraftrio.clients.consumer.records import ConsumerBatch
from kraftrio.clients.metadata import ClusterMetadata, is_another
from kraftrio.wire.primitives import ZERO_UUID, TopicPartition


class AssignedPartitions:
    """All partitions that are assigned.

    Attributes:
        settle: called before positions are looked at.
        interrupt: called when something that was taken may no longer be handed over.
        buffer: what was fetched of them.
    """

    def __init__(self, *, check_crcs: bool = True, read_committed: bool = False) -> None:
        self.settle: Callable[[], None] = _nothing
        self.interrupt: Callable[[], None] = _nothing
        self.buffer = FetchBuffer(check_crcs=check_crcs)
        self.read_committed = read_committed
        self._partitions: dict[TopicPartition, AssignedPartition] = {}
        self._version = 0

    # -- the assignment -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._partitions

    def get(self, topic_partition: TopicPartition) -> AssignedPartition | None:
        """Return a partition's state; None when it is not assigned."""
        return self._partitions.get(topic_partition)

    def assigned(self, topic_partition: TopicPartition) -> AssignedPartition:
        """Return the state of a partition that a program names.

        Raises:
            ValueError: it is not assigned.
        """
        topic, partition = wanted = as_partition(topic_partition)
        state = self._partitions.get(wanted)
        if state is None:
            raise ValueError(f"{topic}-{partition} is not assigned to this consumer")
        return state

    def chosen(self, partitions: Iterable[Partitions]) -> list[AssignedPartition]:
        """Return the states of those that a program names, or of all if it names none.

        Raises:
            ValueError: one is not assigned.
        """
        return [
            self.assigned(each)
            for each in all_partitions("partitions", partitions) or sorted(self._partitions)
        ]

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
                self._partitions[topic_partition] = AssignedPartition(topic_partition)
        self.interrupt()
        self.buffer.on_room()

    def in_status(self, status: FetchStatus, now: float) -> list[AssignedPartition]:
        """Return the partitions in a status that do not back off."""
        return [s for s in self._partitions.values() if s.status is status and s.retry_at <= now]

    def next_retry_at(self, now: float) -> float | None:
        """Return when the next partition has backed off; None if none does."""
        return min(
            (s.retry_at for s in self._partitions.values() if s.retry_at > now), default=None
        )

    # -- positions ------------------------------------------------------------------------------

    def pause(self, state: AssignedPartition, is_paused: bool) -> None:
        """Stop handing over records of a partition, or start again."""
        state.is_paused = is_paused
        self.interrupt()
        self.buffer.on_room()

    def seek(self, state: AssignedPartition, position: Position, *, validate: bool) -> None:
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

    def request_reset(self, state: AssignedPartition, reset: OffsetReset) -> None:
        """Forget the position and look up where to begin."""
        self.settle()
        self._start_over(state)
        state.position = None
        state.is_log_new = False
        state.reset = reset
        state.status = FetchStatus.RESETTING

    def note_metadata(self, state: AssignedPartition, metadata: ClusterMetadata) -> None:
        """Take note of the topic that has the partition, and of who leads it."""
        topic, partition = state.topic_partition
        self.topic_seen(state, metadata.topic_id(topic))
        leader = metadata.leader(topic, partition)
        if leader is not None:
            self.leader_seen(state, leader[1])

    def topic_seen(self, state: AssignedPartition, topic_id: bytes) -> None:
        """Take note of the topic's id; one that was re-created has nothing of what was read."""
        if is_another(topic_id, state.topic_id):
            self._begin_new_log(state)
        if topic_id != ZERO_UUID:
            state.topic_id = topic_id

    def leader_seen(self, state: AssignedPartition, leader_epoch: int) -> None:
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

    def _begin_new_log(self, state: AssignedPartition) -> None:
        """The partition is another topic's now: nothing of the former one counts any more."""
        self.settle()
        self._start_over(state)
        state.current_leader_epoch = state.fetch_epoch = NO_EPOCH
        state.high_watermark = state.last_stable_offset = state.log_start_offset = -1
        if state.position is not None:
            state.is_log_new = True
            state.status = FetchStatus.VALIDATING

    def validated(self, state: AssignedPartition) -> None:
        """The leader's log is the one that was read."""
        assert state.status is FetchStatus.VALIDATING
        state.status = FetchStatus.FETCHING
        self.buffer.on_room()

    def _start_over(self, state: AssignedPartition) -> None:
        self._drop_chunks(state)
        state.retry_at = 0.0
        state.preferred_node = -1

    def _drop_chunks(self, state: AssignedPartition) -> None:
        self._version += 1
        state.version = self._version
        self.buffer.drop(state)
        self.interrupt()
        self.buffer.on_room()

    # -- what was fetched -----------------------------------------------------------------------

    def take(self) -> ConsumerBatch | None:
        """Return the next batch to hand over; None when there is none now.

        Raises:
            FetchFailure: something went wrong that the application, or the policy, must decide on;
                it was dropped, and is fetched again unless that is decided otherwise.
        """
        self.settle()
        try:
            return self.buffer.take()
        except FetchFailure as failure:
            self.fetch_again(failure.partition.topic_partition)
            raise

    def take_run(self, most_records: int) -> list[ConsumerBatch]:
        """As `take`, several batches of one partition: see `FetchBuffer.take_run`."""
        self.settle()
        try:
            return self.buffer.take_run(most_records)
        except FetchFailure as failure:
            self.fetch_again(failure.partition.topic_partition)
            raise

    def fetch_again(self, topic_partition: TopicPartition) -> None:
        """Drop what was fetched ahead: what is fetched again may be better."""
        state = self._partitions[topic_partition]
        assert state.position is not None
        self.seek(state, state.position, validate=False)

    def put_back(self, *batches: ConsumerBatch) -> None:
        """Take back what was taken of a partition, of this version, and not handed over."""
        self.buffer.put_back(self._partitions[batches[0].topic_partition], batches)

    def handed_over(self, topic_partition: TopicPartition, position: Position) -> None:
        """Move the position: everything before is the application's now."""
        state = self._partitions.get(topic_partition)
        if state is not None and state.position is not None:
            state.position = position


def _nothing() -> None:
    """What is called before positions are looked at."""
