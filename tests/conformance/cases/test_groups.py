"""Classic groups: rebalances, static members, and the error for each mistake."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.cases.calls import wait_for_coordinator
from tests.conformance.cases.members import (
    Member,
    alone,
    commit_code,
    commit_request,
    fetch_offset,
    subscription,
    together,
    wait_for_heartbeat,
)
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE

Connect = Callable[[], RawClient]


@pytest.fixture(scope="module", autouse=True)
def coordinator(broker: Broker) -> None:
    """Have the offsets topic before the first join."""
    with RawClient(broker.address) as client:
        wait_for_coordinator(client)


def describe(client: RawClient, group: str, version: int = 5) -> DescribedGroup:
    (found,) = client.call(DescribeGroupsRequest(groups=[group]), version).groups
    assert isinstance(found, DescribedGroup)
    return found


# Joining


@pytest.mark.parametrize("version", range(10))
def test_a_member_alone_in_every_version(
    client: RawClient, unique_group: Callable[[], str], version: int
) -> None:
    """It leads, sees itself, and gets back what it assigns; from version 4 its id comes first."""
    member = Member(client, unique_group())
    first = member.try_join(version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (first.generation_id, first.members) == (-1, [])
        assert first.member_id.startswith("raw-")
        first = member.try_join(version)
    assert (first.error_code, first.generation_id) == (NONE, 1)
    assert first.leader == first.member_id == member.member_id
    assert [(one.member_id, one.metadata) for one in first.members] == [
        (member.member_id, subscription("topic"))
    ]
    assert first.protocol_name == "range"
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    sync_version = min(version, 5)
    synced = member.sync({member.member_id: b"mine"}, sync_version)
    assert (synced.error_code, synced.assignment) == (NONE, b"mine")
    assert synced.protocol_name == ("range" if sync_version >= 5 else None)
    assert member.heartbeat(min(version, 4)) == NONE


def test_assignments_are_relayed_untouched(
    connect: Connect, unique_group: Callable[[], str]
) -> None:
    """Whatever bytes they are; a member that was left out gets an empty one."""
    group = unique_group()
    members = [Member(connect(), group) for _ in range(3)]
    responses = together(*members)
    leaders = {one.leader for one in responses}
    assert len(leaders) == 1
    (leader,) = [one for one in members if one.member_id in leaders]
    others = [one for one in members if one is not leader]
    listed = [len(one.members) for one in responses]
    assert sorted(listed) == [0, 0, 3]
    sent = others[0].client.send(others[0].sync_request(), 5)
    synced = leader.sync({leader.member_id: b"", others[0].member_id: b"\x00\xff any"})
    assert (synced.error_code, synced.assignment) == (NONE, b"")
    waited = others[0].client.receive(others[0].sync_request(), 5, sent)
    assert (waited.error_code, waited.assignment) == (NONE, b"\x00\xff any")
    late = others[1].sync()
    assert (late.error_code, late.assignment) == (NONE, b"")
    assert [one.heartbeat() for one in members] == [NONE] * 3


def test_the_protocol_that_all_have_wins(connect: Connect, unique_group: Callable[[], str]) -> None:
    """By the members' preferences; a member that shares none with the others is refused."""
    group = unique_group()
    some, other = subscription("a"), subscription("b")
    first = Member(connect(), group, protocols=(("range", other), ("sticky", some)))
    second = Member(connect(), group, protocols=(("sticky", other), ("other", some)))
    responses = together(first, second)
    assert {one.protocol_name for one in responses} == {"sticky"}
    (listed,) = [one.members for one in responses if one.members]
    assert {one.metadata for one in listed} == {some, other}
    alien = Member(connect(), group, protocols=(("mine", some),))
    assert alien.try_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other_type = Member(connect(), group, protocol_type="connect")
    assert other_type.try_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("protocol_type", ["connect", "sr", "anything"])
def test_protocol_types_are_opaque(
    client: RawClient, unique_group: Callable[[], str], protocol_type: str
) -> None:
    """Connect and schema registries use groups, too."""
    group = unique_group()
    alone(client, group, protocol_type=protocol_type, protocols=(("v0", b"\x01"),))
    found = describe(client, group)
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "Stable",
        protocol_type,
        "v0",
    )
    (member,) = found.members
    assert (member.member_metadata, member.member_assignment) == (b"\x01", b"all of it")
    assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 10}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 10_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "never seen"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
    ids=str,
)
def test_refused_joins(
    client: RawClient, unique_group: Callable[[], str], changes: dict[str, Any], code: ErrorCode
) -> None:
    """In the first version as in the last."""
    member = Member(client, **({"group": unique_group()} | changes))
    for version in (0, 9):
        assert member.try_join(version).error_code == code


