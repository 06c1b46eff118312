"""Metadata, DescribeCluster, DescribeTopicPartitions, FindCoordinator: who and where."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    NO_AUTHORIZED_OPERATIONS,
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    TopicRequest,
)
from kraftrio.wire.messages.groups import DescribeGroupsRequest
from tests.conformance.broker_process import KIND, ApacheBroker, Broker, free_port_pair
from tests.conformance.cases.calls import (
    SETTLE_DEADLINE_S,
    batch_of,
    create_topic,
    delete_topic,
    describe_topic,
    produce,
    topic_id,
    wait_for_coordinator,
)
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def ask(
    client: RawClient,
    *names: str,
    version: int = 13,
    create: bool = False,
    **options: Any,
) -> MetadataResponse:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create or version < 4,
        **options,
    )
    response = client.call(request, version)
    assert isinstance(response, MetadataResponse)
    return response


# Which topics


@pytest.mark.parametrize("version", range(14))
def test_all_topics_and_none(
    client: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    """Null asks for all of them, empty for none; version 0 has no null and means all by empty."""
    topic = new_topic()
    empty = client.call(MetadataRequest(topics=[]), version)
    assert len(empty.brokers) == 1
    if version == 0:
        assert topic in [one.name for one in empty.topics]
    else:
        assert empty.topics == []
        every = client.call(MetadataRequest(topics=None), version)
        assert topic in [one.name for one in every.topics]


def test_named_topics_are_answered_one_by_one(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str]
) -> None:
    """Each with its own error; one that is named twice is answered once."""
    topic, missing = new_topic(partitions=3), unique_topic()
    response = ask(client, topic, missing, topic, "no/name")
    by_name = {one.name: one for one in response.topics}
    assert len(by_name) == len(response.topics) == 3
    assert [one.partition_index for one in by_name[topic].partitions] == [0, 1, 2]
    assert by_name[missing].error_code == UNKNOWN
    assert by_name[missing].topic_id == bytes(16)
    assert by_name["no/name"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_partition_of_a_single_node(client: RawClient, new_topic: Callable[..., str]) -> None:
    """The node leads it and is its only replica."""
    response = ask(client, new_topic())
    (broker,) = response.brokers
    ((partition,),) = [one.partitions for one in response.topics]
    assert partition.error_code == NONE
    assert partition.leader_id == broker.node_id
    assert partition.leader_epoch >= 0
    assert partition.replica_nodes == partition.isr_nodes == [broker.node_id]
    assert partition.offline_replicas == []


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_illegal_names_are_never_created(client: RawClient, name: str) -> None:
    """Not even if the client allows it."""
    (topic,) = ask(client, name, create=True).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    every = client.call(MetadataRequest(topics=None))
    assert name not in [one.name for one in every.topics]


# Creation by asking


def test_describing_does_not_create(client: RawClient, unique_topic: Callable[[], str]) -> None:
    """allow_auto_topic_creation=false is what admin clients say."""
    missing = unique_topic()
    for _ in range(2):
        (topic,) = ask(client, missing).topics
        assert topic.error_code == UNKNOWN
        time.sleep(0.1)


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_asking_creates_a_topic_that_takes_records_soon(
    client: RawClient, unique_topic: Callable[[], str], version: int
) -> None:
    """The first answers have an error; clients before version 4 cannot forbid the creation."""
    missing = unique_topic()
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        (topic,) = ask(client, missing, version=version, create=True).topics
        if topic.error_code == NONE and topic.partitions[0].error_code == NONE:
            break
        assert topic.error_code in (UNKNOWN, ErrorCode.LEADER_NOT_AVAILABLE, NONE)
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while produce(client, missing, batch_of(b"v")).error_code != NONE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_many_topics_may_be_created_by_one_request(
    client: RawClient, unique_topic: Callable[[], str]
) -> None:
    """And by many clients at once."""
    names = [unique_topic() for _ in range(20)]
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while any(one.error_code != NONE for one in ask(client, *names, create=True).topics):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    identities = {topic_id(client, name) for name in names}
    assert len(identities) == 20


def test_auto_creation_can_be_turned_off(make_broker: Callable[..., Broker]) -> None:
    """auto.create.topics.enable=false; a deleted topic then stays away though it is asked for."""
    broker = make_broker(auto_create_topics_enable="false")
    with RawClient(broker.address) as client:
        for _ in range(2):
            (topic,) = ask(client, "missing", create=True).topics
            assert topic.error_code == UNKNOWN
            time.sleep(0.1)
        create_topic(client, "there")
        delete_topic(client, "there")
        (topic,) = ask(client, "there", create=True).topics
        assert topic.error_code == UNKNOWN


# Topic ids


def test_metadata_by_topic_id(client: RawClient, new_topic: Callable[..., str]) -> None:
    """From version 12 on; an unknown id is echoed without a name."""
    topic = new_topic()
    identity = topic_id(client, topic)
    for version in (12, 13):
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=identity, name=None)])
        (found,) = client.call(request, version).topics
        assert (found.error_code, found.name, found.topic_id) == (NONE, topic, identity)
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"\x03" * 16, name=None)])
        (found,) = client.call(request, version).topics
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (found.name, found.topic_id, found.partitions) == (None, b"\x03" * 16, [])
    assert describe_topic(client, topic).error_code == NONE


@pytest.mark.parametrize("version", [10, 11])
def test_versions_with_ids_in_answers_only(
    client: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    """A null name, or an id, is an invalid request."""
    identity = topic_id(client, new_topic())
    for topic in (
        MetadataRequestTopic(name=None),
        MetadataRequestTopic(topic_id=identity, name=None),
        MetadataRequestTopic(topic_id=identity, name="x"),
    ):
        (found,) = client.call(MetadataRequest(topics=[topic]), version).topics
        assert found.error_code == ErrorCode.INVALID_REQUEST


def test_neither_name_nor_id(client: RawClient, broker: Broker) -> None:
    """Means nothing in any version; Apache Kafka's own code for it tells a client nothing."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
    (found,) = client.call(request, 12).topics
    assert found.error_code == (
        ErrorCode.UNKNOWN_SERVER_ERROR if broker.kind == "apache" else ErrorCode.INVALID_REQUEST
    )


