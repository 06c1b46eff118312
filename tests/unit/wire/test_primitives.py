"""Varints, uuids and topic partitions of `kraftrio.wire.primitives`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftrio.wire.errors import LocalProtocolError, RemoteProtocolError
from kraftrio.wire.primitives import (
    ZERO_UUID,
    TopicPartition,
    encode_uvarint,
    encode_varint,
    indexes_by_topic,
    read_uvarint,
    read_uvarlong,
    read_varint,
    read_varlong,
    uuid_from_text,
    uuid_to_text,
    uvarint_size,
    varint_size,
    zigzag_decode,
    zigzag_encode,
)

UINT32 = st.integers(0, 0xFFFF_FFFF)
UINT64 = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (0xFFFF_FFFF, "ffffffff0f"),
    ],
)
def test_uvarint_bytes(value: int, data: str) -> None:
    """Unsigned varints have the bytes that the protocol guide gives them."""
    assert encode_uvarint(value).hex() == data
    assert read_uvarint(bytes.fromhex(data), 0) == (value, len(data) // 2)


@pytest.mark.parametrize(
    ("value", "data"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (150, "ac02")]
)
def test_varint_bytes(value: int, data: str) -> None:
    """Signed varints are zigzag-encoded."""
    assert encode_varint(value).hex() == data
    assert read_varint(bytes.fromhex(data), 0) == (value, len(data) // 2)


@settings(derandomize=True, deadline=None)
@given(UINT32)
def test_uvarint_round_trip(value: int) -> None:
    """Every 32-bit value is read back from where it stands, and its size is known."""
    data = b"\xff" + encode_uvarint(value) + b"\x01"
    assert read_uvarint(data, 1) == (value, len(data) - 1)
    assert uvarint_size(value) == len(data) - 2


@settings(derandomize=True, deadline=None)
@given(UINT64)
def test_uvarlong_round_trip(value: int) -> None:
    """Every 64-bit value is read back."""
    data = encode_uvarint(value)
    assert read_uvarlong(memoryview(data), 0) == (value, len(data))


@settings(derandomize=True, deadline=None)
@given(INT32)
def test_varint_round_trip(value: int) -> None:
    """Every signed 32-bit value is read back, and its size is known."""
    data = encode_varint(value)
    assert read_varint(data, 0) == (value, len(data))
    assert varint_size(value) == len(data) <= 5


@settings(derandomize=True, deadline=None)
@given(INT64)
def test_varlong_round_trip(value: int) -> None:
    """Every signed 64-bit value is read back."""
    data = encode_varint(value)
    assert read_varlong(data, 0) == (value, len(data))
    assert zigzag_decode(zigzag_encode(value)) == value
    assert len(data) <= 10


@pytest.mark.parametrize("read", [read_uvarint, read_uvarlong, read_varint, read_varlong])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff"])
def test_truncated_varint(read: object, data: bytes) -> None:
    """A varint that does not end is malformed."""
    assert callable(read)
    with pytest.raises(RemoteProtocolError, match="truncated"):
        read(data, 0)


def test_overlong_varint() -> None:
    """A varint with more bytes than its type has is malformed."""
    with pytest.raises(RemoteProtocolError, match="5 bytes"):
        read_uvarint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(RemoteProtocolError, match="10 bytes"):
        read_uvarlong(b"\x80" * 10 + b"\x00", 0)


def test_values_that_are_no_uvarint() -> None:
    """Negative values and those beyond 64 bits are our error."""
    with pytest.raises(LocalProtocolError):
        encode_uvarint(-1)
    with pytest.raises(LocalProtocolError):
        encode_uvarint(1 << 64)


def test_uuid_text() -> None:
    """The text form is Kafka's: base64 for URLs without padding."""
    raw = bytes.fromhex("fbff0123456789abcdef0123456789ab")
    assert uuid_to_text(raw) == "-_8BI0VniavN7wEjRWeJqw"
    assert uuid_from_text("-_8BI0VniavN7wEjRWeJqw") == raw
    assert uuid_to_text(ZERO_UUID) == "A" * 22
    assert uuid_from_text("A" * 22) == ZERO_UUID


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 24, "A" * 21 + "é", "A" * 20 + "+/", "A" * 23])
def test_text_that_is_no_uuid(text: str) -> None:
    """Anything but 16 bytes in that alphabet is refused."""
    with pytest.raises(ValueError):
        uuid_from_text(text)


def test_topic_partition_reads_like_kafkas() -> None:
    """It is a tuple, and its text is the name of the partition's directory."""
    assert str(TopicPartition("t1", 3)) == "t1-3"
    assert TopicPartition("t1", 3) == ("t1", 3)


def test_partitions_are_grouped_in_the_order_given() -> None:
    b0, a2, a1 = TopicPartition("b", 0), TopicPartition("a", 2), TopicPartition("a", 1)
    assert list(indexes_by_topic([b0, a2, a1]).items()) == [("b", [0]), ("a", [2, 1])]
