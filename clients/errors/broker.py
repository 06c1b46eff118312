"""The errors that brokers answer with, a class for each of Kafka's codes.

Rule: `codes` makes each class of this module from its `default_code`, so no two have the same. A
class without a docstring means what its code means.
"""

from __future__ import annotations

from kraftrio.clients.errors.kinds import (
    AuthenticationError,
    AuthorizationError,
    FatalProducerError,
    KafkaClientError,
    RetriableError,
    TransactionAbortedError,
)
from kraftrio.wire.errors import ErrorCode


class NetworkError(RetriableError):
    """The connection could not be opened, or ended before the answer came."""

    default_code = ErrorCode.NETWORK_EXCEPTION


class BrokerUnavailableError(RetriableError):
    """No broker is known by this id."""

    default_code = ErrorCode.BROKER_NOT_AVAILABLE


class TimedOutError(RetriableError):
    """It did not happen in the time given for it."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class UnsupportedVersionError(KafkaClientError):
    """The broker is too old or too new for what was asked."""

    default_code = ErrorCode.UNSUPPORTED_VERSION


class OffsetOutOfRangeError(KafkaClientError):
    default_code = ErrorCode.OFFSET_OUT_OF_RANGE


class UnknownTopicOrPartitionError(RetriableError):
    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicIdError(RetriableError):
    default_code = ErrorCode.UNKNOWN_TOPIC_ID


class BrokerIdNotRegisteredError(KafkaClientError):
    default_code = ErrorCode.BROKER_ID_NOT_REGISTERED


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
