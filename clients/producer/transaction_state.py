"""The transaction of a producer with a transactional id: its state, and what may be done in it.

Owns `Transactions`: the state with its table of legal moves, why a transaction failed, and which
partitions belong to it. Rules, as in Kafka's TransactionManager (KIP-98, KIP-360, KIP-890):
1. Records are accepted while a transaction is open, and only for it: a send that has waited until
   the next one is refused.
2. An error either fails the transaction, which can then only be aborted, or is fatal: the producer
   can only be closed. A batch that is given up fails the transaction.
3. Once a transaction has failed or is being aborted, nothing more of it is sent, or sent again.
4. Under transaction.version 2 a partition is added to the transaction by the first write to it.
   Before that it must be added by a request: `may_send` holds back its batches until then.
5. If a batch with a sequence was given up, brokers may have it: nothing more is sent in that epoch,
   and after the abort the producer needs a new one. Under version 2 each transaction has an epoch
   of its own anyway.

Sans-IO. Called by: `accumulator`, which asks what may be sent; `transactions/manager`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kraftrio.clients.errors import (
    FatalProducerError,
    KafkaClientError,
    TransactionAbortedError,
    TransactionStateError,
    renewed,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

EPOCH_PER_TRANSACTION: Final = 2
"""The transaction.version from which on each transaction has an epoch of its own (KIP-890)."""


class TransactionState(Enum):
    """The state of the producer's transaction; LEGAL_MOVES says which may follow which."""

    UNINITIALIZED = "no producer id yet"
    READY = "no transaction"
    OPEN = "records are accepted"
    FLUSHING = "a commit waits for what was accepted"
    COMMITTING = "the coordinator was told to commit"
    FAILED = "it can only be aborted"
    ABORTING = "it is being aborted"
    FATAL = "the producer can only be closed"


_S = TransactionState

LEGAL_MOVES: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.UNINITIALIZED: frozenset({_S.READY, _S.FATAL}),
    _S.READY: frozenset({_S.OPEN, _S.FATAL}),
    _S.OPEN: frozenset({_S.FLUSHING, _S.FAILED, _S.ABORTING, _S.FATAL}),
    _S.FLUSHING: frozenset({_S.COMMITTING, _S.FAILED, _S.ABORTING, _S.FATAL}),
    _S.COMMITTING: frozenset({_S.READY, _S.FAILED, _S.FATAL}),
    _S.FAILED: frozenset({_S.ABORTING, _S.FATAL}),
    _S.ABORTING: frozenset({_S.READY, _S.FAILED, _S.FATAL}),
    _S.FATAL: frozenset(),
}

_SENDING: Final = frozenset({_S.OPEN, _S.FLUSHING})
_ENDABLE: Final = frozenset({_S.OPEN, _S.FLUSHING, _S.FAILED})

