"""Which partitions a change of a broker affects: `PartitionIndex`, which saves scanning them all.

Owns: the partitions by broker in their ISR, by leader, without a leader, away from their preferred
leader, and being reassigned. Rules:
1. It is soft state of the active controller: made from an image once (`of`), then moved by each
   delta before that is applied (`update`); it says nothing that the image does not.
2. What it returns is in order of topic name and partition, so that records come in one order.
3. A change of one topic costs that change, and a change of a broker its own partitions.

Called by: controller.py (keeps it), replication_control.py, cluster_control.py and
reassignment_control.py (ask it). Kafka's counterpart: BrokersToIsrs. Tested by:
tests/unit/kraft_meta/controller/context.py, which compares it with the image after each change.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.kraft_meta.metadata.image import (
    NO_LEADER,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

_Key = tuple[bytes, int]
# A dictionary and not a set: it keeps one order everywhere.
_Keys = dict[_Key, None]
_ByBroker = dict[int, _Keys]
Located = tuple[TopicImage, int, PartitionImage]


class PartitionIndex:
    """The partitions of an image by what may happen to them."""

    __slots__ = ("_imbalanced", "_in_isr", "_leaderless", "_led", "_reassigning")

    def __init__(self) -> None:
        self._in_isr: _ByBroker = {}
        self._led: _ByBroker = {}
        self._leaderless: _Keys = {}
        self._imbalanced: _Keys = {}
        self._reassigning: _Keys = {}

    @classmethod
    def of(cls, image: MetadataImage) -> PartitionIndex:
        """Return the index of an image."""
        index = cls()
        for topic_id, topic in image.topics_by_id.items():
            for number, partition in topic.partitions.items():
                index._add((topic_id, number), partition)
        return index

    def update(self, delta: MetadataDelta) -> None:
        """Follow the changes of a delta."""
        for topic_id, topic in delta.deleted_topics.items():
            for number, partition in topic.partitions.items():
                self._remove((topic_id, number), partition)
        for topic_id, topic_delta in delta.changed_topics.items():
            for number, partition in topic_delta.partitions.items():
                previous = topic_delta.previous_partition(number)
                if previous is not None:
                    self._remove((topic_id, number), previous)
                self._add((topic_id, number), partition)

    # ---- queries

    def in_isr_of(self, image: MetadataImage, broker_id: int) -> list[Located]:
        """Return the partitions that have this broker in their ISR."""
        return _located(image, self._in_isr.get(broker_id, ()))

    def leads_any(self, broker_id: int) -> bool:
        """Return whether a broker leads any partition."""
        return bool(self._led.get(broker_id))

    def leaderless(self, image: MetadataImage) -> list[Located]:
        """Return the partitions without a leader."""
        return _located(image, self._leaderless)

    def imbalanced(self, image: MetadataImage) -> list[Located]:
        """Return the partitions that another replica leads than the preferred one."""
        return _located(image, self._imbalanced)

    def reassigning(self, image: MetadataImage) -> list[Located]:
        """Return the partitions whose replicas are being moved."""
        return _located(image, self._reassigning)

    # ---- updates

    def _add(self, key: _Key, partition: PartitionImage) -> None:
        for broker_id in partition.isr:
            self._in_isr.setdefault(broker_id, {})[key] = None
        if partition.leader == NO_LEADER:
            self._leaderless[key] = None
        else:
            self._led.setdefault(partition.leader, {})[key] = None
            if partition.leader != partition.preferred_leader:
                self._imbalanced[key] = None
        if partition.is_reassigning:
            self._reassigning[key] = None

    def _remove(self, key: _Key, partition: PartitionImage) -> None:
        for broker_id in partition.isr:
            _discard(self._in_isr, broker_id, key)
        if partition.leader == NO_LEADER:
            del self._leaderless[key]
        else:
            _discard(self._led, partition.leader, key)
            self._imbalanced.pop(key, None)
        self._reassigning.pop(key, None)

    def is_same_as(self, other: PartitionIndex) -> bool:
        """Return whether two indexes say the same (rule 1, for tests and assertions)."""
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _discard(by_broker: _ByBroker, broker_id: int, key: _Key) -> None:
    keys = by_broker[broker_id]
    del keys[key]
    if not keys:
        del by_broker[broker_id]


def _located(image: MetadataImage, keys: Iterable[_Key]) -> list[Located]:
    found: list[Located] = []
    for topic_id, number in keys:
        topic = image.topics_by_id[topic_id]
        found.append((topic, number, topic.partitions[number]))
    found.sort(key=lambda one: (one[0].name, one[1]))
    return found
