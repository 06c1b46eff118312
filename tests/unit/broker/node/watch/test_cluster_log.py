"""The active controller alone logs what happens to the cluster, and nothing twice."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kraftrio.broker.node.watch.cluster_log import ClusterLog
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import MetadataRecord, PartitionRecord, TopicRecord


class Quorum:
    """A node of the quorum, whose log the test writes."""

    def __init__(self) -> None:
        self.node_id = 1
        self.is_active_controller = False
        self.log_end_offset = 0
        self.image = MetadataImage()

    def subscribe(self, subscriber: Any) -> None:
        self.on_metadata = subscriber

    def on_leader_change(self, callback: Any) -> None:
        self.on_leader = callback

    def statistics(self) -> dict[str, float]:
        return {"log_end_offset": self.log_end_offset}

    def publish(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.offset + len(records), 1)
        self.on_metadata(delta, self.image)


def topic(name: str) -> list[MetadataRecord]:
    topic_id = name.encode().ljust(16)
    return [TopicRecord(name, topic_id), PartitionRecord(topic_id, 0, (1,), (1,), 1)]


def test_what_this_node_decides_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    quorum = Quorum()
    ClusterLog(cast(Any, quorum)).start()
    quorum.publish(*topic("followed"))
    quorum.log_end_offset = quorum.image.offset + 3  # with what the last leader has left
    quorum.on_leader(1, 5)
    quorum.is_active_controller = True
    quorum.publish(*topic("of the last leader"))
    quorum.publish(*topic("mine"))
    (record,) = caplog.records
    assert record.getMessage() == "topic created"
    assert record.__dict__["kraftrio_fields"]["topic"] == "mine"
