"""Members of a group, one and several, against a small scripted coordinator."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftrio.clients.consumer.membership.assignors import (
    MemberSubscription,
    RangeAssignor,
    assignment_bytes,
)
from kraftrio.clients.consumer.membership.member_state import ClassicMemberState
from kraftrio.clients.consumer.membership.membership import Membership
from kraftrio.clients.consumer.membership.requests import MembershipConfig
from kraftrio.clients.consumer.membership.steps import (
    Complete,
    Join,
    Prepare,
    ShareOut,
    Sync,
    WaitUntil,
)
from kraftrio.clients.errors import (
    FencedInstanceIdError,
    GroupAuthorizationError,
    KafkaClientError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    SyncGroupResponse,
)
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.consumer.membership.group_context import (
    ASSIGNORS,
    Coordinator,
    Member,
    check_owners,
    settle,
)

COUNTS = {"a": 4, "b": 3}


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def joined_as_leader(core: Membership, member_id: str = "m1") -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=7,
        protocol_type="consumer",
        protocol_name="range",
        leader=member_id,
        member_id=member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member_id, metadata=MemberSubscription(("a",)).encode()
            )
        ],
    )


def alone(**config: Any) -> Membership:
    core = Membership(MembershipConfig(group_id="g", **config), [RangeAssignor()], random.Random(1))
    core.liveness.polled(0)
    core.subscribe(frozenset({"a"}))
    return core


def stable(**config: Any) -> Membership:
    """A member that owns a-0 in generation 7."""
    core = alone(**config)
    assert isinstance(core.step(0), Prepare)
    core.prepared()
    assert isinstance(core.step(0), Join)
    core.joined(joined_as_leader(core), 0)
    assert core.step(0) == ShareOut(frozenset({"a"}))
    core.shared({"a": 1})
    assert isinstance(core.step(0), Sync)
    core.synced(SyncGroupResponse(assignment=assignment_bytes(partitions("a", 0))), 0)
    step = core.step(0)
    assert isinstance(step, Complete)
    assert step.assigned == step.added == frozenset(partitions("a", 0))
    core.completed()
    assert core.state is ClassicMemberState.STABLE
    return core


# -- alone ----------------------------------------------------------------------------------------


def test_no_member_joins_before_the_first_poll() -> None:
    """A program that has subscribed but does not poll is not a member."""
    core = Membership(MembershipConfig(group_id="g"), [RangeAssignor()], random.Random(1))
    core.subscribe(frozenset({"a"}))
    assert core.step(10_000_000) == WaitUntil(None)
    core.liveness.polled(10_000_000)
    assert isinstance(core.step(10_000_000), Prepare)


def test_a_step_is_repeated_until_it_is_done() -> None:
    """Asking again changes nothing."""
    core = alone()
    core.step(0)
    core.prepared()
    first, second = core.step(0), core.step(0)
    assert isinstance(first, Join) and isinstance(second, Join)
    assert first.request == second.request


def test_joins_again_with_the_id_it_is_given() -> None:
    """KIP-394: the first answer only hands out the member's id."""
    core = alone()
    core.step(0)
    core.prepared()
    core.joined(
        JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m9", protocol_name=""
        ),
        0,
    )
    step = core.step(0)
    assert isinstance(step, Join)
    assert step.request.member_id == "m9"


def test_join_request_says_what_the_member_wants() -> None:
    """Timeouts, protocols in the order of preference, and why."""
    core = alone(session_timeout_ms=9_000, max_poll_interval_ms=60_000, group_instance_id="i1")
    core.step(0)
    core.prepared()
    step = core.step(0)
    assert isinstance(step, Join)
    request = step.request
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (9_000, 60_000)
    assert (request.group_instance_id, request.protocol_type) == ("i1", "consumer")
    [protocol] = request.protocols
    assert protocol.name == "range"
    assert MemberSubscription.decode(protocol.metadata).topics == ("a",)
    assert request.reason


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ],
)
def test_backs_off_where_the_coordinator_has_to_settle(code: ErrorCode) -> None:
    """It joins again later, and later still the next time."""
    core = alone()
    core.step(0)
    core.prepared()
    waits: list[float] = []
    now = 0.0
    for _ in range(3):
        core.joined(JoinGroupResponse(error_code=code, protocol_name=""), now)
        step = core.step(now)
        assert isinstance(step, WaitUntil) and step.until_ms is not None
        waits.append(step.until_ms - now)
        now = step.until_ms
        assert isinstance(core.step(now), Join)
    assert 80 <= waits[0] <= 120 and 160 <= waits[1] <= 240 and 320 <= waits[2] <= 480


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
    ],
)
def test_what_cannot_be_repaired_is_raised_each_time(code: ErrorCode) -> None:
    """The member has failed, and says why."""
    core = alone()
    core.step(0)
    core.prepared()
    core.joined(JoinGroupResponse(error_code=code, protocol_name=""), 0)
    for _ in range(2):
        with pytest.raises(KafkaClientError) as failure:
            core.step(0)
        assert failure.value.code == code
    assert core.leave() is None
    assert core.recover() is (code == ErrorCode.GROUP_AUTHORIZATION_FAILED)


