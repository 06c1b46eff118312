"""Our task assignor against that of Apache Kafka's group coordinator, on random streams groups."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from tests.conformance.apache_kafka import apache_kafka
from tests.unit.broker.coordinator.groups.streams.assignors.task_assignor_cases import (
    RECORDED,
    RECORDED_ARGUMENTS,
    check_case,
    parse_case,
)

PROGRAM = Path(__file__).with_name("TaskAssignorVectors.java")
GROUPS, MOST_TASKS = 300, 1000
TIMEOUT_S = 90


def print_cases(*arguments: str) -> list[str]:
    """Let Java decide."""
    command = [*apache_kafka().java_command(), str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_recorded_cases_are_what_java_decides() -> None:
    """The file of the unit tests can be made again, and holds nothing else."""
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