# Rebalances


def test_a_new_member_starts_a_rebalance(
    connect: Connect, unique_group: Callable[[], str], new_topic: Callable[..., str]
) -> None:
    """The others learn it by their heartbeats, may still commit, and join again.

    Meanwhile each is described with what it was assigned last.
    """
    group, topic = unique_group(), new_topic()
    first = alone(connect(), group)
    second = Member(connect(), group)
    second.get_member_id()
    assert first.heartbeat() == NONE
    second.begin_join()
    wait_for_heartbeat(first, ErrorCode.REBALANCE_IN_PROGRESS)
    found = describe(first.client, group)
    assert found.group_state == "PreparingRebalance"
    assert {one.member_id: one.member_assignment for one in found.members} == {
        first.member_id: b"all of it",
        second.member_id: b"",
    }
    assert first.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.commit(topic, 1) == NONE
    first.begin_join()
    assert {first.end_join().generation_id, second.end_join().generation_id} == {2}
    found = describe(first.client, group)
    assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
    shown = {one.member_id: (one.member_metadata, one.member_assignment) for one in found.members}
    assert shown == {first.member_id: (b"", b"all of it"), second.member_id: (b"", b"")}
    assert first.sync({first.member_id: b"a", second.member_id: b"b"}).assignment == b"a"
    assert second.sync().assignment == b"b"


def test_a_leaving_member_starts_a_rebalance(
    connect: Connect, unique_group: Callable[[], str]
) -> None:
    """And the last one leaves an empty group behind."""
    group = unique_group()
    first, second = Member(connect(), group), Member(connect(), group)
    responses = together(first, second)
    leader, other = (first, second) if responses[0].members else (second, first)
    leader.sync({leader.member_id: b"a", other.member_id: b"b"})
    other.sync()
    (left,) = other.leave().members
    assert (left.member_id, left.error_code) == (other.member_id, NONE)
    assert other.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert [one.member_id for one in leader.try_join().members] == [leader.member_id]
    leader.leave()
    assert describe(leader.client, group).group_state == "Empty"


def test_a_pending_member_may_leave(connect: Connect, unique_group: Callable[[], str]) -> None:
    """Until then the others wait for it."""
    group = unique_group()
    first = alone(connect(), group)
    pending, second = Member(connect(), group), Member(connect(), group)
    pending.get_member_id()
    second.get_member_id()
    second.begin_join()
    wait_for_heartbeat(first, ErrorCode.REBALANCE_IN_PROGRESS)
    first.begin_join()
    assert second.client.is_silent(0.2)
    (left,) = pending.leave().members
    assert left.error_code == NONE
    assert second.end_join(timeout_s=5).error_code == NONE
    assert first.end_join(timeout_s=5).error_code == NONE


