"""What must hold of transactions in a cluster at every instant, found by reading the logs again.

Owns: `TransactionInvariants`. `Invariants` notifies it of each replica whose log or high watermark
has changed, and asks it to `finish` after all of them. It parses batches itself. What it checks
1. A replica's last stable offset is where the oldest transaction begins that is not decided below
   its high watermark, else its high watermark; never more, and never less.
2. A marker is in nobody's log before the record that prepares it is committed.
3. A transaction is recorded as complete only when its markers are committed everywhere.
4. Records of a transactional id move on legally, and its epochs never go back.

What a replica has lost of compacted topics, since they were compacted, was seen before that. A
replica may go offline at the instant at which it commits something, of which nobody else knows yet:
what depends on that is looked at again at the end.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kraftrio.broker.replica.partition import Partition
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.codec.message import decode
from kraftrio.wire.messages.transactions import TransactionLogKey, TransactionLogValue
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import BatchHeader, iter_headers, iter_records
from kraftrio.wire.records.control import read_end_transaction_marker
from tests.sim.log_contents import read_files

_STATES = "__transaction_state"
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
_MAY_COME_FROM = {
    ONGOING: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
    EMPTY: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
}
_INT16 = struct.Struct(">h")


class Ending(NamedTuple):
    """How a producer's transaction ends."""

    producer_id: int
    producer_epoch: int
    commit: bool


class Span(NamedTuple):
    """Where a decided transaction lies."""

    marker_offset: int
    first_offset: int
    producer_id: int


@dataclass(slots=True)
class StableData:
    """What is committed of a partition, as far as any replica ever held it to be."""

    end: int = 0
    open: dict[int, int] = field(default_factory=dict)  # producer id -> first offset
    spans: list[Span] = field(default_factory=list)  # by their markers

    def last_stable_offset(
        self, high_watermark: int, first_offset: Callable[[Span], int] | None = None
    ) -> int:
        """Where committed data ends for whoever holds this much to be committed.

        Args:
            first_offset: where a decided transaction begins in a log; None: where it began.
        """
        offset = min([high_watermark, *self.open.values()])
        for span in reversed(self.spans):
            if span.marker_offset < high_watermark:
                break
            first = span.first_offset if first_offset is None else first_offset(span)
            offset = min(offset, first)
        return offset


@dataclass(slots=True)
class _Transaction:
    """The newest committed record of a transactional id."""

    state: int
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


