"""A node as a service: the files of `deploy/`, and what a real process reports to a supervisor."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.requirements import need_program
from tests.unit.broker.server.test_listening import free_port

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy" / "kraftrio.service"
CONTAINERFILE = ROOT / "deploy" / "Containerfile"
DEADLINE_S = 30.0


@contextmanager
def node(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command line; it is gone at the end."""
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "kraftrio", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait()
        assert running.stdout is not None
        running.stdout.close()


def first_line(running: subprocess.Popen[bytes]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().decode()


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """In a file system where kraftrio is installed as the unit expects it."""
    program = need_program("systemd-analyze")
    text = UNIT.read_text()
    command = re.search(r"^ExecStart=(\S+)", text, re.M)
    assert command is not None
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace(command[1], sys.executable))
    verified = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_what_a_node_reports_to_a_supervisor(tmp_path: Path) -> None:
    """READY=1 once clients are served, then WATCHDOG=1 again and again, and STOPPING=1."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        with node(
            *("start", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"),
            NOTIFY_SOCKET=str(tmp_path / "notify"),
            WATCHDOG_USEC="200000",
        ) as running:
            while (said := manager.recv(100)) != b"READY=1":
                assert said == b"WATCHDOG=1"  # its event loop turns already
            ready = re.match(r"kraftrio ready (\S+):(\d+) ", first_line(running))
            assert ready is not None
            socket.create_connection((ready[1], int(ready[2])), DEADLINE_S).close()
            assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            running.send_signal(signal.SIGTERM)
            while (said := manager.recv(100)) != b"STOPPING=1":
                assert said == b"WATCHDOG=1"
            assert running.wait(DEADLINE_S) == 0


def instruction(name: str) -> str:
    """Return what follows an instruction of the Containerfile."""
    found = re.search(rf"^{name} (.*)$", CONTAINERFILE.read_text(), re.M)
    assert found is not None
    return found[1]


def test_the_settings_of_the_image(tmp_path: Path) -> None:
    """Its command starts a node that passes the health check, and that its signal stops."""
    serving, metrics = str(free_port()), str(free_port())

    def here(text: str) -> str:
        return (
            text.replace("/data", str(tmp_path / "data"))
            .replace("9092", serving)
            .replace("9644", metrics)
        )

    settings = dict(each.split("=", 1) for each in shlex.split(here(instruction("ENV"))))
    assert set(instruction("EXPOSE").split()) == {"9092", "9644"}
    program, *arguments = re.findall(r'"([^"]*)"', here(instruction("ENTRYPOINT")))
    assert program == "kraftrio"
    advertised = f"PLAINTEXT://localhost:{serving}"
    with node(*arguments, KRAFTRIO_ADVERTISED_LISTENERS=advertised, **settings) as running:
        assert f":{serving} " in first_line(running)
        _, _, code = re.findall(r'"([^"]*)"', here(instruction("HEALTHCHECK CMD")))
        checked = subprocess.run([sys.executable, "-c", code], timeout=DEADLINE_S, check=False)
        assert checked.returncode == 0
        running.send_signal(signal.Signals[instruction("STOPSIGNAL")])
        assert running.wait(DEADLINE_S) == 0
