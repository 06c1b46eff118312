"""What the parts of one shard's consumer groups share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftrio.broker.coordinator.groups.assignors.spec import Assignor
from kraftrio.broker.coordinator.groups.consumer.member_timers import MemberTimers
from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember
from kraftrio.broker.coordinator.groups.consumer.state.subscriptions import Subscriptions
from kraftrio.broker.coordinator.groups.group import GroupRegistry
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import HeartbeatTimes
from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettingsPort
from kraftrio.broker.metadata.cache import MetadataCache


@dataclass(frozen=True, slots=True)
class Parts:
    """See the module.

    Attributes:
        registry: the shard's groups of all kinds.
        assignors: by name; the first one is the default.
        new_member_id: makes ids that no other member has, as a Java client does.
    """

    registry: GroupRegistry
    properties: GroupProperties
    settings: GroupSettingsPort
    metadata: MetadataCache
    hashes: TopicHashes
    times: HeartbeatTimes
    timers: MemberTimers
    assignors: dict[str, Assignor]
    new_member_id: Callable[[], str]

    @property
    def default_assignor(self) -> str:
        """The assignor of groups whose members ask for none."""
        return next(iter(self.assignors))

    def topic_ids(self, member: ConsumerMember, subscriptions: Subscriptions) -> frozenset[bytes]:
        """The existing topics that a member of a group subscribes to."""
        topics = map(self.metadata.topic, subscriptions.topics_of(member))
        return frozenset(topic.topic_id for topic in topics if topic is not None)


@dataclass(frozen=True, slots=True)
class HeartbeatClient:
    """Who sent a request, as far as consumer groups ask for it.

    Attributes:
        may_describe: whether the client may know of a topic.
    """

    client_id: str
    client_host: str
    api_version: int
    may_describe: Callable[[str], bool]
