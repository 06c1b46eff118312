"""Our partitioner against that of Apache Kafka's Java client, on many random keys."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.java_programs import run_program, waits_for_java
from tests.unit.clients.producer.test_partitioner import RECORDED, check_vectors

PROGRAM = Path(__file__).with_name("PartitionerVectors.java")
RECORDED_SEED = 1
pytestmark = waits_for_java


def print_vectors(seed: int) -> list[str]:
    """Return the partitions that the Java client chooses."""
    return run_program(PROGRAM, seed)


def test_the_recorded_vectors_are_those_of_the_java_client() -> None:
    """What the unit tests compare with is what this version of the client decides."""
    assert print_vectors(RECORDED_SEED) == RECORDED.read_text().splitlines()


def test_other_keys_agree_too() -> None:
    """Keys that were not recorded go to the same partitions."""
    for seed in (2, 3):
        assert check_vectors(print_vectors(seed)) > 50
