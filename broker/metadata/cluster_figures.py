"""Figures of the whole cluster, as the metadata has it: brokers, topics, partitions and leaders.

Owns: `ClusterFigures`. Counting takes a walk over all partitions of an image, which changes no more
once it is published: it is done in a worker thread, for each image that somebody wants to see. What
comes and goes between two of these is counted as it is published.

Called by `node/watch/observation`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.base.statistics import Statistics
from kraftrio.kraft_meta.metadata.image import NO_LEADER, MetadataDelta, MetadataImage


class ClusterFigures:
    """See the module."""

    def __init__(self) -> None:
        self._counted: MetadataImage | None = None
        self._figures: Mapping[str, float] = {}
        self._elections = 0
        self._unclean_elections = 0

    def on_metadata(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """Count the leaders that have changed."""
        for topic in delta.changed_topics.values():
            for index, partition in topic.partitions.items():
                before = topic.previous_partition(index)
                if before is None or partition.leader in (before.leader, NO_LEADER):
                    continue
                self._elections += 1
                self._unclean_elections += partition.leader not in before.isr

    def count(self, image: MetadataImage) -> None:
        """Count what an image holds; for a worker thread."""
        if image is self._counted:
            return
        counts = dict.fromkeys(
            (
                "partitions",
                "offline_partitions",
                "under_replicated_partitions",
                "not_preferred_leaders",
                "reassigning_partitions",
            ),
            0,
        )
        for topic in image.topics_by_id.values():
            for partition in topic.partitions.values():
                counts["partitions"] += 1
                counts["offline_partitions"] += partition.leader == NO_LEADER
                counts["under_replicated_partitions"] += len(partition.isr) < len(
                    partition.replicas
                )
                counts["not_preferred_leaders"] += partition.leader not in (
                    partition.preferred_leader,
                    NO_LEADER,
                )
                counts["reassigning_partitions"] += partition.is_reassigning
        fenced = sum(broker.fenced for broker in image.brokers.values())
        self._figures = {
            "topics": len(image.topics_by_id),
            "active_brokers": len(image.brokers) - fenced,
            "fenced_brokers": fenced,
            **counts,
        }
        self._counted = image

    def statistics(self) -> Statistics:
        """What was counted last, and how often leaders have changed."""
        return {
            **self._figures,
            "leader_elections_total": self._elections,
            "unclean_leader_elections_total": self._unclean_elections,
        }
