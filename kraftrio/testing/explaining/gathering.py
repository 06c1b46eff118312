"""Gathers the evidence for explanations: of a world, and of nodes with real sockets.

Owns: `of_world`, `story_of` and `of_nodes`.

Called by: `kafka_world` and `cluster`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftrio.broker.node.node import Node
from kraftrio.broker.replica.partition import Partition
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.testing.explaining.evidence import Evidence
from kraftrio.testing.explaining.exchanges import Exchanges
from kraftrio.testing.explaining.lines import lines_of
from kraftrio.testing.node_trace import NodeTrace
from kraftrio.testing.simulation.cluster import SimCluster
from kraftrio.testing.simulation.world import World
from kraftrio.testing.story import Event, events_of
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey

_NO_BEGINNING = "it has no beginning, which is too long ago or before a snapshot"
_LINKS = frozenset({"hang", "mend", "cut"})  # what happens to the network, of what its trace says


def story_of(
    world: World, cluster: SimCluster | None, exchanges: Exchanges | None, *, packets: bool = False
) -> list[Event]:
    """The events of a world in the order of their times, with what clients asked for.

    Args:
        packets: with the bytes and connections of the network, too.
    """
    asked: Iterable[Event] = ()
    if cluster is not None and exchanges is not None:
        nodes = {node_id: each.node for node_id, each in cluster.nodes.items()}
        asked = lines_of(exchanges, _topic_names(nodes, exchanges))
    return _in_order(_traced(world, packets=packets), asked)


def _traced(world: World, *, packets: bool = False) -> list[Event]:
    return [
        event
        for event in events_of(world.trace.newest)
        if packets or event.who != "net" or event.kind in _LINKS
    ]


def _in_order(traced: Iterable[Event], asked: Iterable[Event]) -> list[Event]:
    return sorted([*traced, *asked], key=lambda event: float(event.time))


def _topic_names(nodes: Mapping[int, Node | None], exchanges: Exchanges) -> dict[bytes, str]:
    """The topics that there are, and those that clients were told of."""
    names = {
        topic.topic_id: topic.name
        for exchange in exchanges
        if exchange.api_key == ApiKey.METADATA and exchange.answer is not None
        for topic in exchange.answer.topics
        if topic.name is not None
    }
    for image in _images(nodes).values():
        names |= {topic_id: topic.name for topic_id, topic in image.topics_by_id.items()}
    return names


def of_world(world: World, cluster: SimCluster, exchanges: Exchanges | None) -> Evidence:
    """Everything that happened in a world so far."""
    assert exchanges is not None
    nodes = {node_id: each.node for node_id, each in cluster.nodes.items()}
    topic_names = _topic_names(nodes, exchanges)
    is_whole = exchanges.is_whole and world.trace.count == len(world.trace.newest)
    return Evidence(
        _in_order(_traced(world), lines_of(exchanges, topic_names)),
        list(exchanges),
        topic_names,
        _images(nodes),
        lambda topic_partition: _replicas(nodes, topic_partition),
        "" if is_whole else _NO_BEGINNING,
    )


def of_nodes(nodes: Mapping[int, Node | None], trace: NodeTrace, exchanges: Exchanges) -> Evidence:
    """Everything that happened to nodes with real sockets so far."""
    topic_names = _topic_names(nodes, exchanges)
    return Evidence(
        _in_order(events_of(trace.newest), lines_of(exchanges, topic_names)),
        list(exchanges),
        topic_names,
        _images(nodes),
        lambda topic_partition: _replicas(nodes, topic_partition),
        "" if exchanges.is_whole and trace.is_whole else _NO_BEGINNING,
        "a client with a real socket does not tell how it has chosen",
    )


def _images(nodes: Mapping[int, Node | None]) -> dict[int, MetadataImage]:
    return {node_id: node._quorum.image for node_id, node in nodes.items() if node is not None}


def _replicas(
    nodes: Mapping[int, Node | None], topic_partition: TopicPartition
) -> dict[int, Partition]:
    found = {}
    for node_id, node in nodes.items():
        if node is not None and node._broker is not None:
            hosted = node._broker.services.replica_manager.hosted
            partition = hosted.partition(topic_partition)
            if partition is not None:
                found[node_id] = partition
    return found
