"""The errors of the clients: one class per cause, each with Kafka's error code.

Public as `kraftrio.errors`. Rules:
1. All are `KafkaClientError`, a `KafkaError`: `.code` is Kafka's code, `.message` says in words
   what happened, `.retriable` whether the same call may succeed later. Retriable ones are also
   `RetriableError`, so that `except RetriableError` is enough.
2. Errors of brokers come through `error_for`; a code without a class of its own is a plain
   `KafkaClientError` or `RetriableError`.
3. A producer's transaction fails in two ways: what is a `TransactionAbortedError` can be done again
   with the same producer, after what is a `FatalProducerError` the producer can only be closed.
4. An `AuthenticationError` is raised by whatever call comes upon it, at once: what has to change is
   a password, a certificate or a setting. In the background the client goes on trying.
5. What only a client can notice (a full buffer, a closed producer, a wrong setting) has a class
   here too, with the code that fits best.

Names are those of the Java client's exceptions with "Error" instead of "Exception".
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from kraftrio.wire import errors as wire_errors
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition

__all__ = [
    "AcknowledgementStateError",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerUnavailableError",
    "BufferExhaustedError",
    "ClosedError",
    "ClusterAuthorizationError",
    "CommitFailedError",
    "ConcurrentTransactionsError",
    "ConfigError",
    "CoordinatorNotAvailableError",
    "CorruptRecordError",
    "DelegationTokenAuthorizationError",
    "DelegationTokenDisabledError",
    "DelegationTokenExpiredError",
    "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError",
    "DelegationTokenRequestNotAllowedError",
    "DuplicateResourceError",
    "ErrorCode",
    "FatalProducerError",
    "FencedInstanceIdError",
    "FencedMemberEpochError",
    "GroupAuthorizationError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupNotEmptyError",
    "GroupSubscribedToTopicError",
    "IllegalGenerationError",
    "IllegalSaslStateError",
    "InvalidConfigurationError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidPrincipalTypeError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidRecordStateError",
    "InvalidRegularExpressionError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidShareSessionEpochError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "InvalidValueError",
    "KafkaClientError",
    "KafkaError",
    "KafkaStorageError",
    "LeaderNotAvailableError",
    "LogTruncationError",
    "NetworkError",
    "NoOffsetForPartitionError",
    "NotControllerError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PolicyViolationError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RecordBatchTooLargeError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "ResourceNotFoundError",
    "RetriableError",
    "SaslAuthenticationError",
    "SecurityDisabledError",
    "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError",
    "SslAuthenticationError",
    "StaleMemberEpochError",
    "SubscriptionStateError",
    "ThrottlingQuotaExceededError",
    "TimedOutError",
    "TopicAuthorizationError",
    "TopicExistsError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionCoordinatorFencedError",
    "TransactionInDoubtError",
    "TransactionStateError",
    "TransactionalIdAuthorizationError",
    "TransactionalIdNotFoundError",
    "UnacceptableCredentialError",
    "UnknownMemberIdError",
    "UnknownProducerIdError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "error_class",
    "error_for",
    "renewed",
    "unreadable",
]


RecordContent = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


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
        """Whether what goes on in the background tries again, whatever the program is told."""
        return self.retriable


class RetriableError(KafkaClientError):
    """A failure that may go away by itself."""


class CorruptRecordError(KafkaClientError):
    """Records have come whose bytes are not those that were written, or cannot be read."""

    default_code = ErrorCode.CORRUPT_MESSAGE


class ConfigError(KafkaClientError, ValueError, TypeError):
    """A setting of the client is wrong: its name, its type or its value."""

    default_code = ErrorCode.INVALID_CONFIG


class RecordDeserializationError(KafkaClientError):
    """A record came that a deserializer cannot read; `Consumer.skip` goes on behind it.

    Attributes:
        topic_partition: with `offset`, where it is.
        key, value, headers: as they came, so that they can be sent elsewhere.
    """

    default_code = ErrorCode.INVALID_RECORD

    def __init__(
        self, message: str, at: tuple[TopicPartition, int], content: RecordContent
    ) -> None:
        super().__init__(message)
        self.topic_partition, self.offset = at
        self.key, self.value, self.headers = content


class ClosedError(KafkaClientError):
    """The client is closed, or was not entered yet."""

    default_code = ErrorCode.INVALID_REQUEST


class NetworkError(RetriableError):
    """The connection could not be opened, or ended before the answer came."""

    default_code = ErrorCode.NETWORK_EXCEPTION


class BrokerUnavailableError(RetriableError):
    """No broker is known by this id."""

    default_code = ErrorCode.BROKER_NOT_AVAILABLE


class TimedOutError(RetriableError):
    """It did not happen in the time given for it."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhaustedError(TimedOutError):
    """The producer's buffer had no room within max_block_ms."""


