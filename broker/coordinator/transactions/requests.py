"""What each request about a transactional id comes to: pure decisions on its hard state.

Every function takes the `TransactionMetadata` as the log has it and what the request says, and
returns the one to move to, or the code to answer with. `is_busy` says that another change of the id
is under way: its record is not committed yet, or its markers are being written. Error codes are
those of the newest version of each API; `older_code` translates.

Sans-IO; called by `shard`.

Version notes:
- InitProducerId 4, AddPartitionsToTxn 2, AddOffsetsToTxn 2 and EndTxn 2 know PRODUCER_FENCED;
  before, it is INVALID_PRODUCER_EPOCH.
- EndTxn 5 is transaction version 2: the epoch tells a retry from the next request, and what may
  not have begun can be aborted.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from kraftrio.broker.coordinator.transactions.ports import (
    NEEDS_PRODUCER_ID,
    NeedsProducerId,
    TakeProducerId,
    TransactionProperties,
)
from kraftrio.broker.coordinator.transactions.producer_epochs import (
    EPOCH_BUMP_VERSION,
    LAST_CLIENT_EPOCH,
)
from kraftrio.broker.coordinator.transactions.state import (
    NO_TIMEOUT_MS,
    TransactionMetadata,
    TransactionState,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition
from kraftrio.wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

INIT_PRODUCER_ID_FENCED_VERSION = 4
ADD_TO_TRANSACTION_FENCED_VERSION = 2  # AddPartitionsToTxn and AddOffsetsToTxn
END_TRANSACTION_FENCED_VERSION = 2
_ADD_PARTITIONS_BROKERS_VERSION = 4
_END_TRANSACTION_BUMP_VERSION = 5


def older_code(code: ErrorCode, api_version: int, fenced_version: int) -> ErrorCode:
    """The code as clients of an API version know it."""
    if code is ErrorCode.PRODUCER_FENCED and api_version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


_AGAINST_PRODUCER = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


def may_be_outdated(
    code: ErrorCode, transaction: TransactionMetadata | None, producer: ProducerIdAndEpoch
) -> bool:
    """Whether a coordinator that was replaced might answer so, not knowing what followed.

    An epoch older than one that it knows is outdated for everybody.
    """
    if code not in _AGAINST_PRODUCER:
        return False
    return (
        transaction is None
        or producer.producer_id != transaction.producer.producer_id
        or producer.producer_epoch >= transaction.producer.epoch
    )


def version_of_adding_client(api_version: int) -> int:
    """The transaction version of the sender of AddPartitionsToTxn: brokers add for new clients."""
    return EPOCH_BUMP_VERSION if api_version >= _ADD_PARTITIONS_BROKERS_VERSION else 0


def version_of_ending_client(api_version: int) -> int:
    """The transaction version of a client that sends EndTxn."""
    return EPOCH_BUMP_VERSION if api_version >= _END_TRANSACTION_BUMP_VERSION else 0


def bumps_epoch(api_version: int) -> bool:
    """Whether an EndTxn answers with the epoch of the next transaction."""
    return version_of_ending_client(api_version) >= EPOCH_BUMP_VERSION


# --- InitProducerId ---


def check_init_producer_id(
    request: InitProducerIdRequest, properties: TransactionProperties
) -> ErrorCode:
    """Check what a request with a transactional id says, wherever its coordinator is."""
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if not request.transactional_id or has_id != has_epoch:
        return ErrorCode.INVALID_REQUEST
    if request.enable_2pc and not properties.transaction_two_phase_commit_enable:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared_txn:
        return ErrorCode.UNSUPPORTED_VERSION  # as Kafka up to 4.3: recovery is not part of it yet
    if not request.enable_2pc and not (
        0 < request.transaction_timeout_ms <= properties.transaction_max_timeout_ms
    ):
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def init_producer_id(
    transaction: TransactionMetadata,
    request: InitProducerIdRequest,
    take_producer_id: TakeProducerId,
    *,
    is_busy: bool,
    transaction_version: int,
    now_ms: int,
) -> TransactionMetadata | ErrorCode | NeedsProducerId:
    """Decide on InitProducerId.

    An ongoing transaction is aborted against its producer; its client is to come again.
    """
    if is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    producer = transaction.producer
    if expected is not None and not producer.accepts_id_of(expected):
        return ErrorCode.PRODUCER_FENCED
    if transaction.state is TransactionState.ONGOING:
        return fence(
            transaction, take_producer_id, transaction_version=transaction_version, now_ms=now_ms
        )
    if producer.needs_new_id(expected):
        new_id = take_producer_id()
        if new_id is None:
            return NEEDS_PRODUCER_ID
        initialized = producer.rotated(new_id, expected)
    else:
        decided = producer.initialized(expected)
        if isinstance(decided, ErrorCode):
            return decided
        initialized = decided
    timeout_ms = NO_TIMEOUT_MS if request.enable_2pc else request.transaction_timeout_ms
    return transaction.emptied(initialized, timeout_ms, now_ms)


def fence(
    transaction: TransactionMetadata,
    take_producer_id: TakeProducerId,
    *,
    transaction_version: int,
    now_ms: int,
) -> TransactionMetadata | NeedsProducerId:
    """Abort an ongoing transaction against its producer, whose epoch is used up by that.

    Args:
        transaction_version: of the cluster, since no client asked for it.
    """
    if transaction_version < EPOCH_BUMP_VERSION:
        producer = transaction.producer.fenced()
        return transaction.ending(producer, commit=False, client_version=0, now_ms=now_ms)
    return _end_with_bump(transaction, take_producer_id, commit=False, now_ms=now_ms)


# --- AddPartitionsToTxn, AddOffsetsToTxn ---


def add_partitions(
    transaction: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    *,
    is_busy: bool,
    client_version: int,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Decide on adding partitions; NONE if they are in the transaction already."""
    if is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    code = _check_producer(transaction, producer)
    if code is not ErrorCode.NONE:
        return code
    if transaction.state is TransactionState.ONGOING and transaction.partitions.issuperset(
        partitions
    ):
        return ErrorCode.NONE
    return transaction.with_partitions(partitions, client_version, now_ms)


