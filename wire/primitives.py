"""Varints, uuids and the small types that every module shares.

Owns Kafka's variable-length integers (protocol guide, "Protocol Primitive Types": VARINT,
VARLONG, UNSIGNED_VARINT), the text form of uuids and ``TopicPartition``. Messages go through
``codec/message``; these functions serve record batches, records of internal topics and framing.

Rules: reading never goes beyond the buffer (``RemoteProtocolError``), and an integer that has
more bytes than its type allows is malformed.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from kraftrio.wire.errors import LocalProtocolError, RemoteProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)
"""Kafka's "no id"; every uuid of ours is 16 ``bytes``."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch, as requests of transactions name their producer; -1: none."""

    producer_id: int = -1
    producer_epoch: int = -1


def indexes_by_topic(topic_partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, as requests and records have them; in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, partition in topic_partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return it and the position after it."""
    value = shift = 0
    try:
        while True:
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise RemoteProtocolError("unsigned varint longer than 5 bytes")
    except IndexError:
        raise RemoteProtocolError("truncated varint") from None
    return value & 0xFFFF_FFFF, pos


def read_uvarlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 64 bits; return it and the position after it."""
    value = shift = 0
    try:
        while True:
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise RemoteProtocolError("varint longer than 10 bytes")
    except IndexError:
        raise RemoteProtocolError("truncated varint") from None
    return value & 0xFFFF_FFFF_FFFF_FFFF, pos


def zigzag_encode(value: int) -> int:
    """Map a signed integer to an unsigned one with small numbers for small magnitudes."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def zigzag_decode(value: int) -> int:
    """Undo ``zigzag_encode``."""
    return (value >> 1) ^ -(value & 1)


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of 32 bits; return it and the position after it."""
    value, pos = read_uvarint(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of 64 bits; return it and the position after it."""
    value, pos = read_uvarlong(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def encode_uvarint(value: int) -> bytes:
    """Encode a non-negative integer of up to 64 bits as an unsigned varint."""
    if value < 0x80:
        if value < 0:
            raise LocalProtocolError(f"negative value {value} as an unsigned varint")
        return _SMALL[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value > 0xFFFF_FFFF_FFFF_FFFF:
        raise LocalProtocolError(f"{value} does not fit 64 bits")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Encode a signed integer as a zigzag varint (32 and 64 bits look the same on the wire)."""
    return encode_uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def uvarint_size(value: int) -> int:
    """Return how many bytes ``encode_uvarint(value)`` has."""
    return (value.bit_length() + 6) // 7 or 1


def varint_size(value: int) -> int:
    """Return how many bytes ``encode_varint(value)`` has."""
    return uvarint_size(zigzag_encode(value))


def uuid_to_text(value: bytes) -> str:
    """Return Kafka's text form of a uuid: base64 for URLs, without padding."""
    return urlsafe_b64encode(value)[:22].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """Parse Kafka's text form of a uuid.

    Raises:
        ValueError: ``text`` is not the base64 form of 16 bytes.
    """
    if not _UUID_TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is not the text form of a uuid")
    return urlsafe_b64decode(text + "==")


_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
_SMALL = tuple(bytes((value,)) for value in range(0x80))
