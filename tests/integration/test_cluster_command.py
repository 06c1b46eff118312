"""`kraftrio cluster`: ready lines, stops and deaths of the processes that it runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import MetadataRequest
from kraftrio.wire.records.batch import Record, build_batch
from tests.integration.wire_client import WireClient, wait_until

READY = re.compile(r"kraftrio ready (\S+):(\d+) node=(\d+) pid=(\d+) data=(\S+)")
DEADLINE_S = 30.0
TOPIC = "numbers"


class Running:
    """The command while it runs, and its output."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "kraftrio", "cluster", "--data", str(directory), *options]
        self.errors = directory.with_suffix(".log")
        self.output = directory.with_suffix(".out")
        with self.errors.open("a") as log, self.output.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=log, process_group=0)
        self.ports: dict[int, int] = {}
        self.pids: dict[int, int] = {}
        self.folders: dict[int, Path] = {}

    def wait_ready(self, count: int) -> None:
        """Read as many ready lines as there are nodes."""
        deadline = time.monotonic() + DEADLINE_S
        while (text := self.output.read_text()).count("\n") < count:
            assert time.monotonic() < deadline, f"not ready in time\n{self.log()}"
            assert self.process.poll() is None, f"ended\n{self.log()}"
            time.sleep(0.02)
        for line in text.splitlines():
            found = READY.fullmatch(line)
            assert found, f"not a ready line: {line!r}\n{self.log()}"
            node_id = int(found[3])
            self.ports[node_id], self.pids[node_id] = int(found[2]), int(found[4])
            self.folders[node_id] = Path(found[5])

    def client(self, node_id: int) -> WireClient:
        """Connect to a node."""
        return WireClient(("127.0.0.1", self.ports[node_id]))

    def log(self) -> str:
        """Return what was said on standard error."""
        return self.errors.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Wait for the end of the command and return its exit status."""
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


@pytest.fixture
def running(directory: Path) -> Iterator[Running]:
    """A cluster of three on free ports."""
    made = Running(directory, "--nodes", "3", "--base-port", "0")
    try:
        made.wait_ready(3)
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def produce(client: WireClient, number: int) -> tuple[ErrorCode, int]:
    """Produce one record with acks=all."""
    return client.produce(TOPIC, 0, build_batch([Record(0, 1, None, b"%d" % number)]))


def brokers(client: WireClient) -> set[int]:
    """Return the brokers that a node knows."""
    return {one.node_id for one in client.call(MetadataRequest(topics=[])).brokers}


def leader(client: WireClient) -> int:
    """Return the leader of the topic's partition."""
    for topic in client.call(MetadataRequest(topics=None)).topics:
        if topic.name == TOPIC:
            return int(topic.partitions[0].leader_id)
    return -1


def test_ready_stop_and_start_again(running: Running, directory: Path) -> None:
    """Nodes print their addresses; a stop is graceful; a start without options does the same."""
    assert running.folders == {i: directory / f"node-{i}" for i in (1, 2, 3)}
    assert all(is_alive(pid) for pid in running.pids.values())
    with running.client(1) as client:
        wait_until(lambda: brokers(client) == {1, 2, 3}, "three brokers")
        assert client.create_topic(TOPIC) is ErrorCode.NONE
        led = wait_until(lambda: max(0, leader(client)), "a leader")
    with running.client(led) as client:
        wait_until(lambda: produce(client, 0)[0] is ErrorCode.NONE, "a record is taken")
    ports, pids = running.ports, running.pids
    assert running.stop() == 0
    assert not any(is_alive(pid) for pid in pids.values())
    assert running.log().count(" stopped") == 3
    assert "Traceback" not in running.log()
    for folder in running.folders.values():
        assert (folder / ".kafka_cleanshutdown").exists()
    again = Running(directory)
    again.wait_ready(3)
    assert again.ports == ports
    with again.client(1) as client:
        led = wait_until(lambda: max(0, leader(client)), "a leader")
    with again.client(led) as client:
        wait_until(lambda: produce(client, 1) == (ErrorCode.NONE, 1), "the next record is taken")
        values = [record.value for record in client.fetch_all(TOPIC, 0)]
    assert values == [b"0", b"1"]
    assert again.stop(signal.SIGINT) == 0


def test_node_ends_by_itself(running: Running) -> None:
    """One line reports it, the others go on, and the exit status is not 0."""
    os.kill(running.pids[2], signal.SIGKILL)
    wait_until(lambda: "kraftrio: node 2 ended by itself: signal 9" in running.log(), "a line")
    with running.client(1) as client:
        wait_until(lambda: brokers(client) == {1, 3}, "two brokers")
    assert running.process.poll() is None
    server = f"127.0.0.1:{running.ports[1]}"
    done = subprocess.run(
        [sys.executable, "-m", "kraftrio", "cluster", "unregister", "2"],
        env={**os.environ, "KRAFTRIO_BOOTSTRAP_SERVER": server},
        capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "broker 2 is no longer registered\n"), done.stderr
    alone = ["--config", str(running.folders[2] / "server.properties")]
    node = subprocess.Popen(
        [sys.executable, "-m", "kraftrio", "start", *alone], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with running.client(1) as client:
            wait_until(lambda: brokers(client) == {1, 2, 3}, "it is back, by its own file")
    finally:
        node.terminate()
        assert node.wait(DEADLINE_S) == 0
    assert running.stop() == 1
    assert running.log().count("ended by itself") == 1


def test_nodes_end_with_the_command(running: Running) -> None:
    """When the command itself is killed no node is left behind."""
    running.process.kill()
    running.end()
    wait_until(lambda: not any(map(is_alive, running.pids.values())), "all nodes are gone")


def test_all_nodes_fail(directory: Path) -> None:
    """A cluster whose nodes cannot start ends by itself, with the first reason."""
    running = Running(directory, "--nodes", "2", "--base-port", "0", "--set", "process.roles=cook")
    assert running.end() == 1
    assert re.search(r"^\[[12]\] kraftrio: .*process.roles", running.log(), re.M)
    assert re.search(r"^kraftrio: node [12] ended by itself: status 2$", running.log(), re.M)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--nodes", "0"], "a cluster of 0 nodes: it must have at least 1"),
        (["--nodes", "three"], "argument --nodes: invalid int value"),
        (["--host", ""], "the nodes need a name or an address to listen on"),
        (["--host", "nowhere.invalid", "--base-port", "0"], "cannot listen on nowhere.invalid: "),
        (["--base-port", "70000"], "are not all between 1 and 65535"),
        (["--set", "num.partitions"], "--set 'num.partitions': expected NAME=VALUE"),
    ],
)
def test_wrong_command_line(directory: Path, options: list[str], sentence: str) -> None:
    """One sentence, status 2, and nothing touched."""
    running = Running(directory, *options)
    assert running.end() == 2
    (line,) = running.log().splitlines()
    assert line.startswith("kraftrio: ")
    assert sentence in line
    assert not directory.exists()
