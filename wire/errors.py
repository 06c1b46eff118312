"""Kafka's error codes and the exceptions of the whole project.

Owns three things:

- ``ErrorCode``: every code a response can carry, by Kafka's own name.
- ``KafkaError``: a failure with a code. Cores and handlers raise it, and the edge turns it into
  the error field of a response.
- ``ProtocolError``: bytes or values that do not fit the protocol. ``RemoteProtocolError`` means
  the peer is wrong (its connection is closed), ``LocalProtocolError`` means we are wrong.

Everybody uses this module; it imports nothing of ours. Protocol guide, "Error Codes".
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """An error code on the wire; ``retriable``: the same request may succeed later."""

    text: str

    def __new__(cls, code: int, text: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.text = text
        return member

    @classmethod
    def of_peer(cls, number: int) -> ErrorCode:
        """Return the code that a peer sent; of one that only a newer Kafka knows, the number."""
        try:
            return cls(number)
        except ValueError:
            pass
        unknown = int.__new__(cls, number)
        unknown._name_ = f"UNKNOWN_ERROR_{number}"
        unknown._value_ = number
        unknown.text = f"error code {number}, which this version does not know"
        return unknown

    @property
    def is_known(self) -> bool:
        """Whether it is one of the codes below."""
        return self._name_ in ErrorCode.__members__

    @property
    def retriable(self) -> bool:
        """Whether clients retry the same request after this error, as Kafka's own clients do."""
        return self in _RETRIABLE

    @property
    def sentence(self) -> str:
        """What stands beside the code in a response that says nothing more about the failure."""
        return _SENTENCES.get(self) or f"{self.text[:1].upper()}{self.text[1:]}."

    UNKNOWN_SERVER_ERROR = -1, "unexpected server error"
    NONE = 0, "no error"
    OFFSET_OUT_OF_RANGE = 1, "the offset is outside of the log"
    CORRUPT_MESSAGE = (
        2,
        "the record batch is corrupt, too large, or has a null key it must not have",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, "this server does not host this topic-partition"
    INVALID_FETCH_SIZE = 4, "invalid fetch size"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, "this broker is not the leader (or not a replica) of the partition"
    REQUEST_TIMED_OUT = 7, "the request timed out"
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica is not available on this broker"
    MESSAGE_TOO_LARGE = 10, "the message is larger than this server accepts"
    STALE_CONTROLLER_EPOCH = 11, "the controller has moved"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata of the offset commit is too large"
    NETWORK_EXCEPTION = 13, "the connection ended before the response came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is loading"
    COORDINATOR_NOT_AVAILABLE = 15, "the coordinator is not available"
    NOT_COORDINATOR = 16, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, "the topic is invalid for this operation"
    RECORD_LIST_TOO_LARGE = 18, "the record batch is larger than a log segment"
    NOT_ENOUGH_REPLICAS = 19, "fewer in-sync replicas than required; nothing was written"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "written, but to fewer in-sync replicas than required"
    INVALID_REQUIRED_ACKS = 21, "invalid acks"
    ILLEGAL_GENERATION = 22, "the group generation is not the current one"
    INCONSISTENT_GROUP_PROTOCOL = 23, "the member's protocols do not fit those of the group"
    INVALID_GROUP_ID = 24, "invalid group id"
    UNKNOWN_MEMBER_ID = 25, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside of the allowed range"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing; rejoin it"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, "the timestamp is outside of the allowed range"
    UNSUPPORTED_SASL_MECHANISM = 33, "unsupported SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "the request does not fit the SASL state"
    UNSUPPORTED_VERSION = 35, "unsupported API version"
    TOPIC_ALREADY_EXISTS = 36, "the topic already exists"
    INVALID_PARTITIONS = 37, "invalid number of partitions"
    INVALID_REPLICATION_FACTOR = 38, "replication factor below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, "invalid replica assignment"
    INVALID_CONFIG = 40, "invalid configuration"
    NOT_CONTROLLER = 41, "this node is not the active controller"
    INVALID_REQUEST = 42, "the request is malformed or not allowed like this"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the log's message format does not support the request"
    POLICY_VIOLATION = 44, "the request breaks the configured policy"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "out of order sequence number"
    DUPLICATE_SEQUENCE_NUMBER = 46, "duplicate sequence number"
    INVALID_PRODUCER_EPOCH = 47, "the producer epoch is old"
    INVALID_TXN_STATE = 48, "the transaction's state does not allow the operation"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id is not the one of the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is larger than allowed"
    CONCURRENT_TRANSACTIONS = 51, "another operation on the same transaction is ongoing"
    TRANSACTION_COORDINATOR_FENCED = 52, "the transaction coordinator is no longer the current one"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, "security is disabled"
    OPERATION_NOT_ATTEMPTED = 55, "not attempted, because another operation of the request failed"
    KAFKA_STORAGE_ERROR = 56, "disk error while accessing the log"
    LOG_DIR_NOT_FOUND = 57, "no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed"
    UNKNOWN_PRODUCER_ID = 59, "unknown producer id"
    REASSIGNMENT_IN_PROGRESS = 60, "a partition reassignment is in progress"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, "delegation token not found"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "the principal is neither owner nor renewer of the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "delegation tokens are not allowed on this channel"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "unsupported principal type"
    NON_EMPTY_GROUP = 68, "the group is not empty"
    GROUP_ID_NOT_FOUND = 69, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, "invalid fetch session epoch"
    LISTENER_NOT_FOUND = 72, "the leader has no listener of that name"
    TOPIC_DELETION_DISABLED = 73, "topic deletion is disabled"
    FENCED_LEADER_EPOCH = 74, "the leader epoch is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, "the leader epoch is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, "the client does not support the compression type"
    STALE_BROKER_EPOCH = 77, "the broker epoch has changed"
    OFFSET_NOT_AVAILABLE = 78, "the new leader's high watermark is not known yet"
    MEMBER_ID_REQUIRED = 79, "join again with the member id given"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, "the group has reached its maximum size"
    FENCED_INSTANCE_ID = 82, "another member has registered with the same group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, "no leader election is needed"
    NO_REASSIGNMENT_IN_PROGRESS = 85, "no partition reassignment is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "the group is subscribed to the topic"
    INVALID_RECORD = 87, "the broker rejects the record"
    UNSTABLE_OFFSET_COMMIT = 88, "the offsets have pending transactional commits"
    THROTTLING_QUOTA_EXCEEDED = 89, "the quota is exceeded"
    PRODUCER_FENCED = 90, "a newer producer uses the same transactional id"
    RESOURCE_NOT_FOUND = 91, "no such resource"
    DUPLICATE_RESOURCE = 92, "the request names the same resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, "unacceptable credential"
    INCONSISTENT_VOTER_SET = 94, "sender or receiver is not one of the expected voters"
    INVALID_UPDATE_VERSION = 95, "invalid update version"
    FEATURE_UPDATE_FAILED = 96, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, "no such snapshot"
    POSITION_OUT_OF_RANGE = 99, "the position is outside of the snapshot"
    UNKNOWN_TOPIC_ID = 100, "this server does not host this topic id"
    DUPLICATE_BROKER_REGISTRATION = 101, "the broker id is in use"
    BROKER_ID_NOT_REGISTERED = 102, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, "the topic id is not the one of the log"
    INCONSISTENT_CLUSTER_ID = 104, "the cluster id is not this cluster's"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "the fetch session mixes topic names and topic ids"
    INELIGIBLE_REPLICA = 107, "the new ISR has a replica that is not eligible"
    NEW_LEADER_ELECTED = 108, "the partition was altered, but its leader has changed"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset is in tiered storage"
    FENCED_MEMBER_EPOCH = 110, "the member epoch is fenced; rejoin"
    UNRELEASED_INSTANCE_ID = 111, "the instance id is still in use by another member"
    UNSUPPORTED_ASSIGNOR = 112, "unsupported assignor"
    STALE_MEMBER_EPOCH = 113, "the member epoch is stale; heartbeat and retry"
    MISMATCHED_ENDPOINT_TYPE = 114, "this endpoint does not serve the request"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "unsupported endpoint type"
    UNKNOWN_CONTROLLER_ID = 116, "unknown controller id"
    UNKNOWN_SUBSCRIPTION_ID = 117, "unknown telemetry subscription id"
    TELEMETRY_TOO_LARGE = 118, "the telemetry is too large"
    INVALID_REGISTRATION = 119, "invalid broker registration"
    TRANSACTION_ABORTABLE = 120, "the transaction failed; abort it to go on"
    INVALID_RECORD_STATE = 121, "invalid record state; the acknowledgement failed"
    SHARE_SESSION_NOT_FOUND = 122, "no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, "invalid share session epoch"
    FENCED_STATE_EPOCH = 124, "the share group's state epoch is not the current one"
    INVALID_VOTER_KEY = 125, "the voter key is not the receiver's"
    DUPLICATE_VOTER = 126, "already a voter"
    VOTER_NOT_FOUND = 127, "no such voter"
    INVALID_REGULAR_EXPRESSION = 128, "invalid regular expression"
    REBOOTSTRAP_REQUIRED = 129, "the client's metadata is stale; bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, "invalid topology"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "invalid topology epoch"
    STREAMS_TOPOLOGY_FENCED = 132, "the topology epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, "too many share sessions"


# In Kafka's words, which its tools print and people's scripts look for.
_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the "
        "message was sent to an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.FENCED_LEADER_EPOCH: (
        "The leader epoch in the request is older than the epoch on the broker."
    ),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The throttling quota has been exceeded.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
    ErrorCode.FENCED_STATE_EPOCH: (
        "The share coordinator rejected the request because the share-group state epoch did not "
        "match."
    ),
}

_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class KafkaError(Exception):
    """A failure with a Kafka error code; ``message`` is for the response's error message field."""

    def __init__(self, code: ErrorCode | int, message: str | None = None) -> None:
        self.code = ErrorCode(code)
        self.message = message
        super().__init__(f"{self.code.name}: {message or self.code.text}")


class CorruptBatchError(KafkaError):
    """A record batch whose bytes are wrong: bad checksum, impossible sizes, unknown magic."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class ProtocolError(Exception):
    """Bytes or values that do not fit the protocol."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol does not allow; its connection has to be closed."""


class LocalProtocolError(ProtocolError):
    """We were about to send something the protocol does not allow: a bug of ours."""


class MissingFieldError(LocalProtocolError):
    """We were about to send a field that the message's version does not have."""
