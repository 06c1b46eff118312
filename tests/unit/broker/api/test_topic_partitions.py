"""DescribeTopicPartitions: topics page by page."""

from __future__ import annotations

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.cluster import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import ClusterContext, context


def page(
    cluster: ClusterContext, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]:
    """One DescribeTopicPartitions: topics with their partitions, and the next cursor."""
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = finish(cluster.topic_partitions.describe_topic_partitions(request, context(0)))
    response = decode(DescribeTopicPartitionsResponse, 0, encode(response, 0))[0]
    after = response.next_cursor
    return (
        [
            (one.name, one.error_code, [each.partition_index for each in one.partitions])
            for one in response.topics
        ],
        None if after is None else (after.topic_name, after.partition_index),
    )


def test_partitions_come_in_pages() -> None:
    """Pages follow the topics' order, errors cost nothing, the cursor is where to go on."""
    cluster = ClusterContext()
    cluster.create_topic("a", partitions=1)
    cluster.create_topic("t", partitions=3)
    names = ("t", "nope", "a b", "a")
    first, cursor = page(cluster, *names, limit=2)
    assert first == [("a", 0, [0]), ("a b", 17, []), ("nope", 3, []), ("t", 0, [0])]
    assert cursor == ("t", 1)
    assert page(cluster, *names, limit=2, cursor=cursor) == ([("t", 0, [1, 2])], None)
    assert page(cluster, limit=1) == ([("a", 0, [0])], ("t", 0))
    assert page(cluster, cursor=("s", 0))[0] == [("t", 0, [0, 1, 2])]
    assert page(cluster, "t", limit=0) == ([("t", 0, [0])], ("t", 1))
    assert page(cluster, "t", cursor=("t", 9)) == ([("t", 0, [])], None)
    assert page(cluster, "t", cursor=("t", -1)) == ([("t", 42, [])], None)


def test_page_size_has_an_upper_bound() -> None:
    """The broker's own limit holds whatever a client asks."""
    cluster = ClusterContext({"max.request.partition.size.limit": "2"})
    cluster.create_topic("t", partitions=3)
    assert page(cluster, "t", limit=100) == ([("t", 0, [0, 1])], ("t", 2))
