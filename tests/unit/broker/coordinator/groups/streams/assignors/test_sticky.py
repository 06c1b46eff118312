"""The assignor `sticky`, against recorded decisions of Kafka's, and where nobody is there."""

from __future__ import annotations

import time

import pytest

from kraftrio.broker.coordinator.groups.streams.assignors.spec import (
    StreamsMemberSpec,
    SubtopologySpec,
    TaskAssignmentSpec,
    TaskAssignorError,
)
from kraftrio.broker.coordinator.groups.streams.assignors.sticky import StickyTaskAssignor
from kraftrio.broker.coordinator.groups.streams.tasks import NO_TASKS
from tests.unit.broker.coordinator.groups.streams.assignors.task_assignor_cases import (
    RECORDED,
    check_case,
    parse_case,
)


def test_recorded_cases() -> None:
    """Input by input what Apache Kafka decides, with standbys, growth, and members that go."""
    cases = [parse_case(line) for line in RECORDED.read_text().splitlines()]
    assert len(cases) == 200
    assert any(case.spec.standby_replica_count > 1 for case in cases)
    assert max(len(case.spec.members) for case in cases) > 5
    for number, case in enumerate(cases):
        try:
            check_case(case)
        except AssertionError as error:
            raise AssertionError(f"case {number}: {case}") from error


def test_tasks_without_members_are_refused() -> None:
    """There is nobody to give a task to."""
    spec = TaskAssignmentSpec({}, {"0": SubtopologySpec(2, is_stateful=False)}, 0)
    with pytest.raises(TaskAssignorError, match="No process available to assign active task 0_0"):
        StickyTaskAssignor().assign(spec)
    assert StickyTaskAssignor().assign(TaskAssignmentSpec({}, {}, 1)) == {}


def test_nothing_moves_that_need_not() -> None:
    """A second computation of the same group changes nothing."""
    members = {f"m{n}": StreamsMemberSpec(f"p{n // 2}", NO_TASKS) for n in range(6)}
    subtopologies = {"0": SubtopologySpec(12, is_stateful=True), "1": SubtopologySpec(6, False)}
    first = StickyTaskAssignor().assign(TaskAssignmentSpec(members, subtopologies, 1))
    settled = {name: StreamsMemberSpec(members[name].process_id, first[name]) for name in members}
    assert StickyTaskAssignor().assign(TaskAssignmentSpec(settled, subtopologies, 1)) == first


def test_large_groups_take_no_longer_than_their_size() -> None:
    """1,000 members with 1,000 tasks are shared out in 15 ms on a quiet machine."""
    members = {f"member-{n}": StreamsMemberSpec(f"process-{n // 4}", NO_TASKS) for n in range(1000)}
    subtopologies = {"0": SubtopologySpec(1000, is_stateful=False)}
    spec = TaskAssignmentSpec(members, subtopologies, 0)
    assert min(_cpu_seconds(spec) for _ in range(3)) < 0.1


def _cpu_seconds(spec: TaskAssignmentSpec) -> float:
    began = time.process_time()
    StickyTaskAssignor().assign(spec)
    return time.process_time() - began
