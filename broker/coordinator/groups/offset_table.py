"""Values by group, topic and partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

V = TypeVar("V")

_NO_TOPICS: Mapping[str, Mapping[int, Any]] = {}
_NO_PARTITIONS: Mapping[int, Any] = {}


class OffsetKey(NamedTuple):
    """What an offset is committed for."""

    group_id: str
    topic: str
    partition: int


class OffsetTable(Generic[V]):
    """A nested mapping that keeps nothing empty; a whole topic is stored at once."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, V]]] = {}

    def get(self, key: OffsetKey) -> V | None:
        """The value of a key."""
        topics = self._groups.get(key.group_id)
        partitions = None if topics is None else topics.get(key.topic)
        return None if partitions is None else partitions.get(key.partition)

    def group_ids(self) -> Iterator[str]:
        """The groups that have values."""
        return iter(self._groups)

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, V]]:
        """The values of a group by topic."""
        return self._groups.get(group_id, _NO_TOPICS)

    def partitions(self, group_id: str, topic: str) -> Mapping[int, V]:
        """The values of a group's topic by partition."""
        return self._groups.get(group_id, _NO_TOPICS).get(topic, _NO_PARTITIONS)

    def store(self, group_id: str, topic: str, values: Mapping[int, V]) -> None:
        """Set the values of some partitions of a topic."""
        self._groups.setdefault(group_id, {}).setdefault(topic, {}).update(values)

    def remove(self, key: OffsetKey) -> None:
        """Drop a value, if there is one."""
        partitions = self._groups.get(key.group_id, {}).get(key.topic)
        if partitions is not None and key.partition in partitions:
            del partitions[key.partition]
            self._drop_empty(key.group_id, key.topic)

    def remove_all(self, group_id: str, topic: str, partitions: Iterable[int]) -> None:
        """Drop the values of some partitions of a topic, all of which have one."""
        values = self._groups[group_id][topic]
        for partition in partitions:
            del values[partition]
        self._drop_empty(group_id, topic)

    def remove_same(self, group_id: str, topic: str, values: Mapping[int, V]) -> None:
        """Drop those of some values that are still stored, and were not replaced since."""
        partitions = self._groups.get(group_id, {}).get(topic)
        if partitions is None:
            return
        for partition, value in values.items():
            if partitions.get(partition) is value:
                del partitions[partition]
        self._drop_empty(group_id, topic)

    def _drop_empty(self, group_id: str, topic: str) -> None:
        topics = self._groups[group_id]
        if not topics[topic]:
            del topics[topic]
            if not topics:
                del self._groups[group_id]
