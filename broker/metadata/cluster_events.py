"""What a change of the metadata means for the cluster's operators, as events for the log.

Owns: `cluster_events`. Rules
1. A cause gives one event, however many partitions it moves: those are counted, and the first few
   are named.
2. What an operator should look at is a warning: partitions without a leader, or with one that may
   lack records; brokers that are fenced; a broker that was unregistered, but has replicas.
   Where no broker is left that could lead, that none does, and why, goes without saying.
3. A setting's value is shown unless it is a secret, or may be one.

Pure. Called by `node/watch/cluster_log`, on the active controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kraftrio.broker.config.config import BROKER_KEYS
from kraftrio.broker.config.group_config import CLIENT_METRICS_KEYS, GROUP_KEYS
from kraftrio.broker.config.topic_config import TOPIC_KEYS
from kraftrio.kraft_meta.metadata.image import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    NO_LEADER,
    TOPIC,
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicDelta,
)

_NAMED = 5  # of the partitions of an event
_KINDS: Final = {
    TOPIC: ("topic", TOPIC_KEYS),
    BROKER: ("broker", BROKER_KEYS),
    GROUP: ("group", GROUP_KEYS),
    CLIENT_METRICS: ("client-metrics", CLIENT_METRICS_KEYS),
}


class ClusterEvent(NamedTuple):
    """Something that happened to the cluster."""

    message: str
    fields: Mapping[str, object]
    is_warning: bool = False


def cluster_events(delta: MetadataDelta, image: MetadataImage) -> Iterator[ClusterEvent]:
    """Return what has changed, in the order in which it matters."""
    was_down, is_down = _is_down(delta.previous), _is_down(image)
    yield from _of_brokers(delta, image, is_down=is_down)
    yield from _of_topics(delta)
    yield from _of_partitions(delta, was_down=was_down, is_down=is_down)
    yield from _of_configs(delta)
    if delta.changed_features:
        levels = [f"{name}={level}" for name, level in sorted(delta.changed_features.items())]
        yield ClusterEvent("feature levels changed", {"set": ", ".join(levels)})


def _is_down(image: MetadataImage) -> bool:
    """Whether no broker is left that could lead."""
    return not any(broker.is_active for broker in image.brokers.values())


def _of_brokers(
    delta: MetadataDelta, image: MetadataImage, *, is_down: bool
) -> Iterator[ClusterEvent]:
    for broker_id, broker in sorted(delta.changed_brokers.items()):
        before = delta.previous.brokers.get(broker_id)
        if broker is None:
            replicas = _replica_count(image, broker_id)
            fields = {"broker": broker_id, "replicas": replicas}
            yield ClusterEvent("broker unregistered", fields, is_warning=replicas > 0)
        elif before is None:
            yield ClusterEvent("broker registered", _named(broker))
        elif before.fenced and not broker.fenced:
            yield ClusterEvent("broker unfenced", _named(broker))
        elif broker.fenced and not before.fenced:
            is_leaving = broker.in_controlled_shutdown
            if is_leaving and not before.in_controlled_shutdown:
                yield ClusterEvent("broker in controlled shutdown", _named(broker))
            # Nor is it news where nobody is left.
            elif broker.broker_epoch == before.broker_epoch and not (is_leaving or is_down):
                yield ClusterEvent("broker fenced", _named(broker), is_warning=True)
        elif broker.in_controlled_shutdown and not before.in_controlled_shutdown:
            yield ClusterEvent("broker in controlled shutdown", _named(broker))


def _named(broker: BrokerImage) -> dict[str, object]:
    return {"broker": broker.broker_id, "broker_epoch": broker.broker_epoch}


def _replica_count(image: MetadataImage, broker_id: int) -> int:
    return sum(
        broker_id in partition.replicas
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
    )


def _of_topics(delta: MetadataDelta) -> Iterator[ClusterEvent]:
    for topic in delta.deleted_topics.values():
        fields = {"topic": topic.name, "partitions": len(topic.partitions)}
        yield ClusterEvent("topic deleted", fields)
    for changed in delta.changed_topics.values():
        new = [index for index in changed.partitions if changed.previous_partition(index) is None]
        if not new:
            continue
        first = changed.partitions[min(new)]
        fields = {
            "topic": changed.name,
            "partitions": len(new),
            "replication_factor": len(first.replicas),
        }
        yield ClusterEvent(
            "topic created" if changed.previous is None else "partitions added", fields
        )


def _of_partitions(
    delta: MetadataDelta, *, was_down: bool, is_down: bool
) -> Iterator[ClusterEvent]:
    moved: dict[int, list[tuple[str, int]]] = {}  # by the former leader
    lost, found, unclean, begun, ended = [], [], [], [], []
    for name, index, before, after in _changes(delta.changed_topics.values()):
        place = (name, index)
        if after.leader != before.leader:
            if after.leader == NO_LEADER:
                lost.append(place)
            elif after.leader not in before.isr:
                unclean.append(place)
            elif before.leader == NO_LEADER:
                found.append(place)
            else:
                moved.setdefault(before.leader, []).append(place)
        if after.is_reassigning and not before.is_reassigning:
            begun.append(place)
        elif before.is_reassigning and not after.is_reassigning:
            ended.append(place)
    if begun:
        yield ClusterEvent("reassignment begun", _some(begun))
    if ended:
        yield ClusterEvent("reassignment ended", _some(ended))
    for former, places in sorted(moved.items()):
        yield ClusterEvent("leaders moved", {"from": former, **_some(places)})
    if unclean:
        yield ClusterEvent("unclean leader election", _some(unclean), is_warning=True)
    if lost and not is_down:
        yield ClusterEvent("partitions without a leader", _some(lost), is_warning=True)
    if found and not was_down:
        yield ClusterEvent("partitions have a leader again", _some(found))


def _changes(
    topics: Iterable[TopicDelta],
) -> Iterator[tuple[str, int, PartitionImage, PartitionImage]]:
    """The partitions that were there before: topic, index, as it was, as it is."""
    for topic in topics:
        for index, after in topic.partitions.items():
            before = topic.previous_partition(index)
            if before is not None:
                yield topic.name, index, before, after


def _some(places: list[tuple[str, int]]) -> dict[str, object]:
    names = [f"{topic}-{index}" for topic, index in sorted(places)[:_NAMED]]
    more = ",..." if len(places) > _NAMED else ""
    return {"count": len(places), "partitions": ",".join(names) + more}


def _of_configs(delta: MetadataDelta) -> Iterator[ClusterEvent]:
    created = {topic.name for topic in delta.changed_topics.values() if topic.previous is None}
    gone = {topic.name for topic in delta.deleted_topics.values()}
    for resource, after in sorted(delta.changed_configs.items()):
        if resource.type == TOPIC and resource.name in created | gone:
            continue  # they come and go with it
        before: Mapping[str, str] = delta.previous.configs.get(resource, {})
        changed = [
            f"{name}={_shown(resource.type, name, after[name])}"
            for name in sorted(after)
            if before.get(name) != after[name]
        ]
        changed += [f"{name} (default)" for name in sorted(before) if name not in after]
        if not changed:
            continue
        kind = _KINDS[resource.type][0] if resource.type in _KINDS else str(resource.type)
        fields = {kind: resource.name or "(all)", "set": ", ".join(changed)}
        yield ClusterEvent("settings changed", fields)


def _shown(resource_type: int, name: str, value: str) -> str:
    keys = _KINDS[resource_type][1] if resource_type in _KINDS else {}
    key = keys.get(name)
    return "(hidden)" if key is None or key.sensitive else value
