"""Small Java programs of the tests on other projects' jars: compiled once, run to their end.

Java compiles a program that is given as source at each start, which takes longer than most of what
these programs do. So their classes are kept in the cache of other projects' clients.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.clients import install

COMPILE_S = 240.0
TIMEOUT_S = 240  # two seconds on a quiet machine; a minute and more beside other brokers
waits_for_java = pytest.mark.timeout(2 * TIMEOUT_S + 20)
"""Marks tests that run at most two programs."""

# A warning of Java itself would be taken for a line of the program.
_FLAGS = ("-Xlog:disable", "-Xlog:all=warning:stderr")


def compiled(source: Path, class_path: str | None = None) -> str:
    """Return the folder with the classes of a program, compiled if its source is new.

    Args:
        class_path: what it is compiled against: Apache Kafka's jars, or others.

    Raises:
        subprocess.CalledProcessError: it does not compile, or this Java has no compiler.
    """
    module = apache_kafka()
    java = module.java_executable()
    if class_path is None:
        class_path = module.class_path(module.jars_directory())
    compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", class_path]

    def compile_it(target: Path) -> None:
        command = [*compiler, "-d", str(target), str(source)]
        subprocess.run(command, check=True, timeout=COMPILE_S, capture_output=True)

    return str(install.cached(f"java-{source.stem}", [source], compile_it, class_path, java))


def java_program(source: Path) -> list[str]:
    """Return the command of a program on Apache Kafka's jars, without its arguments."""
    java, *rest = apache_kafka().java_command(extra_class_path=compiled(source))
    return [java, *_FLAGS, *rest, source.stem]


def run_program(source: Path, *arguments: object, given: Iterable[str] = ()) -> list[str]:
    """Run a program of one source file, and return the lines that it prints.

    Args:
        given: the lines of its standard input.
    """
    done = subprocess.run(
        [*java_program(source), *map(str, arguments)],
        input="\n".join(given),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout.splitlines()
