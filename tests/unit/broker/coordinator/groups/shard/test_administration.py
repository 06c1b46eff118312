"""Describing and listing groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftrio.broker.coordinator.groups.shard.administration import listed_group
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import DescribedGroup
from tests.unit.broker.coordinator.groups.group_context import GroupContext


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()


def describe(context: GroupContext, *, api_version: int = 6) -> DescribedGroup:
    return context.shard.describe(context.group_id, api_version=api_version)


def test_describe_a_stable_group(context: GroupContext) -> None:
    """Members of a stable group are shown with metadata and assignment."""
    member = context.stable_group(client_id="kcat", client_host="/10.1.2.3")[0]
    described = describe(context)
    assert (described.error_code, described.error_message) == (ErrorCode.NONE, None)
    assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
    assert described.protocol_data == "range"
    (shown,) = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "kcat", "/10.1.2.3")
    assert (shown.member_metadata, shown.member_assignment) == (b"meta", f"for {member}".encode())


def test_describe_during_a_rebalance(context: GroupContext) -> None:
    """Members keep what they were assigned last; which protocol will rule is not known yet."""
    members = context.stable_group(2)
    context.send_join(members[0])
    described = describe(context)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {m.member_id: m.member_assignment for m in described.members} == {
        member: f"for {member}".encode() for member in members
    }
    assert {m.member_metadata for m in described.members} == {b""}


def test_describe_a_group_of_offsets(context: GroupContext) -> None:
    """A group that only stores offsets is Empty and has no protocol type."""
    context.commit_offset()
    described = describe(context)
    assert (described.group_state, described.protocol_type) == ("Empty", "")


@pytest.mark.parametrize(
    ("api_version", "code", "message"),
    [
        (0, ErrorCode.NONE, None),
        (5, ErrorCode.NONE, None),
        (6, ErrorCode.GROUP_ID_NOT_FOUND, "Group group not found."),
    ],
)
def test_describe_an_unknown_group(
    context: GroupContext, api_version: int, code: ErrorCode, message: str | None
) -> None:
    """An unknown group is Dead without error up to v5, and an error from v6."""
    described = describe(context, api_version=api_version)
    assert (described.error_code, described.error_message) == (code, message)
    assert described.group_state == "Dead"


def test_classic_groups_are_no_consumer_groups(context: GroupContext) -> None:
    """Nor of any other kind; a request for those is refused with the reason."""
    shard = context.shard
    finders: dict[str, Callable[[str], object]] = {
        "consumer": shard.consumer.find, "share": shard.share.find, "streams": shard.streams.find
    }  # fmt: skip
    for find in finders.values():
        with pytest.raises(KafkaError, match=r"Group group not found\.$"):
            find("group")
    context.stable_group()
    for name, find in finders.items():
        with pytest.raises(KafkaError, match=rf"Group group is not a {name} group\.$") as refused:
            find("group")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_list_groups(context: GroupContext) -> None:
    """All groups are listed with type and state, those with only offsets included."""
    context.stable_group()
    context.group_id = "simple"
    context.commit_offset()
    listed = {g.group_id: listed_group(g) for g in context.shard.choose([], [])}
    assert (listed["group"].protocol_type, listed["group"].group_state) == ("consumer", "Stable")
    assert (listed["simple"].protocol_type, listed["simple"].group_state) == ("", "Empty")
    assert {g.group_type for g in listed.values()} == {"classic"}


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (["Stable"], [], ["group"]),
        (["stable", " EMPTY "], [], ["group", "simple"]),
        (["Dead"], [], []),
        ([], ["classic"], ["group", "simple"]),
        ([], ["Classic", "consumer"], ["group", "simple"]),
        ([], ["consumer"], []),
        ([], [" classic"], []),
        (["Empty"], ["classic"], ["simple"]),
    ],
)
def test_list_filters(
    context: GroupContext, states: list[str], types: list[str], expected: list[str]
) -> None:
    """States and types filter without regard to case; both must fit."""
    context.stable_group()
    context.group_id = "simple"
    context.commit_offset()
    assert [g.group_id for g in context.shard.choose(states, types)] == expected
