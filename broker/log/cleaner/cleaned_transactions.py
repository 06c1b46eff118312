"""Which batches of transactions compaction may drop (KIP-98; Kafka's CleanedTransactionMetadata).

Rules:
1. The data of an aborted transaction may go at once.
2. A marker stays as long as the walk meets any batch of its transaction, an empty one too: without
   its marker a batch would look like one of an open transaction. Which transaction a marker ends
   follows from the producer id, never from the bytes of its key.
3. An aborted transaction stays in the transaction index under the same condition.

One instance walks over the batches of a log in offset order. Used by `cleaner`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.broker.log.segment.txn_index import AbortedTxn
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import BatchHeader
from kraftrio.wire.records.control import read_end_transaction_marker


class _Aborting:
    """An aborted transaction that the walk is in."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTxn) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactions:
    """The transactions open at the point of the walk.

    Args:
        aborted: all aborted transactions that touch the stretch to walk.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = sorted(set(aborted), key=lambda item: item.first_offset, reverse=True)
        self._aborting: dict[int, _Aborting] = {}
        self._committing: set[int] = set()
        self._kept: list[AbortedTxn] = []

    def can_drop(self, buf: Buffer, header: BatchHeader) -> bool:
        """Walk over the next batch; whether its records may go, for a marker once it is old."""
        self._begin(header.last_offset)
        if header.is_control:
            return self._end(buf, header)
        if not header.is_transactional:
            return False
        aborting = self._aborting.get(header.producer_id)
        if aborting is None:
            self._committing.add(header.producer_id)
            return False
        aborting.has_batches = True
        return True

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._aborting.setdefault(transaction.producer_id, _Aborting(transaction))

    def _end(self, buf: Buffer, header: BatchHeader) -> bool:
        if not header.record_count:
            return True  # emptied by an earlier pass, when all of the transaction was gone
        marker = read_end_transaction_marker(buf, header)
        if marker is None:
            return False
        if marker.commit:
            if header.producer_id not in self._committing:
                return True
            self._committing.remove(header.producer_id)
            return False
        aborting = self._aborting.pop(header.producer_id, None)
        if aborting is None or not aborting.has_batches:
            return True
        self._kept.append(aborting.transaction)
        return False

    def take_kept(self) -> list[AbortedTxn]:
        """The aborted transactions ended since the last call that stay in the index."""
        kept, self._kept = self._kept, []
        return kept
