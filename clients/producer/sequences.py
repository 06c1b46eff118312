"""What makes a producer idempotent: its id and epoch, and the sequences of partitions' records.

Owns `Sequences`. Rules, as in Kafka's TransactionManager (KIP-98, KIP-360):
1. A batch gets its sequence when it is first sent and keeps it, however often it is sent; a broker
   accepts only the next sequence, so order is kept and nothing is written twice.
2. A retried batch is sent alone: only the first unanswered batch of a partition may go, until all
   that were sent before are answered.
3. The first batch of a partition in an epoch is sent alone: a broker that does not know the
   producer would accept the second one without it.
4. A batch given up after it was sent leaves its partition unresolved: nothing new is sent there
   until the batches sent after it show whether it was written.
5. A gap that cannot be closed (a batch refused for good, or the broker lost the producer's state)
   raises the epoch by one; that partition's batches after the gap start again at 0 once those
   before it are answered, other partitions do once all of theirs are. (Kafka's client renumbers
   those before the gap, too, and so may write one twice.) When no epoch is left a new id is
   requested.
6. A partition whose topic was re-created knows no producer: there is a gap after all that was sent.

Sans-IO. Called by: `accumulator`.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from kraftrio.clients.producer.batch import Batch
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import (
    MAX_PRODUCER_EPOCH,
    MAX_SEQUENCE,
    NO_PRODUCER_ID,
    is_later_sequence,
)


class PartitionSequence:
    """The order of one partition's records."""

    __slots__ = (
        "is_unresolved",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "unanswered",
    )

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.unanswered: deque[Batch] = deque()  # sent at least once, in the order of sequences
        self.is_unresolved = False

    def is_next(self, sequence: int) -> bool:
        """Whether this sequence follows the last one that the broker has."""
        return sequence == (self.last_acked_sequence + 1) & MAX_SEQUENCE


