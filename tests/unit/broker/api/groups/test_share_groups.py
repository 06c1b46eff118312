"""Heartbeats and descriptions of share groups, as clients send them."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    DeleteGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftrio.wire.messages.share_groups import ShareGroupDescribeRequest
from tests.support.authorizers import Denies
from tests.unit.broker.api.groups.share_groups_stand_in import GROUP, ShareGroupsStandIn
from tests.unit.broker.coordinator.share_state.share_stand_in import KEY, TOPIC, TOPIC_ID

NONE = ErrorCode.NONE


def describe(broker: ShareGroupsStandIn, group_id: str = GROUP) -> Any:
    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=True)
    (group,) = broker.request(request).groups
    return group


def joined() -> ShareGroupsStandIn:
    """A broker with a group of one member, which has all partitions."""
    broker = ShareGroupsStandIn()
    assert broker.beat(0, [TOPIC]).error_code is NONE
    broker.timers.advance(1_000)
    given = broker.beat(2)
    assert (given.error_code, given.member_epoch) == (NONE, 3)
    assert [(one.topic_id, one.partitions) for one in given.assignment.topic_partitions] == [
        (TOPIC_ID, [0, 1, 2, 3])
    ]
    return broker


def test_a_member_joins_and_leaves() -> None:
    broker = joined()
    described = describe(broker)
    assert (described.error_code, described.group_state) == (NONE, "Stable")
    assert [member.member_id for member in described.members] == ["m"]
    assert described.authorized_operations > 0
    listed = broker.request(ListGroupsRequest()).groups
    assert [(one.group_id, one.group_type, one.protocol_type) for one in listed] == [
        (GROUP, "share", "share")
    ]
    assert broker.beat(-1).member_epoch == -1
    assert describe(broker).group_state == "Empty"


def test_states_that_cannot_be_initialized_are_asked_for_again() -> None:
    broker = ShareGroupsStandIn()
    broker.share_error = ErrorCode.UNKNOWN_SERVER_ERROR
    broker.beat(0, [TOPIC])
    assert broker.share.records() != []  # it was asked, and answered with an error
    broker.share_error = None
    broker.beat(2)
    broker.timers.advance(1_000)
    assert broker.beat(2).member_epoch == 3


@pytest.mark.parametrize("member_id", ["", "x" * 37])
def test_member_ids_have_36_characters_at_most(member_id: str) -> None:
    refused = ShareGroupsStandIn().beat(0, [TOPIC], member_id=member_id)
    assert refused.error_code is ErrorCode.INVALID_REQUEST


def test_refusals_have_their_messages() -> None:
    broker = ShareGroupsStandIn()
    refused = broker.beat(1)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Share group g not found.",
    )
    refused = ShareGroupsStandIn(lead=False).beat(1)
    assert (refused.error_code, refused.error_message) == (ErrorCode.NOT_COORDINATOR, None)
    missing = describe(broker, "missing")
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group missing not found.",
    )
    assert describe(broker, "").error_code is ErrorCode.INVALID_GROUP_ID


def test_groups_of_other_kinds_are_not_found() -> None:
    broker = ShareGroupsStandIn()
    commit = OffsetCommitRequestTopic(
        name=TOPIC, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    broker.request(OffsetCommitRequest(group_id=GROUP, topics=[commit]), 8)
    for refused in (describe(broker), broker.beat(0, [TOPIC]), broker.beat(-1)):
        assert refused.error_code is ErrorCode.GROUP_ID_NOT_FOUND
        assert refused.error_message == "Group g is not a share group."


def test_without_the_feature_nothing_is_served() -> None:
    broker = ShareGroupsStandIn(share_version=0)
    assert broker.beat(0, [TOPIC]).error_code is ErrorCode.UNSUPPORTED_VERSION
    assert describe(broker).error_code is ErrorCode.UNSUPPORTED_VERSION
    assert broker.coordinator.read(GROUP, lambda shard, _now: shard.share.has(GROUP)) is False


def test_topics_that_a_client_may_not_know_of() -> None:
    broker = joined()
    broker.authorizer = Denies(AclOperation.DESCRIBE, Resource(ResourceType.TOPIC, TOPIC))
    assert broker.beat(0, [TOPIC]).error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.beat(3).error_code is NONE
    described = describe(broker)
    assert described.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert described.members == []
    broker.authorizer = Denies(AclOperation.DESCRIBE, Resource(ResourceType.GROUP, GROUP))
    assert describe(broker).error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_very_many_topics() -> None:
    broker = ShareGroupsStandIn()
    names = [TOPIC, *(f"t{index}" for index in range(1_999))]
    assert broker.beat(0, names).error_code is NONE
    refused = broker.beat(0, [*names, "one more"])
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    assert refused.error_message == "The request names 2001 topics, more than 2000."


def test_the_states_of_a_group_are_deleted_with_it() -> None:
    """First; while they cannot be, the group stays."""
    broker = joined()
    request = DeleteGroupsRequest(groups_names=[GROUP, "missing"])

    def delete() -> list[tuple[str, ErrorCode]]:
        return [(one.group_id, one.error_code) for one in broker.request(request).results]

    missing = ("missing", ErrorCode.GROUP_ID_NOT_FOUND)
    assert delete() == [(GROUP, ErrorCode.NON_EMPTY_GROUP), missing]
    broker.beat(-1)
    broker.share_error = ErrorCode.UNKNOWN_SERVER_ERROR
    assert delete() == [(GROUP, ErrorCode.UNKNOWN_SERVER_ERROR), missing]
    assert describe(broker).error_code is NONE
    broker.share_error = None
    assert delete() == [(GROUP, NONE), missing]
    assert describe(broker).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.share.summary(KEY).start_offset == -1
    assert broker.share.shard().statistics() == {"share_partitions": 0}
