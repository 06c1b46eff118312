"""Which partition a record goes to, beside what the Java producer decides."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from kraftrio.clients.producer.partitioner import draw_partition, murmur2, partition_for_key

RECORDED = Path(__file__).with_name("vectors") / "partitioner.jsonl"


def check_vectors(lines: Iterable[str]) -> int:
    """Compare our decisions with the Java producer's; return how many keys there were."""
    count = 0
    for line in lines:
        vector = json.loads(line)
        key = bytes.fromhex(vector["key"])
        assert murmur2(key) == vector["murmur2"] & 0xFFFF_FFFF, line
        for partitions, partition in vector["partitions"].items():
            assert partition_for_key(key, int(partitions)) == partition, line
        count += 1
    return count


def test_keys_go_where_the_java_producer_sends_them() -> None:
    """murmur2 and the partition agree with what was recorded, for keys of all lengths mod 4."""
    assert check_vectors(RECORDED.read_text().splitlines()) == 58


def test_a_key_that_comes_again_has_the_same_partition() -> None:
    """Remembered hashes are those that were computed, short and long keys alike."""
    for key in (b"again", b"x" * 64, b"y" * 65):
        assert {partition_for_key(key, 12) for _ in range(3)} == {(murmur2(key) & 0x7FFF_FFFF) % 12}


def test_partitions_are_drawn_evenly() -> None:
    """Where nothing waits, or the same everywhere, all have the same chance."""
    rng = random.Random(1)
    for waiting in (None, [2, 2, 2, 2]):
        drawn = Counter(draw_partition([3, 5, 7, 9], waiting, rng) for _ in range(4000))
        assert set(drawn) == {3, 5, 7, 9}
        assert min(drawn.values()) > 850


@pytest.mark.parametrize(
    ("waiting", "shares"),
    [([0, 3, 1], [4, 1, 3]), ([5, 0, 0], [1, 6, 6]), ([1, 0], [1, 2])],
)
def test_partitions_where_much_waits_are_drawn_less_often(
    waiting: list[int], shares: list[int]
) -> None:
    """The chance of a partition is the longest queue plus one, less its own."""
    rng = random.Random(2)
    draws = 6000
    drawn = Counter(draw_partition(range(len(waiting)), waiting, rng) for _ in range(draws))
    for partition, share in enumerate(shares):
        expected = draws * share / sum(shares)
        assert abs(drawn[partition] - expected) < 0.15 * expected
