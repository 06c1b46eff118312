"""Producers of one partition: sequences, epochs, open transactions, last stable offset.

Owns what makes produce idempotent and transactional (KIP-98, KIP-360, KIP-890) in one partition:
per producer its epoch, its last five batches, its open transaction and the coordinator epoch of its
last marker. It is a core: `partition_log` calls it, reads and writes the snapshot files and replays
headers after a crash.

Rules:
1. `check` never changes anything and `update` never refuses: a batch is checked, appended, and
   only then recorded. What is on disk already (replicas, replay) is recorded without a check.
2. A batch equal (epoch, first and last sequence) to one of the last five is a duplicate and gets
   the answer the original got. Older repeats are OUT_OF_ORDER_SEQUENCE_NUMBER, as in Kafka.
3. Without state for a producer id any first sequence is accepted: its records may be deleted.
4. A new epoch starts at sequence 0; 0 follows 2^31-1.
5. Producers expire by the broker's time of their last batch, not by the client's timestamps.
   Those with an open transaction never expire.
6. A transaction holds back the last stable offset until its marker is below the high watermark:
   first as ongoing, then as decided but unreplicated.
7. The first batch of a transaction whose verification was asked for is appended only while its
   guard counts (`verifications`).
8. From transaction.version 2 on each marker has a new epoch. One of the current epoch is a repeat,
   and taken, if nothing is open; else it is late: the producer has begun another transaction.

Snapshots are Kafka's `.snapshot` files (message ProducerSnapshot, version 1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from crc32c import crc32c

from kraftrio.broker.log.producers.unreplicated import UnreplicatedTransactions
from kraftrio.broker.log.producers.verifications import (
    ONGOING,
    Verification,
    VerificationGuard,
    Verifications,
)
from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import (
    MAX_PRODUCER_EPOCH,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    BatchHeader,
    is_later_sequence,
    sequence_after,
)
from kraftrio.wire.records.control import EndTransactionMarker

BATCHES_KEPT = 5
"""Kafka's limit of requests in flight for idempotent producers, so no older retry can be honest."""
NO_SEQUENCE = -1
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6


class AppendOrigin(Enum):
    """Who appends, which decides what is checked."""

    CLIENT = auto()  # everything
    COORDINATOR = auto()  # epochs, but no sequences