def test_a_lack_of_rights_may_end() -> None:
    """The member joins again; what it owned is lost."""
    core = alone()
    core.step(0)
    core.prepared()
    refused = JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, protocol_name="")
    for _ in range(2):
        core.joined(refused, 0)
        with pytest.raises(GroupAuthorizationError):
            core.step(0)
        assert core.recover()
        assert core.failure is None
        assert isinstance(core.step(0), Prepare)
        core.prepared()
        assert isinstance(core.step(0), Join)


def test_a_protocol_that_was_not_offered_is_refused() -> None:
    """So is a group that is not one of consumers."""
    for change in ({"protocol_name": "sticky"}, {"protocol_type": "connect"}):
        core = alone()
        core.step(0)
        core.prepared()
        response = joined_as_leader(core)
        for name, value in change.items():
            setattr(response, name, value)
        core.joined(response, 0)
        with pytest.raises(KafkaClientError):
            core.step(0)


def test_sync_in_the_middle_of_another_rebalance_joins_again() -> None:
    """The member keeps its id and its generation."""
    core = alone()
    core.step(0)
    core.prepared()
    core.joined(joined_as_leader(core), 0)
    core.step(0)
    core.shared({"a": 1})
    core.synced(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 0)
    step = core.step(0)
    assert isinstance(step, Join)
    assert step.request.member_id == "m1"


def test_an_assignment_of_topics_no_longer_wanted_is_not_taken() -> None:
    """The subscription changed while it joined: it joins again with the new one."""
    core = alone()
    core.step(0)
    core.prepared()
    core.step(0)
    core.joined(joined_as_leader(core), 0)
    core.step(0)
    core.shared({"a": 1})
    core.subscribe(frozenset({"b"}))
    core.synced(SyncGroupResponse(assignment=assignment_bytes(partitions("a", 0))), 0)
    step = core.step(0)
    assert isinstance(step, Complete)
    assert not step.assigned
    core.completed()
    assert isinstance(core.step(0), Prepare)


def test_skip_assignment_keeps_a_static_leader_from_sharing_out() -> None:
    """KIP-814: the leader watches, but syncs without assignments."""
    core = alone(group_instance_id="i")
    core.step(0)
    core.prepared()
    response = joined_as_leader(core)
    response.skip_assignment = True
    core.joined(response, 0)
    core.step(0)
    core.shared({"a": 1})
    step = core.step(0)
    assert isinstance(step, Sync)
    assert step.request.assignments == []
    assert core.is_leader


# -- heartbeats and losing one's place ------------------------------------------------------------


def beat(core: Membership, now_ms: float) -> HeartbeatRequest:
    request = core.heartbeat(now_ms)
    assert isinstance(request, HeartbeatRequest)
    return request


def test_heartbeats_come_at_their_interval() -> None:
    """Not before, and again an interval later."""
    core = stable(heartbeat_interval_ms=3_000)
    assert core.next_heartbeat_ms == 3_000
    assert core.heartbeat(2_999) is None
    request = beat(core, 3_000)
    assert (request.generation_id, request.member_id) == (7, "m1")
    assert core.next_heartbeat_ms == 6_000


def test_a_heartbeat_that_failed_is_repeated_soon() -> None:
    """Also one that did not reach the coordinator; that one is to be looked up."""
    core = stable()
    beat(core, 3_000)
    core.liveness.heartbeat_failed(3_500)
    assert core.next_heartbeat_ms == 3_600
    request = beat(core, 3_600)
    assert not core.heartbeat_answered(request, ErrorCode.NOT_COORDINATOR, 3_700)
    assert core.next_heartbeat_ms == 3_800


