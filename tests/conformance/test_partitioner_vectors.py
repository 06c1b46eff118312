"""Our partitioner against that of Apache Kafka's Java client, on many random keys."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conformance.apache_kafka import apache_kafka
from tests.unit.clients.producer.test_partitioner import RECORDED, check_vectors

PROGRAM = Path(__file__).with_name("PartitionerVectors.java")
RECORDED_SEED = 1
TIMEOUT_S = 60


def print_vectors(seed: int) -> list[str]:
    """Let Java decide."""
    command = [*apache_kafka().java_command(), str(PROGRAM), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_recorded_vectors_are_those_of_the_java_client() -> None:
    """What the unit tests compare with is what this version of the client decides."""
    assert print_vectors(RECORDED_SEED) == RECORDED.read_text().splitlines()


def test_other_keys_agree_too() -> None:
    """Keys that nobody has recorded go to the same partitions."""
    for seed in (2, 3):
        assert check_vectors(print_vectors(seed)) > 50