class Duplicate(NamedTuple):
    """Where the first copy of a repeated batch went."""

    base_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended; aborted ones go into the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class BatchMetadata(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


@dataclass(slots=True)
class ProducerEntry:
    """State of one producer id; `batches` are oldest first and all of `producer_epoch`."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    batches: list[BatchMetadata] = field(default_factory=list)
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    current_txn_first_offset: int | None = None
    last_update_ms: int = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the batch that `header` repeats."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if (
                batch.last_sequence == last_sequence
                and batch.offset_delta == header.last_offset_delta
            ):
                return batch
        return None

    def _set_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()

    def add_batch(self, header: BatchHeader, last_offset: int) -> None:
        """Record an appended data batch."""
        self._set_epoch(header.producer_epoch)
        if len(self.batches) == BATCHES_KEPT:
            del self.batches[0]
        self.batches.append(
            BatchMetadata(
                header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp
            )
        )
        self.last_timestamp = header.max_timestamp

    def recall_batch(self, header: BatchHeader) -> None:
        """Put a batch of the log before the oldest one kept, if it is the one that precedes it."""
        if not self.batches or len(self.batches) == BATCHES_KEPT:
            return
        oldest = self.batches[0]
        if (
            header.producer_epoch == self.producer_epoch
            and header.last_offset < oldest.base_offset
            and sequence_after(header.last_sequence, 1) == oldest.base_sequence
        ):
            self.batches.insert(
                0,
                BatchMetadata(
                    header.last_sequence,
                    header.last_offset,
                    header.last_offset_delta,
                    header.max_timestamp,
                ),
            )

    def add_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        """Record an appended marker, which closes the open transaction."""
        self._set_epoch(header.producer_epoch)
        self.current_txn_first_offset = None
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp = header.max_timestamp


class ProducerStateManager:
    """All producers of one partition."""

    def __init__(
        self, *, producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS
    ) -> None:
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.map_end_offset = 0  # everything below is recorded here
        self._verifications = Verifications()
        self._producers: dict[int, ProducerEntry] = {}
        # First offset -> producer id, in order: appends only go up, and loading sorts.
        self._ongoing: dict[int, int] = {}
        # Made with the first one: most partitions have no transactions.
        self._unreplicated: UnreplicatedTransactions | None = None

    # Checking and recording

    def check(
        self,
        header: BatchHeader,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        marker: EndTransactionMarker | None = None,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> Duplicate | None:
        """Check a batch that is about to be appended; changes nothing.

        Args:
            marker: the end-transaction marker in a control batch.
            transaction_version: of the marker's writer (rule 8).
            guard: of the verification that a transactional batch depends on (rule 7).

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE or
                TRANSACTION_COORDINATOR_FENCED.
        """
        if header.producer_id < 0:
            return None
        entry = self._producers.get(header.producer_id)
        if entry is not None and self._is_expired(entry, now_ms):
            entry = None
        if header.is_control:
            if marker is not None and entry is not None:
                _check_marker(entry, header, marker, transaction_version)
            return None
        if entry is not None and origin is AppendOrigin.CLIENT:
            duplicate = entry.find_duplicate(header)
            if duplicate is not None:
                return Duplicate(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp)
        if guard is not None:
            self._check_verified(header, guard)
        verification = self._verifications.get(header.producer_id)
        if entry is None:
            if verification is not None and origin is AppendOrigin.CLIENT:
                _check_verified_sequence(header, verification, has_batches=False)
            return None
        _check_epoch(entry, header, header.producer_epoch < entry.producer_epoch)
        if verification is not None and origin is AppendOrigin.CLIENT:
            _check_verified_sequence(header, verification, has_batches=bool(entry.batches))
        if origin is AppendOrigin.CLIENT:
            _check_sequence(entry, header)
        if entry.current_txn_first_offset is not None and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} has an open transaction here, "
                "but sent a batch outside of it",
            )
        return None

    def update(
        self,
        header: BatchHeader,
        base_offset: int,
        now_ms: int,
        *,
        marker: EndTransactionMarker | None = None,
    ) -> CompletedTransaction | None:
        """Record a batch that is in the log now, also when replaying the log.

        Returns:
            The transaction that the batch's marker completed, if it held records.
        """
        last_offset = base_offset + header.last_offset_delta
        self.map_end_offset = last_offset + 1
        producer_id = header.producer_id
        if producer_id < 0 or (header.is_control and marker is None):
            return None
        entry = self._producers.get(producer_id)
        if entry is None or self._is_expired(entry, now_ms):
            self._producers.pop(producer_id, None)  # a returning producer goes to the end
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        entry.last_update_ms = now_ms
        if self._verifications and header.is_transactional:
            self._verifications.end(producer_id)
        if marker is not None:
            first_offset = entry.current_txn_first_offset
            entry.add_marker(header, marker)
            if first_offset is None:
                return None
            return self._complete(producer_id, first_offset, last_offset, not marker.commit)
        entry.add_batch(header, last_offset)
        if header.is_transactional and entry.current_txn_first_offset is None:
            entry.current_txn_first_offset = base_offset
            self._ongoing[base_offset] = producer_id
        return None

    def _complete(
        self, producer_id: int, first_offset: int, last_offset: int, is_aborted: bool
    ) -> CompletedTransaction:
        self._ongoing.pop(first_offset, None)
        if self._unreplicated is None:
            self._unreplicated = UnreplicatedTransactions()
        self._unreplicated.add(first_offset, last_offset)
        return CompletedTransaction(
            producer_id,
            first_offset,
            last_offset,
            is_aborted,
            next(iter(self._ongoing), last_offset + 1),
        )

    # Transactions and the last stable offset

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open or whose marker is not replicated yet."""
        undecided = next(iter(self._ongoing), None)
        if self._unreplicated is None:
            return undecided
        unreplicated = self._unreplicated.first_offset
        if undecided is None or unreplicated is None:
            return unreplicated if undecided is None else undecided
        return min(undecided, unreplicated)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget the completed transactions whose markers are below ``high_watermark``."""
        if self._unreplicated:
            self._unreplicated.on_committed(high_watermark)

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Forget transactions that deleted records completed; producers stay (KIP-360)."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open here in just this epoch."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None
            and entry.producer_epoch == producer_epoch
            and entry.current_txn_first_offset is not None
        )

    # Verifications of transactions

    def start_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        now_ms: int,
        *,
        adds_partition: bool,
    ) -> VerificationGuard:
        """The guard for a transactional batch that is to be verified; ONGOING: it need not be.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, of a producer that is fenced here already.
        """
        entry = self._producers.get(producer_id)
        if entry is not None:
            if producer_epoch < entry.producer_epoch:
                raise _fenced(entry, producer_epoch)
            if self.has_ongoing_transaction(producer_id, producer_epoch):
                return ONGOING
        return self._verifications.start(
            producer_id, producer_epoch, sequence, now_ms, adds_partition=adds_partition
        )

    def was_overtaken(
        self, producer_id: int, producer_epoch: int, guard: VerificationGuard
    ) -> bool:
        """Whether a guard counts no longer, though its producer is not fenced here.

        A producer of transaction.version 2 writes for its next transaction as soon as the last one
        is decided: the marker of that one may come while the next one is verified.
        """
        verification = self._verifications.get(producer_id)
        if guard is ONGOING or (verification is not None and verification.guard is guard):
            return False
        entry = self._producers.get(producer_id)
        return entry is None or (
            entry.producer_epoch <= producer_epoch
            and not self.has_ongoing_transaction(producer_id, producer_epoch)
        )

    def _check_verified(self, header: BatchHeader, guard: VerificationGuard) -> None:
        if self.has_ongoing_transaction(header.producer_id, header.producer_epoch):
            return
        verification = self._verifications.get(header.producer_id)
        if verification is None or verification.guard is not guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "the records are not part of an ongoing transaction"
            )

    # Producers

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return the state of one producer; read only."""
        return self._producers.get(producer_id)

    def active_producers(self) -> Iterator[ProducerEntry]:
        """Yield the state of every producer; read only."""
        return iter(self._producers.values())

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            entry.current_txn_first_offset is None
            and now_ms - entry.last_update_ms >= self.producer_id_expiration_ms
        )

    def expire(self, now_ms: int) -> list[int]:
        """Forget producers that were silent too long; return their ids."""
        expired = [
            producer_id
            for producer_id, entry in self._producers.items()
            if self._is_expired(entry, now_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self._verifications.expire(now_ms - self.producer_id_expiration_ms)
        return expired

    # Snapshots and truncation

    def clear(self, map_end_offset: int = 0) -> None:
        """Forget everything, before a snapshot is loaded and the log replayed from its offset."""
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated = None
        self.map_end_offset = map_end_offset

    def snapshot_bytes(self) -> bytes:
        """Return the content of a `.snapshot` file named by ``map_end_offset``."""
        entries = [
            _SNAPSHOT_ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_offset,
                entry.batches[-1].offset_delta if entry.batches else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
            )
            for entry in self._producers.values()
        ]
        data = bytearray().join([bytes(_SNAPSHOT_HEADER.size), *entries])
        _SNAPSHOT_HEADER.pack_into(data, 0, _SNAPSHOT_VERSION, 0, len(entries))
        _SNAPSHOT_HEADER.pack_into(
            data, 0, _SNAPSHOT_VERSION, crc32c(memoryview(data)[_CRC_END:]), len(entries)
        )
        return bytes(data)

    def recall_batch(self, header: BatchHeader) -> None:
        """Take a batch that lies before the snapshot; called from the newest to the oldest."""
        entry = self._producers.get(header.producer_id)
        if entry is not None:
            entry.recall_batch(header)

    def load_snapshot(self, data: Buffer, map_end_offset: int, now_ms: int) -> None:
        """Replace all state by that of a snapshot file taken at ``map_end_offset``.

        Every producer counts as active now: the file does not say when it last was.

        Raises:
            CorruptBatchError: the file is damaged; nothing has changed then.
        """
        entries = decode_snapshot(data)
        self.clear(map_end_offset)
        for entry in entries:
            entry.last_update_ms = now_ms
            self._producers[entry.producer_id] = entry
        self._ongoing = dict(
            sorted(
                (entry.current_txn_first_offset, entry.producer_id)
                for entry in entries
                if entry.current_txn_first_offset is not None
            )
        )


def decode_snapshot(data: Buffer) -> list[ProducerEntry]:
    """Read a `.snapshot` file.

    Raises:
        CorruptBatchError: wrong size, version or checksum.
    """
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptBatchError("a producer snapshot is incomplete")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptBatchError(f"unknown version {version} of a producer snapshot")
    view = memoryview(data)
    if crc != crc32c(view[_CRC_END:]):
        raise CorruptBatchError("a producer snapshot has a wrong checksum")
    if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptBatchError(f"a producer snapshot of {count} entries has {len(data)} bytes")
    entries: list[ProducerEntry] = []
    for (
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
        coordinator_epoch,
        first_offset,
    ) in _SNAPSHOT_ENTRY.iter_unpack(view[_SNAPSHOT_HEADER.size :]):
        batches = []
        if last_offset >= 0:
            batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        entries.append(
            ProducerEntry(
                producer_id,
                producer_epoch,
                batches,
                coordinator_epoch,
                timestamp,
                None if first_offset < 0 else first_offset,
            )
        )
    return entries


def _fenced(entry: ProducerEntry, producer_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {producer_epoch} of producer {entry.producer_id} "
        f"where epoch {entry.producer_epoch} was seen last",
    )


def _check_epoch(entry: ProducerEntry, header: BatchHeader, is_fenced: bool) -> None:
    if is_fenced:
        raise _fenced(entry, header.producer_epoch)


def _check_verified_sequence(
    header: BatchHeader, verification: Verification, *, has_batches: bool
) -> None:
    sequence = header.base_sequence
    if verification.adds_partition and sequence != 0 and not has_batches:
        expected = 0
    elif is_later_sequence(sequence, verification.lowest_sequence):
        expected = verification.lowest_sequence
    else:
        return
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {sequence} of producer {header.producer_id} in epoch {header.producer_epoch} "
        f"where {expected} is still to come",
    )


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != entry.producer_epoch:
        expected = 0
        if sequence == 0 or entry.producer_epoch == NO_PRODUCER_EPOCH:
            return
    else:
        last = entry.last_sequence
        expected = 0 if last == NO_SEQUENCE else sequence_after(last, 1)
        if sequence == expected:
            return
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {sequence} of producer {entry.producer_id} in epoch {header.producer_epoch} "
        f"where {expected} is next",
    )


def _check_marker(
    entry: ProducerEntry,
    header: BatchHeader,
    marker: EndTransactionMarker,
    transaction_version: int,
) -> None:
    is_fenced = header.producer_epoch < entry.producer_epoch
    if transaction_version >= 2 and header.producer_epoch == entry.producer_epoch:
        # The last epoch of a producer id has no successor: its marker has none of its own.
        is_fenced = (
            entry.current_txn_first_offset is not None
            and header.producer_epoch < MAX_PRODUCER_EPOCH
        )
    _check_epoch(entry, header, is_fenced)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"marker of coordinator epoch {marker.coordinator_epoch} for producer "
            f"{entry.producer_id}, but epoch {entry.coordinator_epoch} was seen",
        )
