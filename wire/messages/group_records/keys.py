"""Declares the keys of the records of `__consumer_offsets`, by record type.

A key is an int16 record type and then its fields. Types 0 and 1 hold committed offsets, 2 a classic
group, 3-8 and 16 a consumer group (KIP-848), 10-15 a share group (KIP-932), 17-23 a streams group
(KIP-1071). Called by what reads or writes such records; the values are declared beside.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Mapping
from typing import Final, TypeAlias

from kraftrio.wire.codec.message import decode, encode, int32, message, string
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.primitives import Buffer

_INT16 = _struct.Struct(">h")

LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1


GroupRecordKey: TypeAlias = object
"""A key of any type."""


@message("0", flexible="none")
class OffsetCommitKey:
    group: str = string()
    topic: str = string()
    partition: int = int32()


@message("0", flexible="none")
class GroupMetadataKey:
    group: str = string()


@message("0", flexible="none")
class ConsumerGroupMetadataKey:
    group_id: str = string()


@message("0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    """Written up to Kafka 4.0; its tombstone since."""

    group_id: str = string()


@message("0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = string()


@message("0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class ShareGroupMemberMetadataKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class ShareGroupMetadataKey:
    group_id: str = string()


@message("0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = string()


@message("0", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    group_id: str = string()


@message("0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    group_id: str = string()
    regular_expression: str = string()


@message("0", flexible="none")
class StreamsGroupMetadataKey:
    group_id: str = string()


@message("0", flexible="none")
class StreamsGroupMemberMetadataKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: str = string()


@message("0", flexible="none")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: str = string()
    member_id: str = string()


@message("0", flexible="none")
class StreamsGroupTopologyKey:
    group_id: str = string()


KEYS_BY_RECORD_TYPE: Final[Mapping[int, type[GroupRecordKey]]] = {
    LEGACY_OFFSET_COMMIT: OffsetCommitKey,
    OFFSET_COMMIT: OffsetCommitKey,
    2: GroupMetadataKey,
    3: ConsumerGroupMetadataKey,
    4: ConsumerGroupPartitionMetadataKey,
    5: ConsumerGroupMemberMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    10: ShareGroupMemberMetadataKey,
    11: ShareGroupMetadataKey,
    12: ShareGroupTargetAssignmentMetadataKey,
    13: ShareGroupTargetAssignmentMemberKey,
    14: ShareGroupCurrentMemberAssignmentKey,
    15: ShareGroupStatePartitionMetadataKey,
    16: ConsumerGroupRegularExpressionKey,
    17: StreamsGroupMetadataKey,
    19: StreamsGroupMemberMetadataKey,
    20: StreamsGroupTargetAssignmentMetadataKey,
    21: StreamsGroupTargetAssignmentMemberKey,
    22: StreamsGroupCurrentMemberAssignmentKey,
    23: StreamsGroupTopologyKey,
}

_RECORD_TYPES: Mapping[type[GroupRecordKey], bytes] = {
    key_class: _INT16.pack(record_type) for record_type, key_class in KEYS_BY_RECORD_TYPE.items()
}  # of the offsets' two types the newer one, which comes last


def encode_key(key: GroupRecordKey) -> bytes:
    """Encode a record's key, its type first."""
    return _RECORD_TYPES[type(key)] + encode(key, 0)


def decode_key(key: Buffer) -> GroupRecordKey | None:
    """Read a record's key; None for a type that is not known.

    Raises RemoteProtocolError when the bytes are not a key at all.
    """
    if len(key) < _INT16.size:
        raise RemoteProtocolError(f"{len(key)} bytes where a record type is expected")
    key_class = KEYS_BY_RECORD_TYPE.get(_INT16.unpack_from(key)[0])
    return None if key_class is None else decode(key_class, 0, key, _INT16.size)[0]
