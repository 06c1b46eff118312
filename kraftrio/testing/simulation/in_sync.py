"""Which replicas of a cluster are in sync, and which may lose a part of their logs.

Called by: what injects faults by which a replica loses what was not synced.
"""

from __future__ import annotations

from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.testing.simulation.cluster import SimCluster, SimNode


def _active_image(cluster: SimCluster) -> MetadataImage | None:
    """The image of the active controller; None: there is none, or there seem to be two."""
    nodes = [node for node in cluster.nodes.values() if node.node is not None]
    images = [node.quorum.image for node in nodes if node.quorum.is_active_controller]
    return images[0] if len(images) == 1 else None


def has_partners(cluster: SimCluster, node: SimNode) -> bool:
    """Return whether the others have all that a node has.

    Every broker is up, each replica of the node has partners in the ISR, and no change of an ISR
    is pending.
    """
    image = _active_image(cluster)
    if image is None or not all(n.is_ready or not n.is_broker for n in cluster.nodes.values()):
        return False
    for topic in image.topics_by_name.values():
        for partition in topic.partitions.values():
            if node.node_id in partition.replicas and (
                len(partition.isr) < len(partition.replicas) or len(partition.isr) < 2
            ):
                return False
    return not any(
        partition.state.isr.pending
        for broker in cluster.brokers
        if broker.replica_manager is not None
        for partition in broker.replica_manager.hosted.partitions()
    )


def is_in_sync(cluster: SimCluster, node: SimNode) -> bool:
    """Return whether a node is up, and in the ISR of each partition of which it has a replica."""
    image = _active_image(cluster)
    if image is None or not (node.is_ready or not node.is_broker):
        return False
    broker = image.brokers.get(node.node_id)
    if node.is_broker and (broker is None or broker.fenced):
        return False
    return all(
        node.node_id in partition.isr
        for topic in image.topics_by_name.values()
        for partition in topic.partitions.values()
        if node.node_id in partition.replicas
    )
