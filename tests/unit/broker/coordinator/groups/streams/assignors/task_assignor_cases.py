"""What Kafka's task assignor decided, as tests/conformance/TaskAssignorVectors.java prints it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kraftrio.broker.coordinator.groups.streams.assignors.spec import (
    StreamsMemberSpec,
    SubtopologySpec,
    TaskAssignmentSpec,
)
from kraftrio.broker.coordinator.groups.streams.assignors.sticky import StickyTaskAssignor
from kraftrio.broker.coordinator.groups.streams.tasks import Tasks, task_sets

RECORDED = Path(__file__).with_name("vectors") / "sticky.jsonl"
RECORDED_ARGUMENTS = ("11", "40", "60")  # what made the file: seed, groups, most tasks


class Case(NamedTuple):
    """One rebalance of a group."""

    spec: TaskAssignmentSpec
    expected: Mapping[str, Tasks]


def parse_case(line: str) -> Case:
    """Read a line that the Java program prints."""
    standby_count, subtopologies, members = json.loads(line)
    spec = TaskAssignmentSpec(
        members={
            member_id: StreamsMemberSpec(process_id, _tasks(before))
            for member_id, process_id, before, _ in members
        },
        subtopologies={
            name: SubtopologySpec(task_count, bool(is_stateful))
            for name, (task_count, is_stateful) in subtopologies.items()
        },
        standby_replica_count=standby_count,
    )
    return Case(spec, {member_id: _tasks(after) for member_id, _, _, after in members})


def check_case(case: Case) -> None:
    """Ours decides the same, for each member."""
    assert dict(StickyTaskAssignor().assign(case.spec)) == case.expected


def _tasks(read: list[dict[str, Any]]) -> Tasks:
    active, standby = (task_sets(one.items()) for one in read)
    return Tasks(active, standby)
