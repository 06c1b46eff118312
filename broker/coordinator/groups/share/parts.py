"""What the modules for one shard's share groups have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.groups.assignors.spec import Assignor
from kraftrio.broker.coordinator.groups.group import GroupRegistry
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import HeartbeatTimes
from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettingsPort
from kraftrio.broker.coordinator.groups.share.group import SHARE_GROUP_TYPE, ShareGroup
from kraftrio.broker.coordinator.groups.share.records import states_record
from kraftrio.broker.coordinator.groups.share.state_progress import StateProgress, TopicProgress
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.kraft_meta.metadata.image import TopicImage

SESSION_DEADLINE = "share-session"
"""First part of a member's deadline key; then come group id and member id."""

_UNKNOWN_TOPIC = "<UNKNOWN>"


@dataclass(frozen=True, slots=True)
class ShareParts:
    """See the module.

    Attributes:
        registry: the shard's groups of all kinds.
    """

    registry: GroupRegistry
    properties: GroupProperties
    settings: GroupSettingsPort
    metadata: MetadataCache
    hashes: TopicHashes
    deadlines: DeadlineQueue
    times: HeartbeatTimes
    assignor: Assignor

    def find(self, group_id: str, missing: str = "Group") -> ShareGroup:
        """Return a share group.

        Args:
            missing: what Kafka's message calls one that is not there.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND.
        """
        return self.registry.require(group_id, ShareGroup, SHARE_GROUP_TYPE, missing=missing)

    def find_or_make(self, group_id: str) -> ShareGroup:
        """Return a share group, or one that is not in the registry yet.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, the group is of another kind.
        """
        if self.registry.get(group_id) is None:
            return ShareGroup(group_id)
        return self.find(group_id)

    def prolong_session(self, group_id: str, member_id: str, now: Now) -> None:
        """A request showed that a member lives."""
        timeout_ms = self.times.of(group_id).session_timeout_ms
        key = (SESSION_DEADLINE, group_id, member_id)
        self.deadlines.schedule(key, now.monotonic_ms + timeout_ms)

    def existing_topics(self, names: Iterable[str]) -> list[TopicImage]:
        """Those of the named topics that exist, in the order of their names."""
        found = map(self.metadata.image.topics_by_name.get, sorted(names))
        return [topic for topic in found if topic is not None]

    def topic_ids(self, names: Collection[str]) -> frozenset[bytes]:
        """The ids of those of the named topics that exist."""
        found = map(self.metadata.image.topics_by_name.get, names)
        return frozenset(topic.topic_id for topic in found if topic is not None)

    def states_record(self, group_id: str, states: StateProgress) -> CoordinatorRecord:
        """Make the record of a group's states."""
        return states_record(
            group_id,
            states,
            lambda topic_id: self.metadata.topic_name(topic_id) or _UNKNOWN_TOPIC,
        )

    def progress_of(
        self, partitions: Iterable[tuple[bytes, Collection[int]]], now: Now
    ) -> dict[bytes, TopicProgress]:
        """Partitions by topic id, with the names of the topics."""
        return {
            topic_id: TopicProgress(
                self.metadata.topic_name(topic_id) or _UNKNOWN_TOPIC,
                frozenset(indexes),
                now.wall_ms,
            )
            for topic_id, indexes in partitions
        }
