"""The assignors against what Java's decided for the same members, and by hand where it matters."""

from __future__ import annotations

import pytest

from kraftrio.clients.consumer.membership.assignors import (
    ASSIGNORS,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    assignment_bytes,
    assignment_partitions,
    hash_order,
    java_hash,
)
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.consumer.membership.assignor_cases import (
    RECORDED,
    Case,
    check_case,
    parse_cases,
)

CASES = parse_cases(RECORDED.read_text().splitlines())


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def wants(*topics: str) -> MemberSubscription:
    return MemberSubscription(topics)


@pytest.mark.parametrize("case", CASES, ids=[f"{c.assignor}-{i}" for i, c in enumerate(CASES)])
def test_as_java(case: Case) -> None:
    """Every member is sent the same bytes as by Java's assignor."""
    check_case(case)


def test_recorded_cases_are_worth_their_file() -> None:
    """All four assignors are in it, sound cases, and those where members want different topics."""
    assert {case.assignor for case in CASES} == set(ASSIGNORS)
    assert sum(case.is_sound for case in CASES) > 90
    assert any(len({s.topics for s in case.members.values()}) > 1 for case in CASES)


def test_java_hash_codes() -> None:
    """Strings hash as Java's do, over UTF-16."""
    assert java_hash("") == 0
    assert java_hash("ab") == 31 * 97 + 98
    assert java_hash("\N{GRINNING FACE}") == 31 * 0xD83D + 0xDE00


def test_hash_order_grows_with_the_table() -> None:
    """Up to 12 names lie in 16 buckets, more in 32."""
    names = [chr(code) for code in range(97, 97 + 12)]  # hash codes 97..108 are buckets 1..12
    assert hash_order(reversed(names)) == names
    assert hash_order(["q", "a"]) == ["q", "a"]  # 113 and 97 share a bucket of 16
    more = [*names, "m"]
    assert hash_order([*more, "q"])[-1] == "q"


def test_range_deals_each_topic_apart() -> None:
    """The first members of each topic get one more, and only who wants it."""
    assigned = RangeAssignor().assign(
        {"a": 3, "b": 4}, {"m1": wants("a", "b"), "m2": wants("a", "b"), "m3": wants("b")}
    )
    assert assigned == {
        "m1": partitions("a", 0, 1) + partitions("b", 0, 1),
        "m2": partitions("a", 2) + partitions("b", 2),
        "m3": partitions("b", 3),
    }


def test_round_robin_skips_members_that_do_not_want_a_topic() -> None:
    """The turn goes on from topic to topic."""
    assigned = RoundRobinAssignor().assign(
        {"a": 1, "b": 3}, {"m1": wants("b"), "m2": wants("a", "b")}
    )
    assert assigned == {
        "m1": partitions("b", 0, 2),
        "m2": partitions("a", 0) + partitions("b", 1),
    }


def test_static_members_come_first() -> None:
    """Their order is that of the instance ids, so that a restart moves nothing."""
    members = {
        "z": MemberSubscription(("a",), group_instance_id="1"),
        "b": wants("a"),
        "y": MemberSubscription(("a",), group_instance_id="2"),
    }
    assert RangeAssignor().assign({"a": 3}, members) == {
        "z": partitions("a", 0),
        "y": partitions("a", 1),
        "b": partitions("a", 2),
    }


def test_a_topic_that_does_not_exist_is_left_out() -> None:
    """It has no partitions to assign, and disturbs no assignor."""
    for cls in ASSIGNORS.values():
        assert cls().assign({}, {"m": wants("gone")}) == {"m": []}


def test_cooperative_assigns_a_moving_partition_to_no_member_at_first() -> None:
    """A newcomer waits until the owner has given up its part."""
    old = MemberSubscription(
        ("a",), owned_partitions=tuple(partitions("a", 0, 1, 2)), generation_id=4
    )
    assigned = CooperativeStickyAssignor().assign({"a": 3}, {"old": old, "new": wants("a")})
    assert assigned == {"old": partitions("a", 0, 1), "new": []}
    kept = MemberSubscription(
        ("a",), owned_partitions=tuple(partitions("a", 0, 1)), generation_id=5
    )
    newcomer = MemberSubscription(("a",), generation_id=5)
    again = CooperativeStickyAssignor().assign({"a": 3}, {"old": kept, "new": newcomer})
    assert again == {"old": partitions("a", 0, 1), "new": partitions("a", 2)}


def test_user_data_is_remembered() -> None:
    """A sticky member sends its assignment, a cooperative one its generation."""
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert sticky.user_data(["a"]) is None
    assert cooperative.user_data(["a"]) == b"\xff\xff\xff\xff"
    for assignor in (sticky, cooperative):
        assignor.on_assignment(partitions("a", 7), 3)
    assert sticky.user_data(["a"]) == b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\7\0\0\0\3"
    assert cooperative.user_data(["a"]) == b"\0\0\0\3"


def test_user_data_that_cannot_be_read_counts_as_none() -> None:
    """A member with strange user data starts with nothing, and the others keep theirs."""
    good = StickyAssignor()
    good.on_assignment(partitions("a", 0), 3)
    members = {
        "good": MemberSubscription(("a",), good.user_data(["a"])),
        "bad": MemberSubscription(("a",), b"\x7f\xff\xff\xff"),
        "old": MemberSubscription(("a",), b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\1"),  # version 0
    }
    assigned = StickyAssignor().assign({"a": 3}, members)
    assert assigned["good"] == partitions("a", 0)
    assert sorted(assigned["bad"] + assigned["old"]) == partitions("a", 1, 2)


def test_subscription_of_bytes_that_are_none() -> None:
    """What is no subscription is the sender's fault."""
    with pytest.raises(RemoteProtocolError):
        MemberSubscription.decode(b"\0\3\0\0")


def test_an_empty_assignment_needs_no_bytes() -> None:
    """A member that gets nothing may be sent nothing at all."""
    assert assignment_partitions(b"") == []
    assert assignment_partitions(assignment_bytes([])) == []
