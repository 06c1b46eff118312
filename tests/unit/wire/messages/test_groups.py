"""Declarations of group, config and admin messages: layouts that are easy to get wrong.

The bytes are what Kafka's own classes write; the versions of every field are compared with Kafka's
definitions elsewhere.
"""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest

from kraftrio.wire.codec.message import decode, encode, spec_of
from kraftrio.wire.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from kraftrio.wire.messages.admin import (
    CreatableTopicResult,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeLogDirsRequest,
)
from kraftrio.wire.messages.configs import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    OpData,
)
from kraftrio.wire.messages.group_records.classic import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    decode_assignment,
    decode_group_value,
    decode_offset_value,
    decode_subscription,
    decode_subscription_topics,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    encode_subscription,
)
from kraftrio.wire.messages.group_records.keys import (
    KEYS_BY_RECORD_TYPE,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_key,
    encode_key,
)
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    JoinGroupResponse,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    SyncGroupResponse,
)


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0,
         "000167 00000001 00016d"),
        (
            HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i"),
            3,
            "000167 00000001 00016d 000169",
        ),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4,
         "0267 00000001 026d 00 00"),
        (SyncGroupResponse(assignment=b"\x01\x02"), 0, "0000 00000002 0102"),
        (SyncGroupResponse(protocol_type="consumer", assignment=b"\x01"), 5,
         "00000000 0000 09636f6e73756d6572 00 0201 00"),
        (JoinGroupResponse(protocol_name="range", leader="a", member_id="b"), 0,
         "0000 ffffffff 000572616e6765 000161 000162 00000000"),
        (JoinGroupResponse(protocol_name=None, leader="a", member_id="b", skip_assignment=True), 9,
         "00000000 0000 ffffffff 00 00 0261 01 0262 01 00"),
        (OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND), 0,
         "0045 00000000 00000000"),
        (OffsetFetchRequest(group_id="g", topics=None), 2, "000167 ffffffff"),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9,
         "02 0267 00 ffffffff 00 00 00 00"),
        (ConsumerGroupHeartbeatResponse(member_id="m"), 0,
         "00000000 0000 00 026d 00000000 00000000 ff 00"),
        (ConsumerGroupHeartbeatResponse(assignment=ConsumerGroupHeartbeatAssignment()), 0,
         "00000000 0000 00 00 00000000 00000000 01 01 00 00"),
        (DescribeLogDirsRequest(topics=None), 1, "ffffffff"),
        (DescribeLogDirsRequest(topics=None), 2, "00 00"),
        (CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_message=None)]), 5,
         "00000000 02 0274 0000 00 ffffffff ffff 01 00 00"),
        (
            CreateTopicsResponse(
                topics=[CreatableTopicResult(name="t", error_message=None, configs=None,
                                             topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
            ),
            5,
            "00000000 02 0274 0000 00 ffffffff ffff 00 01 00 02 001d 00",
        ),
        (
            AlterClientQuotasRequest(
                entries=[
                    AlterClientQuotasEntryData(
                        entity=[AlterClientQuotasEntityData(entity_type="user", entity_name=None)],
                        ops=[OpData(key="k", value=1.5)],
                    )
                ]
            ),
            0,
            "00000001 00000001 000475736572 ffff 00000001 00016b 3ff8000000000000 00 00",
        ),
    ],
)  # fmt: skip
def test_layouts(message: Any, version: int, expected: str) -> None:
    """Each message in this version is these bytes, and reads back equal."""
    data = bytes.fromhex(expected)
    assert encode(message, version) == data
    assert decode(type(message), version, data) == (message, len(data))


