"""Java programs on the jars of Kafka Streams and Connect, run until a test kills them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.clients.install import HERE, streams_jars
from tests.conformance.java_programs import compiled

WORD_COUNT = HERE / "java" / "WordCount.java"
_DEADLINE_S = 60.0


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Java on the jars of Streams and Connect until the test kills it or ends."""
    module = apache_kafka()
    settings = f"-Dlog4j2.configurationFile={HERE / 'java' / 'log4j2.properties'}"
    jars = streams_jars()
    class_path = os.pathsep.join((jars, compiled(WORD_COUNT, jars)))
    command = [module.java_executable(), *module.TOOL_FLAGS, settings, "-cp", class_path]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.PIPE, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[bytes], log: Path, done: Callable[[], bool]) -> None:
    """Wait until the process has done something."""
    deadline = time.monotonic() + _DEADLINE_S
    while not done():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)
