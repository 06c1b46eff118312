"""Which topics metadata is kept of; when it is fetched is tested with the cluster."""

from __future__ import annotations

from kraftrio.clients.metadata import (
    BrokerAddress,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from kraftrio.clients.metadata_fetcher import TopicsOfInterest, _is_progress
from kraftrio.wire.errors import ErrorCode


def test_a_topic_counts_for_a_while_after_it_was_used() -> None:
    topics = TopicsOfInterest(idle_ms=60_000)
    assert topics.use("a", 0.0)
    assert topics.use("b", 30.0)
    assert not topics.use("b", 40.0)
    assert topics.names(60.0) == {"a", "b"}
    assert topics.names(61.0) == {"b"}
    assert topics.use("a", 62.0), "it is new again"


def test_pinned_topics_stay_until_others_are_pinned() -> None:
    topics = TopicsOfInterest(idle_ms=1_000)
    assert topics.pin(["a", "b"]) == {"a", "b"}
    topics.use("c", 0.0)
    assert topics.names(1e9) == {"a", "b"}
    topics.pin(["b"])
    assert topics.names(1e9) == {"b"}


def _metadata(leader_id: int, code: ErrorCode = ErrorCode.NONE) -> ClusterMetadata:
    partition = PartitionMetadata(0, leader_id, 0, (1,), (1,))
    topic = TopicMetadata("t", error_code=code, partitions={0: partition})
    return ClusterMetadata(brokers={1: BrokerAddress(1, "h", 1)}, topics={"t": topic})


def test_fetches_without_news_are_fruitless_while_something_is_missing() -> None:
    complete, leaderless = _metadata(1), _metadata(-1)
    unknown = _metadata(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert _is_progress(complete, _metadata(1)), "nothing is missing"
    assert _is_progress(leaderless, complete)
    assert _is_progress(complete, leaderless), "these are news"
    assert not _is_progress(leaderless, _metadata(-1))
    assert not _is_progress(unknown, _metadata(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert not _is_progress(complete, complete), "nobody answered"
