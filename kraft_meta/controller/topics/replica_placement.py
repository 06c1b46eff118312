"""Where the replicas of new partitions go: `ReplicaPlacer`, striped over racks and brokers.

Owns: the order in which brokers are offered. Rules, as Kafka's striped placer:
1. A partition's first replica is on a broker that is not fenced; fenced ones are taken only when
   the others do not suffice, and those that are shutting down not at all.
2. Consecutive replicas of a partition go to different racks as long as there are any, and
   consecutive partitions start at different racks and brokers.
3. After as many partitions as there are usable brokers, the lists are shuffled again, so that
   patterns do not repeat. All randomness is injected.

Called by: replication_control.py for CreateTopics and CreatePartitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from kraftrio.kraft_meta.metadata.image import BrokerImage
from kraftrio.wire.errors import ErrorCode, KafkaError


class _BrokerList:
    """Brokers of one rack and kind.

    Each round (one partition) that begins with the leader starts one further than the last such
    round, and so do the others among themselves: counted together, as Kafka does, an even number of
    racks would let only every other broker of a rack lead.
    """

    __slots__ = ("_brokers", "_index", "_offset", "_offsets", "_round")

    def __init__(self, brokers: list[int]) -> None:
        self._brokers = brokers
        self._round = -1
        self._index = 0
        self._offset = 0
        self._offsets = {True: 0, False: 0}

    def shuffle(self, rng: random.Random) -> None:
        self._brokers.sort()
        rng.shuffle(self._brokers)

    def next(self, round_number: int, *, leads: bool = False) -> int | None:
        """Return the next broker that this round has not been given yet."""
        if not self._brokers:
            return None
        if self._round != round_number:
            self._offset = self._offsets[leads]
            self._offsets[leads] = (self._offset + 1) % len(self._brokers)
            self._round, self._index = round_number, 0
        if self._index >= len(self._brokers):
            return None
        broker = self._brokers[(self._index + self._offset) % len(self._brokers)]
        self._index += 1
        return broker


class ReplicaPlacer:
    """Places the partitions of one request."""

    def __init__(self, brokers: Iterable[BrokerImage], rng: random.Random) -> None:
        unfenced: dict[str, list[int]] = {}
        fenced: dict[str, list[int]] = {}
        for broker in sorted(brokers, key=lambda b: b.broker_id):
            if broker.in_controlled_shutdown and not broker.fenced:
                continue
            rack = broker.rack or ""
            unfenced.setdefault(rack, [])
            fenced.setdefault(rack, [])
            (fenced if broker.fenced else unfenced)[rack].append(broker.broker_id)
        self._rng = rng
        self._unfenced_count = sum(map(len, unfenced.values()))
        self._total_count = self._unfenced_count + sum(map(len, fenced.values()))
        self._racks = [
            (_BrokerList(unfenced[rack]), _BrokerList(fenced[rack])) for rack in sorted(unfenced)
        ]
        self._rack_offset = rng.randrange(len(self._racks)) if self._racks else 0
        self._round = 0
        self._shuffle()

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the brokers of the next partition; the first one leads."""
        self._check(replication_factor)
        if self._round and self._round % self._unfenced_count == 0:
            self._shuffle()
        self._round += 1
        self._rack_offset = (self._rack_offset + 1) % len(self._racks)
        order = self._racks[self._rack_offset :] + self._racks[: self._rack_offset]
        replicas: list[int] = []
        leader_rack = 0
        while not replicas:
            broker = order[leader_rack][0].next(self._round, leads=True)
            leader_rack += 1
            if broker is not None:
                replicas.append(broker)
        # The others go on from the rack after the leader's, round and round.
        order = order[leader_rack:] + order[:leader_rack]
        while len(replicas) < replication_factor:
            for unfenced, fenced in order:
                if len(replicas) == replication_factor:
                    break
                broker = unfenced.next(self._round)
                if broker is None:
                    broker = fenced.next(self._round)
                if broker is not None:
                    replicas.append(broker)
        return tuple(replicas)

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for unfenced, fenced in self._racks:
            unfenced.shuffle(self._rng)
            fenced.shuffle(self._rng)

    def _check(self, replication_factor: int) -> None:
        reason = None
        if replication_factor <= 0:
            reason = (
                f"Invalid replication factor {replication_factor}: "
                "the replication factor must be positive."
            )
        elif self._unfenced_count == 0:
            reason = "All brokers are currently fenced."
        elif replication_factor > self._total_count:
            reason = (
                f"The target replication factor of {replication_factor} cannot be reached "
                f"because only {self._total_count} broker(s) are registered or some brokers "
                "have all their log directories cordoned."
            )
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