class TransactionInvariants:
    """See the module."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[bytes, int], StableData] = {}
        self._transactions: dict[str, _Transaction] = {}
        self._prepared: set[Ending] = set()
        self._marked: dict[Ending, set[TopicPartition]] = {}
        self._new_markers: list[tuple[str, Ending]] = []
        self._complete: list[tuple[str, Ending, frozenset[TopicPartition]]] = []
        self._unseen: dict[TopicPartition, int] = {}  # up to where offline replicas committed more
        self._later: list[Callable[[], None]] = []
        self.marker_count = 0
        self.completion_count = 0

    def on_append(self, partition: Partition, name: str, start: int, end: int) -> None:
        """A replica has appended something."""
        for header, data in _batches(partition, start, end):
            ending = _ending(header, data)
            if ending is not None:
                self._new_markers.append((name, ending))

    def on_offline(self, partition: Partition, key: tuple[bytes, int]) -> None:
        """A replica is offline; nothing can be read from it."""
        known = self._partitions.setdefault(key, StableData())
        if partition.log.high_watermark > known.end:
            self._unseen[partition.topic_partition] = partition.log.high_watermark

    def on_high_watermark(
        self, partition: Partition, key: tuple[bytes, int], name: str, *, knows_all: bool
    ) -> None:
        """A replica holds more, or less, to be committed.

        Args:
            knows_all: which transactions were not decided when it began.
        """
        log, tp = partition.log, partition.topic_partition
        known = self._partitions.setdefault(key, StableData())
        high_watermark = log.high_watermark
        if high_watermark > known.end:
            for header, data in _batches(partition, known.end, high_watermark):
                self._commit(tp, known, header, data)
            known.end = high_watermark
            if high_watermark >= self._unseen.get(tp, 0):
                self._unseen.pop(tp, None)
        found = log.last_stable_offset
        expected = max(known.last_stable_offset(high_watermark), log.log_start_offset)
        if found > expected:
            # What compaction has removed of a decided transaction holds nothing back.
            left = partial(_first_left, partition)
            expected = max(known.last_stable_offset(high_watermark, left), log.log_start_offset)
        if found > high_watermark or (found != expected and knows_all):
            raise SimulationFailure(
                f"{name}: the last stable offset is {found}, but must be {expected} with a high"
                f" watermark of {high_watermark}"
            )

    def _commit(
        self, tp: TopicPartition, known: StableData, header: BatchHeader, data: Any
    ) -> None:
        ending = _ending(header, data)
        if ending is not None:
            self._marked.setdefault(ending, set()).add(tp)
            first = known.open.pop(header.producer_id, None)
            if first is not None:
                insort(known.spans, Span(header.base_offset, first, header.producer_id))
        elif header.is_transactional and not header.is_control:
            known.open.setdefault(header.producer_id, header.base_offset)
        if tp.topic == _STATES and not header.is_control:
            for record in iter_records(data, header):
                self._on_state(record.key or b"", record.value)

    # -- the coordinator's records ----------------------------------------------------------------

    def _on_state(self, key: bytes, value: bytes | None) -> None:
        transactional_id = decode(TransactionLogKey, 0, key, _INT16.size)[0].transactional_id
        before = self._transactions.pop(transactional_id, None)
        if value is None:
            return
        stored = decode(TransactionLogValue, _INT16.unpack_from(value)[0], value, _INT16.size)[0]
        state = stored.transaction_status
        found = self._transactions[transactional_id] = _Transaction(
            state,
            stored.producer_id,
            stored.producer_epoch,
            frozenset(
                TopicPartition(topic.topic, partition)
                for topic in stored.transaction_partitions or []
                for partition in topic.partition_ids
            ),
        )
        if before is not None:
            _check_move(transactional_id, before, found)
        if state in (PREPARE_COMMIT, PREPARE_ABORT):
            commit = state == PREPARE_COMMIT
            self._prepared.add(Ending(found.producer_id, found.producer_epoch, commit))
        if before is not None and state in (COMPLETE_COMMIT, COMPLETE_ABORT):
            commit = state == COMPLETE_COMMIT
            ending = Ending(before.producer_id, before.producer_epoch, commit)
            self._complete.append((transactional_id, ending, before.partitions))

    def finish(self) -> None:
        """Compare what came since the last call: all of it came at one instant."""
        for name, ending in self._new_markers:
            self.marker_count += 1
            if any(tp.topic == _STATES for tp in self._unseen):
                self._later.append(partial(self._check_prepared, name, ending))
            else:
                self._check_prepared(name, ending)
        self._new_markers.clear()
        for transactional_id, ending, partitions in self._complete:
            self.completion_count += 1
            unseen = partitions & self._unseen.keys()
            self._check_marked(transactional_id, ending, partitions - unseen)
            if unseen:
                self._later.append(partial(self._check_marked, transactional_id, ending, unseen))
        self._complete.clear()

    def finish_all(self) -> None:
        """Look again at what could not be seen when it happened."""
        self.finish()
        for check in self._later:
            check()

    def _check_prepared(self, name: str, ending: Ending) -> None:
        if ending not in self._prepared:
            raise SimulationFailure(f"{name} has the marker of {ending}, which is not prepared")

    def _check_marked(
        self, transactional_id: str, ending: Ending, partitions: frozenset[TopicPartition]
    ) -> None:
        missing = sorted(partitions - self._marked.get(ending, set()))
        if missing:
            raise SimulationFailure(
                f"{transactional_id} is complete, but the marker of {ending} is not committed"
                f" in {missing[0].topic}-{missing[0].partition}"
            )


def _check_move(transactional_id: str, before: _Transaction, found: _Transaction) -> None:
    if before.state not in _MAY_COME_FROM[found.state]:
        raise SimulationFailure(
            f"{transactional_id} moved from state {before.state} to {found.state}"
        )
    if before.producer_id == found.producer_id and before.producer_epoch > found.producer_epoch:
        raise SimulationFailure(
            f"{transactional_id} had epoch {before.producer_epoch}, has {found.producer_epoch}"
        )


def _ending(header: BatchHeader, data: Any) -> Ending | None:
    if not header.is_control:
        return None
    marker = read_end_transaction_marker(data, header)
    if marker is None:
        return None
    return Ending(header.producer_id, header.producer_epoch, marker.commit)


def _first_left(partition: Partition, span: Span) -> int:
    """The first offset that a log still has of a decided transaction; else its marker's."""
    for header, _ in _batches(partition, span.first_offset, span.marker_offset):
        if header.producer_id == span.producer_id:
            return header.base_offset
    return span.marker_offset


def _batches(partition: Partition, start: int, end: int) -> list[tuple[BatchHeader, Any]]:
    """The batches of a log between two offsets, and the bytes that their headers lie in."""
    log = partition.log
    start = max(start, log.log_start_offset)
    found: list[tuple[BatchHeader, Any]] = []
    while start < end:
        read = read_files(log, start, end)
        if read is None or not len(read.records):
            break
        data = memoryview(read.records)
        headers = list(iter_headers(data, allow_partial=True))
        found += [(header, data) for header in headers if header.base_offset >= start]
        if not headers or headers[-1].next_offset <= start:
            break
        start = headers[-1].next_offset
    return found
