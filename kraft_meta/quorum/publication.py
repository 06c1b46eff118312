"""Committed records as images, for everyone who follows the metadata: `MetadataPublication`.

Owns: the committed image, and the batches that are in the log but not committed. Rules:
1. Delta and new image go to the subscribers in the order in which they subscribed, on the loop;
   what a subscriber raises ends the node.
2. Batches are kept from the append to the commit, so that a commit reads nothing from disk, but
   right after the start.

Called by: quorum/service.py (appends, truncations, commits), quorum/snapshots.py (snapshots in),
quorum/active_controller.py (the image).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import decode_record
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity
from kraftrio.kraft_meta.raft.ports import ReplicatedLog
from kraftrio.kraft_meta.raft.values import LogBatch, SnapshotId

_READ_BYTES = 8 * 1024 * 1024

Subscriber: TypeAlias = Callable[[MetadataDelta, MetadataImage], object]


class MetadataPublication:
    """See the module.

    Attributes:
        image: everything that is committed, as far as it was applied.
        last_timestamp_ms: when the newest applied record was made; -1 when nothing was applied.
    """

    def __init__(self, log: ReplicatedLog, identity: ClusterIdentity) -> None:
        self.image = MetadataImage()
        self.last_timestamp_ms = -1
        self._log = log
        self._identity = identity
        self._subscribers: list[Subscriber] = []
        self._uncommitted: deque[LogBatch] = deque()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(delta, image)` now, with everything, and at each change from now on."""
        self._subscribers.append(subscriber)
        subscriber(MetadataDelta.full(self.image), self.image)

    # ---- the log

    def on_appended(self, batches: Iterable[LogBatch]) -> None:
        """Keep batches that were appended to the log, until they are committed."""
        self._uncommitted.extend(batches)

    def on_truncated(self, offset: int) -> None:
        """Forget what was truncated from the log."""
        while self._uncommitted and self._uncommitted[-1].end_offset > offset:
            self._uncommitted.pop()

    def apply(self, high_watermark: int) -> None:
        """Publish everything below the high watermark."""
        delta = MetadataDelta(self.image)
        offset, epoch = self.image.offset, self.image.epoch
        for batch in self._committed_batches(high_watermark):
            if not batch.is_control:
                for value in batch.values:
                    delta.replay(decode_record(value))
            offset, epoch = batch.end_offset - 1, batch.epoch
            self.last_timestamp_ms = max(self.last_timestamp_ms, batch.timestamp_ms)
        if offset > self.image.offset:
            self._publish(delta, delta.apply(offset, epoch))

    def _committed_batches(self, high_watermark: int) -> list[LogBatch]:
        next_offset = self.image.offset + 1
        batches: list[LogBatch] = []
        if not self._uncommitted or self._uncommitted[0].base_offset > next_offset:
            # Right after loading: what is committed is on disk only.
            end = self._uncommitted[0].base_offset if self._uncommitted else high_watermark
            while next_offset < min(end, high_watermark):
                read = self._log.read(next_offset, min(end, high_watermark), _READ_BYTES)
                assert read, "the log holds what is committed"
                batches += read
                next_offset = read[-1].end_offset
        while self._uncommitted and self._uncommitted[0].end_offset <= high_watermark:
            batch = self._uncommitted.popleft()
            if batch.base_offset >= next_offset:
                batches.append(batch)
        return batches

    # ---- snapshots

    def load_snapshot(self, snapshot_id: SnapshotId, values: Sequence[bytes]) -> None:
        """Publish what a snapshot holds, in the place of everything before."""
        delta = MetadataDelta(MetadataImage())
        for value in values:
            delta.replay(decode_record(value))
        image = delta.apply(snapshot_id.end_offset - 1, snapshot_id.epoch)
        self._uncommitted.clear()
        self._publish(MetadataDelta.between(self.image, image), image)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if image.cluster_id:
            self._identity.learn(image.cluster_id, "the metadata log")
        self.image = image
        for subscriber in self._subscribers:
            subscriber(delta, image)
