"""The current leader of a partition, for a client that asked the wrong broker (KIP-951).

A client of Produce 10 and later or Fetch 16 and later finds in the answer what it would otherwise
have to ask for by Metadata: the leader and its epoch beside NOT_LEADER_OR_FOLLOWER or
FENCED_LEADER_EPOCH, and where that leader is reached on the client's own listener.

Called by `produce/produce` and `fetch/fetch`, one `LeaderHints` per response.
"""

from __future__ import annotations

from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import LeaderIdAndEpoch, NodeEndpoint

WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""The errors that a hint goes with."""


class LeaderHints:
    """Collects the endpoints that one response has to name."""

    __slots__ = ("_listener_name", "_metadata", "_nodes")

    def __init__(self, metadata: MetadataCache, listener_name: str) -> None:
        self._metadata = metadata
        self._listener_name = listener_name
        self._nodes: dict[int, NodeEndpoint] = {}

    def leader_of(self, topic: str, index: int) -> LeaderIdAndEpoch | None:
        """The leader of a partition by the newest metadata; None when the partition is gone."""
        partition = self._metadata.partition(topic, index)
        if partition is None:
            return None
        leader_id = partition.leader
        endpoint = self._metadata.endpoint(leader_id, self._listener_name)
        if endpoint is not None:
            self._nodes[leader_id] = NodeEndpoint(
                node_id=leader_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=self._metadata.image.brokers[leader_id].rack,
            )
        return LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=partition.leader_epoch)

    def node_endpoints(self) -> list[NodeEndpoint]:
        """The endpoint of every leader that was named, once."""
        return list(self._nodes.values())
