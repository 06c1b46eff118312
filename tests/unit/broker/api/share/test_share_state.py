"""Requests to the share coordinator, in every version: each share partition has its own answer."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.security.authorizer import AclOperation
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages import share_state as messages
from tests.support.authorizers import Denies
from tests.unit.broker.coordinator.share_state.share_stand_in import TOPIC_ID, ShareStandIn

NO_TOPIC = b"?" * 16
NONE = ErrorCode.NONE
BATCH = messages.StateBatch(first_offset=3, last_offset=5, delivery_state=2, delivery_count=1)


def initialize(*partitions: int, topic_id: bytes = TOPIC_ID, group_id: str = "g") -> Any:
    return messages.InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            messages.InitializeShareGroupStateTopic(
                topic_id=topic_id,
                partitions=[
                    messages.InitializeShareGroupStatePartition(
                        partition=partition, state_epoch=4, start_offset=3
                    )
                    for partition in partitions
                ],
            )
        ],
    )


def read(*partitions: int, leader_epoch: int = 1) -> Any:
    return messages.ReadShareGroupStateRequest(
        group_id="g",
        topics=[
            messages.ReadShareGroupStateTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    messages.ReadShareGroupStatePartition(
                        partition=partition, leader_epoch=leader_epoch
                    )
                    for partition in partitions
                ],
            )
        ],
    )


def write(partition: int = 0, *, leader_epoch: int = 1) -> Any:
    return messages.WriteShareGroupStateRequest(
        group_id="g",
        topics=[
            messages.WriteShareGroupStateTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    messages.WriteShareGroupStatePartition(
                        partition=partition,
                        state_epoch=4,
                        leader_epoch=leader_epoch,
                        start_offset=3,
                        delivery_complete_count=3,
                        state_batches=[BATCH],
                    )
                ],
            )
        ],
    )


def summary(partition: int = 0) -> Any:
    return messages.ReadShareGroupStateSummaryRequest(
        group_id="g",
        topics=[
            messages.ReadShareGroupStateSummaryTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    messages.ReadShareGroupStateSummaryPartition(
                        partition=partition, leader_epoch=-1
                    )
                ],
            )
        ],
    )


def delete(*partitions: int) -> Any:
    return messages.DeleteShareGroupStateRequest(
        group_id="g",
        topics=[
            messages.DeleteShareGroupStateTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    messages.DeleteShareGroupStatePartition(partition=partition)
                    for partition in partitions
                ],
            )
        ],
    )


def only(response: Any) -> Any:
    """The one partition's answer."""
    ((partition,),) = (result.partitions for result in response.results)
    return partition


def codes(response: Any) -> list[tuple[int, ErrorCode]]:
    return [
        (partition.partition, partition.error_code)
        for result in response.results
        for partition in result.partitions
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_a_state_from_its_beginning_to_its_end(version: int) -> None:
    """Version 0 knows no delivery complete count: it is not stored, or not returned."""
    share = ShareStandIn()
    assert codes(share.request(initialize(0))) == [(0, NONE)]
    found = only(share.request(read(0)))
    assert (found.state_epoch, found.start_offset, list(found.state_batches)) == (4, 3, [])
    assert codes(share.request(write(), version)) == [(0, NONE)]
    assert list(only(share.request(read(0))).state_batches) == [BATCH]
    answered = only(share.request(summary()))
    assert (answered.state_epoch, answered.leader_epoch, answered.start_offset) == (4, 1, 3)
    assert answered.delivery_complete_count == (3 if version else -1)
    assert only(share.request(summary(), 0)).delivery_complete_count == -1
    assert codes(share.request(delete(0, 1))) == [(0, NONE), (1, NONE)]
    assert only(share.request(summary())).start_offset == -1


def test_each_partition_has_its_own_answer() -> None:
    share = ShareStandIn()
    response = share.request(initialize(0, 7, 1, -1))
    unknown, bad = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    assert codes(response) == [(0, NONE), (7, unknown), (1, NONE), (-1, bad)]
    texts = [one.error_message for one in response.results[0].partitions]
    not_hosted = "This server does not host this topic-partition."
    assert texts == [None, not_hosted, None, "The partition id cannot be a negative number."]
    assert codes(share.request(initialize(0, topic_id=NO_TOPIC))) == [(0, unknown)]
    refused = only(share.request(read(3)))
    assert refused.error_message == ("Read operation on uninitialized share partition not allowed.")
    share.request(read(0, leader_epoch=5))
    fenced = only(share.request(write(leader_epoch=4)))
    assert fenced.error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert fenced.error_message == (
        "The leader epoch in the request is older than the epoch on the broker."
    )


def test_one_topic_twice_is_one_result() -> None:
    share = ShareStandIn()
    request = initialize(0)
    request.topics += initialize(1).topics
    response = share.request(request)
    assert [result.topic_id for result in response.results] == [TOPIC_ID]
    assert codes(response) == [(0, NONE), (1, NONE)]


@pytest.mark.parametrize("request_", [initialize(0, group_id=""), initialize()])
def test_requests_about_nothing_are_answered_with_nothing(request_: Any) -> None:
    share = ShareStandIn()
    assert list(share.request(request_).results) == []
    assert (
        list(share.request(messages.InitializeShareGroupStateRequest(group_id="g")).results) == []
    )
    assert share.records() == []


@pytest.mark.parametrize(
    ("request_", "doing"),
    [
        (initialize(0), "initialize share group state"),
        (read(0), "read share group state"),
        (write(), "write share group state"),
        (summary(), "read share group state summary"),
        (delete(0), "delete share group state"),
    ],
)
def test_another_broker_coordinates(request_: Any, doing: str) -> None:
    refused = only(ShareStandIn(lead=False).request(request_))
    assert refused.error_code is ErrorCode.NOT_COORDINATOR
    assert refused.error_message == f"Unable to {doing}: {ErrorCode.NOT_COORDINATOR.sentence}"


def test_only_brokers_may_ask() -> None:
    share = ShareStandIn()
    share.authorizer = Denies(AclOperation.CLUSTER_ACTION)
    for request in (initialize(0, 1), read(0), write(), summary(), delete(0)):
        response = share.request(request)
        assert {code for _, code in codes(response)} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert share.records() == []


def test_the_answer_waits_for_all_partitions() -> None:
    share = ShareStandIn()
    share.replicas.auto_commit = False
    response = share.request(initialize(0, 1))
    assert isinstance(response, Deferred) and not response.done
    share.replicas.commit(share.log.topic_partition)
    assert codes(response.value) == [(0, NONE), (1, NONE)]
