"""Exceptions made of a broker's error code, of unreadable records, and of a kept error.

Called by: the clients, wherever an answer holds an error code.
"""

from __future__ import annotations

from inspect import isclass
from typing import TypeVar

from kraftrio.clients.errors import broker
from kraftrio.clients.errors.kinds import KafkaClientError, RetriableError
from kraftrio.clients.errors.local import CorruptRecordError
from kraftrio.wire import errors as wire_errors
from kraftrio.wire.errors import ErrorCode, KafkaError

E = TypeVar("E", bound=KafkaClientError)

_BY_CODE: dict[ErrorCode, type[KafkaClientError]] = {
    found.default_code: found
    for found in vars(broker).values()
    if isclass(found)
    and issubclass(found, KafkaClientError)
    and found.__module__ == broker.__name__
}


def error_class(code: ErrorCode) -> type[KafkaClientError]:
    """Return the class that stands for a broker's error code."""
    found = _BY_CODE.get(code)
    if found is None:
        return RetriableError if code.retriable else KafkaClientError
    return found


def error_for(code: ErrorCode, message: str | None = None) -> KafkaClientError:
    """Make the exception for a broker's error code; a code unknown to us counts as -1."""
    if not code.is_known:
        message = message or f"the broker answered with the unknown error code {code:d}"
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return error_class(code)(message, code=code)


def unreadable(cause: KafkaError, message: str) -> KafkaClientError:
    """Make the exception for records that came and cannot be read."""
    if isinstance(cause, wire_errors.CorruptBatchError):
        return CorruptRecordError(message)
    return error_for(cause.code, message)


def renewed(error: E) -> E:
    """Return a kept error to be raised: with a traceback of its own, and the same cause."""
    again = type(error)(error.message, code=error.code)
    again.__cause__ = error.__cause__
    return again