class AuthenticationError(KafkaClientError):
    """A broker does not let the client in, or the client does not trust the broker."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED

    @property
    def may_pass(self) -> bool:
        """Yes: passwords and certificates are renewed while programs run."""
        return True


class SslAuthenticationError(AuthenticationError):
    """TLS failed: one side does not accept the other's certificate, or does not speak TLS."""


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


class TransactionInDoubtError(FatalProducerError):
    """A commit was not answered in time: it is not known whether the transaction is committed.

    A new producer with the same transactional id finds it decided, one way or the other.
    """

    default_code = ErrorCode.REQUEST_TIMED_OUT


class TransactionStateError(KafkaClientError, RuntimeError):
    """The call is not for a producer in this state: `send` outside of a transaction, for one."""

    default_code = ErrorCode.INVALID_TXN_STATE


class AcknowledgementStateError(KafkaClientError, RuntimeError):
    """A share consumer's record is not in a state in which that can be said of it, or asked."""

    default_code = ErrorCode.INVALID_RECORD_STATE


class UnsupportedVersionError(KafkaClientError):
    """The broker is too old or too new for what was asked."""

    default_code = ErrorCode.UNSUPPORTED_VERSION


class SubscriptionStateError(KafkaClientError):
    """Records are asked for, and nothing is subscribed to or assigned."""

    default_code = ErrorCode.INVALID_REQUEST


class InvalidValueError(KafkaClientError, TypeError, ValueError):
    """A value has a type, or a size, that requests cannot hold."""

    default_code = ErrorCode.INVALID_REQUEST


class CommitFailedError(KafkaClientError):
    """The member's partitions are no longer its own, so its offsets were not committed."""

    default_code = ErrorCode.ILLEGAL_GENERATION


# What brokers answer


class OffsetOutOfRangeError(KafkaClientError):
    default_code = ErrorCode.OFFSET_OUT_OF_RANGE


class NoOffsetForPartitionError(OffsetOutOfRangeError):
    """No offset was committed, and auto_offset_reset is "none"."""


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were consumed are no longer in the log, and auto_offset_reset is "none".

    Args:
        topic_partition: where.
        offset: the position.
        divergent_offset: where the logs part; None when the leader does not know.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        code: ErrorCode | None = None,
        topic_partition: TopicPartition | None = None,
        offset: int | None = None,
        divergent_offset: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.topic_partition = topic_partition
        self.offset = offset
        self.divergent_offset = divergent_offset


class UnknownTopicOrPartitionError(RetriableError):
    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicIdError(RetriableError):
    default_code = ErrorCode.UNKNOWN_TOPIC_ID


class LeaderNotAvailableError(RetriableError):
    default_code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(RetriableError):
    default_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RecordTooLargeError(KafkaClientError):
    default_code = ErrorCode.MESSAGE_TOO_LARGE


class RecordBatchTooLargeError(KafkaClientError):
    default_code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidRecordError(KafkaClientError):
    default_code = ErrorCode.INVALID_RECORD


class InvalidTimestampError(KafkaClientError):
    default_code = ErrorCode.INVALID_TIMESTAMP


class NotEnoughReplicasError(RetriableError):
    default_code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(RetriableError):
    default_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class KafkaStorageError(RetriableError):
    default_code = ErrorCode.KAFKA_STORAGE_ERROR


class OutOfOrderSequenceError(KafkaClientError):
    default_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class UnknownProducerIdError(OutOfOrderSequenceError):
    default_code = ErrorCode.UNKNOWN_PRODUCER_ID


class InvalidProducerEpochError(KafkaClientError):
    default_code = ErrorCode.INVALID_PRODUCER_EPOCH


class ProducerFencedError(FatalProducerError):
    """A newer producer has the transactional id, or the coordinator gave this one up."""

    default_code = ErrorCode.PRODUCER_FENCED


