"""Group coordinators and producer ids asked for at every broker, by raw frames."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.messages.data import (
    InitProducerIdRequest,
)
from kraftrio.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from tests.conformance.broker_process import KIND
from tests.conformance.cases.members import (
    Member,
    alone,
    commit_code,
    commit_request,
    fetch_offset,
    subscription,
)
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cluster_calls import Connect, NewTopic
from tests.conformance.cluster_process import Cluster


def test_coordinator_without_enough_replicas(
    cluster: Cluster, connect: Connect, new_topic: NewTopic, unique_group: Callable[[], str]
) -> None:
    """A commit that cannot be replicated is a retriable error of coordinators, never a timeout."""
    topic = new_topic([1, 2, 3])
    group = unique_group()
    coordinator = cluster.coordinator(group)
    client = connect(coordinator)
    request = commit_request(group, topic, 5)
    deadline = time.monotonic() + 20
    while commit_code(client, request) != ErrorCode.NONE:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for other in cluster.others(coordinator):
        cluster.node(other).pause()
    allowed = {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
    code = commit_code(client, commit_request(group, topic, 6))
    assert code in allowed, ErrorCode(code)
    cluster.heal()
    client = connect(cluster.coordinator(group))
    deadline = time.monotonic() + 20
    while (code := commit_code(client, commit_request(group, topic, 7))) != ErrorCode.NONE:
        assert code in allowed, ErrorCode(code)
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert fetch_offset(client, group, topic).committed_offset == 7


def test_every_version_finds_the_broker_that_takes_members(
    cluster: Cluster, connect: Connect, unique_group: Callable[[], str]
) -> None:
    """For one key or several (KIP-699), whichever broker is asked; and asking makes no group."""
    coordinators = {group: cluster.coordinator(group) for group in (unique_group(), unique_group())}
    clients = {node_id: connect(node_id) for node_id in cluster.nodes}

    def found_by(client: RawClient, version: int) -> dict[str, int]:
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=list(coordinators))
            return {one.key: one.node_id for one in client.call(request, version).coordinators}
        return {
            group: client.call(FindCoordinatorRequest(key=group), version).node_id
            for group in coordinators
        }

    for client in clients.values():
        cluster.wait_until(lambda c=client: found_by(c, 0) == coordinators, "it is known")  # type: ignore[misc]
        assert [found_by(client, version) for version in range(7)] == [coordinators] * 7
    for group, coordinator in coordinators.items():
        member = Member(clients[coordinator], group)
        cluster.wait_until(partial(_is_given_an_id, member), "it takes members")
        for other in cluster.others(coordinator):
            refused = Member(clients[other], group).try_join()
            assert refused.error_code == ErrorCode.NOT_COORDINATOR
    transactional_id = unique_group()
    for client in clients.values():
        client.call(FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=1))
    listed = [one for client in clients.values() for one in client.call(ListGroupsRequest()).groups]
    assert transactional_id not in [one.group_id for one in listed]


def _is_given_an_id(member: Member) -> bool:
    """Whether the broker that is asked takes the member; one that is loading does not yet."""
    return member.try_join().error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("rejoin", ["other protocol", "same protocol"])
def test_static_member_outlives_its_coordinator(
    cluster: Cluster, connect: Connect, unique_group: Callable[[], str], rejoin: str
) -> None:
    """What a static member rejoined with is known to the next coordinator."""
    group = unique_group()
    old = cluster.coordinator(group)
    protocols = ("range", subscription("topic")), ("roundrobin", subscription("topic"))
    first = alone(connect(old), group, instance="one", protocols=protocols)
    again = Member(connect(old), group, instance="one", protocols=protocols)
    again.client.client_id = "renamed"
    if rejoin == "other protocol":
        again.protocols = protocols[::-1]
    again.join()
    assert again.sync({again.member_id: b"all of it"}).error_code == ErrorCode.NONE
    assert again.member_id != first.member_id
    cluster.node(old).kill9()
    client = connect(cluster.coordinator(group))

    def described() -> Any:
        (found,) = client.call(DescribeGroupsRequest(groups=[group]), 5).groups
        return found if found.error_code == ErrorCode.NONE else None

    (member,) = cluster.wait_until(described, "the group is loaded").members
    assert member.group_instance_id == "one"
    if KIND == "apache":
        return  # whose next coordinator knows the member as it joined first
    assert (member.member_id, member.client_id) == (again.member_id, "renamed")
    stale = Member(client, group, instance="one")
    stale.member_id, stale.generation = first.member_id, again.generation
    assert stale.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    again.client = client
    assert again.heartbeat() == ErrorCode.NONE


def test_producer_ids_are_unique(cluster: Cluster) -> None:
    """Ids from all brokers at once, with crashes in between, are never given out twice."""
    found: list[int] = []
    for turn in range(3):
        workers = [threading.Thread(target=_take_ids, args=(cluster, node_id, found))
                   for node_id in cluster.nodes]  # fmt: skip
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        cluster.node(1 + turn).kill9()
        cluster.heal()
    assert len(found) == 3 * 3 * 700
    assert len(set(found)) == len(found)


def _take_ids(cluster: Cluster, node_id: int, found: list[int]) -> None:
    with cluster.node(node_id).client() as client:
        taken = 0
        while taken < 700:
            response = client.call(InitProducerIdRequest(transactional_id=None))
            if response.error_code == ErrorCode.NONE:
                assert response.producer_epoch == 0
                found.append(response.producer_id)
                taken += 1
            else:
                assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                time.sleep(0.02)
