"""Offsets of share groups: described with their lag, altered, deleted; who may, and what fails."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from tests.support.authorizers import Denies
from tests.unit.broker.api.groups.share_groups_stand_in import GROUP, ShareGroupsStandIn
from tests.unit.broker.coordinator.share_state.share_stand_in import KEY, TOPIC, TOPIC_ID

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def alter(broker: ShareGroupsStandIn, offsets: dict[str, dict[int, int]]) -> Any:
    return broker.request(
        AlterShareGroupOffsetsRequest(
            group_id=GROUP,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=index, start_offset=offset
                        )
                        for index, offset in of_topic.items()
                    ],
                )
                for name, of_topic in offsets.items()
            ],
        )
    )


def delete(broker: ShareGroupsStandIn, *topics: str) -> Any:
    return broker.request(
        DeleteShareGroupOffsetsRequest(
            group_id=GROUP,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
        )
    )


def describe(
    broker: ShareGroupsStandIn,
    topics: dict[str, list[int]] | None = None,
    version: int = 1,
) -> Any:
    asked = None
    if topics is not None:
        asked = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=asked)]
    )
    (group,) = broker.request(request, version).groups
    return group


def rows(group: Any) -> list[tuple[str, int, int, int, ErrorCode]]:
    """Topic, partition, start offset, lag and error of each line."""
    return [
        (topic.topic_name, one.partition_index, one.start_offset, one.lag, one.error_code)
        for topic in group.topics
        for one in topic.partitions
    ]


def test_offsets_from_their_beginning_to_their_end() -> None:
    broker = ShareGroupsStandIn()
    broker.log_end_offsets = {0: 30, 1: 9, 2: 0, 3: 0}
    answer = alter(broker, {TOPIC: {0: 10, 1: 9, 7: 1}})
    assert answer.error_code is NONE
    (topic,) = answer.responses
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (0, NONE),
        (1, NONE),
        (7, UNKNOWN),
    ]
    assert topic.topic_id == TOPIC_ID
    assert rows(describe(broker)) == [(TOPIC, 0, 10, 20, NONE), (TOPIC, 1, 9, 0, NONE)]
    broker.share.read(leader_epoch=6)
    broker.share.write((12, 14, 2, 1), state_epoch=1, leader_epoch=6, delivery_complete_count=3)
    described = describe(broker, {TOPIC: [0, 2]})
    assert rows(described) == [(TOPIC, 0, 10, 17, NONE), (TOPIC, 2, -1, -1, NONE)]
    assert described.topics[0].partitions[0].leader_epoch == 6
    assert rows(describe(broker, {TOPIC: [0]}, version=0)) == [(TOPIC, 0, 10, -1, NONE)]
    (deleted,) = delete(broker, TOPIC).responses
    assert (deleted.topic_name, deleted.topic_id, deleted.error_code) == (TOPIC, TOPIC_ID, NONE)
    assert rows(describe(broker)) == []
    assert broker.share.summary(KEY).start_offset == -1
    assert [one.error_code for one in delete(broker, TOPIC, "unknown").responses] == [
        UNKNOWN,
        UNKNOWN,
    ]


@pytest.mark.parametrize(
    ("start_offset", "count", "lag"),
    [(-(2**63), 0, 2**63 - 1), (2**63 - 1, 2**31 - 1, -(2**63)), (-2, 3, 29)],
)
def test_states_that_no_log_can_have(start_offset: int, count: int, lag: int) -> None:
    """A client of the share coordinator may have it store any; the lag is the nearest there is."""
    broker = ShareGroupsStandIn()
    broker.log_end_offsets = {0: 30}
    alter(broker, {TOPIC: {0: 1}})
    broker.share.read(leader_epoch=6)
    broker.share.write(
        start_offset=start_offset, state_epoch=1, leader_epoch=6, delivery_complete_count=count
    )
    assert rows(describe(broker)) == [(TOPIC, 0, start_offset, lag, NONE)]


def test_what_a_group_does_not_know_has_no_offset() -> None:
    broker = ShareGroupsStandIn()
    assert rows(describe(broker)) == []
    described = describe(broker, {"unknown": [0], TOPIC: [1]})
    assert rows(described) == [(TOPIC, 1, -1, -1, NONE), ("unknown", 0, -1, -1, NONE)]
    assert rows(describe(broker, {})) == []
    refused = delete(broker, TOPIC)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g not found.",
    )


def test_leaders_that_do_not_say_how_far_they_are() -> None:
    broker = ShareGroupsStandIn()
    alter(broker, {TOPIC: {0: 1}})
    broker.log_end_offsets = {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    (row,) = rows(describe(broker))
    assert row[4] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_states_that_cannot_be_changed() -> None:
    """What fails is an error of its partition, or topic; a deletion is finished by the next one."""
    broker = ShareGroupsStandIn()
    broker.log_end_offsets = {0: 5}
    broker.share_error = ErrorCode.UNKNOWN_SERVER_ERROR
    (topic,) = alter(broker, {TOPIC: {0: 1}}).responses
    assert [one.error_code for one in topic.partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    broker.share_error = None
    assert rows(describe(broker)) == []
    alter(broker, {TOPIC: {0: 1}})
    broker.share_error = ErrorCode.UNKNOWN_SERVER_ERROR
    (deleted,) = delete(broker, TOPIC).responses
    assert deleted.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    broker.share_error = None
    (deleted,) = delete(broker, TOPIC).responses
    assert deleted.error_code is NONE


def test_a_group_with_members_is_not_changed() -> None:
    broker = ShareGroupsStandIn()
    broker.beat(0, [TOPIC])
    for answer in (alter(broker, {TOPIC: {0: 1}}), delete(broker, TOPIC)):
        assert answer.error_code is ErrorCode.NON_EMPTY_GROUP
        assert answer.error_message == "The group is not empty."


def test_who_may_do_what() -> None:
    broker = ShareGroupsStandIn()
    alter(broker, {TOPIC: {0: 1}})
    topic = Resource(ResourceType.TOPIC, TOPIC)
    broker.authorizer = Denies(AclOperation.DESCRIBE, topic)
    assert rows(describe(broker)) == []
    assert rows(describe(broker, {TOPIC: [0]})) == [(TOPIC, 0, -1, -1, DENIED)]
    broker.authorizer = Denies(AclOperation.READ, topic)
    (answer,) = alter(broker, {TOPIC: {0: 1}}).responses
    assert [one.error_code for one in answer.partitions] == [DENIED]
    assert [one.error_code for one in delete(broker, TOPIC).responses] == [DENIED]
    group = Resource(ResourceType.GROUP, GROUP)
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    broker.authorizer = Denies(AclOperation.DESCRIBE, group)
    assert describe(broker).error_code is denied
    broker.authorizer = Denies(AclOperation.READ, group)
    assert alter(broker, {TOPIC: {0: 1}}).error_code is denied
    broker.authorizer = Denies(AclOperation.DELETE, group)
    assert delete(broker, TOPIC).error_code is denied


def test_without_the_feature_nothing_is_served() -> None:
    broker = ShareGroupsStandIn(share_version=0)
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert describe(broker).error_code is unsupported
    assert alter(broker, {TOPIC: {0: 1}}).error_code is unsupported
    assert delete(broker, TOPIC).error_code is unsupported


@pytest.mark.parametrize("lead", [True, False])
def test_too_many_partitions(lead: bool) -> None:
    broker = ShareGroupsStandIn(lead=lead)
    many = dict.fromkeys(range(10_001), 0)
    assert alter(broker, {TOPIC: many}).error_code is ErrorCode.INVALID_REQUEST
    assert describe(broker, {TOPIC: list(many)}).error_code is ErrorCode.INVALID_REQUEST
    names = [f"t{index}" for index in many]
    assert alter(broker, {name: {} for name in names}).error_code is ErrorCode.INVALID_REQUEST
    assert describe(broker, {name: [] for name in names}).error_code is ErrorCode.INVALID_REQUEST
    assert delete(broker, *names).error_code is ErrorCode.INVALID_REQUEST


def test_too_many_topics_that_are_there() -> None:
    """They are decided about in one turn; what is not there costs nothing."""
    broker = ShareGroupsStandIn()
    assert alter(broker, {TOPIC: {0: 1}} | {f"t{i}": {0: 1} for i in range(2_001)}).responses
    for index in range(2_001):
        broker.metadata.add_topic(f"t{index}", index.to_bytes(16, "big"), 1)
    many = {f"t{index}": {0: 1} for index in range(2_001)}
    assert alter(broker, many).error_code is ErrorCode.INVALID_REQUEST


def test_another_broker_coordinates() -> None:
    broker = ShareGroupsStandIn(lead=False)
    code = ErrorCode.NOT_COORDINATOR
    assert alter(broker, {TOPIC: {0: 1}}).error_code is code
    assert delete(broker, TOPIC).error_code is code
    assert describe(broker).error_code is code
