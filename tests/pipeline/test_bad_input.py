"""What users do wrong, and what befalls them: one plain sentence, and no success."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.conformance.broker_process import Broker, start_broker
from tests.integration.disks import SmallDisk
from tests.pipeline import support
from tests.pipeline.support import Command, Feed, Pipeline

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with the first days of the data set."""
    started = start_broker(tmp_path_factory.mktemp("broker"))
    trio.run(Feed(before="2013-01-04").send, started.address)
    yield started
    started.close()


def fails_with(command: Command, pattern: str, status: int = 1) -> None:
    """Assert that a command ends in one sentence that fits."""
    assert command.wait() == status, command.text
    (sentence,) = command.errors
    assert re.search(pattern, sentence), command.text
    assert sentence.startswith("pipeline: ")


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ((), "arguments are required"),
        (("fly",), "invalid choice: 'fly'"),
        (("ingest", "--rate", "fast"), "--rate: 'fast' is not a number above 0"),
        (("ingest", "--speedup", "-1"), "--speedup: '-1' is not a number above 0"),
        (("ingest", "--wings"), "unrecognized arguments: --wings"),
        (("run",), "--output, --checkpoint"),
        (
            ("run", "--output", "a", "--checkpoint", "b", "--watermark", "late"),
            "not a time such as",
        ),
        (("run", "--output", "a", "--checkpoint", "b", "--conf", "spark"), "not NAME=VALUE"),
        (("report",), "--output"),
    ],
)
def test_wrong_options(tmp_path: Path, arguments: tuple[str, ...], pattern: str) -> None:
    """The command line is refused with what is wrong about it, status 2."""
    fails_with(Pipeline("localhost:1", tmp_path).start(*arguments), pattern, 2)


@pytest.mark.parametrize("name", ["ingest", "run", "report"])
def test_help(tmp_path: Path, name: str) -> None:
    """The help of each command lists its options."""
    command = Pipeline("localhost:1", tmp_path).start(name, "--help").finish()
    for option in ("--bootstrap-server", "--master"):
        assert option in "\n".join(command.lines)


def test_no_broker(tmp_path: Path) -> None:
    """Nothing listens there."""
    pipeline = Pipeline("localhost:1", tmp_path)
    for command in (pipeline.ingest(), pipeline.run()):
        fails_with(command, r"no broker answers at localhost:1")


def test_address_that_is_none(tmp_path: Path) -> None:
    """The address is not HOST:PORT."""
    fails_with(Pipeline("somewhere", tmp_path).ingest(), "must be HOST:PORT")


def test_unknown_topic(broker: Broker, tmp_path: Path) -> None:
    """Nothing has been ingested."""
    fails_with(Pipeline(broker.address, tmp_path).run(), "the topic flights is not there")


def test_no_results(tmp_path: Path) -> None:
    """There is nothing to report."""
    pipeline = Pipeline("localhost:1", tmp_path)
    fails_with(pipeline.report(), "has no results")


def test_folders_that_are_none(filled: Broker, tmp_path: Path) -> None:
    """The folders are a file, the same, or somebody else's."""
    file = tmp_path / "file"
    file.write_text("x")
    pipeline = Pipeline(filled.address, tmp_path)
    pipeline.output = file
    fails_with(pipeline.run(), "is a file, not a folder")
    pipeline.output = pipeline.checkpoint
    fails_with(pipeline.run(), "must be two folders")
    pipeline.output, pipeline.checkpoint = tmp_path / "output", tmp_path
    fails_with(pipeline.run(), "is not empty and no checkpoint of this pipeline")


def test_wrong_master(filled: Broker, tmp_path: Path) -> None:
    """Spark knows no such cluster."""
    fails_with(Pipeline(filled.address, tmp_path, "nowhere").run(), "--master names no cluster")


def test_settings_that_spark_refuses(filled: Broker, tmp_path: Path) -> None:
    """Of Spark's many lines the user reads the one with the reason."""
    pipeline = Pipeline(filled.address, tmp_path)
    fails_with(pipeline.run("--jars", "no.jar"), "the file no.jar that --jars names is not there")
    command = pipeline.run("--conf", "spark.driver.memory=lots")
    fails_with(command, "Java refuses its options")
    fails_with(pipeline.run("--conf", "spark.driver.port=x"), "value 'x' .* \"spark.driver.port\"")
    local = f"spark.local.dir={tmp_path / 'file' / 'below'}"
    (tmp_path / "file").write_text("x")
    fails_with(pipeline.run("--conf", local), "see spark.local.dir")


def test_a_killed_spark(filled: Broker, tmp_path: Path) -> None:
    """Its JVM is gone, as when the system runs out of memory."""
    command = Pipeline(filled.address, tmp_path).run()
    log = tmp_path / "output" / "_spark.log"
    command.wait_for(
        lambda: log.exists() and b"Setting Spark log level" in log.read_bytes(), "Java"
    )
    group = ["pgrep", "-g", str(command.process.pid), "java"]
    for pid in subprocess.run(group, capture_output=True, text=True, check=True).stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    fails_with(command, "Spark ended by itself .* the same command goes on from here")


def test_full_disk_and_bad_checkpoint(filled: Broker, tmp_path: Path) -> None:
    """A full disk stops a run, with room it goes on; a checkpoint must be whole and ours."""
    with SmallDisk(tmp_path / "disk", 4 << 20) as disk:
        pipeline = Pipeline(filled.address, tmp_path)
        here = pipeline.output = disk.path / "output"
        here.mkdir()
        ballast = disk.fill(0)
        fails_with(pipeline.run(), "No space left on device")
        ballast.unlink()
        ballast = disk.fill(12_000)
        fails_with(pipeline.run(), "the disk is full")
        ballast.unlink()
        pipeline.run().finish()
        expected = support.expected_results("2013-01-04")
        support.check_results(support.parquet_results(here), expected)

        pipeline.output = tmp_path / "elsewhere"
        fails_with(pipeline.run(), "belongs to another output")
        pipeline.output = here
        offsets = (pipeline.checkpoint / "offsets").glob("[0-9]*")
        max(offsets, key=lambda path: int(path.name)).write_text("v1\nnonsense\n")
        fails_with(pipeline.run(), "the checkpoint .* is damaged")