def test_a_recreated_topic_has_another_id(client: RawClient, new_topic: Callable[..., str]) -> None:
    """And the old one means nothing any more."""
    topic = new_topic()
    old = topic_id(client, topic)
    delete_topic(client, topic)
    create_topic(client, topic)
    assert topic_id(client, topic) != old
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=old, name=None)])
    (found,) = client.call(request, 13).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


# Brokers


@pytest.mark.parametrize("version", range(1, 14))
def test_controller_is_one_of_the_brokers(client: RawClient, broker: Broker, version: int) -> None:
    """Admin clients send it what changes the cluster."""
    response = client.call(MetadataRequest(topics=[]), version)
    (node,) = response.brokers
    assert response.controller_id == node.node_id
    assert (node.host, node.port, node.rack) == (broker.host, broker.port, None)


def test_authorized_operations_are_returned_when_asked_for(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> None:
    """Else the field holds the least integer, which stands for unknown."""
    topic, group = new_topic(), unique_group()
    for version in range(8, 14):
        (found,) = ask(client, topic, version=version).topics
        assert found.topic_authorized_operations == NO_AUTHORIZED_OPERATIONS
        asking = ask(client, topic, version=version, include_topic_authorized_operations=True)
        assert asking.topics[0].topic_authorized_operations > 0
    for version in range(8, 11):
        response = ask(client, topic, version=version)
        assert response.cluster_authorized_operations == NO_AUTHORIZED_OPERATIONS
        response = ask(client, topic, version=version, include_cluster_authorized_operations=True)
        assert response.cluster_authorized_operations > 0
    for version in range(3):
        response = client.call(DescribeClusterRequest(), version)
        assert response.cluster_authorized_operations == NO_AUTHORIZED_OPERATIONS
        response = client.call(
            DescribeClusterRequest(include_cluster_authorized_operations=True), version
        )
        assert response.cluster_authorized_operations > 0
    wait_for_coordinator(client, group)
    for version in range(3, 6):
        (described,) = client.call(DescribeGroupsRequest(groups=[group]), version).groups
        assert described.authorized_operations == NO_AUTHORIZED_OPERATIONS


def test_describe_cluster(client: RawClient, broker: Broker) -> None:
    """The same brokers, controller and cluster as in Metadata."""
    answer = ask(client)
    for version in range(3):
        response = client.call(DescribeClusterRequest(), version)
        assert (response.error_code, response.error_message) == (NONE, None)
        assert (response.cluster_id, response.controller_id) == (
            answer.cluster_id,
            answer.controller_id,
        )
        (node,) = response.brokers
        assert (node.host, node.port, node.is_fenced) == (broker.host, broker.port, False)
    for wanted, code in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        response = client.call(DescribeClusterRequest(endpoint_type=wanted), 2)
        assert (response.error_code, response.brokers) == (code, [])


# DescribeTopicPartitions


def test_topics_are_described_page_by_page(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str]
) -> None:
    """In the order of their names; the cursor says where the next page begins."""
    names = sorted(new_topic(partitions=3) for _ in range(2))
    missing = unique_topic()
    cursor, pages = None, []
    while True:
        response = client.call(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=one) for one in [*reversed(names)]],
                response_partition_limit=2,
                cursor=cursor,
            )
        )
        pages.append(
            [
                (topic.name, partition.partition_index)
                for topic in response.topics
                for partition in topic.partitions
            ]
        )
        cursor = response.next_cursor
        if cursor is None:
            break
    assert [one for page in pages for one in page] == [
        (name, index) for name in names for index in range(3)
    ]
    assert [len(page) for page in pages] == [2, 2, 2]
    (unknown,) = client.call(
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name=missing)])
    ).topics
    assert (unknown.error_code, unknown.partitions) == (UNKNOWN, [])


