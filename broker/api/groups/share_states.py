"""Deletes states of share partitions at their share coordinators, for several handlers."""

from __future__ import annotations

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.groups.share.state_progress import Partitions
from kraftrio.broker.peers.share_state_client import ShareStateClient
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.share_state import SharePartitionKey
from kraftrio.wire.errors import ErrorCode


def delete_states(
    states: ShareStateClient, group_id: str, partitions: Partitions
) -> Work[dict[bytes, ErrorCode]]:
    """Delete states; return how it went for each topic."""
    asked: list[tuple[bytes, Deferred[ErrorCode]]] = []
    for topic_id, indexes in partitions.items():
        for index in sorted(indexes):
            key = SharePartitionKey(group_id, topic_id, index)
            asked.append((topic_id, states.delete(key)))
            yield None
    codes: dict[bytes, ErrorCode] = {}
    for topic_id, answer in asked:
        yield answer
        if codes.get(topic_id, ErrorCode.NONE) is ErrorCode.NONE:
            codes[topic_id] = answer.value
    return codes