def verify_partitions(transaction: TransactionMetadata, producer: ProducerIdAndEpoch) -> ErrorCode:
    """Check whether a producer may write to the transaction's partitions (KIP-890)."""
    code = _check_producer(transaction, producer)
    if code is ErrorCode.NONE and transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return code


def _check_producer(transaction: TransactionMetadata, producer: ProducerIdAndEpoch) -> ErrorCode:
    if producer.producer_id != transaction.producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.producer_epoch != transaction.producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


# --- EndTxn ---


class _Retry(Enum):
    """What an EndTxn repeats: nothing, or the one that ended the last transaction."""

    NO = "no"
    SAME_ID = "same id"
    FORMER_ID = "former id"


def end_transaction(
    transaction: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    *,
    is_busy: bool,
    commit: bool,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Decide on EndTxn 0-4 (transaction versions 0 and 1); NONE if that is how it ended."""
    code = _check_producer(transaction, producer)
    if code is not ErrorCode.NONE:
        return code
    if is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is TransactionState.ONGOING:
        return transaction.ending(
            transaction.producer.ending(0), commit=commit, client_version=0, now_ms=now_ms
        )
    return ErrorCode.NONE if _ended_so(transaction, commit=commit) else ErrorCode.INVALID_TXN_STATE


def end_and_bump(
    transaction: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    take_producer_id: TakeProducerId,
    *,
    is_busy: bool,
    commit: bool,
    now_ms: int,
) -> TransactionMetadata | ErrorCode | NeedsProducerId:
    """Decide on EndTxn 5 (transaction version 2).

    NONE: it is a retry, and the current producer id and epoch are the answer. An abort is taken
    between transactions, too: the client may not know whether its produce request began one.
    """
    if is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    retry = _retry_of(transaction, producer)
    if producer.producer_id != transaction.producer.producer_id and retry is not _Retry.FORMER_ID:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if retry is _Retry.NO:
        if producer.producer_epoch != transaction.producer.epoch:
            return ErrorCode.PRODUCER_FENCED
        if transaction.state is not TransactionState.ONGOING and commit:
            return ErrorCode.INVALID_TXN_STATE
    else:
        is_same = _ended_so(transaction, commit=commit)
        return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE
    return _end_with_bump(transaction, take_producer_id, commit=commit, now_ms=now_ms)


def _end_with_bump(
    transaction: TransactionMetadata, take_producer_id: TakeProducerId, *, commit: bool, now_ms: int
) -> TransactionMetadata | NeedsProducerId:
    """End a transaction as version 2 does, with another producer id if there is no higher epoch."""
    next_id: int | None = NO_PRODUCER_ID
    if transaction.producer.is_exhausted:
        next_id = take_producer_id()
    if next_id is None:
        return NEEDS_PRODUCER_ID
    return transaction.ending(
        transaction.producer.ending(EPOCH_BUMP_VERSION, next_id),
        commit=commit,
        client_version=EPOCH_BUMP_VERSION,
        now_ms=now_ms,
    )


def _retry_of(transaction: TransactionMetadata, producer: ProducerIdAndEpoch) -> _Retry:
    """Whether a producer of the epoch before may repeat the end of the last transaction."""
    if transaction.state not in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        return _Retry.NO
    current = transaction.producer
    if (
        current.previous_id == producer.producer_id
        and producer.producer_epoch == LAST_CLIENT_EPOCH
        and current.epoch == 0
    ):
        return _Retry.FORMER_ID
    return _Retry.SAME_ID if current.epoch == producer.producer_epoch + 1 else _Retry.NO


def _ended_so(transaction: TransactionMetadata, *, commit: bool) -> bool:
    ended = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    return transaction.state is ended