def test_strange_cursor(client: RawClient, new_topic: Callable[..., str]) -> None:
    """It must be of a topic that is asked for, and there is no negative partition."""
    topic = new_topic()
    for name, index in ((topic, -1), ("", 0), ("aaa", 0), ("zzz", 0)):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=topic)], cursor=Cursor(topic_name=name, partition_index=index)
        )
        (found,) = client.call(request).topics
        assert (found.error_code, found.partitions) == (ErrorCode.INVALID_REQUEST, [])


# FindCoordinator


def test_coordinators_of_groups(
    client: RawClient, broker: Broker, unique_group: Callable[[], str]
) -> None:
    """One at a time up to version 3, one answer for each key from 4 on: all the same broker."""
    groups = [unique_group() for _ in range(3)]
    wait_for_coordinator(client, groups[0])
    place = (ask(client).brokers[0].node_id, broker.host, broker.port)
    for version in range(7):
        if version < 4:
            one = client.call(FindCoordinatorRequest(key=groups[0]), version)
            assert (one.error_code, one.node_id, one.host, one.port) == (NONE, *place)
            continue
        response = client.call(FindCoordinatorRequest(coordinator_keys=groups), version)
        assert [one.key for one in response.coordinators] == groups
        for one in response.coordinators:
            assert (one.error_code, one.node_id, one.host, one.port) == (NONE, *place)


def test_coordinator_of_an_unknown_type(client: RawClient) -> None:
    """There are groups, transactions and shares."""
    response = client.call(FindCoordinatorRequest(key="x", key_type=7), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    (one,) = client.call(FindCoordinatorRequest(coordinator_keys=["x"], key_type=7), 4).coordinators
    assert one.error_code == ErrorCode.INVALID_REQUEST


# Listeners


def test_endpoints_are_those_of_the_listener_asked(tmp_path: Path) -> None:
    """A client must get addresses that it can reach: those of the listener it connected to."""
    first, second = free_port_pair(), free_port_pair()
    listeners = [f"INNER://127.0.0.1:{first}", f"OUTER://127.0.0.1:{second}"]
    advertised = ["INNER://inner.test:1111", "OUTER://outer.test:2222"]
    protocols = "INNER:PLAINTEXT,OUTER:PLAINTEXT,CONTROLLER:PLAINTEXT"
    apache = KIND == "apache"
    kind: type[Broker] = ApacheBroker if apache else Broker
    if apache:
        listeners.append(f"CONTROLLER://127.0.0.1:{first + 1}")
    broker = kind(
        tmp_path / "two",
        listeners=",".join(listeners),
        advertised_listeners=",".join(advertised),
        listener_security_protocol_map=protocols,
        inter_broker_listener_name="INNER",
    )
    broker.port = first
    with broker:
        for port, place in ((first, ("inner.test", 1111)), (second, ("outer.test", 2222))):
            with RawClient(f"127.0.0.1:{port}") as client:
                wait_for_coordinator(client, "group")
                (node,) = ask(client).brokers
                assert (node.host, node.port) == place
                (node,) = client.call(DescribeClusterRequest()).brokers
                assert (node.host, node.port) == place
                request = FindCoordinatorRequest(coordinator_keys=["group"])
                (found,) = client.call(request).coordinators
                assert (found.host, found.port) == place
