"""Where replicas are to be: a plan that moves few of them, and spreads them evenly.

Rules: a replica on a broker that stays is kept unless another broker has fewer; those of a
partition are on different brokers; preferred leaders are spread evenly, too.

Pure. Called by: `kraftrio reassign plan`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kraftrio.wire.primitives import TopicPartition


def plan_placement(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Sequence[int],
    replication_factor: int | None = None,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of each partition, the preferred leader first.

    Args:
        brokers: that may have replicas.
        replication_factor: None: each partition keeps its number of replicas.

    Raises:
        ValueError: there are fewer brokers than replicas wanted.
    """
    chosen: dict[TopicPartition, list[int]] = {}
    for item, replicas in sorted(current.items()):
        count = len(replicas) if replication_factor is None else replication_factor
        if count > len(set(brokers)):
            raise ValueError(f"{count} replicas need {count} brokers, not {len(set(brokers))}")
        kept = [broker for broker in replicas if broker in brokers]
        chosen[item] = kept[:count]
    loads = Counter(dict.fromkeys(brokers, 0))
    loads.update(broker for replicas in chosen.values() for broker in replicas)
    for item, replicas in chosen.items():
        count = len(current[item]) if replication_factor is None else replication_factor
        while len(replicas) < count:
            broker = min((each for each in brokers if each not in replicas), key=loads.__getitem__)
            replicas.append(broker)
            loads[broker] += 1
    _even_out(chosen, loads)
    return _share_leaders(chosen, current)


def _even_out(chosen: Mapping[TopicPartition, list[int]], loads: Counter[int]) -> None:
    """Move replicas from the brokers with most to the one with fewest, until no move helps."""
    while True:
        moved = False
        for most in sorted(loads, key=lambda broker: -loads[broker]):
            fewest = min(loads, key=loads.__getitem__)
            if loads[most] - loads[fewest] < 2:
                break
            for replicas in chosen.values():
                if most in replicas and fewest not in replicas:
                    replicas[replicas.index(most)] = fewest
                    loads[most] -= 1
                    loads[fewest] += 1
                    moved = True
                    break
            if moved:
                break
        if not moved:
            return


def _share_leaders(
    chosen: Mapping[TopicPartition, list[int]], current: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Prefer as leader the broker that is so least often; of equals the present one."""
    firsts: Counter[int] = Counter()
    placed = {}
    for item, replicas in chosen.items():
        now = current[item][0] if current[item] else None
        first = min(replicas, key=lambda broker: (firsts[broker], broker != now))
        firsts[first] += 1
        placed[item] = (first, *(broker for broker in replicas if broker != first))
    return placed
