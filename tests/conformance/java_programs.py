"""Runs small Java programs against Apache Kafka's classes: what Java decides, line by line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conformance.apache_kafka import apache_kafka

TIMEOUT_S = 240  # two seconds on a quiet machine; a minute and more beside other brokers
waits_for_java = pytest.mark.timeout(2 * TIMEOUT_S + 20)
"""Marks tests that run at most two programs."""

# A warning of Java itself would be taken for a line of the program.
_FLAGS = ("-Xlog:disable", "-Xlog:all=warning:stderr")


def run_program(source: Path, *arguments: object, given: Iterable[str] = ()) -> list[str]:
    """Run a program of one source file, and return the lines that it prints.

    Args:
        given: the lines of its standard input.
    """
    java, *rest = apache_kafka().java_command()
    done = subprocess.run(
        [java, *_FLAGS, *rest, str(source), *map(str, arguments)],
        input="\n".join(given),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout.splitlines()
