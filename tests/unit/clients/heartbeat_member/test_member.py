"""Members that live by heartbeats: one with scripted answers, several with a small coordinator."""

from __future__ import annotations

import random

import pytest

from kraftrio.clients.errors import (
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    KafkaClientError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from kraftrio.clients.heartbeat_member.member import HeartbeatMember, Idle, Lose, Reconcile
from kraftrio.clients.heartbeat_member.states import HeartbeatMemberState
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import ConsumerGroupHeartbeatRequest
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.heartbeat_member.epoch_group import (
    INTERVAL_MS,
    A,
    B,
    Coordinator,
    Member,
    answer,
    check_owners,
    core,
    refusal,
)


def parts(topic: str, *partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for partition in partitions)


def beat(member: HeartbeatMember, now_ms: float) -> ConsumerGroupHeartbeatRequest:
    request = member.heartbeat(now_ms)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    return request


def reconcile(member: HeartbeatMember) -> Reconcile:
    step = member.step(0)
    assert isinstance(step, Reconcile)
    assert member.revoked(step)
    member.reconciled(step)
    return step


def stable() -> HeartbeatMember:
    """A member that owns a-0 and a-1 in epoch 1, as the coordinator knows."""
    member, _ = core()
    assert member.step(0) == Idle()
    member.heartbeat_answered(beat(member, 0), answer(1, {A: [0, 1]}), 0)
    reconcile(member)
    member.heartbeat_answered(beat(member, 0), answer(1), 0)
    assert member.state is HeartbeatMemberState.STABLE
    return member


def test_no_member_joins_before_the_first_poll() -> None:
    """A program that has subscribed but does not poll is not a member."""
    member, _ = core(max_poll_interval_ms=10)
    assert member.step(10_000) == Idle()
    assert member.heartbeat(10_000) is None and member.next_heartbeat_ms is None
    member.polled(10_000)
    member.step(10_000)
    assert beat(member, 10_000).member_epoch == 0


def test_takes_over_what_it_is_assigned_and_says_so_at_once() -> None:
    """The acknowledgement does not wait for the interval; then heartbeats have no news."""
    member, _ = core()
    member.step(0)
    joining = beat(member, 0)
    assert (joining.member_id, joining.member_epoch, joining.topic_partitions) == ("m", 0, [])
    assert member.heartbeat(0) is None, "one is under way"
    member.heartbeat_answered(joining, answer(3, {A: [0, 1]}), 0)
    step = reconcile(member)
    assert step.assigned == step.added == member.owned == parts("a", 0, 1)
    assert member.next_heartbeat_ms == 0
    sent = beat(member, 0)
    assert sent.member_epoch == 3 and sent.topic_partitions is not None
    assert [(each.topic_id, each.partitions) for each in sent.topic_partitions] == [(A, [0, 1])]
    member.heartbeat_answered(sent, answer(3), 0)
    assert member.next_heartbeat_ms == INTERVAL_MS
    quiet = beat(member, INTERVAL_MS)
    assert quiet == ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)


def test_an_empty_assignment_calls_the_listener_too() -> None:
    """A member that gets nothing has been through a rebalance all the same."""
    member, _ = core()
    member.step(0)
    member.heartbeat_answered(beat(member, 0), answer(1, {}), 0)
    step = reconcile(member)
    assert step.assigned == step.added == step.revoked == frozenset()


def test_gives_up_before_it_takes_over() -> None:
    """What the coordinator takes away goes first, also where something new comes with it."""
    member = stable()
    member.heartbeat_answered(beat(member, INTERVAL_MS), answer(2, {A: [1, 2]}), INTERVAL_MS)
    step = member.step(0)
    assert isinstance(step, Reconcile)
    assert (step.revoked, step.added) == (parts("a", 0), parts("a", 2))
    assert member.step(0) == step, "a step is repeated until it is done"
    assert member.revoked(step) and member.owned == parts("a", 1)
    member.reconciled(step)
    assert member.owned == parts("a", 1, 2)


def test_heartbeats_go_on_while_the_application_does_not_poll() -> None:
    """A newer assignment that comes meanwhile is reconciled after the one that has begun."""
    member = stable()
    member.heartbeat_answered(beat(member, INTERVAL_MS), answer(2, {A: [1]}), INTERVAL_MS)
    step = member.step(0)
    assert isinstance(step, Reconcile)
    later = beat(member, 2 * INTERVAL_MS)
    assert later.topic_partitions is None, "nothing is given up yet"
    member.heartbeat_answered(later, answer(3, {A: [1, 5]}), 2 * INTERVAL_MS)
    assert member.revoked(step)
    member.reconciled(step)
    sent = beat(member, 2 * INTERVAL_MS)
    assert sent.topic_partitions is not None and sent.topic_partitions[0].partitions == [1]
    assert member.state is HeartbeatMemberState.RECONCILING
    assert reconcile(member).added == parts("a", 5)


