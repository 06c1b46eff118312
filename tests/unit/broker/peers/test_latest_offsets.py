"""Leaders are asked how far their logs are, each with one request; some do not answer."""

from __future__ import annotations

from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.peers.latest_offsets import LatestOffsets
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kraftrio.wire.primitives import TopicPartition
from tests.unit.broker.coordinator.broker_stand_in import ClusterMetadata


class Leaders:
    """Writes down what is sent; the test answers."""

    broker_id = 1

    def __init__(self) -> None:
        self.sent: dict[int, tuple[Any, Deferred[Any]]] = {}

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        assert (timeout_ms, request.timeout_ms, request.replica_id) == (1000, 1000, -1)
        assert broker_id not in self.sent
        answer: Deferred[Any] = Deferred()
        self.sent[broker_id] = request, answer
        return answer

    def answer(self, broker_id: int, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer for each partition: the offset, and its index added."""
        request, answer = self.sent[broker_id]
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        error_code=code,
                        offset=offset + one.partition_index,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        answer.complete(ListOffsetsResponse(topics=topics))


def test_each_leader_is_asked_once() -> None:
    metadata = ClusterMetadata()
    metadata.add_topic("a", b"a" * 16, 2, leader=1)
    metadata.add_topic("b", b"b" * 16, 1, leader=2)
    metadata.add_topic("c", b"c" * 16, 1, leader=3)
    metadata.add_topic("d", b"d" * 16, 1, leader=4)
    metadata.add_topic("e", b"e" * 16, 1, leader=-1)
    leaders = Leaders()
    names = [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("d", 0), ("e", 0), ("f", 0)]
    asked = LatestOffsets(leaders, metadata, 1000).ask(TopicPartition(*name) for name in names)
    leaders.answer(1, 10)
    leaders.answer(2, 20, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leaders.sent[3][1].fail(ConnectionLost("it is gone"))
    assert not asked.done
    leaders.sent[4][1].complete(ListOffsetsResponse())
    assert asked.value == {
        ("a", 0): 10,
        ("a", 1): 11,
        ("b", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("c", 0): ErrorCode.NETWORK_EXCEPTION,
        ("d", 0): ErrorCode.UNKNOWN_SERVER_ERROR,
        ("e", 0): ErrorCode.LEADER_NOT_AVAILABLE,
        ("f", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_nothing_is_asked_about_nothing() -> None:
    assert LatestOffsets(Leaders(), ClusterMetadata(), 1000).ask([]).value == {}
