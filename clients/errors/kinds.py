"""The kinds of errors that programs distinguish: what they catch, whatever the cause.

Called by: `broker` and `local`, whose classes have one cause each.
"""

from __future__ import annotations

from typing import ClassVar

from kraftrio.wire.errors import ErrorCode, KafkaError


class KafkaClientError(KafkaError):
    """A failure of a client's call.

    Args:
        message: what happened; without one, what the code means.
        code: instead of the class's own.
    """

    default_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str | None = None, *, code: ErrorCode | None = None) -> None:
        super().__init__(self.default_code if code is None else code, message)

    def __str__(self) -> str:
        return self.message or self.code.text

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return isinstance(self, RetriableError)

    @property
    def may_pass(self) -> bool:
        """Whether the client tries again in the background, whatever the call raises."""
        return self.retriable


class RetriableError(KafkaClientError):
    """A failure that may go away by itself."""


class AuthenticationError(KafkaClientError):
    """A broker does not let the client in, or the client does not trust the broker."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED

    @property
    def may_pass(self) -> bool:
        """Yes: passwords and certificates are renewed while programs run."""
        return True


class AuthorizationError(KafkaClientError):
    """The user may not do this: an ACL is missing, or forbids it."""

    default_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionAbortedError(KafkaClientError):
    """The transaction is aborted, or can only be aborted: nothing of it counts; do it again.

    Its code is that of what went wrong, which is its cause (`__cause__`), if an error was.
    """

    default_code = ErrorCode.TRANSACTION_ABORTABLE


class FatalProducerError(KafkaClientError):
    """The producer can only be closed; an open transaction is aborted by its successor or in time.

    Its code is that of what went wrong.
    """