def test_an_assignment_that_is_what_it_owns_needs_no_reconciling() -> None:
    member = stable()
    member.heartbeat_answered(beat(member, INTERVAL_MS), answer(2, {A: [0, 1]}), INTERVAL_MS)
    assert member.step(0) == Idle() and member.state is HeartbeatMemberState.STABLE
    assert member.member_epoch == 2


def test_topics_without_a_name_wait_for_metadata() -> None:
    """The others are reconciled already."""
    names = {A: "a"}
    member, _ = core(names=names)
    member.step(0)
    member.heartbeat_answered(beat(member, 0), answer(1, {A: [0], B: [0]}), 0)
    assert reconcile(member).assigned == parts("a", 0)
    member.heartbeat_answered(beat(member, 0), answer(1), 0)
    assert member.step(0) == Idle(lacks_names=True)
    names[B] = "b"
    assert reconcile(member).added == parts("b", 0)
    sent = beat(member, 0)
    assert sent.topic_partitions is not None and len(sent.topic_partitions) == 2
    assert member.state is HeartbeatMemberState.STABLE


def test_a_topic_that_was_re_created_is_another_one() -> None:
    """Its partitions stay, by their names; the coordinator is sent the new id."""
    names = {A: "a", B: "a"}
    member, _ = core(names=names)
    member.step(0)
    member.heartbeat_answered(beat(member, 0), answer(1, {A: [0]}), 0)
    reconcile(member)
    member.heartbeat_answered(beat(member, 0), answer(2, {B: [0]}), 0)
    step = reconcile(member)
    assert (step.added, step.revoked) == (frozenset(), frozenset())
    sent = beat(member, 0)
    assert sent.topic_partitions is not None and sent.topic_partitions[0].topic_id == B


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_who_is_fenced_has_lost_everything_and_joins_again(code: ErrorCode) -> None:
    """With the same id and epoch 0, once it has given up what it owned."""
    member = stable()
    member.heartbeat_answered(beat(member, INTERVAL_MS), refusal(code), INTERVAL_MS)
    assert not member.can_commit
    assert member.next_heartbeat_ms is None
    assert member.step(0) == Lose(parts("a", 0, 1))
    member.lost()
    assert member.step(0) == Idle()
    joining = beat(member, INTERVAL_MS)
    assert (joining.member_id, joining.member_epoch, joining.topic_partitions) == ("m", 0, [])
    assert joining.subscribed_topic_names == ["a"]


def test_fenced_in_the_middle_of_reconciling() -> None:
    """What it had begun does not count; what is left is lost."""
    member = stable()
    member.heartbeat_answered(beat(member, INTERVAL_MS), answer(2, {A: [1, 2]}), INTERVAL_MS)
    step = member.step(0)
    assert isinstance(step, Reconcile)
    fenced = refusal(ErrorCode.FENCED_MEMBER_EPOCH)
    member.heartbeat_answered(beat(member, 2 * INTERVAL_MS), fenced, 0)
    assert not member.revoked(step)
    assert member.step(0) == Lose(parts("a", 1))


def test_a_join_that_is_refused_like_that_is_not_repeated_at_once() -> None:
    member, _ = core()
    member.step(0)
    member.heartbeat_answered(beat(member, 0), refusal(ErrorCode.UNKNOWN_MEMBER_ID), 0)
    member.step(0)
    assert member.heartbeat(0) is None
    assert beat(member, 130).member_epoch == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_coordinator_that_moves_is_asked_again(code: ErrorCode) -> None:
    """Soon, with everything that it may not know, and the member keeps what it owns."""
    member = stable()
    member.heartbeat_answered(beat(member, INTERVAL_MS), refusal(code), INTERVAL_MS)
    assert member.can_commit and member.step(0) == Idle()
    assert member.heartbeat(INTERVAL_MS + 50) is None
    again = beat(member, INTERVAL_MS + 130)
    assert (again.member_epoch, again.subscribed_topic_names) == (1, ["a"])
    assert again.topic_partitions is not None and again.topic_partitions[0].partitions == [0, 1]


def test_a_lack_of_rights_may_end() -> None:
    """The member joins again; what it owned is lost. Other failures stay."""
    member = stable()
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    member.heartbeat_answered(beat(member, INTERVAL_MS), refusal(code), INTERVAL_MS)
    with pytest.raises(GroupAuthorizationError):
        member.step(INTERVAL_MS)
    assert member.recover() and not member.recover()
    assert isinstance(member.step(INTERVAL_MS), Lose)
    member.lost()
    assert member.step(INTERVAL_MS) == Idle()
    assert beat(member, INTERVAL_MS).member_epoch == 0
    member.fail(ErrorCode.UNSUPPORTED_ASSIGNOR, "no such assignor")
    assert not member.recover()


def test_lost_answers_are_asked_for_again_with_pauses_that_grow() -> None:
    """The coordinator may not have received it: all is sent again."""
    member = stable()
    now, pauses = float(INTERVAL_MS), []
    for _ in range(4):
        request = beat(member, now)
        member.heartbeat_failed(request, now)
        due = member.next_heartbeat_ms
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == sorted(pauses) and 80 <= pauses[0] <= 120 and pauses[-1] >= 640
    assert beat(member, now).subscribed_topic_names == ["a"]


