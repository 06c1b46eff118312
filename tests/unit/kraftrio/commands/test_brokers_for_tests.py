"""`kraftrio test-broker`: it prints its address, and ends with what started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from kraftrio import Admin
from kraftrio.clients.admin.types import TopicListing
from kraftrio.commands.tree import main
from kraftrio.testing import Snapshot
from kraftrio.testing.simulation.disk_image import DiskImage

_COMMAND = [sys.executable, "-P", "-m", "kraftrio", "test-broker"]


def test_it_serves_until_its_input_ends() -> None:
    with subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        servers = process.stdout.readline().decode().strip()
        assert trio.run(_topics, servers) == {}
        process.stdin.close()
        assert process.wait(30) == 0


async def _topics(servers: str) -> dict[str, TopicListing]:
    async with Admin(servers) as admin:
        return await admin.list_topics()


def test_it_ends_with_the_process_that_started_it() -> None:
    """Also where it has no input of its own."""
    shell = (
        "import subprocess, sys;"
        "broker = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE);"
        "print(broker.stdout.readline().decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", shell, *_COMMAND], capture_output=True, timeout=60, check=True
    )
    assert done.stdout.startswith(b"127.0.0.1:")  # it ends with its standard error


@pytest.mark.parametrize(
    ("setting", "said"),
    [("log.segment.bytes=x", "Not a number of type INT"), ("x", "--set 'x': expected NAME=VALUE")],
)
def test_what_is_wrong_is_printed(
    setting: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["test-broker", "--set", setting]) == 2
    assert said in capfd.readouterr().err


def test_a_start_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence; the snapshot of a cluster begins one of as many nodes."""
    assert main(["test-broker", "--start", str(tmp_path / "case")]) == 2
    assert f"cannot read {tmp_path}/case: No such file or directory" in capsys.readouterr().err
    Snapshot({1: DiskImage((), {}), 2: DiskImage((), {})}, 0).save(tmp_path / "case")
    assert main(["test-broker", "--start", str(tmp_path / "case")]) == 2
    assert "the snapshot is of a cluster with 2 nodes" in capsys.readouterr().err
