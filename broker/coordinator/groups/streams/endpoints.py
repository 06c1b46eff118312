"""Where the state of an application can be queried: the partitions at each member's endpoint.

For interactive queries a member may name an endpoint of its process. All members are told which
partitions the tasks at each endpoint read, active and standby ones, whenever that has changed.
Called by a heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kraftrio.broker.coordinator.groups.streams.member import StreamsMember
from kraftrio.broker.coordinator.groups.streams.topology.configured_topology import (
    ConfiguredTopology,
)
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatEndpoint,
    StreamsGroupHeartbeatEndpointToPartitions,
    StreamsGroupHeartbeatTopicPartition,
)


def partitions_by_endpoint(
    members: Iterable[StreamsMember],
    configured: ConfiguredTopology,
    existing_count: Callable[[str], int | None],
) -> list[StreamsGroupHeartbeatEndpointToPartitions]:
    """Return what is at the endpoints of those members that have one.

    Args:
        existing_count: returns how many partitions a topic has; None: there is no such topic.
    """
    return [
        StreamsGroupHeartbeatEndpointToPartitions(
            user_endpoint=StreamsGroupHeartbeatEndpoint(
                host=member.metadata.user_endpoint.host, port=member.metadata.user_endpoint.port
            ),
            active_partitions=_partitions(member.assigned.active, configured, existing_count),
            standby_partitions=_partitions(member.assigned.standby, configured, existing_count),
        )
        for member in members
        if member.metadata.user_endpoint is not None
    ]


def _partitions(
    tasks: Mapping[str, Collection[int]],
    configured: ConfiguredTopology,
    existing_count: Callable[[str], int | None],
) -> list[StreamsGroupHeartbeatTopicPartition]:
    """The partitions that tasks read: of a topic with fewer than the largest only those it has."""
    found = []
    for name in sorted(tasks):
        subtopology = configured.subtopologies.get(name)
        if subtopology is None:
            continue  # the topics changed, and the tasks with them: the next heartbeat follows
        for topic in sorted(subtopology.input_topics):
            count = existing_count(topic) or 0
            partitions = [partition for partition in sorted(tasks[name]) if partition < count]
            found.append(StreamsGroupHeartbeatTopicPartition(topic=topic, partitions=partitions))
    return found