# Of Produce: after any other error the transaction can be aborted and done again.
_FATAL_CODES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Transactions:
    """See the module.

    Attributes:
        transaction_version: the cluster's, as of the beginning of the transaction.
        number: of the transaction; each that begins gets the next one.
        failure: why the transaction, or the producer, failed.
        is_started: the coordinator knows, or may know, that the transaction has begun.
        needs_new_epoch: the producer has to request one, unless the end brings one (rule 5).
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.transaction_version = 0
        self.state = TransactionState.UNINITIALIZED
        self.number = 0
        self.failure: TransactionAbortedError | FatalProducerError | None = None
        self.is_started = False
        self.needs_new_epoch = False
        self._new: dict[TopicPartition, None] = {}  # still to be added at the coordinator
        self._added: set[tuple[str, int]] = set()

    def _move(self, state: TransactionState) -> None:
        assert state in LEGAL_MOVES[self.state], f"from {self.state.name} to {state.name}"
        self.state = state

    @property
    def has_epoch_of_its_own(self) -> bool:
        """Whether this is version 2 (KIP-890)."""
        return self.transaction_version >= EPOCH_PER_TRANSACTION

    # -- beginning ------------------------------------------------------------------------------

    def on_initialized(self, transaction_version: int) -> None:
        """The producer has its id and epoch."""
        assert self.state is TransactionState.UNINITIALIZED, "it gets them once"
        self.transaction_version = transaction_version
        self._move(TransactionState.READY)

    def check_may_begin(self) -> None:
        """Raise unless a transaction may begin.

        Raises:
            FatalProducerError: none ever may.
            TransactionStateError: another one has not ended.
        """
        self._raise_fatal()
        if self.state is not TransactionState.READY:
            raise TransactionStateError(f"a transaction has not ended: {self.state.value}")

    def begin(self) -> None:
        """Begin a transaction; `check_may_begin` allows it."""
        self._move(TransactionState.OPEN)
        self.number += 1
        self.failure = None
        self.is_started = self.needs_new_epoch = False
        self._new.clear()
        self._added.clear()

    # -- sending --------------------------------------------------------------------------------

    def check_may_send(self, number: int) -> None:
        """Raise unless a record, or offsets, may go into the transaction of that number.

        Raises:
            FatalProducerError: the producer can only be closed.
            TransactionAbortedError: that transaction failed, or has ended meanwhile.
            TransactionStateError: no transaction is open.
        """
        if self.state is TransactionState.OPEN and number == self.number:
            return
        self._raise_fatal()
        if self.state is TransactionState.FAILED:
            self.raise_failure()
        if number != self.number:
            raise TransactionAbortedError("the transaction has ended meanwhile")
        raise TransactionStateError(
            "a producer with a transactional id sends in `async with producer.transaction()` only"
        )

    @property
    def is_sending(self) -> bool:
        """Whether anything may be sent, or sent again."""
        return self.state in _SENDING

    def add_partition(self, partition: TopicPartition) -> bool:
        """A record was accepted for a partition; return whether the partition is to be added."""
        if self.has_epoch_of_its_own or partition in self._added or partition in self._new:
            return False
        self._new[partition] = None
        return True

    def take_new_partitions(self) -> list[TopicPartition]:
        """Return the partitions that the caller is to add at the coordinator now."""
        new = list(self._new)
        self._new.clear()
        return new

    def on_partitions_added(self, partitions: list[TopicPartition]) -> None:
        """The coordinator has added them."""
        self._added.update(partitions)
        self.is_started = True

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether a partition is part of the transaction, or is added by the first write."""
        return self.has_epoch_of_its_own or (topic, partition) in self._added

    def on_sent(self) -> None:
        """A batch is sent, which under version 2 adds its partition."""
        self.is_started = True

    # -- failing --------------------------------------------------------------------------------

    def on_batch_failed(self, error: KafkaClientError, *, has_sequence: bool) -> KafkaClientError:
        """A batch is given up; return the error that its records get."""
        self.needs_new_epoch |= has_sequence
        if self.state not in _SENDING and self.state is not TransactionState.FAILED:
            return error  # in an abort batches may fail
        return self.fail(error)

    def fail(self, error: KafkaClientError) -> TransactionAbortedError | FatalProducerError:
        """The transaction cannot be committed any more, or the producer can only be closed.

        Returns:
            the error that everything in the transaction gets: that of its first failure.
        """
        if self.state is TransactionState.FATAL:
            assert self.failure is not None
            return self.failure
        if error.code in _FATAL_CODES:
            return self.fail_fatally(error)
        if self.state is not TransactionState.FAILED:
            self._move(TransactionState.FAILED)
            self.failure = _aborted(error)
        assert self.failure is not None
        return self.failure

    def fail_fatally(self, error: KafkaClientError) -> FatalProducerError:
        """The producer can only be closed."""
        fatal = error
        if not isinstance(fatal, FatalProducerError):
            fatal = FatalProducerError(error.message, code=error.code)
            fatal.__cause__ = error
        if self.state is not TransactionState.FATAL:
            self._move(TransactionState.FATAL)
            self.failure = fatal
        return fatal

    @property
    def has_failed(self) -> bool:
        """Whether the transaction failed, or the producer did."""
        return self.state in (TransactionState.FAILED, TransactionState.FATAL)

    def raise_failure(self) -> None:
        """Raise the error of the transaction or the producer, if one of them has failed."""
        if self.has_failed and self.failure is not None:
            raise renewed(self.failure)

    def _raise_fatal(self) -> None:
        if self.state is TransactionState.FATAL:
            self.raise_failure()

    # -- ending ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that is still to be ended."""
        return self.state in _ENDABLE

    def begin_flush(self) -> None:
        """A commit begins: nothing is accepted any more."""
        self._move(TransactionState.FLUSHING)

    def begin_commit(self) -> None:
        """Everything is written: from here on the coordinator decides."""
        self._move(TransactionState.COMMITTING)

    def begin_abort(self) -> None:
        """An abort begins: nothing is sent any more."""
        self._new.clear()
        self._move(TransactionState.ABORTING)

    def on_ended(self) -> None:
        """The transaction is committed or aborted, and the producer has an epoch for the next."""
        assert self.state is not TransactionState.UNINITIALIZED, "there is one to end"
        self.needs_new_epoch = False
        self._move(TransactionState.READY)

    def on_abort_unanswered(self) -> None:
        """The abort was not answered in time: it is to be tried again."""
        self._move(TransactionState.FAILED)
        if self.failure is None:
            self.failure = TransactionAbortedError("the abort was not answered in time")


def _aborted(error: KafkaClientError) -> TransactionAbortedError:
    if isinstance(error, TransactionAbortedError):
        return error
    failure = TransactionAbortedError(f"the transaction failed: {error}", code=error.code)
    failure.__cause__ = error
    return failure
