"""Producer ids and epochs of a transactional id: what each request does to them.

Owns `ProducerIdentity` and its rules; it knows neither states nor partitions. Rules:
1. An epoch fences all lower ones of its producer id. A client is never given the last epoch, so
   that the coordinator can always fence it.
2. A producer that gives its id and epoch when it starts again (KIP-360) goes on with the next
   epoch; the previous epoch is a retry, and gets the current one again.
3. Under transaction version 2 each transaction ends with a higher epoch (KIP-890), whoever ends
   it. Where epochs are used up, the next producer id is chosen when the end is decided, and taken
   when it is done.

Sans-IO; called by `requests`.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ProducerIdAndEpoch
from kraftrio.wire.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

LAST_CLIENT_EPOCH = MAX_PRODUCER_EPOCH - 1

EPOCH_BUMP_VERSION = 2
"""The transaction version from which on each transaction ends with a higher epoch."""


class ProducerIdentity(NamedTuple):
    """The producer of a transactional id.

    Attributes:
        producer_id, epoch: the current ones.
        last_epoch: the one before, if its producer may have missed the answer with the current
            one. Not kept in the log, so that no coordinator knows it that has loaded the id.
        previous_id: the producer id before the last change.
        next_id: the one to go on with when the transaction that is ending has ended.
    """

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_id: int = NO_PRODUCER_ID
    next_id: int = NO_PRODUCER_ID

    @property
    def is_exhausted(self) -> bool:
        """Whether a client can get no higher epoch of this producer id."""
        return self.epoch >= LAST_CLIENT_EPOCH

    def accepts_id_of(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether a producer that starts again may be the one of this identity (KIP-360).

        With the former producer id it may, if that ran out of epochs: it may have missed the
        answer with the new id.
        """
        return (
            self.epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == self.producer_id
            or (
                expected.producer_id == self.previous_id
                and expected.producer_epoch >= LAST_CLIENT_EPOCH
            )
        )

    def needs_new_id(self, expected: ProducerIdAndEpoch | None) -> bool:
        """Whether InitProducerId is to go on with another producer id."""
        return self.is_exhausted and (expected is None or expected.producer_epoch == self.epoch)

    def initialized(self, expected: ProducerIdAndEpoch | None) -> ProducerIdentity | ErrorCode:
        """The identity that InitProducerId answers with, under the same producer id."""
        if expected is None:
            return self._moved(epoch=self._next_epoch(), last_epoch=NO_PRODUCER_EPOCH)
        if self.epoch in (NO_PRODUCER_EPOCH, expected.producer_epoch):
            return self._moved(epoch=self._next_epoch(), last_epoch=self.epoch)
        if expected.producer_epoch == self.last_epoch:
            return self._moved()
        return ErrorCode.PRODUCER_FENCED

    def rotated(self, new_id: int, expected: ProducerIdAndEpoch | None) -> ProducerIdentity:
        """The identity that InitProducerId answers with under a new producer id."""
        last_epoch = NO_PRODUCER_EPOCH if expected is None else self.epoch
        return self._moved(producer_id=new_id, epoch=0, last_epoch=last_epoch)

    def ending(self, transaction_version: int, next_id: int = NO_PRODUCER_ID) -> ProducerIdentity:
        """The identity of a transaction whose producer has it committed or aborted."""
        if transaction_version < EPOCH_BUMP_VERSION:
            return self._moved(next_id=next_id)
        return self._moved(epoch=self._next_epoch(), last_epoch=self.epoch, next_id=next_id)

    def fenced(self) -> ProducerIdentity:
        """The identity of a transaction that is aborted against its producer, up to version 1.

        From version 2 on every end fences, so that it is `ending` like any other.
        """
        return self._moved(epoch=self._next_epoch(), last_epoch=NO_PRODUCER_EPOCH)

    def ended(self, transaction_version: int) -> ProducerIdentity:
        """The identity after the end: under the next producer id, where one was chosen."""
        if transaction_version >= EPOCH_BUMP_VERSION and self.next_id != NO_PRODUCER_ID:
            return self._moved(producer_id=self.next_id, epoch=0, next_id=NO_PRODUCER_ID)
        return self._moved(next_id=NO_PRODUCER_ID)

    def unchanged(self) -> ProducerIdentity:
        """The identity after a change that is about something else."""
        return self._moved()

    def _next_epoch(self) -> int:
        return min(self.epoch + 1, MAX_PRODUCER_EPOCH)

    def _moved(
        self,
        *,
        producer_id: int | None = None,
        epoch: int | None = None,
        last_epoch: int | None = None,
        next_id: int | None = None,
    ) -> ProducerIdentity:
        return ProducerIdentity(
            self.producer_id if producer_id is None else producer_id,
            self.epoch if epoch is None else epoch,
            self.last_epoch if last_epoch is None else last_epoch,
            self.producer_id,
            self.next_id if next_id is None else next_id,
        )
