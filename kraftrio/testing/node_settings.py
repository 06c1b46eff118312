"""What the nodes of tests are set to, unless a test says otherwise.

Called by: `local_nodes` and `kafka_world`.
"""

from __future__ import annotations


def node_settings(node_count: int) -> dict[str, str]:
    """No waiting for members that never come, and few partitions of internal topics.

    The rest is as of `kraftrio cluster`: three replicas of each topic, and acks=all waits for two.
    """
    replicas = str(min(3, node_count))
    return {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, node_count)),
        "share.coordinator.state.topic.replication.factor": replicas,
        "min.insync.replicas": "2" if node_count >= 3 else "1",
    }
