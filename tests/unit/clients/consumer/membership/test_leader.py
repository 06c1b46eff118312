"""What the leader of a group does for all."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.clients.consumer.membership.assignors import (
    MemberSubscription,
    RangeAssignor,
    assignment_partitions,
)
from kraftrio.clients.consumer.membership.leader import GroupLeader
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.groups import JoinGroupResponse, JoinGroupResponseMember


def generation(*, skip_assignment: bool = False, **topics: tuple[str, ...]) -> JoinGroupResponse:
    return JoinGroupResponse(
        members=[
            JoinGroupResponseMember(
                member_id=member_id, metadata=MemberSubscription(wanted).encode()
            )
            for member_id, wanted in topics.items()
        ],
        skip_assignment=skip_assignment,
    )


def leading(**options: Any) -> GroupLeader:
    leader = GroupLeader()
    leader.begin(generation(m1=("a",), m2=("a", "b"), **options))
    return leader


def test_partitions_of_all_topics_are_shared_out() -> None:
    leader = leading()
    assert leader.members_topics == {"a", "b"}
    leader.share({"a": 2, "b": 1, "other": 9}, RangeAssignor())
    assigned = {
        each.member_id: [tuple(partition) for partition in assignment_partitions(each.assignment)]
        for each in leader.assignments
    }
    assert assigned == {"m1": [("a", 0)], "m2": [("a", 1), ("b", 0)]}
    assert leader.watched_topics == {"a", "b"}


def test_a_coordinator_that_has_an_assignment_gets_none() -> None:
    leader = leading(skip_assignment=True)
    leader.share({"a": 2, "b": 1}, RangeAssignor())
    assert leader.assignments == []
    assert leader.watched_topics == {"a", "b"}, "they are watched all the same"


def test_partitions_that_come_or_go_make_the_assignment_outdated() -> None:
    leader = leading()
    leader.share({"a": 2}, RangeAssignor())
    assert not leader.is_outdated
    leader.metadata_changed({"a": 2, "other": 9})
    assert not leader.is_outdated
    leader.metadata_changed({"a": 3})
    assert leader.is_outdated
    leader.metadata_changed({"a": 2, "b": 1})
    assert leader.is_outdated, "the topic b has come"
    leader.step_down()
    leader.metadata_changed({"a": 9})
    assert not leader.is_outdated
    assert leader.watched_topics == frozenset()


def test_another_generation_begins_without_assignments() -> None:
    leader = leading()
    leader.share({"a": 2}, RangeAssignor())
    leader.drop_assignments()
    assert leader.assignments == []
    assert leader.members_topics == frozenset()


def test_a_subscription_that_cannot_be_read_is_the_members_fault() -> None:
    response = generation(m1=("a",))
    response.members[0].metadata = b"\x00"
    with pytest.raises(RemoteProtocolError):
        GroupLeader().begin(response)
