"""Our broker's assignors against those of Apache Kafka's broker, on random groups of every kind."""

from __future__ import annotations

import lzma
import random
from pathlib import Path

from tests.conformance.java_programs import run_program, waits_for_java
from tests.unit.broker.coordinator.groups.assignors.vectors import (
    RECORDED,
    RECORDED_GROUPS,
    RECORDED_SEED,
    check_case,
    parse_case,
)

PROGRAM = Path(__file__).with_name("BrokerAssignorVectors.java")
GROUPS = 300
pytestmark = waits_for_java


def print_cases(seed: int, groups: int) -> list[str]:
    """Return the assignments of Apache Kafka's broker."""
    return run_program(PROGRAM, seed, groups)


def test_recorded_cases_are_what_java_decides() -> None:
    """What is in the file of the unit tests is what Java returns now."""
    recorded = lzma.decompress(RECORDED.read_bytes()).decode().splitlines()
    assert print_cases(RECORDED_SEED, RECORDED_GROUPS) == recorded


def test_random_groups() -> None:
    """A new seed each time, so that every run tries other groups."""
    seed = random.SystemRandom().randrange(1 << 31)
    cases = [parse_case(line) for line in print_cases(seed, GROUPS)]
    assert len(cases) > GROUPS
    for number, case in enumerate(cases):
        try:
            check_case(case)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, case {number}: {case.assignor}") from error
    assert sum(case.expected is not None for case in cases) > 0.98 * len(cases)
