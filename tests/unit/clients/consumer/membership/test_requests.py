"""What a member sends, made from who it is."""

from __future__ import annotations

import pytest

from kraftrio.clients.consumer.membership.assignors import (
    Assignor,
    MemberSubscription,
    RangeAssignor,
    StickyAssignor,
)
from kraftrio.clients.consumer.membership.requests import (
    MembershipConfig,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from kraftrio.clients.group_offsets import GroupMetadata
from kraftrio.wire.primitives import TopicPartition

MEMBER = GroupMetadata("g", 7, "m1", None)
STATIC = GroupMetadata("g", 7, "m1", "instance-1")


def test_a_join_offers_every_assignor_with_what_the_member_has() -> None:
    config = MembershipConfig("g", session_timeout_ms=5, max_poll_interval_ms=6, rack_id="r")
    owned = {TopicPartition("b", 1), TopicPartition("a", 0)}
    assignors: list[Assignor] = [RangeAssignor(), StickyAssignor()]
    request = join_request(STATIC, config, assignors, {"b", "a"}, owned, "x" * 300)
    assert (request.group_id, request.member_id) == ("g", "m1")
    assert request.group_instance_id == "instance-1"
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (5, 6)
    assert [protocol.name for protocol in request.protocols] == ["range", "sticky"]
    for protocol in request.protocols:
        subscription = MemberSubscription.decode(protocol.metadata, None)
        assert list(subscription.topics) == ["a", "b"]
        assert list(subscription.owned_partitions) == sorted(owned)
        assert subscription.generation_id == 7
        assert subscription.rack_id == "r"
    assert request.reason == "x" * 255, "brokers refuse longer ones"


@pytest.mark.parametrize("member", [MEMBER, STATIC])
def test_heartbeats_and_syncs_are_of_the_generation(member: GroupMetadata) -> None:
    for request in (heartbeat_request(member), sync_request(member, "range", ())):
        assert (request.group_id, request.generation_id) == ("g", 7)
        assert (request.member_id, request.group_instance_id) == ("m1", member.group_instance_id)


def test_who_is_no_member_or_static_does_not_leave() -> None:
    request = leave_request(MEMBER, "y" * 300)
    assert request is not None
    assert [(each.member_id, each.reason) for each in request.members] == [("m1", "y" * 255)]
    assert leave_request(STATIC, "closing") is None
    assert leave_request(GroupMetadata("g"), "closing") is None
