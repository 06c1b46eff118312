"""Declares committed offsets and classic groups as the records of `__consumer_offsets` hold them,
and the consumer protocol's embedded messages.

A value is an int16 version and then its fields; a null value is a tombstone. The keys, of all
kinds of groups, are in `group_records/keys`.

The consumer protocol's subscription and assignment are the opaque bytes of classic members; the
coordinator reads only the topics of a subscription, and must survive any bytes.
"""

from __future__ import annotations

import struct as _struct

from kraftrio.wire.codec.message import (
    INT32,
    STRING,
    array,
    bytes_,
    decode,
    encode,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.group_records.keys import (
    GroupMetadataKey,
    OffsetCommitKey,
    encode_key,
)
from kraftrio.wire.primitives import Buffer

# What Kafka 4.3 writes with its default metadata version; older ones are read.
OFFSET_COMMIT_VALUE_VERSION = 4
GROUP_METADATA_VALUE_VERSION = 3
MAX_OFFSET_COMMIT_VALUE_VERSION = 4
MAX_GROUP_METADATA_VALUE_VERSION = 4

CONSUMER_PROTOCOL_MAX_VERSION = 3

_INT16 = _struct.Struct(">h")


@message("0-4", flexible="4+")
class OffsetCommitValue:
    """v1 alone holds an expire timestamp; v4 adds the topic id (KIP-848's commits by id)."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, tagged="4+", ignorable=True)


@struct
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


@message("0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


@struct
class SubscriptionTopicPartition:
    topic: str = string("1+")
    partitions: list[int] = array(INT32, "1+")


@message("0-3", flexible="none")
class ConsumerProtocolSubscription:
    topics: list[str] = array(STRING)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[SubscriptionTopicPartition] = array(
        SubscriptionTopicPartition, "1+", ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@struct
class AssignmentTopicPartition:
    topic: str = string()
    partitions: list[int] = array(INT32)


@message("0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: list[AssignmentTopicPartition] = array(AssignmentTopicPartition)
    user_data: bytes | None = bytes_(nullable="0+", default=None)


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    """Encode the key of one committed offset."""
    return encode_key(OffsetCommitKey(group=group, topic=topic, partition=partition))


def encode_group_key(group: str) -> bytes:
    """Encode the key of a classic group's metadata."""
    return encode_key(GroupMetadataKey(group=group))


def encode_offset_value(value: OffsetCommitValue) -> bytes:
    """Encode a committed offset; v1 when it carries an expire timestamp, as Kafka does."""
    version = 1 if value.expire_timestamp != -1 else OFFSET_COMMIT_VALUE_VERSION
    return _INT16.pack(version) + encode(value, version)


def decode_offset_value(value: Buffer) -> OffsetCommitValue:
    """Read a committed offset of any version up to ours."""
    version = _leading_int16(value)
    if not 0 <= version <= MAX_OFFSET_COMMIT_VALUE_VERSION:
        raise RemoteProtocolError(f"offset commit value of unknown version {version}")
    return decode(OffsetCommitValue, version, value, 2)[0]


def encode_group_value(value: GroupMetadataValue) -> bytes:
    """Encode a classic group's metadata."""
    version = GROUP_METADATA_VALUE_VERSION
    return _INT16.pack(version) + encode(value, version)


def decode_group_value(value: Buffer) -> GroupMetadataValue:
    """Read a classic group's metadata of any version up to ours."""
    version = _leading_int16(value)
    if not 0 <= version <= MAX_GROUP_METADATA_VALUE_VERSION:
        raise RemoteProtocolError(f"group metadata value of unknown version {version}")
    return decode(GroupMetadataValue, version, value, 2)[0]


def decode_subscription(metadata: Buffer) -> ConsumerProtocolSubscription:
    """Read a consumer protocol subscription; a version newer than ours is read as our newest.

    Raises RemoteProtocolError on bytes that are no subscription.
    """
    version = _leading_int16(metadata)
    if version < 0:
        raise RemoteProtocolError(f"consumer subscription of version {version}")
    return decode(
        ConsumerProtocolSubscription, min(version, CONSUMER_PROTOCOL_MAX_VERSION), metadata, 2
    )[0]


def decode_subscription_topics(metadata: Buffer) -> list[str]:
    """Read just the topics of a subscription, which stand first in every version.

    Raises RemoteProtocolError on bytes that are no subscription.
    """
    version = _leading_int16(metadata)
    if version < 0:
        raise RemoteProtocolError(f"consumer subscription of version {version}")
    return decode(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics


def decode_assignment(assignment: Buffer) -> ConsumerProtocolAssignment:
    """Read a consumer protocol assignment; a version newer than ours is read as our newest."""
    version = _leading_int16(assignment)
    if version < 0:
        raise RemoteProtocolError(f"consumer assignment of version {version}")
    return decode(
        ConsumerProtocolAssignment, min(version, CONSUMER_PROTOCOL_MAX_VERSION), assignment, 2
    )[0]


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = 3) -> bytes:
    """Encode a subscription as a classic member's protocol metadata."""
    return _INT16.pack(version) + encode(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = 3) -> bytes:
    """Encode an assignment as the leader sends it for a member."""
    return _INT16.pack(version) + encode(assignment, version)


def protocol_version(metadata: Buffer) -> int:
    """Return the version of the consumer protocol that a member's metadata is in, as we know it."""
    return min(_leading_int16(metadata), CONSUMER_PROTOCOL_MAX_VERSION)


def _leading_int16(buf: Buffer) -> int:
    if len(buf) < 2:
        raise RemoteProtocolError(f"{len(buf)} bytes where a version or record type is expected")
    version: int = _INT16.unpack_from(buf)[0]
    return version