class Sequences:
    """The producer's id and epoch, and the rules for the sequences of its partitions."""

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        # Partitions with a gap, and the unanswered batches before it.
        self._to_restart: dict[PartitionSequence, set[Batch]] = {}
        # Partitions where it is not known what was written, and the sequence after that.
        self._unresolved: dict[PartitionSequence, int] = {}

    @property
    def needs_producer_id(self) -> bool:
        """Whether nothing can be sent before an id is given."""
        return self.producer_id == NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """Set the id and epoch that a broker gave."""
        assert self.needs_producer_id, "an id is requested only when there is none"
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._restart()

    # -- sending --------------------------------------------------------------------------------

    def may_send(self, sequence: PartitionSequence, batch: Batch) -> bool:
        """Whether the partition's first batch may be sent now."""
        if self.needs_producer_id:
            return False
        unanswered = sequence.unanswered
        if batch.has_sequence:
            return unanswered[0] is batch
        if unanswered and (sequence.last_acked_sequence < 0 or self._is_stale(sequence)):
            return False
        return not sequence.is_unresolved and sequence not in self._to_restart

    def on_send(self, sequence: PartitionSequence, batch: Batch) -> None:
        """Give a batch that is sent for the first time its sequence."""
        if batch.has_sequence:
            return
        if self._is_stale(sequence):
            self._start_at_beginning(sequence)
        batch.set_producer(self.producer_id, self.producer_epoch, sequence.next_sequence)
        sequence.next_sequence = (sequence.next_sequence + batch.record_count) & MAX_SEQUENCE
        sequence.unanswered.append(batch)

    def _is_stale(self, sequence: PartitionSequence) -> bool:
        return (
            sequence.producer_id != self.producer_id
            or sequence.producer_epoch != self.producer_epoch
        )

    def _start_at_beginning(self, sequence: PartitionSequence) -> None:
        """Renumber the unanswered batches from 0, with the current id and epoch."""
        sequence.producer_id = self.producer_id
        sequence.producer_epoch = self.producer_epoch
        next_sequence = 0
        for batch in sequence.unanswered:
            batch.set_producer(self.producer_id, self.producer_epoch, next_sequence)
            batch.sequence_was_reset = True
            next_sequence = (next_sequence + batch.record_count) & MAX_SEQUENCE
        sequence.next_sequence = next_sequence
        sequence.last_acked_sequence = -1

    # -- answers --------------------------------------------------------------------------------

    def on_delivered(self, sequence: PartitionSequence, batch: Batch, base_offset: int) -> None:
        """The broker has the batch."""
        sequence.unanswered.remove(batch)
        is_current = (batch.producer_id, batch.producer_epoch) == (
            sequence.producer_id,
            sequence.producer_epoch,
        )
        if is_current and _is_after(batch.last_sequence, sequence.last_acked_sequence):
            sequence.last_acked_sequence = batch.last_sequence
        if base_offset >= 0:
            last_offset = base_offset + batch.record_count - 1
            sequence.last_acked_offset = max(sequence.last_acked_offset, last_offset)

    def may_retry(
        self, sequence: PartitionSequence, batch: Batch, code: ErrorCode, log_start_offset: int
    ) -> bool:
        """Whether a batch that failed is to be sent again, as far as sequences know."""
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset != -1 and not batch.sequence_was_reset:
                self._note_gap(sequence, batch)
            return True
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            is_next = sequence.is_next(batch.base_sequence)
            if not sequence.is_unresolved and (batch.sequence_was_reset or not is_next):
                return True  # a batch before it is to be sent again, and will close the gap
            if not sequence.is_unresolved or self._unresolved[sequence] == batch.base_sequence:
                self._note_gap(sequence, batch)
            return True
        return code.retriable

    def on_failed(self, sequence: PartitionSequence, batch: Batch, *, refused: bool) -> None:
        """A batch is given up after it was sent.

        Args:
            refused: the broker said that it did not write it; else it may have.
        """
        if refused:
            self._note_gap(sequence, batch)
        sequence.unanswered.remove(batch)
        if not refused:
            sequence.is_unresolved = True
            self._unresolved[sequence] = (batch.last_sequence + 1) & MAX_SEQUENCE

    def on_new_log(self, sequence: PartitionSequence) -> None:
        """The partition's log was replaced by an empty one, which accepts any first sequence.

        What was sent may be in either: it keeps its sequences until it is answered.
        """
        if sequence.producer_id == NO_PRODUCER_ID:
            return  # nothing was ever sent there
        sequence.last_acked_sequence = sequence.last_acked_offset = -1
        self._to_restart[sequence] = set(sequence.unanswered)

    def on_split(self, sequence: PartitionSequence, batch: Batch, parts: list[Batch]) -> None:
        """A batch is replaced by parts that were never sent, in its place in the order."""
        unanswered = sequence.unanswered
        index = unanswered.index(batch)
        unanswered.remove(batch)
        if batch in (before := self._to_restart.get(sequence, set())):
            before.update(parts)
        next_sequence = batch.base_sequence
        for offset, part in enumerate(parts):
            part.set_producer(batch.producer_id, batch.producer_epoch, next_sequence)
            part.sequence_was_reset = batch.sequence_was_reset
            next_sequence = (next_sequence + part.record_count) & MAX_SEQUENCE
            unanswered.insert(index + offset, part)

    @property
    def is_settled(self) -> bool:
        """Whether `settle` has nothing to do."""
        return not (self._unresolved or self._to_restart)

    def settle(self) -> None:
        """Resolve what can be, and raise the epoch if there are gaps; called before sending."""
        for sequence in [each for each in self._unresolved if not each.unanswered]:
            del self._unresolved[sequence]
            sequence.is_unresolved = False
            if not sequence.is_next(sequence.next_sequence):
                self._to_restart[sequence] = set()
        if self.needs_producer_id or not self._ready_to_restart():
            return
        if self.producer_epoch == MAX_PRODUCER_EPOCH:
            self.producer_id, self.producer_epoch = NO_PRODUCER_ID, -1
        else:
            self.producer_epoch += 1
            self._restart()

    def _note_gap(self, sequence: PartitionSequence, batch: Batch) -> None:
        """The broker refuses this batch and those after it in this epoch.

        Those before it may have been written without an answer: they keep their sequences.
        """
        unanswered = sequence.unanswered
        before = set(islice(unanswered, unanswered.index(batch)))
        known = self._to_restart.get(sequence)
        self._to_restart[sequence] = before if known is None else before & known

    def _ready_to_restart(self) -> list[PartitionSequence]:
        """The partitions with a gap before which everything is answered."""
        return [
            sequence
            for sequence, before in self._to_restart.items()
            if before.isdisjoint(sequence.unanswered)
        ]

    def _restart(self) -> None:
        for sequence in self._ready_to_restart():
            self._start_at_beginning(sequence)
            sequence.is_unresolved = False
            self._unresolved.pop(sequence, None)
            del self._to_restart[sequence]


def _is_after(sequence: int, other: int) -> bool:
    """Whether a sequence is later than another, which may be none."""
    return other < 0 or is_later_sequence(sequence, other)
