"""Which partition of an internal topic a key belongs to."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.partitioning import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),
        ("\u00e9t\u00e9", 233 * 31 * 31 + 116 * 31 + 233),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    """Groups are hashed as Java hashes strings: 31 times and add, over UTF-16 units."""
    assert java_hash(text) == expected


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129, 1000])
def test_long_texts_are_hashed_in_blocks(length: int) -> None:
    """As unit by unit."""
    text = "".join(chr(0x20 + 37 * index % 0xD000) for index in range(length))
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFF_FFFF
    assert java_hash(text) & 0xFFFF_FFFF == value


def test_partition_of_recorded_groups() -> None:
    """Recorded groups are in the partitions that Kafka chose, of two."""
    for group_id in ("group-txn", "group-classic", "group-static", "group-simple"):
        assert partition_for(group_id, 2) == 0
    for group_id in ("group-deleted", "share-g"):
        assert partition_for(group_id, 2) == 1
    assert partition_for("polygenelubricants", 50) == 0
