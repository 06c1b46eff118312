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


def test_partition_of_recorded_groups() -> None:
    """Recorded groups are in the partitions that Kafka chose, of two."""
    for group_id in ("group-txn", "group-classic", "group-static", "group-simple"):
        assert partition_for(group_id, 2) == 0
    for group_id in ("group-deleted", "share-g"):
        assert partition_for(group_id, 2) == 1
    assert partition_for("polygenelubricants", 50) == 0
