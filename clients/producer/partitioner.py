"""Which partition a record goes to, decided as the Java producer decides.

Rules:
1. A key belongs to a partition: murmur2 of the key, made positive, modulo the number of partitions.
2. Records without a key go to one partition until it has got batch_size bytes; then another one is
   drawn (KIP-794), among those that have a leader, or among all if none has. With adaptive
   partitioning a partition is the less likely, the more batches wait for it.

Sans-IO; randomness is injected. Called by: `accumulator`; `sender` names brokers to avoid.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import unpack_from

from kraftrio.clients.producer.queues import NO_LEADER, PartitionQueue, TopicQueues

_log = logging.getLogger(__name__)

_MASK = 0xFFFF_FFFF
_M = 0x5BD1_E995
_SEED = 0x9747_B28C
_CACHED_KEYS = 4096
_MAX_CACHED_KEY_BYTES = 64


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash with Kafka's seed, unsigned."""
    size = len(data)
    value = _SEED ^ size
    words = size >> 2
    for word in unpack_from(f"<{words}I", data):
        word = word * _M & _MASK
        value = value * _M & _MASK ^ (word ^ word >> 24) * _M & _MASK
    if tail := size & 3:
        value = (value ^ int.from_bytes(data[-tail:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


@lru_cache(_CACHED_KEYS)
def _hash_of_short(key: bytes) -> int:
    return murmur2(key) & 0x7FFF_FFFF


def hash_of_key(key: bytes) -> int:
    """Return the positive hash that a key's partition comes from; frequent keys are cached."""
    if len(key) <= _MAX_CACHED_KEY_BYTES:
        return _hash_of_short(key)
    return murmur2(key) & 0x7FFF_FFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key."""
    return hash_of_key(key) % partition_count


def draw_partition(
    partitions: Sequence[int], waiting_batches: Sequence[int] | None, rng: random.Random
) -> int:
    """Draw the next partition for records without a key.

    Args:
        partitions: those to choose from.
        waiting_batches: how many batches wait for each; None: all have the same chance.
    """
    if waiting_batches is None or len(set(waiting_batches)) == 1:
        return partitions[rng.randrange(len(partitions))]
    longest = max(waiting_batches) + 1
    sums = list(accumulate(longest - count for count in waiting_batches))
    return partitions[bisect_right(sums, rng.randrange(sums[-1]))]


class StickyPartitioner:
    """Rule 2.

    Args:
        batch_size: how many bytes go to one partition.
        is_adaptive: partitions for which many batches wait are drawn less often.
    """

    def __init__(self, batch_size: int, *, is_adaptive: bool, rng: random.Random) -> None:
        # Brokers that could be sent nothing for partitioner_availability_timeout_ms.
        self.slow_nodes: set[int] = set()
        self._batch_size = batch_size
        self._is_adaptive = is_adaptive
        self._rng = rng

    def choose(self, topic: TopicQueues) -> PartitionQueue:
        """Return the partition for the next record without a key."""
        queue = topic.sticky
        if queue is None or (queue.open is None and topic.sticky_bytes >= self._batch_size):
            queue = topic.sticky = self._draw(topic)
            topic.sticky_bytes = 0
            _log.debug("records without a key go to partition=%s-%d", topic.name, queue.partition)
        return queue

    def _draw(self, topic: TopicQueues) -> PartitionQueue:
        if len(topic.queues) == 1:
            return topic.queues[0]
        led = [queue for queue in topic.queues if queue.leader_id != NO_LEADER] or topic.queues
        if self.slow_nodes:
            led = [queue for queue in led if queue.leader_id not in self.slow_nodes] or led
        waiting = [len(queue.batches) for queue in led] if self._is_adaptive else None
        return led[draw_partition(range(len(led)), waiting, self._rng)]
