"""States of a group are asked for one by one; the group is notified once, of all of them."""

from __future__ import annotations

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.groups.share.ports import StatesToInitialize
from kraftrio.broker.coordinator.share_initializer import Codes, ShareStateInitializer
from kraftrio.broker.share_state import SharePartitionKey
from kraftrio.wire.errors import ErrorCode

A, B = b"a" * 16, b"b" * 16
STATES = StatesToInitialize("g", 4, {A: {0: -1, 1: 5}, B: {0: 7}})
NONE, FAILED = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Coordinators:
    """Writes down what is asked; the test answers."""

    def __init__(self) -> None:
        self.asked: dict[SharePartitionKey, tuple[int, int]] = {}
        self.answers: list[Deferred[ErrorCode]] = []

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Deferred[ErrorCode]:
        self.asked[key] = state_epoch, start_offset
        self.answers.append(Deferred())
        return self.answers[-1]


def test_the_group_is_notified_once_all_have_answered(caplog: pytest.LogCaptureFixture) -> None:
    coordinators = Coordinators()
    initializer = ShareStateInitializer(coordinators)
    reported: list[tuple[StatesToInitialize, Codes]] = []
    initializer.when_initialized(lambda states, codes: reported.append((states, codes)))
    initializer.initialize(STATES)
    assert coordinators.asked == {
        ("g", A, 0): (4, -1),
        ("g", A, 1): (4, 5),
        ("g", B, 0): (4, 7),
    }
    first, second, third = coordinators.answers
    third.complete(FAILED)
    first.complete(NONE)
    assert reported == []
    second.complete(NONE)
    assert reported == [(STATES, {(A, 0): NONE, (A, 1): NONE, (B, 0): FAILED})]
    assert caplog.messages == ["share partitions not initialized"]


def test_many_are_asked_for_some_at_a_time() -> None:
    """The next ones once the former are answered: no turn is taken by thousands of them."""
    coordinators = Coordinators()
    states = StatesToInitialize("g", 1, {A: dict.fromkeys(range(1_200), -1)})
    asked = ShareStateInitializer(coordinators).ask(states)
    for count in (500, 1_000, 1_200):
        assert len(coordinators.asked) == count
        assert not asked.done
        answers, coordinators.answers = coordinators.answers, []
        for answer in answers:
            answer.complete(NONE)
    assert asked.value == {(A, index): NONE for index in range(1_200)}


def test_nothing_to_initialize_is_done_at_once() -> None:
    initializer = ShareStateInitializer(Coordinators())
    assert initializer.ask(StatesToInitialize("g", 1, {})).value == {}
