"""Times of heartbeats, looked up again when configurations have changed."""

from __future__ import annotations

from kraftrio.broker.coordinator.groups.modern.heartbeat_times import heartbeat_times
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.kraft_meta.metadata.image import GROUP, MetadataDelta
from kraftrio.kraft_meta.metadata.records import ConfigRecord, MetadataRecord, TopicRecord
from tests.unit.broker.coordinator.groups.group_context import Settings


def publish(metadata: MetadataCache, record: MetadataRecord) -> None:
    delta = MetadataDelta(metadata.image)
    delta.replay(record)
    metadata.image = delta.apply(metadata.image.offset + 1, 1)


def test_times_are_kept_as_long_as_configurations_are() -> None:
    """A change of any configuration has them looked up again, one of topics does not."""
    settings, metadata = Settings(), MetadataCache()
    times = heartbeat_times(
        settings,
        metadata,
        session_timeout="consumer.session.timeout.ms",
        interval="consumer.heartbeat.interval.ms",
    )
    assert times.of("group") == (45_000, 5_000)
    settings.values["consumer.session.timeout.ms"] = 50_000
    publish(metadata, TopicRecord("topic", b"t" * 16))
    assert times.of("group") == (45_000, 5_000)
    publish(metadata, ConfigRecord(GROUP, "group", "consumer.session.timeout.ms", "50000"))
    assert times.of("group") == (50_000, 5_000)
