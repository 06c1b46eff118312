"""The log of what happens to the cluster, by the active controller: a line for each cause.

Owns: `ClusterLog`. Rules
1. The node that decides writes the line; the others do not repeat it.
2. What a new active controller reads of the log that it was elected with was logged already.

Called by: `observation`.
"""

from __future__ import annotations

import logging

from kraftrio.base.logging_setup import log_event
from kraftrio.broker.metadata.cluster_events import cluster_events
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.quorum.service import QuorumService

_log = logging.getLogger("kraftrio.cluster")


class ClusterLog:
    """See the module."""

    def __init__(self, quorum: QuorumService) -> None:
        self._quorum = quorum
        self._from_offset = -1  # what comes from here on was decided by this node

    def start(self) -> None:
        """Begin to write lines."""
        self._quorum.on_leader_change(self._on_leader)
        self._quorum.subscribe(self._on_metadata)

    def _on_leader(self, leader_id: int, _leader_epoch: int) -> None:
        if leader_id == self._quorum.node_id:
            self._from_offset = int(self._quorum.statistics()["log_end_offset"])

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not self._quorum.is_active_controller or image.offset < self._from_offset:
            return
        for event in cluster_events(delta, image):
            level = logging.WARNING if event.is_warning else logging.INFO
            log_event(_log, level, event.message, **event.fields)
