"""Share groups of members in Java, that accept, release, reject and renew as they like, while
members die, and the broker, or the leaders of a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import append, create_topic
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cluster_process import Cluster
from tests.conformance.share_members import Members, ShareModel

PARTITIONS = 2
LIMIT = 4
DRAIN_S = 120.0
_GROUP_RESOURCE = 32

SHARE_CONFIG = {
    "share_coordinator_state_topic_replication_factor": 1,
    "share_coordinator_state_topic_min_isr": 1,
    "share_coordinator_state_topic_num_partitions": 3,
    "group_share_min_heartbeat_interval_ms": 500,
    "group_share_heartbeat_interval_ms": 500,
    "group_share_min_record_lock_duration_ms": 3000,
    "group_share_record_lock_duration_ms": 3000,
    "group_share_delivery_count_limit": LIMIT,
}


def begin_at_the_start(client: RawClient, group: str) -> None:
    """Have a share group begin with the first records."""
    setting = IncrementalAlterableConfig(
        name="share.auto.offset.reset", config_operation=0, value="earliest"
    )
    resource = IncrementalAlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group, configs=[setting]
    )
    response = client.call(IncrementalAlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code is ErrorCode.NONE


def produce(client: RawClient, topic: str, batches: int) -> None:
    """Append batches of ten records to each partition."""
    for _ in range(batches):
        for partition in range(PARTITIONS):
            append(client, topic, *[b"v"] * 10, partition=partition)


def produce_to_leaders(cluster: Cluster, topic: str, batches: int) -> None:
    """The same in a cluster, in which any broker may lead a partition."""
    for partition in range(PARTITIONS):
        with cluster.node(cluster.leader(topic, partition)).client() as client:
            for _ in range(batches):
                append(client, topic, *[b"v"] * 10, partition=partition)


def create_replicated(cluster: Cluster, name: str) -> str:
    """Create a topic whose partitions have a replica on each node."""
    made = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3)
    (result,) = cluster.ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000)).topics
    assert result.error_code is ErrorCode.NONE, result
    cluster.wait_healthy(name)
    return name


def wait_until_done(model: ShareModel, ends: dict[int, int]) -> None:
    """Wait until every record is accepted, rejected, or at the limit of its deliveries."""
    deadline = time.monotonic() + DRAIN_S
    while left := model.open_records(ends):
        assert not model.errors, model.errors[:10]
        assert time.monotonic() < deadline, (
            f"{len(left)} records are left: {left[:10]}, refusals: {model.refusals[-5:]}"
        )
        time.sleep(0.2)


@pytest.mark.timeout(400)
def test_nothing_is_lost_nor_given_too_often(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(**SHARE_CONFIG)
    model = ShareModel(LIMIT, unseen=1)
    with RawClient(broker.address) as client:
        topic = create_topic(client, "shared", PARTITIONS)
        begin_at_the_start(client, "members")
        produce(client, topic, 50)
    with Members(broker.address, "members", topic, model) as members:
        members.start("a", "b", "c", "d")
        time.sleep(2)
        members.kill9("a")
        with RawClient(broker.address) as client:
            produce(client, topic, 50)
        members.start("e")
        time.sleep(1)
        broker.kill9()
        broker.restart()
        with RawClient(broker.address) as client:
            produce(client, topic, 50)
        members.stop("b")
        members.kill9("c")
        time.sleep(2)
        broker.terminate()
        broker.restart()
        wait_until_done(model, dict.fromkeys(range(PARTITIONS), 1500))
        for name in ("d", "e"):
            members.stop(name)
    assert not model.errors, model.errors[:10]
    assert {"accept", "release", "reject", "renew"} <= model.counts.keys()
    # What was given to members that died is not counted, nor what the dead broker had not kept.
    assert max(model.deliveries.values()) <= LIMIT + 4


@pytest.mark.timeout(400)
def test_leaders_move_and_die(make_cluster: Callable[..., Cluster]) -> None:
    """The leaders of partitions, and of the share coordinator's topic, one after the other."""
    settings = {name: value for name, value in SHARE_CONFIG.items() if "coordinator" not in name}
    cluster = make_cluster(share_coordinator_state_topic_num_partitions=3, **settings)
    model = ShareModel(LIMIT, unseen=1)
    with cluster.any_client() as client:
        begin_at_the_start(client, "movers")
    topic = create_replicated(cluster, "moving")
    produce_to_leaders(cluster, topic, 40)
    with Members(cluster.bootstrap, "movers", topic, model) as members:
        members.start("a", "b")
        for node_id in list(cluster.nodes):
            time.sleep(2)
            cluster.node(node_id).kill9()
            cluster.heal()
            produce_to_leaders(cluster, topic, 20)
        # No member is asked to close: one that had sessions with former leaders may wait for them.
        wait_until_done(model, dict.fromkeys(range(PARTITIONS), 1000))
    assert not model.errors, model.errors[:10]
    # What was given to members by a leader that died is not counted by the next one.
    assert max(model.deliveries.values()) <= LIMIT + 4


def test_the_model_knows_that_a_killed_member_may_have_acknowledged() -> None:
    """It said so, and died before the broker's answer; what it released is open."""
    model = ShareModel(LIMIT)
    for line in ("got 0 1 1", "said 0 1 accept", "got 0 2 1", "said 0 2 release", "got 0 3 1"):
        model.take("a", line)
    assert model.open_records({0: 4}) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    model.lose("a")
    assert model.open_records({0: 4}) == [(0, 0), (0, 2), (0, 3)]