def test_wrong_generations_and_members(
    client: RawClient, unique_group: Callable[[], str], new_topic: Callable[..., str]
) -> None:
    """Of heartbeats, syncs, commits and leaves."""
    topic = new_topic()
    member = alone(client, unique_group())
    generation, member_id = member.generation, member.member_id
    member.generation = generation + 1
    assert member.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert member.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    assert member.commit(topic, 1) == ErrorCode.ILLEGAL_GENERATION
    member.generation, member.member_id = generation, "stranger"
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(topic, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    (left,) = member.leave().members
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    member.member_id = member_id
    assert member.heartbeat() == NONE


def test_strangers_to_a_group_that_does_not_exist(
    client: RawClient, unique_group: Callable[[], str], new_topic: Callable[..., str]
) -> None:
    """They are unknown members; a commit depends on its version."""
    member = Member(client, unique_group(), member_id="stranger", generation=3)
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request = commit_request(member.group, new_topic(), 1)
    request.generation_id_or_member_epoch, request.member_id = 3, "stranger"
    assert commit_code(client, request, 8) == ErrorCode.ILLEGAL_GENERATION
    assert commit_code(client, request, 9) == ErrorCode.GROUP_ID_NOT_FOUND
    for version in range(3):
        leaving = LeaveGroupRequest(group_id=member.group, member_id="stranger")
        assert client.call(leaving, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_of_another_protocol(client: RawClient, unique_group: Callable[[], str]) -> None:
    """From version 5 on a member says what it thinks was chosen (KIP-559)."""
    member = alone(client, unique_group())
    request = member.sync_request()
    request.protocol_name = "sticky"
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.call(request, 5).error_code == inconsistent
    request = member.sync_request()
    request.protocol_type = "connect"
    assert client.call(request, 5).error_code == inconsistent


def test_several_members_leave_in_one_request(
    connect: Connect, unique_group: Callable[[], str]
) -> None:
    """Each has its own answer."""
    group = unique_group()
    first, second = Member(connect(), group), Member(connect(), group, instance="static")
    together(first, second)
    request = LeaveGroupRequest(
        group_id=group,
        members=[
            MemberIdentity(member_id=first.member_id),
            MemberIdentity(member_id="", group_instance_id="static"),
            MemberIdentity(member_id="stranger"),
            MemberIdentity(member_id="", group_instance_id="nobody"),
        ],
    )
    response = first.client.call(request)
    assert response.error_code == NONE
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.error_code for one in response.members] == [NONE, NONE, unknown, unknown]
    assert describe(first.client, group).group_state == "Empty"


# Static members


def test_a_static_member_comes_back_without_a_rebalance(
    connect: Connect, unique_group: Callable[[], str]
) -> None:
    """Under a new id, with its old assignment; as leader it skips the assignment (version 9)."""
    group = unique_group()
    before = alone(connect(), group, instance="one")
    after = Member(connect(), group, instance="one")
    response = after.try_join()
    assert (response.error_code, response.generation_id) == (NONE, before.generation)
    assert after.member_id != before.member_id
    assert response.leader == after.member_id
    assert response.skip_assignment
    assert after.sync().assignment == b"all of it"
    assert describe(after.client, group).group_state == "Stable"
    old = Member(connect(), group, instance="one")
    joined = old.try_join(version=8)
    assert (joined.error_code, joined.skip_assignment) == (NONE, False)


def test_a_replaced_static_member_is_fenced(
    connect: Connect, unique_group: Callable[[], str], new_topic: Callable[..., str]
) -> None:
    """Whatever it tries: two processes were started under one name."""
    group, topic = unique_group(), new_topic()
    before = alone(connect(), group, instance="one")
    after = Member(connect(), group, instance="one")
    assert after.try_join().error_code == NONE
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert before.heartbeat() == fenced
    assert before.sync().error_code == fenced
    assert before.commit(topic, 1) == fenced
    assert before.try_join().error_code == fenced
    (left,) = before.leave().members
    assert left.error_code == fenced
    assert after.heartbeat() == NONE


def test_waiting_calls_of_a_replaced_static_member_end(
    connect: Connect, unique_group: Callable[[], str]
) -> None:
    """Its join that waits for the others is answered with the fence."""
    group = unique_group()
    other = alone(connect(), group)
    before, after = (Member(connect(), group, instance="one") for _ in range(2))
    before.begin_join()
    wait_for_heartbeat(other, ErrorCode.REBALANCE_IN_PROGRESS)
    after.begin_join()
    assert before.end_join().error_code == ErrorCode.FENCED_INSTANCE_ID
    other.begin_join()
    assert (other.end_join().error_code, after.end_join().error_code) == (NONE, NONE)


def test_a_static_member_returns_with_other_protocols(
    connect: Connect, unique_group: Callable[[], str]
) -> None:
    """Other metadata is only noted; if another protocol wins the group rebalances."""
    group, changed = unique_group(), subscription("other", "topics")
    alone(connect(), group, instance="one")
    after = Member(connect(), group, instance="one", protocols=(("range", changed),))
    response = after.try_join()
    assert (response.error_code, response.generation_id) == (NONE, 1)
    assert response.skip_assignment
    assert [one.metadata for one in response.members] == [changed]
    third = Member(
        connect(), group, instance="one", protocols=(("sticky", changed), ("range", changed))
    )
    response = third.try_join()
    assert (response.error_code, response.generation_id) == (NONE, 2)
    assert (response.protocol_name, response.skip_assignment) == ("sticky", False)


def test_unknown_instance_with_a_member_id(
    client: RawClient, unique_group: Callable[[], str]
) -> None:
    """A member id that the group never gave to anybody."""
    group = unique_group()
    alone(client, group)
    stranger = Member(client, group, instance="nobody", member_id="stranger", generation=1)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == unknown
    assert stranger.try_join().error_code == unknown


# Time


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with short sessions and an initial delay."""
    broker = start_broker(
        tmp_path_factory.mktemp("quick"),
        group_min_session_timeout_ms=100,
        group_initial_rebalance_delay_ms=400,
    )
    with RawClient(broker.address) as client:
        wait_for_coordinator(client)
    yield broker
    broker.close()


@pytest.fixture
def connect_quick(quick_broker: Broker) -> Iterator[Connect]:
    opened: list[RawClient] = []

    def connect() -> RawClient:
        opened.append(RawClient(quick_broker.address))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


def test_the_first_rebalance_waits_for_more_members(
    connect_quick: Connect, unique_group: Callable[[], str]
) -> None:
    """So that a fleet that starts together rebalances once."""
    group = unique_group()
    members = [Member(connect_quick(), group) for _ in range(5)]
    begin = time.monotonic()
    for member in members:
        member.get_member_id()
        member.begin_join()
        time.sleep(0.05)
    responses = [member.end_join() for member in members]
    assert {one.generation_id for one in responses} == {1}
    assert time.monotonic() - begin >= 0.4
    assert max(len(one.members) for one in responses) == 5


def test_a_silent_member_is_removed(
    connect_quick: Connect, unique_group: Callable[[], str]
) -> None:
    """After its session timeout; the others rebalance."""
    group = unique_group()
    silent = Member(connect_quick(), group, session_timeout_ms=600)
    other = Member(connect_quick(), group)
    together(silent, other)
    wait_until(lambda: other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    assert [one.member_id for one in other.try_join().members] == [other.member_id]
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member(connect_quick: Connect, unique_group: Callable[[], str]) -> None:
    """For longer than its session."""
    member = alone(connect_quick(), unique_group(), session_timeout_ms=400)
    for _ in range(8):
        time.sleep(0.1)
        assert member.heartbeat() == NONE


def test_a_pending_member_that_never_comes_is_forgotten(
    connect_quick: Connect, unique_group: Callable[[], str]
) -> None:
    """It holds the others up for no longer than its session."""
    group = unique_group()
    first, second = alone(connect_quick(), group), Member(connect_quick(), group)
    pending = Member(connect_quick(), group, session_timeout_ms=600)
    pending.get_member_id()
    second.get_member_id()
    second.begin_join()
    wait_for_heartbeat(first, ErrorCode.REBALANCE_IN_PROGRESS)
    begin = time.monotonic()
    first.begin_join()
    assert first.end_join().error_code == second.end_join().error_code == NONE
    assert 0.3 < time.monotonic() - begin < 5
    assert pending.try_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_misses_the_rebalance_timeout_is_left_out(
    connect_quick: Connect, unique_group: Callable[[], str]
) -> None:
    """A dynamic member; a static one stays."""
    group = unique_group()
    late = Member(connect_quick(), group, rebalance_timeout_ms=500)
    static = Member(connect_quick(), group, rebalance_timeout_ms=500, instance="one")
    together(late, static)
    third = Member(connect_quick(), group, rebalance_timeout_ms=500)
    third.get_member_id()
    third.begin_join()
    response = third.end_join(timeout_s=10)
    assert (response.error_code, response.generation_id) == (NONE, 3)
    listed = {one.member_id for one in describe(third.client, group).members}
    assert listed == {third.member_id, static.member_id}
    assert late.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_takes_its_new_timeouts_along(
    connect_quick: Connect, unique_group: Callable[[], str]
) -> None:
    """From its first heartbeat on its session has the new length."""
    group = unique_group()
    alone(connect_quick(), group, instance="one", session_timeout_ms=60_000)
    after = Member(connect_quick(), group, instance="one", session_timeout_ms=500)
    assert after.try_join().error_code == NONE
    assert after.heartbeat() == NONE
    wait_until(lambda: describe(after.client, group).group_state == "Empty")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Restarts


def test_groups_survive_a_restart(make_broker: Callable[..., Broker]) -> None:
    """Members go on with the same generation, and the number of partitions in use stays."""
    broker = make_broker(offsets_topic_num_partitions=3)
    with RawClient(broker.address) as client:
        wait_for_coordinator(client, "kept")
        member = alone(client, "kept", instance="one")
        for number in range(5):
            assert Member(client, f"plain-{number}").commit("__consumer_offsets", number) == NONE
    broker.config["offsets.topic.num.partitions"] = "7"
    broker.kill9()
    broker.start()
    with RawClient(broker.address) as client:
        wait_for_coordinator(client, "kept")
        member.client = client
        wait_until(lambda: member.heartbeat() == NONE)
        found = describe(client, "kept")
        assert found.group_state == "Stable"
        assert [one.group_instance_id for one in found.members] == ["one"]
        for number in range(5):
            fetched = fetch_offset(client, f"plain-{number}", "__consumer_offsets")
            assert fetched.committed_offset == number


def test_old_layout_of_offset_fetch(client: RawClient, unique_group: Callable[[], str]) -> None:
    """A group that has committed nothing has offset -1 and no error."""
    request = OffsetFetchRequest(
        group_id=unique_group(),
        topics=[OffsetFetchRequestTopic(name="whatever", partition_indexes=[0, 5])],
    )
    for version in range(1, 8):
        (topic,) = client.call(request, version).topics
        assert [
            (one.committed_offset, one.metadata, one.error_code) for one in topic.partitions
        ] == [(-1, "", NONE)] * 2
