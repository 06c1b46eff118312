"""The errors that only a client can notice: a full buffer, a closed client, a wrong setting.

Each has the code that fits best; no broker's code makes one.
"""

from __future__ import annotations

from kraftrio.clients.errors.broker import OffsetOutOfRangeError, TimedOutError
from kraftrio.clients.errors.kinds import (
    AuthenticationError,
    FatalProducerError,
    KafkaClientError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

RecordContent = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class CorruptRecordError(KafkaClientError):
    """Records have come whose bytes are not those that were written, or cannot be read."""

    default_code = ErrorCode.CORRUPT_MESSAGE


class ConfigError(KafkaClientError, ValueError, TypeError):
    """A setting of the client is wrong: its name, its type or its value."""

    default_code = ErrorCode.INVALID_CONFIG


class RecordDeserializationError(KafkaClientError):
    """A record came that a deserializer cannot read; `Consumer.skip` goes on after it.

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


class BufferExhaustedError(TimedOutError):
    """The producer's buffer had no room within max_block_ms."""


class SslAuthenticationError(AuthenticationError):
    """TLS failed: one side does not accept the other's certificate, or does not speak TLS."""


class TransactionInDoubtError(FatalProducerError):
    """It is not known whether the transaction is committed.

    The commit was not answered in time; or it was refused, to an older of two producers for one,
    after an attempt that may have been carried out. A new producer with the same transactional id
    finds it decided, one way or the other.
    """

    default_code = ErrorCode.REQUEST_TIMED_OUT


class TransactionStateError(KafkaClientError, RuntimeError):
    """The call is not for a producer in this state: `send` outside of a transaction, for one."""

    default_code = ErrorCode.INVALID_TXN_STATE


class AcknowledgementStateError(KafkaClientError, RuntimeError):
    """A share consumer's record is not in a state in which that can be said of it, or asked."""

    default_code = ErrorCode.INVALID_RECORD_STATE


class SubscriptionStateError(KafkaClientError):
    """Records are asked for, and nothing is subscribed to or assigned."""

    default_code = ErrorCode.INVALID_REQUEST


class InvalidValueError(KafkaClientError, TypeError, ValueError):
    """A value has a type, or a size, that requests cannot hold."""

    default_code = ErrorCode.INVALID_REQUEST


class CommitFailedError(KafkaClientError):
    """The member's partitions are no longer its own, so its offsets were not committed."""

    default_code = ErrorCode.ILLEGAL_GENERATION


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
