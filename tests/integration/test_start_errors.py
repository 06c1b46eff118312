"""Starts and stops of the process: exit status, standard output and error, signals.

A start that fails ends soon, with one plain sentence on standard error, nothing on standard output
and a status that is not 0. A stop by a signal is graceful and leaves the clean shutdown marker.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.broker_process import Broker
from tests.integration.disks import SmallDisk
from tests.integration.wire_client import WireClient, wait_until

START_S = 60.0
RECORDED_DATA = Path(__file__).resolve().parents[1] / "data" / "log-dirs"
FRESH = ("--listen", "127.0.0.1:0")


def command(*arguments: object) -> list[str]:
    """The command line of `kraftrio start`."""
    return [sys.executable, "-m", "kraftrio", "start", *map(str, arguments)]


def failed_start(*arguments: object, status: int = 1) -> str:
    """Start, check that this fails as it should, and return the sentence that says why."""
    ended = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=START_S, check=False
    )
    assert ended.returncode == status, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    is_logged = re.compile(r"\S+Z (INFO|WARN) ").match
    lines = [line for line in ended.stderr.splitlines() if not is_logged(line)]
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("kraftrio: ")
    return lines[0].removeprefix("kraftrio: ")


# -- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--log-level", "LOUD"], "argument --log-level: invalid choice: 'LOUD'"),
        (["--set", "num.partitions"], "--set 'num.partitions': expected NAME=VALUE"),
        (["--set", "=3"], "--set '=3': expected NAME=VALUE"),
        (["--set", "num.partitions=many"], "Invalid value many for configuration num.partitions"),
        (["--set", "num.partitions=0"], "Invalid value 0 for configuration num.partitions"),
        (["--set", "process.roles=cook"], "process.roles"),
        (["--config", "/nowhere/server.properties"], "cannot read /nowhere/server.properties"),
        (["--config", "/"], "cannot read /: Is a directory"),
        (["--listen", "localhost"], "localhost"),
        (["--listen", "localhost:99999"], "99999"),
        (["--listen", "localhost:kafka"], "kafka"),
        (["--data", ""], "log.dirs"),
    ],
)
def test_wrong_command_line(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    """What is wrong with options and properties is reported before anything is touched."""
    data = tmp_path / "data"
    assert sentence in failed_start("--data", data, *arguments, status=2)
    assert not data.exists()


def test_no_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kraftrio"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "kraftrio: the following arguments are required: COMMAND (see kraftrio --help)\n"
    )


def test_bad_value_in_a_file(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.dirs=/tmp\nlog.segment.bytes=huge\n")
    assert "log.segment.bytes" in failed_start("--config", config, status=2)


def test_unknown_properties_are_warned_of(make_broker: Callable[..., Broker]) -> None:
    """A property that kraftrio does not know does not keep it from starting."""
    broker = make_broker(no_such_property="1")
    warnings = [line for line in broker.log_text().splitlines() if " WARN " in line]
    assert len(warnings) == 1
    assert "no.such.property" in warnings[0]


# -- the port and the data directory ---------------------------------------------------------------


def test_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        sentence = failed_start("--data", tmp_path / "data", "--listen", f"127.0.0.1:{port}")
    assert sentence == f"cannot listen on 127.0.0.1:{port}: Address already in use"


def test_address_of_another_machine(tmp_path: Path) -> None:
    sentence = failed_start("--data", tmp_path / "data", "--listen", "192.0.2.1:0")
    assert sentence == "cannot listen on 192.0.2.1:0: Cannot assign requested address"


def test_data_directory_in_use(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    sentence = failed_start("--data", broker.data_directory, *FRESH)
    assert sentence == (
        f"{broker.data_directory} is locked: another process is using this log directory"
    )
    with WireClient((broker.host, broker.port)) as client:
        assert client.create_topic("still-served") == 0


def test_data_directory_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    assert failed_start("--data", file, *FRESH).startswith(f"cannot use {file}: Not a directory")
    assert file.read_text() == "no directory"


def test_data_directory_that_cannot_be_made() -> None:
    sentence = failed_start("--data", "/proc/nowhere/data", *FRESH)
    assert sentence == (
        "no log directory can be used: /proc/nowhere/data: No such file or directory"
    )


def test_data_directory_that_cannot_be_written(read_only_disk: SmallDisk) -> None:
    data = read_only_disk.path / "data"
    sentence = failed_start("--data", data, *FRESH)
    assert sentence == f"no log directory can be used: {data}: Read-only file system"


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", size_bytes=1 << 20) as disk:
        disk.set_read_only()
        yield disk


@pytest.fixture
def used_data(tmp_path: Path) -> Path:
    """The data directory of a node 1 that has run."""
    with Broker(tmp_path / "broker") as broker:
        return broker.data_directory


def test_data_directory_of_another_node(used_data: Path) -> None:
    sentence = failed_start("--data", used_data, *FRESH, "--set", "node.id=5")
    assert sentence == f"{used_data} belongs to node 1, but this is 5"


def test_data_directories_of_two_clusters(used_data: Path, tmp_path: Path) -> None:
    with Broker(tmp_path / "other") as other:
        pass
    dirs = f"log.dirs={used_data},{other.data_directory}"
    sentence = failed_start("--set", dirs, *FRESH)
    mine, others = f"{used_data}/meta.properties", f"{other.data_directory}/meta.properties"
    assert re.fullmatch(
        rf"{re.escape(mine)} names cluster (\S+), but {re.escape(others)} is of cluster (?!\1)\S+",
        sentence,
    )


def test_garbled_owner_of_a_data_directory(used_data: Path) -> None:
    (used_data / "meta.properties").write_bytes(b"\xff\xfe\0garbage")
    assert failed_start("--data", used_data, *FRESH).startswith(f"cannot understand {used_data}: ")


def test_data_directory_of_apache_kafka(tmp_path: Path) -> None:
    """It is refused and left as it is, clean shutdown marker included."""
    data = tmp_path / "data"
    shutil.copytree(RECORDED_DATA, data)
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    before = contents(data)
    sentence = failed_start("--data", data, *FRESH)
    assert sentence == (
        f"{data} was written by Apache Kafka: kraftrio cannot take over its metadata log,"
        " so start with an empty data directory"
    )
    assert contents(data) == before


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["quorum-state", "00000000000000000000.log"])
def test_damaged_metadata(used_data: Path, name: str) -> None:
    """Damage that no crash leaves behind is reported, not taken for an empty cluster."""
    path = used_data / "__cluster_metadata-0" / name
    if name == "quorum-state":
        path.write_bytes(b"{")
    else:
        path.unlink()
        path.with_name("00000000000000000400.log").write_bytes(b"")
    sentence = failed_start("--data", used_data, *FRESH)
    assert "metadata log" in sentence
    assert str(path.parent) in sentence


# -- output and signals ---------------------------------------------------------------------------


class Started:
    """A process with its output in files, for tests of output and exit."""

    def __init__(self, directory: Path, *arguments: object) -> None:
        directory.mkdir(exist_ok=True)
        self.data = directory / "data"
        self.out, self.err = directory / "out", directory / "err"
        with self.out.open("a") as out, self.err.open("a") as err:
            self.process = subprocess.Popen(
                command("--data", self.data, *FRESH, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def wait_ready(self) -> None:
        wait_until(lambda: self.out.read_text().endswith("\n"), "ready line", START_S)

    def wait_for_main(self) -> None:
        """Wait until our code runs: before, an interrupt raises in Python's own start."""
        lock = self.data / ".lock"  # is there once our code has run for a while
        wait_until(lambda: self._catches_interrupt() or lock.exists(), "Python's start", START_S)
        wait_until(lambda: not self._catches_interrupt() or lock.exists(), "our start", START_S)

    def _catches_interrupt(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signal.SIGINT - 1) & 1)

    def wait(self) -> int:
        return self.process.wait(START_S)

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *reason: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_graceful_stop(tmp_path: Path, number: signal.Signals) -> None:
    """Exit status 0, the clean shutdown marker, one line on standard output, few in the log."""
    with Started(tmp_path / "node") as node:
        node.wait_ready()
        assert not (node.data / ".kafka_cleanshutdown").exists()
        node.process.send_signal(number)
        assert node.wait() == 0
        assert (node.data / ".kafka_cleanshutdown").exists()
        [line] = node.out.read_text().splitlines()
        assert line.startswith("kraftrio ready 127.0.0.1:")
        assert line.endswith(f" node=1 data={node.data}")
        log = node.err.read_text()
        assert len(log.splitlines()) <= 10, log
        assert f"stopping signal={number.name}" in log
        assert log.endswith("stopped\n")


