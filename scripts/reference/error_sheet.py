"""What to do about each error of the clients; `errors` makes a page of it.

A line is `error | remedy`. Every public error has one, and every line an error: the page is made
from both, and does not come about otherwise. The meaning of a class is in its docstring, or is the
text of its code.
"""

from __future__ import annotations

SHEET = """\
AcknowledgementStateError | Acknowledge a record once, by the consumer that got it, with `share_acknowledgement_mode="explicit"`.
AuthenticationError | Correct what the message names: a password, a certificate, a setting of security.
AuthorizationError | Give the user the right: `kraftrio acl allow`. The message names the resource.
BrokerIdNotRegisteredError | Check the id: the cluster has no such broker, or forgot it already.
BrokerUnavailableError | Wait, or look which brokers run: `kraftrio cluster describe`.
BufferExhaustedError | Send more slowly, await deliveries, raise `buffer_memory`, or find out why the broker takes nothing.
ClosedError | Use the client within its `async with`.
ClusterAuthorizationError | Allow the operation on the cluster: `kraftrio acl allow User:NAME OPERATION --on cluster`.
CommitFailedError | Handle records faster than `max_poll_interval_ms`, or fewer at a time (`max_poll_records`). They are read again.
ConcurrentTransactionsError | Nothing: the transaction before is still being ended; it is tried again.
ConfigError | Correct the setting that the message names.
CoordinatorNotAvailableError | Wait: the group's or transaction's coordinator starts, or its partition has no leader (`kraftrio cluster health`).
CorruptRecordError | Find the damage with `kraftrio log verify` on the stopped broker; read on after the offset that the message names.
DelegationTokenAuthorizationError | Allow the user to use the token.
DelegationTokenDisabledError | Set `delegation.token.secret.key` on brokers and controllers.
DelegationTokenExpiredError | Make a new token, and renew it before it expires.
DelegationTokenNotFoundError | Check the token's id and HMAC; it may have expired.
DelegationTokenOwnerMismatchError | Act as the token's owner, or as one of its renewers.
DelegationTokenRequestNotAllowedError | Log in with a password or a certificate to make tokens.
DuplicateResourceError | Name each resource once.
FatalProducerError | Close the producer, and begin with a new one.
FencedInstanceIdError | Give each running member a `group_instance_id` of its own.
FencedMemberEpochError | Nothing: the member joins its group again.
GroupAuthorizationError | Allow the user to read the group: `kraftrio acl allow User:NAME read --on group/GROUP`.
GroupIdNotFoundError | Check the name: `kraftrio group list`.
GroupMaxSizeReachedError | Raise `group.max.size` (or that of its kind), or run fewer members.
GroupNotEmptyError | Stop the members of the group first.
GroupSubscribedToTopicError | Stop the members that read the topic first.
IllegalGenerationError | Nothing: the member joins its group again, what was not committed is read again.
IllegalSaslStateError | Use the port and the protocol that go together: `kraftrio doctor` shows which.
InvalidConfigurationError | Correct the setting or the value that the message names.
InvalidGroupIdError | Give a `group_id` that is not empty.
InvalidPartitionsError | Ask for at least one partition, and for more than there are when adding.
InvalidPrincipalTypeError | Write principals as `User:NAME`.
InvalidProducerEpochError | Abort the transaction and do it again; close the producer if another one has its id.
InvalidProducerIdMappingError | Close the producer, and begin with a new one: its id has expired.
InvalidRecordError | Give records of compacted topics a key, and records a timestamp that the topic allows.
InvalidRecordStateError | Work faster than `share.record.lock.duration.ms`, or renew the lock. The record is delivered again.
InvalidRegularExpressionError | Write the pattern in RE2's syntax.
InvalidReplicaAssignmentError | Name brokers that exist, as many for each partition, each once.
InvalidReplicationFactorError | Ask for no more replicas than there are brokers.
InvalidRequestError | Read the message; what was asked is not possible like this.
InvalidShareSessionEpochError | Nothing: the consumer begins a new session.
InvalidTimestampError | Set timestamps within `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`.
InvalidTopicError | Use letters, digits, `.`, `_` and `-`, at most 249 of them; leave Kafka's own topics alone.
InvalidTransactionTimeoutError | Lower `transaction_timeout_ms`, or raise `transaction.max.timeout.ms` on the brokers.
InvalidTxnStateError | Close the producer: its transaction was ended by somebody else.
InvalidValueError | Give a value of the type and the size that the message names.
KafkaClientError | Read its message and its `code`: it has no class of its own.
KafkaStorageError | Look at the broker's disk and its log: `kraftrio doctor`, [events](log-events.md).
LeaderNotAvailableError | Wait; if it stays, start the brokers that have the partition (`kraftrio cluster health`).
LogTruncationError | Decide where to go on: `seek` to its `divergent_offset`, or set `auto_offset_reset`.
NetworkError | Check that the broker runs and that the way to it is open: `kraftrio doctor`.
NoOffsetForPartitionError | Set `auto_offset_reset`, or `seek`.
NotControllerError | Nothing: the client asks the new controller.
NotCoordinatorError | Nothing: the client asks the new coordinator.
NotEnoughReplicasAfterAppendError | The record is stored and may be lost still; the producer sends it again. See `NotEnoughReplicasError`.
NotEnoughReplicasError | Bring brokers back: fewer than `min.insync.replicas` are in sync (`kraftrio cluster health`).
NotLeaderOrFollowerError | Nothing: the client asks the new leader.
OffsetOutOfRangeError | `seek` to an offset that exists, or set `auto_offset_reset`: retention may have removed the records.
OutOfOrderSequenceError | Records before this one are lost or failed: look at their errors; a transaction has to be aborted.
PolicyViolationError | Ask for what the cluster's policy allows.
ProducerFencedError | Close this producer: a newer one has its `transactional_id`.
RebalanceInProgressError | Nothing: the member joins its group again.
RecordBatchTooLargeError | Lower `batch_size`, or raise the topic's `segment.bytes`.
RecordDeserializationError | Correct the deserializer, or go on after the record: `consumer.skip(error)`.
RecordTooLargeError | Send smaller records, or raise `max_request_size` and the topic's `max.message.bytes`.
ResourceNotFoundError | Check the name: no such resource exists.
RetriableError | Nothing yet: try again later.
SaslAuthenticationError | Correct user, password, token or mechanism.
SecurityDisabledError | Set `authorizer.class.name=StandardAuthorizer` on brokers and controllers.
ShareSessionLimitReachedError | Raise `group.share.max.share.sessions`, or run fewer share consumers.
ShareSessionNotFoundError | Nothing: the consumer begins a new session.
SslAuthenticationError | Give the authority that signed the other's certificate (`ssl_truststore_location`), the name it is for, and a port that speaks TLS: `kraftrio doctor`.
StaleMemberEpochError | Nothing: the member hears of its epoch by the next heartbeat.
ThrottlingQuotaExceededError | Wait, or raise the user's `controller_mutation_rate`: `kraftrio quota set`.
SubscriptionStateError | Call `subscribe` or `assign` first.
TimedOutError | Try again; if it stays, look why the cluster is slow (`kraftrio doctor`), or allow more time.
TopicAuthorizationError | Allow the user to read or write the topic: `kraftrio acl allow User:NAME read write --on topic/TOPIC`.
TopicExistsError | Use the topic that is there, or another name.
TransactionAbortableError | Abort the transaction, and do it again.
TransactionAbortedError | Do it again, from where the group's committed offsets are.
TransactionCoordinatorFencedError | Nothing: the coordinator has moved.
TransactionInDoubtError | Look at the group's committed offsets: they show whether the commit went through.
TransactionStateError | Send within `async with producer.transaction()`.
TransactionalIdAuthorizationError | Allow the user to write with the id: `kraftrio acl allow User:NAME write --on transactional_id/ID`.
TransactionalIdNotFoundError | Check the id: `kraftrio transaction list`.
UnacceptableCredentialError | Give SCRAM users a password and 4096 to 16384 iterations.
UnknownMemberIdError | Nothing: the member joins its group again.
UnknownProducerIdError | Nothing for an idempotent producer; a transaction has to be aborted.
UnknownTopicIdError | Wait: the topic is new, or was deleted and created again.
UnknownTopicOrPartitionError | Create the topic, or correct its name: `kraftrio topic list`.
UnreleasedInstanceIdError | Wait until the other member with this `group_instance_id` is gone.
UnsupportedAssignorError | Use one of `group.consumer.assignors`: `uniform`, `range`.
UnsupportedSaslMechanismError | Use one of the listener's mechanisms, which the message names.
UnsupportedVersionError | Use a broker that knows this, or do without it.
"""


def remedies() -> dict[str, str]:
    """Return what to do about each error."""
    lines = (line.partition(" | ") for line in SHEET.splitlines())
    return {name: text for name, _, text in lines}
