"""A broker in a process of its own, as a client meets it: ours, or Apache's to compare with.

`Broker` starts `python -m kraftrio start`, `ApacheBroker` starts Apache Kafka; both offer the same
attributes. `start_broker` picks by TEST_BROKER (`kraftrio`, the default, or `apache`): a
test of a client's behaviour is right only if it passes against both. Every wait has a deadline,
and closing checks that nothing crashed: no traceback in the log, no unexpected exit.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.conformance.apache_kafka import apache_kafka

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 30.0

# What a test of one node wants: no waiting for members that never come, small internal topics.
TEST_CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

KIND = os.environ.get("TEST_BROKER", "kraftrio")

GROUP_PROTOCOLS = ["classic", "consumer"]


class Broker:
    """One node of ours. Use as a context manager, or call `start` and `close`."""

    kind = "kraftrio"
    crash_marks: tuple[str, ...] = ("Traceback (most recent call last)",)
    clean_exit_code = 0

    def __init__(self, directory: Path, **config: object) -> None:
        """Prepare a node with its data under `directory`; config keys have _ for Kafka's dots."""
        self.directory = directory
        self.config = TEST_CONFIG | {k.replace("_", "."): str(v) for k, v in config.items()}
        self.host = "127.0.0.1"
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.log_path = directory / "broker.log"
        self._log: IO[str] | None = None

    @property
    def address(self) -> str:
        """The bootstrap address, HOST:PORT."""
        return f"{self.host}:{self.port}"

    @property
    def data_directory(self) -> Path:
        """The folder with one folder per partition."""
        return self.directory / "data"

    def python_command(self) -> list[str]:
        """Return the command line without its options."""
        return [sys.executable, "-P", "-m", "kraftrio", "start"]

    def command(self) -> list[str]:
        """Return the command line; the port is kept over restarts once it is known."""
        command = self.python_command()
        if "listeners" not in self.config:  # --listen would win over it
            command += ["--listen", f"{self.host}:{self.port}"]
        if "log.dirs" not in self.config:  # --data would win over it
            command += ["--data", str(self.data_directory)]
        for name, value in self.config.items():
            command += ["--set", f"{name}={value}"]
        return command

    def launch(self) -> None:
        """Start the process and return at once."""
        assert self.process is None, "already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self.command()
        self._log = self.log_path.open("a")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def start(self) -> Self:
        """Start the process and wait until clients can connect."""
        self.launch()
        try:
            self.wait_ready(time.monotonic() + START_DEADLINE_S)
        except BaseException:
            self.kill9()
            raise
        return self

    def wait_ready(self, deadline: float) -> None:
        """Wait for the ready line, which also names the port that was chosen."""
        line = self.read_line(deadline)
        found = re.match(r"kraftrio ready (\S+):(\d+) node=\d+ data=", line)
        assert found, f"not the ready line: {line!r}\n{self.log_tail()}"
        self.port = int(found.group(2))

    def read_line(self, deadline: float) -> str:
        """Read a line of the process's stdout, up to a deadline."""
        assert self.process is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(max(0.0, deadline - time.monotonic()))
        assert ready, f"no ready line in time\n{self.log_tail()}"
        return self.process.stdout.readline()

    def terminate(self) -> int:
        """Stop gracefully (SIGTERM) and return the exit code, 0 if all went well."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait_stopped()

    def wait_stopped(self) -> int:
        """Wait until a process that was asked to stop has done so; return its exit code."""
        assert self.process is not None
        try:
            code = self.process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(
                f"did not stop in {STOP_DEADLINE_S} s\n{self.log_tail()}"
            ) from None
        self._forget_process()
        return code

    def kill9(self) -> None:
        """Kill the process at once, as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._forget_process()

    def restart(self) -> Self:
        """Start again on the same data and port, after a graceful stop if it runs."""
        if self.process is not None:
            self.terminate()
        return self.start()

    def log_text(self) -> str:
        """Return everything that the process has logged (stderr), over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        """Return the end of the log, for the message of a failed assertion."""
        return "end of the broker's log:\n" + self.log_text()[-4000:]

    def check_log(self) -> None:
        """Assert that the log has no sign of a crash."""
        text = self.log_text()
        for mark in self.crash_marks:
            assert mark not in text, f"{mark!r} in the log\n{text[-8000:]}"

    def close(self) -> None:
        """Stop if running, and check that the process was healthy to its end."""
        if self.process is not None:
            code = self.process.poll()
            assert code is None, f"ended by itself with {code}\n{self.log_tail()}"
            code = self.terminate()
            assert code == self.clean_exit_code, f"exit code {code}\n{self.log_tail()}"
        self.check_log()

    def _forget_process(self) -> None:
        assert self.process is not None
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self._log is not None:
            self._log.close()
        self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif self.process is not None:
            self.kill9()  # the test's own failure is the news, not what the log says


class ApacheBroker(Broker):
    """One node of Apache Kafka with the same settings, for checking the tests themselves."""

    kind = "apache"
    crash_marks = ()
    clean_exit_code = 128 + signal.SIGTERM  # the JVM's own way to end on SIGTERM

    @property
    def data_directory(self) -> Path:
        """The folder with one folder per partition."""
        return self.directory / "apache" / "data"

    def command(self) -> list[str]:
        """Write the properties, format the storage and return java's command line."""
        if self.port == 0:
            self.port = free_port_pair()
        overrides = [f"{name}={value}" for name, value in self.config.items()]
        directory = self.directory / "apache"
        command: list[str] = apache_kafka().broker_command(directory, self.port, overrides)
        return command

    def wait_ready(self, deadline: float) -> None:
        """Ask for the API versions until there is an answer: the log has no ready line."""
        while not answers(self.host, self.port):
            assert self.process is not None
            assert self.process.poll() is None, f"ended while starting\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"not ready in time\n{self.log_tail()}"
            time.sleep(0.1)


def free_port_pair() -> int:
    """Return a port that is free together with the next one (Apache's controller).

    Both are below the ephemeral ports, which an outgoing connection could take in the seconds
    before Apache Kafka does.
    """
    for port in random.sample(range(12_000, 32_000, 2), 100):
        with socket.socket() as first, socket.socket() as second, contextlib.suppress(OSError):
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two neighbouring ports are free")


def answers(host: str, port: int) -> bool:
    """Return whether an ApiVersions request (version 0) gets its reply."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1) as connection:
        connection.settimeout(2)
        connection.sendall(struct.pack(">i", len(request)) + request)
        return connection.recv(8)[4:] == struct.pack(">i", 7)
    return False


def start_broker(directory: Path | None = None, **config: object) -> Broker:
    """Start the broker that TEST_BROKER names, in a folder without data unless one is given."""
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix="kraftrio-broker-"))
    return {"kraftrio": Broker, "apache": ApacheBroker}[KIND](directory, **config).start()
