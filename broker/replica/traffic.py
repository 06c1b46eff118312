"""What came into the partitions hosted here and what left them, by topic; how large their logs are.

Owns: `TopicTraffic`, plain numbers that the hot path adds to, and `Traffics`, those of all topics.
A topic's numbers begin with its first partition here, and end with its last.

Called by: `led_partitions`, `follower_writes` and the Fetch handler; read by `metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from kraftrio.base.statistics import LabelledStatistics
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.primitives import TopicPartition


class TopicTraffic:
    """The traffic of one topic's partitions on this broker.

    Attributes:
        bytes_in: of batches that producers, coordinators and transactions appended to leaders here.
        records_in: in these, by their offsets.
        bytes_out: of batches that consumers were given.
        records_out: in these, from the offset that was asked for on.
        replication_bytes_in: of what was copied from other leaders.
        replication_bytes_out: of what followers were given.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "partition_count",
        "records_in",
        "records_out",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = self.records_in = 0
        self.bytes_out = self.records_out = 0
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.partition_count = 0


class Traffics:
    """See the module."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}

    def enter(self, topic: str) -> TopicTraffic:
        """A partition of a topic is hosted here from now on."""
        traffic = self._topics.get(topic)
        if traffic is None:
            traffic = self._topics[topic] = TopicTraffic()
        traffic.partition_count += 1
        return traffic

    def leave(self, topic: str) -> None:
        """One of them is not any more."""
        traffic = self._topics[topic]
        traffic.partition_count -= 1
        if not traffic.partition_count:
            del self._topics[topic]

    def labelled_statistics(self) -> LabelledStatistics:
        """What came and went, by topic."""
        names = [name for name in TopicTraffic.__slots__ if name != "partition_count"]
        return {
            f"{name}_total": {
                (topic,): getattr(traffic, name) for topic, traffic in self._topics.items()
            }
            for name in names
        }


class HostedLog(Protocol):
    """A replica with its log (`partition.Partition`)."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log(self) -> PartitionLog: ...


def log_statistics(partitions: Iterable[HostedLog], limit: int) -> LabelledStatistics:
    """How large the logs of partitions are, for some of them at most."""
    sizes: dict[tuple[str, ...], float] = {}
    starts: dict[tuple[str, ...], float] = {}
    ends: dict[tuple[str, ...], float] = {}
    segments: dict[tuple[str, ...], float] = {}
    for partition in islice(partitions, limit):
        topic, index = partition.topic_partition
        log, key = partition.log, (topic, str(index))
        sizes[key] = log.size_bytes
        starts[key] = log.log_start_offset
        ends[key] = log.log_end_offset
        segments[key] = len(log.segments)
    return {
        "size_bytes": sizes,
        "log_start_offset": starts,
        "log_end_offset": ends,
        "segments": segments,
    }
