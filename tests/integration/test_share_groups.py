"""Share groups on a broker of their own, as members and administrators see them.

Members get partitions once the states of these are initialized; offsets are described, altered and
deleted; all of it is there right after a kill -9.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.messages.groups import DeleteGroupsRequest
from kraftrio.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from kraftrio.wire.messages.share_state import (
    ReadShareGroupStatePartition,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryPartition,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryTopic,
    ReadShareGroupStateTopic,
    StateBatch,
    WriteShareGroupStatePartition,
    WriteShareGroupStateRequest,
    WriteShareGroupStateTopic,
)
from kraftrio.wire.records.batch import Record, build_batch
from tests.conformance.broker_process import Broker
from tests.integration.wire_client import WireClient

NONE = ErrorCode.NONE
DEADLINE_S = 30.0
GROUP, TOPIC = "sharers", "shared"
PASSING = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
           ErrorCode.NOT_COORDINATOR}  # fmt: skip


class Member:
    """A member of a share group that follows the protocol."""

    def __init__(self, client: WireClient, member_id: str) -> None:
        self.client = client
        self.member_id = member_id
        self.epoch = 0
        self.assigned: dict[bytes, list[int]] = {}

    def beat(self) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=[TOPIC] if self.epoch == 0 else None,
        )
        response = ask(self.client, request)
        assert response.error_code is NONE, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = {
                one.topic_id: one.partitions for one in response.assignment.topic_partitions
            }
        return response

    def beat_until_assigned(self, count: int) -> bytes:
        """Send heartbeats until the member has so many partitions; return the topic's id."""
        deadline = time.monotonic() + DEADLINE_S
        while sum(map(len, self.assigned.values())) != count:
            assert time.monotonic() < deadline, self.assigned
            self.beat()
            time.sleep(0.05)
        (topic_id,) = self.assigned
        return topic_id


def ask(client: WireClient, request: Any) -> Any:
    """Send a request until its coordinator is there."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        response = client.call(request)
        if getattr(response, "error_code", NONE) not in PASSING or time.monotonic() > deadline:
            return response
        time.sleep(0.05)


def offsets(client: WireClient) -> dict[int, tuple[int, int]]:
    """The start offset and the lag of each partition that the group has."""
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
    )
    (group,) = client.call(request).groups
    assert group.error_code is NONE
    return {
        one.partition_index: (one.start_offset, one.lag)
        for topic in group.topics
        for one in topic.partitions
    }


def read_state(client: WireClient, topic_id: bytes, index: int, leader_epoch: int) -> Any:
    topic = ReadShareGroupStateTopic(
        topic_id=topic_id,
        partitions=[ReadShareGroupStatePartition(partition=index, leader_epoch=leader_epoch)],
    )
    response = client.call(ReadShareGroupStateRequest(group_id=GROUP, topics=[topic]))
    return response.results[0].partitions[0]


def summary(client: WireClient, topic_id: bytes, index: int) -> Any:
    topic = ReadShareGroupStateSummaryTopic(
        topic_id=topic_id,
        partitions=[ReadShareGroupStateSummaryPartition(partition=index, leader_epoch=-1)],
    )
    request = ReadShareGroupStateSummaryRequest(group_id=GROUP, topics=[topic])
    return client.call(request).results[0].partitions[0]


def write_state(client: WireClient, topic_id: bytes, index: int, state_epoch: int) -> Any:
    partition = WriteShareGroupStatePartition(
        partition=index,
        state_epoch=state_epoch,
        leader_epoch=4,
        start_offset=3,
        delivery_complete_count=2,
        state_batches=[
            StateBatch(first_offset=4, last_offset=5, delivery_state=2, delivery_count=1)
        ],
    )
    topic = WriteShareGroupStateTopic(topic_id=topic_id, partitions=[partition])
    response = client.call(WriteShareGroupStateRequest(group_id=GROUP, topics=[topic]))
    return response.results[0].partitions[0].error_code


def test_a_share_group_from_its_first_member_to_its_end(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker(group_share_assignment_interval_ms=0)
    with WireClient((broker.host, broker.port)) as client:
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
        client.create_topic(TOPIC, partitions=3)
        for _ in range(10):
            client.produce(TOPIC, 1, build_batch([Record(0, 0, None, b"v")]))
        first, second = Member(client, "first"), Member(client, "second")
        topic_id = first.beat_until_assigned(3)
        second.beat_until_assigned(1)
        first.beat_until_assigned(2)
        (described,) = client.call(ShareGroupDescribeRequest(group_ids=[GROUP])).groups
        assert (described.group_state, described.assignor_name) == ("Stable", "simple")
        assert len(described.members) == 2
        assert offsets(client) == {0: (-1, -1), 1: (-1, -1), 2: (-1, -1)}
        state = read_state(client, topic_id, 1, leader_epoch=4)
        assert state.error_code is NONE
        assert write_state(client, topic_id, 1, state.state_epoch) is NONE
        assert offsets(client) == {0: (-1, -1), 1: (3, 5), 2: (-1, -1)}
    broker.kill9()
    broker.restart()
    with WireClient((broker.host, broker.port)) as client:
        first.client = second.client = client
        first.beat()  # both are known, in their epochs
        second.beat()
        assert offsets(client) == {0: (-1, -1), 1: (3, 5), 2: (-1, -1)}
        stale = read_state(client, topic_id, 1, leader_epoch=3)
        assert stale.error_code is ErrorCode.FENCED_LEADER_EPOCH
        state = read_state(client, topic_id, 1, leader_epoch=4)
        assert [one.first_offset for one in state.state_batches] == [4]
        first.epoch = second.epoch = -1
        first.beat()
        second.beat()
        alter = AlterShareGroupOffsetsRequest(
            group_id=GROUP,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=TOPIC,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(partition_index=1, start_offset=8)
                    ],
                )
            ],
        )
        (answer,) = client.call(alter).responses
        assert [one.error_code for one in answer.partitions] == [NONE]
        assert offsets(client)[1] == (8, 2)
        delete = DeleteShareGroupOffsetsRequest(
            group_id=GROUP, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
        )
        (deleted,) = client.call(delete).responses
        assert (deleted.error_code, deleted.topic_id) == (NONE, topic_id)
        assert offsets(client) == {}
        assert summary(client, topic_id, 1).start_offset == -1
        assert client.call(alter).error_code is NONE
        assert summary(client, topic_id, 1).start_offset == 8
        response = client.call(DeleteGroupsRequest(groups_names=[GROUP]))
        assert [one.error_code for one in response.results] == [NONE]
        assert summary(client, topic_id, 1).start_offset == -1  # its states are gone, too
