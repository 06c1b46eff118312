"""The batches that wait for the partitions of each topic.

Owns `PartitionQueue` and `TopicQueues`. Rules:
1. A queue holds the batches that wait, the oldest first; one that was sent comes back only to be
   sent again, to its old place. The last one may take more records (`open`).
2. A topic that was re-created is the same topic with other partitions: queues are never dropped,
   since what waits for a partition that is gone waits for it to come back.

Sans-IO. Called by: `accumulator`, `schedule`, `partitioner`, `producer`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.sequences import PartitionSequence
from kraftrio.wire.primitives import ZERO_UUID
from kraftrio.wire.records.compression import Compression

NO_LEADER: Final = -1

# How the estimate of a topic's compression ratio follows what is seen (Kafka's constants).
_RATIO_STEP_DOWN: Final = 0.005
_RATIO_STEP_UP: Final = 0.05
_LEAST_RATIO: Final = 0.05
_RATIO_MARGIN: Final = 1.05  # so that a batch is rather too small than too large


class PartitionQueue:
    """The batches that wait for one partition, and its leader."""

    __slots__ = (
        "batches",
        "is_muted",
        "leader_epoch",
        "leader_id",
        "open",
        "partition",
        "sequence",
        "topic",
        "topic_queues",
    )

    def __init__(self, topic_queues: TopicQueues, topic: str, partition: int) -> None:
        self.topic_queues = topic_queues
        self.topic = topic
        self.partition = partition
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.batches: deque[Batch] = deque()  # waiting, the oldest first
        self.open: Batch | None = None  # the last of them, if it takes more records
        self.is_muted = False  # one batch is out and no other may be
        self.sequence = PartitionSequence()

    @property
    def is_gone(self) -> bool:
        """Whether the topic was re-created without this partition."""
        return self.partition >= len(self.topic_queues.queues)

    def put_back(self, batch: Batch) -> None:
        """Put a batch back to its old place among those that wait."""
        waiting = self.batches
        index = 0
        while index < len(waiting) and waiting[index].serial < batch.serial:
            index += 1
        waiting.insert(index, batch)


class TopicQueues:
    """The partitions of one topic, and the one that records without a key go to now (`sticky`)."""

    __slots__ = (
        "all_queues",
        "name",
        "queues",
        "ratio",
        "sticky",
        "sticky_bytes",
        "topic_id",
        "used_ms",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = ZERO_UUID
        self.used_ms = 0.0  # when it was last reported to the cluster as in use
        self.queues: list[PartitionQueue] = []  # of the partitions it has
        self.all_queues: list[PartitionQueue] = []  # and of those it had before it was re-created
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0  # that went to `sticky` so far
        self.ratio = 1.0  # the expected ratio of compressed to uncompressed bytes

    def resize(self, partition_count: int) -> None:
        """Set the number of partitions."""
        if partition_count == len(self.queues):
            return
        for index in range(len(self.all_queues), partition_count):
            self.all_queues.append(PartitionQueue(self, self.name, index))
        self.queues = self.all_queues[:partition_count]
        if self.sticky not in self.queues:
            self.sticky = None

    def batch_limit(self, batch_size: int, compression: Compression) -> int:
        """Return how many bytes of records will be a batch of this size once compressed."""
        if compression is Compression.NONE:
            return batch_size
        return int(batch_size / max(self.ratio * _RATIO_MARGIN, _LEAST_RATIO))

    def learn_ratio(self, seen: float) -> None:
        """Adjust the expected ratio to that of a batch."""
        if seen > self.ratio:
            self.ratio = max(self.ratio + _RATIO_STEP_UP, seen)
        else:
            self.ratio = max(self.ratio - _RATIO_STEP_DOWN, seen)