class InvalidTxnStateError(FatalProducerError):
    default_code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMappingError(FatalProducerError):
    default_code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeoutError(FatalProducerError):
    default_code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class SaslAuthenticationError(AuthenticationError):
    """The login was refused: a wrong password, an unknown user, a token that is not valid."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnsupportedSaslMechanismError(AuthenticationError):
    default_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslStateError(AuthenticationError):
    default_code = ErrorCode.ILLEGAL_SASL_STATE


class TopicAuthorizationError(AuthorizationError):
    default_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationError(AuthorizationError):
    default_code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationError(AuthorizationError):
    default_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationError(FatalProducerError, AuthorizationError):
    default_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class TransactionAbortableError(TransactionAbortedError):
    default_code = ErrorCode.TRANSACTION_ABORTABLE


class ConcurrentTransactionsError(RetriableError):
    default_code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionCoordinatorFencedError(KafkaClientError):
    default_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TransactionalIdNotFoundError(KafkaClientError):
    default_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class CoordinatorNotAvailableError(RetriableError):
    default_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(RetriableError):
    default_code = ErrorCode.NOT_COORDINATOR


class NotControllerError(RetriableError):
    default_code = ErrorCode.NOT_CONTROLLER


class InvalidGroupIdError(KafkaClientError):
    default_code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFoundError(KafkaClientError):
    default_code = ErrorCode.GROUP_ID_NOT_FOUND


class GroupNotEmptyError(KafkaClientError):
    default_code = ErrorCode.NON_EMPTY_GROUP


class IllegalGenerationError(KafkaClientError):
    default_code = ErrorCode.ILLEGAL_GENERATION


class UnknownMemberIdError(KafkaClientError):
    default_code = ErrorCode.UNKNOWN_MEMBER_ID


class RebalanceInProgressError(KafkaClientError):
    default_code = ErrorCode.REBALANCE_IN_PROGRESS


class FencedInstanceIdError(KafkaClientError):
    default_code = ErrorCode.FENCED_INSTANCE_ID


class GroupMaxSizeReachedError(KafkaClientError):
    default_code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedMemberEpochError(KafkaClientError):
    default_code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpochError(KafkaClientError):
    """The coordinator is ahead of the member: it hears of its newer epoch with a heartbeat."""

    default_code = ErrorCode.STALE_MEMBER_EPOCH


class UnreleasedInstanceIdError(KafkaClientError):
    default_code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(KafkaClientError):
    default_code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(KafkaClientError):
    default_code = ErrorCode.INVALID_REGULAR_EXPRESSION


class GroupSubscribedToTopicError(KafkaClientError):
    default_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class InvalidRecordStateError(KafkaClientError):
    """The acknowledgement came too late: the record's acquisition lock is over, or was released."""

    default_code = ErrorCode.INVALID_RECORD_STATE


class ShareSessionNotFoundError(RetriableError):
    default_code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpochError(RetriableError):
    default_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitReachedError(RetriableError):
    default_code = ErrorCode.SHARE_SESSION_LIMIT_REACHED


class InvalidTopicError(KafkaClientError):
    default_code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicExistsError(KafkaClientError):
    default_code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitionsError(KafkaClientError):
    default_code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(KafkaClientError):
    default_code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(KafkaClientError):
    default_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigurationError(KafkaClientError):
    default_code = ErrorCode.INVALID_CONFIG


class InvalidRequestError(KafkaClientError):
    default_code = ErrorCode.INVALID_REQUEST


class PolicyViolationError(KafkaClientError):
    default_code = ErrorCode.POLICY_VIOLATION


class SecurityDisabledError(KafkaClientError):
    """The broker has no authorizer, so that it has no ACLs."""

    default_code = ErrorCode.SECURITY_DISABLED


class UnacceptableCredentialError(KafkaClientError):
    default_code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class DuplicateResourceError(KafkaClientError):
    default_code = ErrorCode.DUPLICATE_RESOURCE


class ResourceNotFoundError(KafkaClientError):
    default_code = ErrorCode.RESOURCE_NOT_FOUND


class ThrottlingQuotaExceededError(RetriableError):
    """The user changes topics faster than its quota allows; later it may."""

    default_code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class DelegationTokenDisabledError(KafkaClientError):
    default_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenNotFoundError(KafkaClientError):
    default_code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenOwnerMismatchError(KafkaClientError):
    default_code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class DelegationTokenRequestNotAllowedError(KafkaClientError):
    """Tokens cannot be made over this kind of connection: by a token, or without a login."""

    default_code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenAuthorizationError(AuthorizationError):
    default_code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenExpiredError(KafkaClientError):
    default_code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class InvalidPrincipalTypeError(KafkaClientError):
    default_code = ErrorCode.INVALID_PRINCIPAL_TYPE


_ONLY_OURS = (
    AcknowledgementStateError,
    CorruptRecordError,  # a broker that says so of what it was sent is asked again
    AuthenticationError,
    AuthorizationError,
    SslAuthenticationError,
    ConfigError,
    ClosedError,
    RecordDeserializationError,
    InvalidValueError,
    SubscriptionStateError,
    BufferExhaustedError,
    CommitFailedError,
    TransactionAbortedError,
    FatalProducerError,
    TransactionInDoubtError,
    TransactionStateError,
    NoOffsetForPartitionError,
    LogTruncationError,
)


def _classes(base: type[KafkaClientError]) -> list[type[KafkaClientError]]:
    return [found for cls in base.__subclasses__() for found in (cls, *_classes(cls))]


_BY_CODE: dict[ErrorCode, type[KafkaClientError]] = {
    cls.default_code: cls
    for cls in _classes(KafkaClientError)
    if cls is not RetriableError and cls not in _ONLY_OURS
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
    if isinstance(cause, wire_errors.CorruptRecordError):
        return CorruptRecordError(message)
    return error_for(cause.code, message)


E = TypeVar("E", bound=KafkaClientError)


def renewed(error: E) -> E:
    """Return a kept error to be raised: with a traceback of its own, and the same cause."""
    again = type(error)(error.message, code=error.code)
    again.__cause__ = error.__cause__
    return again
