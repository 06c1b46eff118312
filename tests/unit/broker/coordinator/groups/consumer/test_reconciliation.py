"""One step of a member towards its target: a table over states, targets and what it owns."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.consumer.reconciliation import ConsumerTarget, reconcile
from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember, Partitions
from kraftrio.broker.coordinator.groups.modern.member_state import MemberState
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import ConsumerGroupHeartbeatTopicPartitions

A, B = b"a" * 16, b"b" * 16
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState
Held = dict[int, int]


def step(
    state: MemberState,
    assigned: Held,
    target: set[int],
    *,
    pending: Held | None = None,
    owned: set[int] | None = None,
    held_by_others: set[int] = frozenset(),  # type: ignore[assignment]
    target_epoch: int = 11,
    subscribed: tuple[bytes, ...] = (A,),
    has_subscription_changed: bool = False,
) -> tuple[MemberState, int, int, Held, Held]:
    """Let a member of epoch 10 make a step: (state, epoch, previous, assigned, pending)."""
    member = ConsumerMember(
        "m",
        member_epoch=10,
        previous_member_epoch=9,
        state=state,
        assigned=_of_a(assigned),
        pending_revocation=_of_a(pending or {}),
    )
    names = None
    if owned is not None:
        names = [ConsumerGroupHeartbeatTopicPartitions(topic_id=A, partitions=sorted(owned))]
    moved = reconcile(
        member,
        ConsumerTarget(target_epoch, {A: frozenset(target)} if target else {}),
        frozenset(subscribed),
        names,
        has_subscription_changed=has_subscription_changed,
        is_owned=lambda _topic, index: index in held_by_others or index in (pending or {}),
    )
    return (
        moved.state,
        moved.member_epoch,
        moved.previous_member_epoch,
        dict(moved.assigned.get(A, {})),
        dict(moved.pending_revocation.get(A, {})),
    )


def _of_a(held: Held) -> Partitions:
    return {A: held} if held else {}


CASES: list[tuple[str, dict[str, Any], Any]] = [
    (
        "what is free is given at once, with the target's epoch",
        {"state": STABLE, "assigned": {1: 8}, "target": {1, 2}},
        (STABLE, 11, 10, {1: 8, 2: 11}, {}),
    ),
    (
        "what the target does not give is taken away first; it is not known what is owned",
        {"state": STABLE, "assigned": {1: 8, 2: 8}, "target": {2, 3}},
        (UNREVOKED, 10, 10, {2: 8}, {1: 8}),
    ),
    (
        "what is not owned need not be given up",
        {"state": STABLE, "assigned": {1: 8, 2: 8}, "target": {2, 3}, "owned": {2}},
        (STABLE, 11, 10, {2: 8, 3: 11}, {}),
    ),
    (
        "what others hold is waited for",
        {"state": STABLE, "assigned": {1: 8}, "target": {1, 2, 3}, "held_by_others": {2}},
        (UNRELEASED, 11, 10, {1: 8, 3: 11}, {}),
    ),
    (
        "nothing to do in the target's epoch",
        {"state": STABLE, "assigned": {1: 8}, "target": {1}, "target_epoch": 10},
        (STABLE, 10, 9, {1: 8}, {}),
    ),
    (
        "nothing moves before the member says what it owns",
        {"state": UNREVOKED, "assigned": {2: 8}, "pending": {1: 8}, "target": {2, 3}},
        (UNREVOKED, 10, 9, {2: 8}, {1: 8}),
    ),
    (
        "nor while it owns some of it",
        {
            "state": UNREVOKED,
            "assigned": {2: 8},
            "pending": {1: 8},
            "target": {2, 3},
            "owned": {1, 2},
        },
        (UNREVOKED, 10, 9, {2: 8}, {1: 8}),
    ),
    (
        "with everything given up it moves on",
        {"state": UNREVOKED, "assigned": {2: 8}, "pending": {1: 8}, "target": {2, 3}, "owned": {2}},
        (STABLE, 11, 10, {2: 8, 3: 11}, {}),
    ),
    (
        "what it has just given up is its again if the target says so",
        {"state": UNREVOKED, "assigned": {2: 8}, "pending": {1: 8}, "target": {1, 2}, "owned": {2}},
        (STABLE, 11, 10, {1: 11, 2: 8}, {}),
    ),
    (
        "what was waited for is free",
        {"state": UNRELEASED, "assigned": {1: 8}, "target": {1, 2}, "target_epoch": 10},
        (STABLE, 10, 10, {1: 8, 2: 10}, {}),
    ),
    (
        "what was waited for is still held",
        {
            "state": UNRELEASED,
            "assigned": {1: 8},
            "target": {1, 2},
            "held_by_others": {2},
            "target_epoch": 10,
        },
        (UNRELEASED, 10, 10, {1: 8}, {}),
    ),
    (
        "a topic that is not subscribed to any more is taken away before the next target",
        {
            "state": STABLE,
            "assigned": {1: 8},
            "target": {1},
            "target_epoch": 10,
            "subscribed": (B,),
            "has_subscription_changed": True,
        },
        (UNREVOKED, 10, 10, {}, {1: 8}),
    ),
    (
        "and is gone at once if the member owns nothing of it",
        {
            "state": STABLE,
            "assigned": {1: 8},
            "target": {1},
            "target_epoch": 10,
            "subscribed": (B,),
            "has_subscription_changed": True,
            "owned": set(),
        },
        (STABLE, 10, 10, {}, {}),
    ),
    (
        "the target gives nothing of a topic that is not subscribed to",
        {"state": STABLE, "assigned": {}, "target": {1}, "subscribed": (B,)},
        (STABLE, 11, 10, {}, {}),
    ),
    (
        "a state of a newer version ends once nothing is owned",
        {"state": UNKNOWN, "assigned": {1: 8}, "target": {1, 2}},
        ErrorCode.FENCED_MEMBER_EPOCH,
    ),
]


@pytest.mark.parametrize(("case", "given", "expected"), CASES, ids=[case[0] for case in CASES])
def test_steps(case: str, given: dict[str, Any], expected: Any) -> None:
    """State, member epoch, previous epoch, what the member has and what it has to give up."""
    del case
    if isinstance(expected, ErrorCode):
        with pytest.raises(KafkaError, match=expected.name):
            step(**given)
    else:
        assert step(**given) == expected
