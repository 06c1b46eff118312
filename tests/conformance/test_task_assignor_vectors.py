"""Our task assignor against that of Apache Kafka's group coordinator, on random streams groups."""

from __future__ import annotations

import random
from pathlib import Path

from tests.conformance.java_programs import run_program, waits_for_java
from tests.unit.broker.coordinator.groups.streams.assignors.task_assignor_cases import (
    RECORDED,
    RECORDED_ARGUMENTS,
    check_case,
    parse_case,
)

PROGRAM = Path(__file__).with_name("TaskAssignorVectors.java")
GROUPS, MOST_TASKS = 300, 1000
pytestmark = waits_for_java


def print_cases(*arguments: str) -> list[str]:
    """Return the assignments of Apache Kafka's group coordinator."""
    return run_program(PROGRAM, *arguments)


def test_recorded_cases_are_what_java_decides() -> None:
    """What is in the file of the unit tests is what Java returns now."""
    assert print_cases(*RECORDED_ARGUMENTS) == RECORDED.read_text().splitlines()


def test_random_groups() -> None:
    """A new seed each time, so that every run tries other groups, of up to 100 members."""
    seed = random.SystemRandom().randrange(1 << 31)
    lines = print_cases(str(seed), str(GROUPS), str(MOST_TASKS))
    assert len(lines) == 5 * GROUPS
    for number, line in enumerate(lines):
        try:
            check_case(parse_case(line))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, case {number}") from error
