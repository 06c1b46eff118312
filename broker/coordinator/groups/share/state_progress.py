"""Which share partitions of a group have a state at the share coordinator, or are to get one.

A partition is given to members once its state is initialized: its leader could not read it before.
What is being initialized was requested, and is requested again after a while, since the answer may
have been lost with a coordinator. What is being deleted is to be removed at the share coordinator,
and may be requested again.

Pure values; the record ShareGroupStatePartitionMetadata holds one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from kraftrio.kraft_meta.metadata.image import TopicImage

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""


class TopicProgress(NamedTuple):
    """Partitions of one topic.

    Attributes:
        since_ms: the wall time at which they were noted last.
    """

    name: str
    partitions: frozenset[int]
    since_ms: int


Topics: TypeAlias = Mapping[bytes, TopicProgress]


@dataclass(frozen=True, slots=True)
class StateProgress:
    """See the module. A topic may be among several of these, with different partitions."""

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: frozenset[bytes] = frozenset()

    @property
    def initialized_partitions(self) -> Partitions:
        """The partitions that members may be given."""
        return {topic_id: topic.partitions for topic_id, topic in self.initialized.items()}

    def missing(
        self, topics: Iterable[TopicImage], now_ms: int, retry_ms: int
    ) -> dict[bytes, TopicProgress]:
        """The partitions of topics for which a state is to be requested."""
        missing = {}
        for topic in topics:
            known = self._known(topic.topic_id, now_ms - retry_ms)
            if len(known) < topic.partition_count:
                partitions = frozenset(range(topic.partition_count)) - known
                missing[topic.topic_id] = TopicProgress(topic.name, partitions, now_ms)
        return missing

    def _known(self, topic_id: bytes, since_ms: int) -> frozenset[int]:
        known: frozenset[int] = frozenset()
        if topic_id in self.initialized:
            known = self.initialized[topic_id].partitions
        initializing = self.initializing.get(topic_id)
        if initializing is not None and initializing.since_ms > since_ms:
            known |= initializing.partitions
        return known

    def with_initializing(self, topics: Topics) -> StateProgress:
        """The same after states were requested; what was being deleted is not any more."""
        initializing = joined(self.initializing, topics)
        return replace(
            self, initializing=initializing, deleting=self.deleting - initializing.keys()
        )

    def with_initialized(self, topics: Topics) -> StateProgress:
        """The same after states were initialized."""
        return replace(
            self,
            initializing=_without(self.initializing, topics),
            initialized=joined(self.initialized, topics),
        )

    def without_initializing(self, topics: Topics) -> StateProgress:
        """The same after states could not be initialized."""
        return replace(self, initializing=_without(self.initializing, topics))

    def with_deleting(self, topic_ids: Collection[bytes]) -> StateProgress:
        """The same while the states of initialized topics are being deleted."""
        initialized = {
            topic_id: topic
            for topic_id, topic in self.initialized.items()
            if topic_id not in topic_ids
        }
        return replace(self, initialized=initialized, deleting=self.deleting.union(topic_ids))

    def without_deleting(self, topic_ids: Collection[bytes]) -> StateProgress:
        """The same after states were deleted."""
        return replace(self, deleting=self.deleting.difference(topic_ids))

    def without_topics(self, topic_ids: Collection[bytes]) -> StateProgress:
        """The same after topics were deleted; the very same if none is known."""
        gone = set(topic_ids)
        if gone.isdisjoint(self.initializing.keys() | self.initialized.keys() | self.deleting):
            return self
        return StateProgress(
            {topic_id: one for topic_id, one in self.initializing.items() if topic_id not in gone},
            {topic_id: one for topic_id, one in self.initialized.items() if topic_id not in gone},
            self.deleting - gone,
        )


def joined(topics: Topics, more: Topics) -> dict[bytes, TopicProgress]:
    """Topics with the partitions of both; names and times are those of the second."""
    result = dict(topics)
    for topic_id, topic in more.items():
        known = result.get(topic_id)
        partitions = topic.partitions if known is None else known.partitions | topic.partitions
        result[topic_id] = topic._replace(partitions=partitions)
    return result


def _without(topics: Topics, fewer: Topics) -> dict[bytes, TopicProgress]:
    result = dict(topics)
    for topic_id, topic in fewer.items():
        known = result.get(topic_id)
        if known is None:
            continue
        left = known.partitions - topic.partitions
        if left:
            result[topic_id] = known._replace(partitions=left)
        else:
            del result[topic_id]
    return result
