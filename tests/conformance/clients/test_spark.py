"""Spark as it is, with its own connector: a topic read in batch, and one written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conformance.clients import install, scenarios
from tests.conformance.clients.confluent import ConfluentKafka
from tests.conformance.clients.records import check_received
from tests.conformance.clients.scenarios import Story
from tests.conformance.clients.spark_java import java_home, settings

pytestmark = scenarios.MARKS

JOB = Path(install.HERE / "spark_job.py")
JOB_TIMEOUT_S = 150


def test_batch_source_and_sink(
    bootstrap: str, unique_topic: Callable[[], str], unique_group: Callable[[], str]
) -> None:
    """What Spark reads from one topic and writes to another arrives there as it was."""
    environment = os.environ | {
        "PYTHONPATH": str(install.python_packages("spark.txt")),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": java_home(),
    }
    jars = install.spark_jars()
    client = ConfluentKafka(bootstrap, enable_idempotence=True)
    story = Story(client, unique_topic(), unique_group())
    story.send_in_all_codecs(3000)
    target = unique_topic()
    client.create_topic(target, scenarios.PARTITIONS)
    done = subprocess.run(
        [sys.executable, str(JOB), jars, json.dumps(settings()), bootstrap, story.topic, target],
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    placed = sorted(story.placed.values())
    ends = [sum(1 for p, _ in placed if p == partition) for partition in range(3)]
    assert found["spans"] == [[p, end, 0, end - 1] for p, end in enumerate(ends)]
    chosen = {0: range(10, 30), 1: range(5), 2: range(ends[2])}
    assert found["some"] == [[partition, n] for partition in chosen for n in chosen[partition]]
    expected = [record._replace(timestamp_ms=None) for record in story.sent]
    with client.member(target, unique_group(), "reader") as reader:
        story.wait_for(story.sent, [reader])
    check_received(expected, reader.received)
