"""What an answer says of the leader that a client should have asked (KIP-951)."""

from __future__ import annotations

import immutables

from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.metadata.leader_hints import LeaderHints
from kraftrio.kraft_meta.metadata.image import (
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kraftrio.wire.messages.data import LeaderIdAndEpoch, NodeEndpoint


def partition(leader: int, epoch: int) -> PartitionImage:
    return PartitionImage(
        replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=epoch, partition_epoch=0
    )


def metadata() -> MetadataCache:
    topic = TopicImage(
        "t",
        b"\1" * 16,
        immutables.Map({0: partition(2, 7), 1: partition(-1, 8), 2: partition(2, 9)}),
    )
    broker = BrokerImage(
        broker_id=2,
        broker_epoch=1,
        incarnation_id=b"\2" * 16,
        endpoints=(Endpoint("OUTER", "there", 9, 0),),
        rack="r",
        fenced=False,
        in_controlled_shutdown=False,
    )
    cache = MetadataCache()
    cache.image = MetadataImage(
        topics_by_name=immutables.Map({"t": topic}), brokers=immutables.Map({2: broker})
    )
    return cache


def test_leader_and_where_it_is() -> None:
    """Each leader's endpoint is given once, for the listener that the client came in by."""
    hints = LeaderHints(metadata(), "OUTER")
    assert hints.leader_of("t", 0) == LeaderIdAndEpoch(leader_id=2, leader_epoch=7)
    assert hints.leader_of("t", 2) == LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    assert hints.node_endpoints() == [NodeEndpoint(node_id=2, host="there", port=9, rack="r")]


def test_leader_without_an_endpoint_for_the_client() -> None:
    """Its id and epoch are given all the same."""
    hints = LeaderHints(metadata(), "INNER")
    assert hints.leader_of("t", 0) == LeaderIdAndEpoch(leader_id=2, leader_epoch=7)
    assert hints.node_endpoints() == []


def test_no_leader_and_no_partition() -> None:
    """A partition may have no leader; one that is gone has no hint."""
    hints = LeaderHints(metadata(), "OUTER")
    assert hints.leader_of("t", 1) == LeaderIdAndEpoch(leader_id=-1, leader_epoch=8)
    assert hints.leader_of("t", 5) is None
    assert hints.leader_of("gone", 0) is None
    assert hints.node_endpoints() == []
