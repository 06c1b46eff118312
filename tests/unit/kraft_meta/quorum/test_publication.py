"""Committed records as images: what is published when, from memory and from disk."""

from __future__ import annotations

import pytest

from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import (
    ClusterIdRecord,
    MetadataRecord,
    TopicRecord,
    encode_record,
)
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity, ClusterIdError
from kraftrio.kraft_meta.quorum.publication import MetadataPublication
from kraftrio.kraft_meta.raft.values import LogBatch, SnapshotId
from tests.unit.kraft_meta.quorum.service_nodes import DIRECTORY, new_disk


class Publication:
    """A publication over a log in memory, and who subscribed to it."""

    def __init__(self, cluster_id: str = "") -> None:
        self.log = MetadataLog(new_disk(), DIRECTORY)
        self.published: list[tuple[set[str], int]] = []
        self.it = MetadataPublication(self.log, ClusterIdentity(cluster_id, "a test"))
        self.it.subscribe(self._on_image)

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        names = {changed.name for changed in delta.changed_topics.values()}
        self.published.append((names, image.offset))

    def append(self, *records: MetadataRecord, keep: bool = True) -> None:
        """Append a batch; keep: as the quorum's task does, else as before a restart."""
        values = tuple(encode_record(record) for record in records)
        batch = LogBatch(self.log.log_end_offset, 1, 1000, values)
        self.log.append([batch])
        if keep:
            self.it.on_appended([batch])


def topic(name: str) -> TopicRecord:
    return TopicRecord(name, name.encode().ljust(16))


def test_only_what_is_committed_is_published() -> None:
    """Once, with the delta of what came with it."""
    publication = Publication()
    publication.append(topic("a"))
    publication.append(topic("b"))
    publication.it.apply(1)
    publication.it.apply(1)
    assert publication.published == [(set(), -1), ({"a"}, 0)]
    publication.it.apply(2)
    assert publication.published[2:] == [({"b"}, 1)]
    assert publication.it.last_timestamp_ms == 1000


def test_what_was_cut_is_never_published() -> None:
    """The batch that took its place is."""
    publication = Publication()
    publication.append(topic("kept"))
    publication.append(topic("cut"))
    publication.log.truncate_to(1)
    publication.it.on_truncated(1)
    publication.append(topic("new"))
    publication.it.apply(2)
    assert publication.published[1:] == [({"kept", "new"}, 1)]


def test_what_was_committed_before_a_restart_is_read_from_the_log() -> None:
    """And goes on with what came since."""
    publication = Publication()
    publication.append(topic("old"), keep=False)
    publication.append(topic("new"))
    publication.it.apply(2)
    assert publication.published[1:] == [({"old", "new"}, 1)]


def test_a_snapshot_takes_the_place_of_everything_before() -> None:
    """Late subscribers are given all of it at once."""
    publication = Publication()
    publication.append(topic("a"))
    publication.it.load_snapshot(SnapshotId(9, 3), [encode_record(topic("s"))])
    assert publication.published[1:] == [({"s"}, 8)]
    late: list[int] = []
    publication.it.subscribe(lambda _delta, image: late.append(image.offset))
    assert late == [8]


def test_the_log_of_another_cluster_is_not_published() -> None:
    """ClusterIdError ends the node before anybody sees its records."""
    publication = Publication("mine")
    publication.append(ClusterIdRecord("other"), topic("a"))
    with pytest.raises(ClusterIdError):
        publication.it.apply(2)
    assert publication.published == [(set(), -1)]