def test_session_is_over_when_no_answer_came() -> None:
    """Then the coordinator is looked up, and has a session's time again."""
    core = stable(session_timeout_ms=10_000)
    request = beat(core, 3_000)
    core.heartbeat_answered(request, ErrorCode.NONE, 3_000)
    assert not core.session_is_over(13_000)
    assert core.session_is_over(13_001)
    core.liveness.coordinator_seen(13_001)
    assert not core.session_is_over(13_002)


def test_rebalance_reported_by_heartbeat() -> None:
    """An eager member gives up everything first, and keeps its heart beating meanwhile."""
    core = stable()
    request = beat(core, 3_000)
    assert core.heartbeat_answered(request, ErrorCode.REBALANCE_IN_PROGRESS, 3_000)
    step = core.step(3_000)
    assert step == Prepare(frozenset(partitions("a", 0)), lost=False)
    assert core.can_commit
    beat(core, 6_000)
    core.prepared()
    assert core.next_heartbeat_ms is None
    step = core.step(6_000)
    assert isinstance(step, Join)
    assert step.request.member_id == "m1"


@pytest.mark.parametrize(
    ("code", "keeps_id"),
    [(ErrorCode.ILLEGAL_GENERATION, True), (ErrorCode.UNKNOWN_MEMBER_ID, False)],
)
def test_thrown_out(code: ErrorCode, keeps_id: bool) -> None:
    """What the member owned is lost; it joins again, with its id if that is still good."""
    core = stable()
    core.heartbeat_answered(beat(core, 3_000), code, 3_000)
    assert not core.can_commit
    assert core.step(3_000) == Prepare(frozenset(partitions("a", 0)), lost=True)
    core.prepared()
    assert not core.owned
    step = core.step(3_000)
    assert isinstance(step, Join)
    assert step.request.member_id == ("m1" if keeps_id else "")


def test_an_old_heartbeat_removes_no_member() -> None:
    """Its answer is about a generation that is over."""
    core = stable()
    old = beat(core, 3_000)
    core.generation_id = 8
    core.heartbeat_answered(old, ErrorCode.ILLEGAL_GENERATION, 3_000)
    assert core.state is ClassicMemberState.STABLE


def test_another_one_in_its_place() -> None:
    """A static member that is fenced does not come back."""
    core = stable(group_instance_id="i")
    core.heartbeat_answered(beat(core, 3_000), ErrorCode.FENCED_INSTANCE_ID, 3_000)
    with pytest.raises(FencedInstanceIdError):
        core.step(3_000)
    core.refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert core.state is ClassicMemberState.FAILED


def test_who_does_not_poll_says_farewell() -> None:
    """After max_poll_interval_ms; he comes back with his next poll, and his partitions are lost."""
    core = stable(max_poll_interval_ms=60_000)
    beat(core, 60_000)
    assert core.liveness.poll_deadline_ms == 60_000
    farewell = core.heartbeat(60_001)
    assert isinstance(farewell, LeaveGroupRequest)
    assert [member.member_id for member in farewell.members] == ["m1"]
    assert core.step(60_001) == WaitUntil(None)
    core.liveness.polled(70_000)
    assert core.step(70_000) == Prepare(frozenset(partitions("a", 0)), lost=True)


def test_a_static_member_goes_without_a_word() -> None:
    """Its place is kept until the session is over."""
    core = stable(group_instance_id="i", max_poll_interval_ms=60_000)
    assert core.heartbeat(60_001) is None
    assert core.state is ClassicMemberState.UNJOINED
    assert stable(group_instance_id="i").leave() is None
    assert isinstance(stable().leave(), LeaveGroupRequest)


def test_thrown_out_while_it_gives_up() -> None:
    """What was to be revoked is lost by then; reporting the old step does no harm."""
    core = stable()
    core.heartbeat_answered(beat(core, 3_000), ErrorCode.REBALANCE_IN_PROGRESS, 3_000)
    revoked: Any = core.step(3_000)
    assert not revoked[1]
    core.heartbeat_answered(beat(core, 6_000), ErrorCode.UNKNOWN_MEMBER_ID, 6_000)
    core.prepared()  # of the step before
    assert core.step(6_000) == Prepare(frozenset(partitions("a", 0)), lost=True)


def test_the_leader_watches_partitions() -> None:
    """More of them make the group share out again; followers leave that to the leader."""
    core = stable()
    core.leader.metadata_changed({"a": 1, "other": 5})
    assert core.step(0) == WaitUntil(None)
    core.leader.metadata_changed({"a": 2})
    assert isinstance(core.step(0), Prepare)
    follower = stable()
    follower.is_leader = False
    follower.leader.metadata_changed({"a": 2})
    assert follower.step(0) == WaitUntil(None)


