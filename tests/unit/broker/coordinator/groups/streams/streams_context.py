"""Streams groups in a test: topics to make, a clock to advance, outcomes carried out.

Records are appended to a list and replayed, as the runtime does, unless `append_error` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from immutables import Map

from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.groups.group import GroupRegistry
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import heartbeat_times
from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroup
from kraftrio.broker.coordinator.groups.streams.groups import StreamsGroups
from kraftrio.broker.coordinator.groups.streams.heartbeats import HeartbeatResult, HeartbeatSender
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.kraft_meta.metadata.image import (
    GROUP,
    ConfigResource,
    PartitionImage,
    TopicImage,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import decode_key
from kraftrio.wire.messages.streams_groups import StreamsGroupHeartbeatRequest
from tests.unit.broker.coordinator.groups.group_context import START_WALL_MS, Properties, Settings

SENDER = HeartbeatSender("raw", "/127.0.0.1")


class StreamsSettings(Settings):
    """Settings that single groups may have of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.of_groups: dict[str, dict[str, int]] = {}

    def number(self, group_id: str, name: str) -> int:
        return self.of_groups.get(group_id, {}).get(name, self.values[name])


class StreamsContext:
    """See the module."""

    def __init__(self) -> None:
        self.now = Now(1_000.0, START_WALL_MS)
        self.properties = Properties()
        self.settings = StreamsSettings()
        self.metadata = MetadataCache()
        self.log: list[CoordinatorRecord] = []
        self.append_error = ErrorCode.NONE
        self.load()

    def load(self) -> None:
        """Begin again from the log, as after a crash."""
        self.registry = GroupRegistry()
        self.deadlines = DeadlineQueue()
        times = heartbeat_times(
            self.settings,
            self.metadata,
            session_timeout="streams.session.timeout.ms",
            interval="streams.heartbeat.interval.ms",
        )
        self.groups = StreamsGroups(
            self.registry,
            self.properties,
            self.settings,
            self.deadlines,
            self.metadata,
            times,
            TopicHashes(self.metadata),
        )
        for record in self.log:
            self._replay(record)
        self.carry_out(self.groups.on_loaded(self.now))

    def _replay(self, record: CoordinatorRecord) -> None:
        key = decode_key(record.key)
        if type(key) in self.groups.record_keys:
            self.groups.replay(key, record.value, self.now)

    def carry_out(self, outcome: Outcome) -> Any:
        """Append and replay; returns the outcome's response."""
        if outcome.records and self.append_error is not ErrorCode.NONE:
            return None
        self.log += outcome.records
        for record in outcome.records:
            self._replay(record)
        return outcome.response

    def advance(self, ms: int) -> None:
        """Let time pass, and do what is due."""
        self.now = Now(self.now.monotonic_ms + ms, self.now.wall_ms + ms)
        while (key := self.deadlines.pop_due(self.now.monotonic_ms)) is not None:
            self.carry_out(self.groups.on_deadline(key, self.now))

    def heartbeat(self, request: StreamsGroupHeartbeatRequest) -> HeartbeatResult:
        """Serve a heartbeat."""
        unchanged = self.groups.heartbeat_unchanged(request, SENDER, self.now)
        outcome = self.groups.heartbeat(request, SENDER, self.now)
        if unchanged is not None:
            assert (outcome.response, outcome.records) == (HeartbeatResult(unchanged), [])
        answer = self.carry_out(outcome)
        assert isinstance(answer, HeartbeatResult)
        return answer

    def group(self, group_id: str) -> StreamsGroup:
        """The streams group with an id."""
        group = self.registry.find(group_id, StreamsGroup)
        assert group is not None
        return group

    def configure(self, group_id: str, settings: Mapping[str, str]) -> None:
        """Set settings of one group; the image has them, too."""
        of_group = self.settings.of_groups.setdefault(group_id, {})
        of_group.update({name: int(value) for name, value in settings.items()})
        image, resource = self.metadata.image, ConfigResource(GROUP, group_id)
        configs = image.configs.set(resource, Map(settings))
        self.metadata.image = replace(image, configs=configs)

    # --- topics ---

    def make_topic(self, name: str, partition_count: int, topic_id: bytes | None = None) -> None:
        """Add a topic, or give one another number of partitions."""
        former = self.metadata.topic(name)
        if former is not None:
            topic_id = former.topic_id
        partition = PartitionImage((1,), (1,), 1, 0, 0)
        topic = TopicImage(
            name,
            topic_id or name.encode().rjust(16, b"-")[-16:],
            Map(dict.fromkeys(range(partition_count), partition)),
        )
        self._change(lambda names: names.set(name, topic), topic)

    def remove_topic(self, name: str) -> None:
        """Delete a topic."""
        topic = self.metadata.image.topics_by_name[name]
        self._change(lambda names: names.delete(name), topic)

    def _change(self, change: Callable[[Any], Any], topic: TopicImage) -> None:
        image = self.metadata.image
        names = change(image.topics_by_name)
        ids = image.topics_by_id.set(topic.topic_id, topic)
        if topic.name not in names:
            ids = ids.delete(topic.topic_id)
        self.metadata.image = replace(image, topics_by_name=names, topics_by_id=ids)
        self.groups.on_topics_changed([topic.name], self.now)