def test_second_signal_ends_at_once(tmp_path: Path) -> None:
    """A stop that takes long can be cut short; the next start recovers, as after a crash."""
    with Started(tmp_path / "node") as node:
        node.wait_ready()
        node.process.send_signal(signal.SIGSTOP)  # so that both signals are there together
        node.process.send_signal(signal.SIGTERM)
        node.process.send_signal(signal.SIGINT)
        node.process.send_signal(signal.SIGCONT)
        begin = time.monotonic()
        assert node.wait() == 1
        assert time.monotonic() - begin < 5
        assert "stopping at once" in node.err.read_text()
        assert not (node.data / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_during_the_start(tmp_path: Path, number: signal.Signals) -> None:
    """Whenever a signal comes, the process ends soon, without a traceback, and can start again."""
    for delay_ms in range(0, 500, 50):
        with Started(tmp_path / "node") as node:
            node.wait_for_main()
            try:
                node.process.wait(delay_ms / 1000)
            except subprocess.TimeoutExpired:
                node.process.send_signal(number)
            assert node.wait() in (0, -number)
    assert "Traceback" not in node.err.read_text()
    with Broker(tmp_path / "node", log_retention_ms="1000") as broker:
        assert broker.port


def test_log_level(tmp_path: Path) -> None:
    """With WARNING a start logs nothing; DEBUG logs more than INFO."""
    lengths = {}
    for level in ("debug", "INFO", "Warning"):
        with Started(tmp_path / level, "--log-level", level) as node:
            node.wait_ready()
            node.process.terminate()
            assert node.wait() == 0
            lengths[level] = len(node.err.read_text().splitlines())
    assert lengths["Warning"] == 0
    assert 0 < lengths["INFO"] <= 10
    assert lengths["debug"] > lengths["INFO"]


def test_environment_names_properties(tmp_path: Path) -> None:
    """KRAFTRIO_NODE_ID=9 is node.id=9, as the ready line shows."""
    environment = os.environ | {"KRAFTRIO_NODE_ID": "9"}
    with subprocess.Popen(
        command("--data", tmp_path / "data", *FRESH),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert " node=9 " in process.stdout.readline()
        finally:
            process.terminate()
        assert process.wait(START_S) == 0