def test_answers_to_what_was_asked_before_are_ignored() -> None:
    """The member was closed, or has given the question up."""
    member = stable()
    request = beat(member, INTERVAL_MS)
    member.heartbeat_failed(request, INTERVAL_MS)
    member.heartbeat_answered(request, answer(9, {A: []}), INTERVAL_MS)
    assert member.member_epoch == 1
    member.leave()
    member.heartbeat_failed(request, INTERVAL_MS)
    assert member.state is HeartbeatMemberState.UNSUBSCRIBED


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (ErrorCode.UNSUPPORTED_ASSIGNOR, UnsupportedAssignorError),
        (ErrorCode.UNRELEASED_INSTANCE_ID, UnreleasedInstanceIdError),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, InvalidRegularExpressionError),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError),
        (ErrorCode.UNSUPPORTED_VERSION, KafkaClientError),
    ],
)
def test_what_only_the_program_can_change(code: ErrorCode, raised: type[KafkaClientError]) -> None:
    """Each step raises it, with the coordinator's words; nothing more is sent."""
    member, _ = core()
    member.step(0)
    member.heartbeat_answered(beat(member, 0), refusal(code, "because"), 0)
    for _ in range(2):
        with pytest.raises(raised, match="the group 'g' refuses the member: because"):
            member.step(0)
    assert member.next_heartbeat_ms is None and member.leave() is None


def test_who_does_not_poll_leaves_and_comes_back_with_its_next_poll() -> None:
    """Another member may work on its partitions; it has lost them."""
    member = stable()
    member.polled(5)
    assert member.next_heartbeat_ms == INTERVAL_MS
    leaving = beat(member, 300_006)
    assert leaving.member_epoch == -1
    assert member.step(300_006) == Lose(parts("a", 0, 1))
    member.lost()
    assert member.step(300_006) == Idle() and member.next_heartbeat_ms is None
    member.polled(400_000)
    member.step(400_000)
    assert beat(member, 400_000).member_epoch == 0


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaves(instance_id: str | None, epoch: int) -> None:
    """A static member says that it comes back."""
    member, _ = core(instance_id=instance_id)
    assert member.leave() is None, "it has not joined yet"
    member.subscribe()
    member.step(0)
    member.heartbeat_answered(beat(member, 0), answer(1, {A: [0]}), 0)
    reconcile(member)
    request = member.leave()
    assert (request.member_epoch, request.instance_id) == (epoch, instance_id)
    assert member.owned == parts("a", 0)
    member.forget_owned()
    assert member.owned == frozenset()


def test_a_tenure_ends_with_the_partition_or_the_membership() -> None:
    """It outlives other epochs, and what happens to other partitions."""
    member = stable()
    both = parts("a", 0, 1)
    before, before_1 = member.tenure(both), member.tenure(parts("a", 1))
    member.heartbeat_answered(beat(member, INTERVAL_MS), answer(2, {A: [0, 1, 2]}), 0)
    reconcile(member)
    assert member.tenure(both) == before
    member.heartbeat_answered(beat(member, INTERVAL_MS), answer(3, {A: [1, 2]}), 0)
    reconcile(member)
    assert member.tenure(both) != before and member.tenure(parts("a", 1)) == before_1
    member.heartbeat_answered(beat(member, 0), answer(4, {A: [0, 1, 2]}), 0)
    reconcile(member)
    assert member.tenure(both) != before, "it was another's meanwhile"
    fenced = refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    member.heartbeat_answered(beat(member, 0), fenced, 0)
    assert member.tenure(parts("a", 1)) != before_1


# -- several --------------------------------------------------------------------------------------


def settle(*members: Member) -> None:
    quiet = 0
    for _ in range(300):
        moved = [member.step() for member in members]
        for member in members:
            member.beat()
        check_owners(*members)
        quiet = 0 if any(moved) else quiet + 1
        if quiet == 5:
            return
    raise AssertionError("the group does not settle")


@pytest.mark.parametrize("seed", range(30))
def test_partitions_have_one_owner_whatever_is_lost(seed: int) -> None:
    """Members come and go, are thrown out without knowing it, and answers are lost."""
    rng = random.Random(seed)
    group = Coordinator(7)
    members = [Member(group, f"m{number}") for number in range(3)]
    for number in range(120):
        member = rng.choice(members)
        chance = rng.random()
        if chance < 0.45:
            member.step()
        elif chance < 0.9:
            member.beat(loses_answer=rng.random() < 0.2)
        elif chance < 0.94:
            group.remove(member.core.member_id)  # a session that is over
        elif chance < 0.97 and len(members) < 5:
            members.append(Member(group, f"n{number}"))
        elif len(members) > 1:
            members.remove(member)
            request = member.core.leave()
            member.core.forget_owned()
            if request is not None:
                group.heartbeat(request)
        check_owners(*members)
    settle(*members)
    owned = sorted(each for member in members for each in member.owned)
    assert owned == list(range(7))
