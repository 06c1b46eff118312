"""Which record batches are of aborted transactions: what read_committed leaves out.

Owns `AbortedFilter`, made for each answer from the list that the broker puts beside its records.
Pure. Called by: the consumer's and the Spark source's fetches. KIP-98 ("Read Committed").
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftrio.wire.messages.data import AbortedTransaction
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import BatchHeader
from kraftrio.wire.records.control import read_end_transaction_marker


class AbortedFilter:
    """Knows which batches are of aborted transactions; it sees them in the order of offsets.

    Args:
        aborted: as the broker named them, in any order.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._open: set[int] = set()  # producers whose transaction, here, will be aborted

    def leaves_out(self, buf: Buffer, header: BatchHeader) -> bool:
        """Whether a batch is of an aborted transaction, or the marker that ends one.

        Raises:
            KafkaError: the marker is malformed.
        """
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._open.add(self._coming.pop().producer_id)
        if header.producer_id not in self._open:
            return False
        marker = read_end_transaction_marker(buf, header)
        if marker is not None and not marker.commit:
            self._open.discard(header.producer_id)
        return header.is_transactional
