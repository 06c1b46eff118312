"""What the error codes of transactional requests mean to a producer.

Owns `Meaning` and the tables by API, as in Kafka's TransactionManager: which errors pass, which end
the transaction, and which end the producer. A code that no table names is retried if it is
retriable, and else ends the producer.

Pure. Called by: `requests`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.api import ApiKey


class Meaning(Enum):
    """What is to be done about an error code."""

    DONE = "nothing: it is no error"
    AGAIN = "the same again after a back-off"
    SOON = "the same again after a short back-off: the previous transaction is still being ended"
    MOVED = "the same again, to the present coordinator, which is looked up"
    ABORT = "the transaction can only be aborted"
    FENCED = "a newer producer has the transactional id"
    FATAL = "the producer can only be closed"


_M = Meaning

_EVERYWHERE: Final[dict[ErrorCode, Meaning]] = {
    ErrorCode.NONE: _M.DONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _M.MOVED,
    ErrorCode.NOT_COORDINATOR: _M.MOVED,
    ErrorCode.CONCURRENT_TRANSACTIONS: _M.SOON,
    ErrorCode.TRANSACTION_ABORTABLE: _M.ABORT,
    # Older coordinators say the first for the second (KIP-588).
    ErrorCode.INVALID_PRODUCER_EPOCH: _M.FENCED,
    ErrorCode.PRODUCER_FENCED: _M.FENCED,
}

_BY_API: Final[dict[ApiKey, dict[ErrorCode, Meaning]]] = {
    ApiKey.FIND_COORDINATOR: {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _M.AGAIN,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _M.ABORT,
    },
    ApiKey.INIT_PRODUCER_ID: {},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _M.ABORT,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: _M.ABORT,
        ErrorCode.UNKNOWN_PRODUCER_ID: _M.ABORT,
        ErrorCode.OPERATION_NOT_ATTEMPTED: _M.AGAIN,  # another entry says why
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _M.ABORT,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: _M.ABORT,
        ErrorCode.UNKNOWN_PRODUCER_ID: _M.ABORT,
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        ErrorCode.REQUEST_TIMED_OUT: _M.MOVED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _M.ABORT,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _M.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: _M.ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: _M.ABORT,
        ErrorCode.ILLEGAL_GENERATION: _M.ABORT,
        ErrorCode.STALE_MEMBER_EPOCH: _M.ABORT,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: _M.ABORT,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: _M.ABORT,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: _M.ABORT,
    },
    ApiKey.END_TXN: {ErrorCode.INVALID_PRODUCER_ID_MAPPING: _M.ABORT},
}

# The worst first: it decides what an answer with several codes means.
_BY_WEIGHT: Final = (_M.FENCED, _M.FATAL, _M.ABORT, _M.MOVED, _M.SOON, _M.AGAIN, _M.DONE)


def meaning_of(api: ApiKey, code: ErrorCode) -> Meaning:
    """Return what an error code in the answer of an API means."""
    found = _BY_API[api].get(code) or _EVERYWHERE.get(code)
    if found is not None:
        return found
    return Meaning.AGAIN if code.retriable else Meaning.FATAL


def worst_of(api: ApiKey, codes: list[ErrorCode]) -> ErrorCode:
    """Return the worst of several codes in one answer, which decides what the answer means."""
    return min(codes, key=lambda code: _BY_WEIGHT.index(meaning_of(api, code)))