def test_delete_topics_by_name_or_id() -> None:
    """From v6 a topic has a name or an id; up to v5 there is a list of names."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=b"i" * 16)], timeout_ms=5)
    data = encode(request, 6)
    assert data.hex() == "0200" + b"i".hex() * 16 + "000000000500"
    with pytest.raises(LocalProtocolError):
        encode(request, 5)
    assert encode(DeleteTopicsRequest(topic_names=["t"]), 1).hex() == "0000000100017400000000"


# --- records of the offsets topic ---


def test_keys() -> None:
    """A key is its record type and the fields; both types of offset keys are read."""
    key = encode_offset_key("g", "t", 3)
    assert key.hex() == "000100016700017400000003"
    assert decode_key(key) == OffsetCommitKey(group="g", topic="t", partition=3)
    assert decode_key(b"\0\0" + key[2:]) == OffsetCommitKey(group="g", topic="t", partition=3)
    assert encode_group_key("g").hex() == "0002000167"
    assert decode_key(b"\0\2\0\1g") == GroupMetadataKey(group="g")


@pytest.mark.parametrize("record_type", sorted(KEYS_BY_RECORD_TYPE.keys() - {0}))
def test_every_type_of_key_is_read_as_it_is_written(record_type: int) -> None:
    """Strings that are fields of a key stand in their order behind its type."""
    key_class = KEYS_BY_RECORD_TYPE[record_type]
    fields = [field.name for field in spec_of(key_class).fields]
    key = cast(Any, key_class)(**{name: name for name in fields if name != "partition"})
    names = [name for name in fields if name != "partition"]
    expected = struct.pack(">h", record_type)
    expected += b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
    expected += b"\0\0\0\0" if "partition" in fields else b""
    assert encode_key(key) == expected
    assert decode_key(expected) == key


@pytest.mark.parametrize("record_type", [9, 18, 24, 99])
def test_keys_of_no_known_type_are_told_apart(record_type: int) -> None:
    """Record types of a newer Kafka are told apart, not misread."""
    assert decode_key(record_type.to_bytes(2, "big") + b"\0\1g") is None


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1\0\5g", b"\0\2\0\1"])
def test_truncated_keys(key: bytes) -> None:
    """Bytes that end too early are malformed."""
    with pytest.raises(RemoteProtocolError):
        decode_key(key)


def test_offset_value_versions() -> None:
    """Values are written as v4, the topic id in a tag; with an expiry as v1."""
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    body = "000000000000000500000002026d0000000000000009"
    assert encode_offset_value(value).hex() == "0004" + body + "00"
    value.topic_id = b"i" * 16
    assert encode_offset_value(value).hex() == "0004" + body + "010010" + b"i".hex() * 16
    assert decode_offset_value(encode_offset_value(value)) == value
    old = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, expire_timestamp=10)
    assert encode_offset_value(old).hex() == (
        "0001000000000000000500016d0000000000000009000000000000000a"
    )
    assert decode_offset_value(encode_offset_value(old)) == old


def test_group_value_versions() -> None:
    """Values are written as v3; v0 without timeouts and timestamps is read."""
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", rebalance_timeout=7, session_timeout=6,
        subscription=b"s", assignment=b"a",
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol="range", leader="m",
        current_state_timestamp=8, members=[member],
    )  # fmt: skip
    data = encode_group_value(value)
    assert data[:2] == b"\0\3"
    assert decode_group_value(data) == value
    v0 = bytes.fromhex("0000000000000002ffffffff00000000")
    assert decode_group_value(v0) == GroupMetadataValue(generation=2, protocol=None, leader=None)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\5", b"\xff\xff", b"\0\4\0"])
def test_unreadable_values(value: bytes) -> None:
    """Unknown versions and truncated values are malformed, whatever they hold."""
    for read in (decode_offset_value, decode_group_value):
        with pytest.raises(RemoteProtocolError):
            read(value)


# --- the consumer protocol ---


def test_subscription_of_a_java_consumer() -> None:
    """A recorded v3 subscription: topics, null user data, no owned partitions, no rack."""
    data = bytes.fromhex("00030000000100027431ffffffff00000000ffffffffffff")
    subscription = decode_subscription(data)
    assert subscription.topics == ["t1"]
    assert (subscription.user_data, subscription.generation_id) == (None, -1)
    assert (subscription.owned_partitions, subscription.rack_id) == ([], None)
    assert encode_subscription(subscription) == data


def test_newer_consumer_protocol_versions_are_read() -> None:
    """A version above ours only adds fields at the end."""
    data = bytes.fromhex("00090000000100027431ffffffff00000000ffffffffffff77")
    assert decode_subscription(data).topics == ["t1"]
    assert decode_subscription_topics(data) == ["t1"]
    assignment = bytes.fromhex("000900000001000274310000000100000000ffffffff77")
    assert decode_assignment(assignment).assigned_partitions[0].partitions == [0]


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1", b"\0\0\x7f\xff\xff\xff"]
)
def test_opaque_bytes_are_no_subscription(data: bytes) -> None:
    """Bytes of other protocols are refused, never misread or a crash."""
    for read in (decode_subscription, decode_subscription_topics, decode_assignment):
        with pytest.raises(RemoteProtocolError):
            read(data)
