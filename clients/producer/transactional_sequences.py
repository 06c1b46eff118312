"""The sequences of a producer with a transactional id, whose epochs the coordinator hands out.

As `sequences`, except for what ends an epoch. Rules:
1. A gap ends the transaction instead of raising the epoch: the batch fails, and no other is
   renumbered, so that nothing can be written twice.
2. A new id and epoch come with the end of a transaction (KIP-890), or are requested (KIP-360);
   every partition begins at 0 again with its next batch.

Sans-IO. Called by: `accumulator`, `transactions/manager`.
"""

from __future__ import annotations

from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.sequences import PartitionSequence, Sequences
from kraftrio.wire.errors import ErrorCode


class TransactionalSequences(Sequences):
    """See the module."""

    def renew(self, producer_id: int, producer_epoch: int) -> None:
        """Set the id and epoch for the next transaction; no batch of the last one is left."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    def may_retry(
        self, sequence: PartitionSequence, batch: Batch, code: ErrorCode, log_start_offset: int
    ) -> bool:
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return log_start_offset == -1
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # A batch before it is to be sent again, and will close the gap.
            return not sequence.is_next(batch.base_sequence)
        return code.retriable

    def on_failed(self, sequence: PartitionSequence, batch: Batch, *, refused: bool) -> None:
        sequence.unanswered.remove(batch)

    def on_new_log(self, sequence: PartitionSequence) -> None:
        sequence.last_acked_sequence = sequence.last_acked_offset = -1
