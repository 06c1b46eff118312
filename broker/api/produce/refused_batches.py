"""Batches that producers must send again, so that what they sent after them does not overtake.

Owns: `RefusedBatches`. A partition that knows nothing of a producer takes its batch whatever the
sequence: the records before may have been deleted (KIP-360). But if the first of several batches
under way is refused for a reason that passes (no room on the disk, too few replicas in sync,
metadata that has not come) and the next one, a moment later, is not, then the first can never be
written any more, and a client that takes a later acknowledgement for that of all before it has lost
a record. So:
1. The oldest refused batch of a producer in a partition is remembered until it is accepted, the
   producer begins a new epoch, or it is long ago.
2. While it is, later sequences of that epoch are refused there, as where the producer is known.
3. They are refused for the same reason, for as long as it is recent. OUT_OF_ORDER_SEQUENCE_NUMBER
   would be true, but is only a consequence; librdkafka answers it with a new epoch and then sends
   again, as new, whatever it has under way to other partitions: records could be there twice.

Pure. Called by: produce/produce.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftrio.broker.replica.append_gate import RequestedPartition
from kraftrio.wire.errors import CorruptBatchError, ErrorCode
from kraftrio.wire.records.batch import is_later_sequence, parse_header

MOST_REMEMBERED: Final = 10_000
REMEMBERED_MS: Final = 600_000  # longer than clients try
RECENT_MS: Final = 30_000  # longer than clients wait before they try again


class Sequenced(NamedTuple):
    """What an idempotent producer says of a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    code: ErrorCode
    at_ms: float


def sequenced(records: memoryview | None) -> Sequenced | None:
    """Read what stands in a batch; None if it has no sequence, or is not of magic 2."""
    if records is None:
        return None
    try:
        header = parse_header(records)
    except CorruptBatchError:
        return None
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return Sequenced(header.producer_id, header.producer_epoch, header.base_sequence)


class RefusedBatches:
    """See the module; false while nothing is remembered."""

    def __init__(self) -> None:
        self._oldest: dict[tuple[RequestedPartition, int], _Refused] = {}  # in the order of time

    def __bool__(self) -> bool:
        return bool(self._oldest)

    def note(
        self, requested: RequestedPartition, batch: Sequenced, code: ErrorCode, now_ms: float
    ) -> None:
        """A batch was refused, and its producer will send it again."""
        key = (requested, batch.producer_id)
        refused = self._oldest.pop(key, None)
        sequence = batch.base_sequence
        if refused is not None and refused.producer_epoch == batch.producer_epoch:
            if is_later_sequence(sequence, refused.base_sequence):
                sequence = refused.base_sequence
        elif len(self._oldest) >= MOST_REMEMBERED:
            del self._oldest[next(iter(self._oldest))]
        self._oldest[key] = _Refused(batch.producer_epoch, sequence, code, now_ms)

    def why_overtaking(
        self, requested: RequestedPartition, batch: Sequenced, now_ms: float
    ) -> ErrorCode | None:
        """Why a batch may not go before an earlier one of its producer that is still to come.

        Returns:
            What the earlier one was refused for, or OUT_OF_ORDER_SEQUENCE_NUMBER if that was long
            ago; None: no earlier batch is to come.
        """
        key = (requested, batch.producer_id)
        refused = self._oldest.get(key)
        if refused is None:
            return None
        age_ms = now_ms - refused.at_ms
        if refused.producer_epoch != batch.producer_epoch or age_ms > REMEMBERED_MS:
            del self._oldest[key]
            return None
        if not is_later_sequence(batch.base_sequence, refused.base_sequence):
            return None
        return refused.code if age_ms <= RECENT_MS else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def accepted(self, requested: RequestedPartition, batch: Sequenced) -> None:
        """A batch is in the log: from now on the partition knows the producer.

        One from before the refused batch, sent once more, says nothing of that.
        """
        key = (requested, batch.producer_id)
        refused = self._oldest.get(key)
        if refused is None:
            return
        is_earlier = refused.producer_epoch == batch.producer_epoch and is_later_sequence(
            refused.base_sequence, batch.base_sequence
        )
        if not is_earlier:
            del self._oldest[key]
