"""Placement of replicas."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from kraftrio.kraft_meta.controller.topics.replica_placement import ReplicaPlacer
from kraftrio.kraft_meta.metadata.image import BrokerImage
from kraftrio.wire.errors import ErrorCode, KafkaError


def broker(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, 0, bytes(16), (), rack, fenced, False)


@pytest.mark.parametrize("seed", range(20))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    """Over a whole number of rounds every broker leads and follows as often as the others."""
    placer = ReplicaPlacer([broker(i) for i in range(5)], random.Random(seed))
    partitions = [placer.place(3) for _ in range(50)]
    assert all(len(set(replicas)) == 3 for replicas in partitions)
    assert set(Counter(replicas[0] for replicas in partitions).values()) == {10}
    assert set(Counter(r for replicas in partitions for r in replicas).values()) == {30}


@pytest.mark.parametrize("racks", ["abc", "aaaa", "abab", "aaaaa", "ababab", "aabbcc", "aaaaaaa"])
@pytest.mark.parametrize("replication_factor", [1, 2, 3])
def test_racks_of_one_size_share_evenly(racks: str, replication_factor: int) -> None:
    """Of as many partitions as there are brokers each leads one, also where racks alternate."""
    count = len(racks)
    for seed in range(10):
        brokers = [broker(i, rack) for i, rack in enumerate(racks)]
        placer = ReplicaPlacer(brokers, random.Random(seed))
        for _ in range(4):
            partitions = [placer.place(replication_factor) for _ in range(count)]
            assert sorted(replicas[0] for replicas in partitions) == list(range(count))
            replicas = Counter(r for replicas in partitions for r in replicas)
            assert set(replicas.values()) == {replication_factor}
            for placed in partitions:
                used = {racks[r] for r in placed}
                assert len(used) == min(replication_factor, len(set(racks)))


def test_brokers_that_shut_down_get_nothing() -> None:
    """Nor do they count for what is possible."""
    leaving = replace(broker(3), in_controlled_shutdown=True)
    placer = ReplicaPlacer([broker(1), broker(2), leaving], random.Random(0))
    assert all(set(placer.place(2)) == {1, 2} for _ in range(10))
    with pytest.raises(KafkaError, match="because only 2 broker"):
        placer.place(3)


@pytest.mark.parametrize("seed", range(20))
def test_replicas_are_in_different_racks(seed: int) -> None:
    """As long as there are racks enough."""
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}
    placer = ReplicaPlacer([broker(i, rack) for i, rack in racks.items()], random.Random(seed))
    for _ in range(30):
        replicas = placer.place(3)
        assert {racks[r] for r in replicas} == {"a", "b", "c"}
        assert len(set(placer.place(5))) == 5


@pytest.mark.parametrize("seed", range(20))
def test_fenced_brokers_come_last_and_never_lead(seed: int) -> None:
    """They are taken only when the others do not suffice."""
    brokers = [broker(1), broker(2), broker(3, fenced=True)]
    placer = ReplicaPlacer(brokers, random.Random(seed))
    for _ in range(10):
        assert set(placer.place(2)) == {1, 2}
        replicas = placer.place(3)
        assert replicas[0] != 3
        assert set(replicas) == {1, 2, 3}


@pytest.mark.parametrize(
    ("brokers", "replication_factor"),
    [
        ([broker(1)], 0),
        ([broker(1)], -1),
        ([broker(1)], 2),
        ([broker(1, fenced=True)], 1),
        ([], 1),
    ],
)
def test_impossible_wishes(brokers: list[BrokerImage], replication_factor: int) -> None:
    """INVALID_REPLICATION_FACTOR."""
    placer = ReplicaPlacer(brokers, random.Random(0))
    with pytest.raises(KafkaError) as caught:
        placer.place(replication_factor)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_seed_decides() -> None:
    """Same brokers in any order and same seed: same placement."""

    def places(ids: list[int]) -> list[tuple[int, ...]]:
        placer = ReplicaPlacer([broker(i, "ab"[i % 2]) for i in ids], random.Random(7))
        return [placer.place(2) for _ in range(20)]

    assert places([1, 2, 3, 4]) == places([4, 2, 1, 3])