def test_leaving_owns_nothing_any_more() -> None:
    """And it can join again."""
    core = stable()
    assert core.leave() is not None
    core.forget_owned()
    assert core.step(0) == WaitUntil(None)
    core.subscribe(frozenset({"b"}))
    step = core.step(0)
    assert step == Prepare(frozenset(), lost=False)


def test_what_is_thrown_out_stays_the_member_that_its_partitions_were_given_to() -> None:
    """So that what it commits for them in a transaction is refused, not taken from nobody."""
    core = stable()
    owner = core.metadata
    assert core.owner == owner and owner.generation_id > 0 and owner.member_id
    core.refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert core.metadata.generation_id == -1
    assert core.owner == owner


# -- together -------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignors", sorted(ASSIGNORS))
def test_two_members_share(assignors: str) -> None:
    """All partitions have one owner, also after the first has left."""
    coordinator = Coordinator()
    first = Member(coordinator, COUNTS, ["a", "b"], assignors)
    settle(first)
    assert len(first.owned) == 7
    second = Member(coordinator, COUNTS, ["a", "b"], assignors)
    settle(first, second)
    check_owners(first, second)
    assert len(first.owned) + len(second.owned) == 7
    assert min(len(first.owned), len(second.owned)) >= 3
    first.leave()
    settle(second)
    assert len(second.owned) == 7


def test_eager_members_give_up_everything() -> None:
    """They are given all partitions each time."""
    coordinator = Coordinator()
    first = Member(coordinator, COUNTS, ["a"])
    settle(first)
    second = Member(coordinator, COUNTS, ["a"])
    settle(first, second)
    assert first.log == [
        ("assigned", partitions("a", 0, 1, 2, 3)),
        ("revoked", partitions("a", 0, 1, 2, 3)),
        ("assigned", partitions("a", 0, 1)),
    ]


def test_cooperative_members_keep_what_they_can() -> None:
    """Only what moves is given up, in a rebalance of its own."""
    coordinator = Coordinator()
    first = Member(coordinator, COUNTS, ["a"], "cooperative")
    settle(first)
    second = Member(coordinator, COUNTS, ["a"], "cooperative")
    settle(first, second)
    assert first.log == [
        ("assigned", partitions("a", 0, 1, 2, 3)),
        ("revoked", partitions("a", 2, 3)),
        ("assigned", []),
        ("assigned", []),
    ]
    assert second.owned == frozenset(partitions("a", 2, 3))
    assert coordinator.generation == 3


def test_cooperative_member_gives_up_topics_before_it_joins() -> None:
    """Those that it no longer wants."""
    member = Member(Coordinator(), COUNTS, ["a", "b"], "cooperative")
    settle(member)
    member.core.subscribe(frozenset({"b"}))
    settle(member)
    assert member.log[1:] == [
        ("revoked", partitions("a", 0, 1, 2, 3)),
        ("assigned", []),
    ]
    assert member.owned == frozenset(partitions("b", 0, 1, 2))


@pytest.mark.parametrize("assignors", sorted(ASSIGNORS))
@pytest.mark.parametrize("seed", range(25))
def test_one_owner_whatever_happens(assignors: str, seed: int) -> None:
    """Members come, go, are thrown out and change their minds, at any point of a rebalance."""
    rng = random.Random(seed)
    coordinator = Coordinator()
    counts = dict(COUNTS)
    members = [Member(coordinator, counts, ["a", "b"], assignors)]
    for _ in range(300):
        dice = rng.random()
        member = rng.choice(members)
        if dice < 0.80:
            member.step()
        elif dice < 0.93:
            member.beat()
        elif dice < 0.95 and len(members) < 5:
            members.append(Member(coordinator, counts, ["a", "b"], assignors))
        elif dice < 0.96 and len(members) > 1 and not member.is_waiting:
            member.leave()
            members.remove(member)
        elif dice < 0.97 and not member.is_waiting:
            coordinator.throw_out(member.core.member_id)
        elif dice < 0.985:
            topics = rng.choice([["a"], ["b"], ["a", "b"]])
            member.core.subscribe(frozenset(topics))
        else:
            counts["a"] += 1
            for each in members:
                each.core.leader.metadata_changed(counts)
        check_owners(*members)
    for member in members:
        member.core.subscribe(frozenset({"a", "b"}))
    settle(*members)
    check_owners(*members)
    assert sum(len(member.owned) for member in members) == sum(counts.values())
