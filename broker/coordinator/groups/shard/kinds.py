"""The kinds of group that a broker serves, and how a shard's are made.

What depends on topics and settings alone, and not on which groups a shard has, is made once for all
shards: hashes of topics, times of heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftrio.broker.coordinator.groups.classic.groups import ClassicGroups
from kraftrio.broker.coordinator.groups.consumer.groups import ConsumerGroups
from kraftrio.broker.coordinator.groups.modern.heartbeat_times import (
    HeartbeatTimes,
    heartbeat_times,
)
from kraftrio.broker.coordinator.groups.modern.topic_hashes import TopicHashes
from kraftrio.broker.coordinator.groups.properties import GroupProperties, GroupSettingsPort
from kraftrio.broker.coordinator.groups.shard.kind_table import KindDirectory
from kraftrio.broker.coordinator.groups.share.groups import ShareGroups
from kraftrio.broker.coordinator.groups.share.ports import StateInitializer
from kraftrio.broker.coordinator.groups.streams.groups import StreamsGroups
from kraftrio.broker.metadata.cache import MetadataCache


def group_kinds(
    properties: GroupProperties,
    settings: GroupSettingsPort,
    new_uuid: Callable[[], str],
    new_member_id: Callable[[], str],
    metadata: MetadataCache,
    initializer: StateInitializer,
) -> KindDirectory:
    """The kinds of group of one broker.

    Args:
        settings: of single groups.
        new_uuid: makes the part of a classic member's id that no other has.
        new_member_id: makes ids of members of consumer groups.
        metadata: the topics that groups read.
        initializer: initializes the states of share groups.
    """

    def times(session_timeout: str, interval: str) -> HeartbeatTimes:
        return heartbeat_times(
            settings, metadata, session_timeout=session_timeout, interval=interval
        )

    hashes = TopicHashes(metadata)
    consumer_times = times("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    share_times = times("share.session.timeout.ms", "share.heartbeat.interval.ms")
    streams_times = times("streams.session.timeout.ms", "streams.heartbeat.interval.ms")
    return KindDirectory(
        {
            ClassicGroups: lambda registry, deadlines: ClassicGroups(
                registry, properties, deadlines, new_uuid
            ),
            ConsumerGroups: lambda registry, deadlines: ConsumerGroups(
                registry,
                properties,
                settings,
                deadlines,
                new_member_id,
                metadata,
                consumer_times,
                hashes,
            ),
            ShareGroups: lambda registry, deadlines: ShareGroups(
                registry,
                properties,
                settings,
                deadlines,
                metadata,
                share_times,
                hashes,
                initializer,
            ),
            StreamsGroups: lambda registry, deadlines: StreamsGroups(
                registry, properties, settings, deadlines, metadata, streams_times, hashes
            ),
        }
    )
