"""Apache Kafka's command-line tools from a test: run one to its end, or start one and talk to it.

`KafkaTools` is bound to one broker's address. `run` goes through one long-lived JVM
(ToolRunner.java) that serves all tests of a session, about 0.1 s a call; `start` gives a process of
its own, for a tool that runs beside others or is to be killed. Where the long-lived JVM can't be
had (a Java without its compiler, or TEST_TOOLS=process), and for the few tools that do their
work in the JVM's own shutdown, `run` starts a process each time.
"""

from __future__ import annotations

import base64
import os
import selectors
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.java_programs import java_program

RUN_TIMEOUT_S = 60.0

# Where --bootstrap-server goes: before what follows, at the very end, or nowhere.
ADDRESS_AT_END = frozenset({"kafka-cluster"})
GIVEN_ADDRESS = frozenset({"--bootstrap-server", "--bootstrap-controller"})
NO_ADDRESS = frozenset(
    {
        "kafka-dump-log",
        "kafka-replica-verification",
        "kafka-storage",
        "kafka-transactional-message-copier",
    }
)

# These end their work in a hook of the JVM's shutdown, or never return from main.
OWN_PROCESS = frozenset({"kafka-verifiable-producer", "kafka-transactional-message-copier"})


@dataclass(frozen=True)
class Completed:
    """What a tool left behind when it ended."""

    command: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout that are not blank, without space at their ends."""
        return [line.strip() for line in self.stdout.splitlines() if line.strip()]

    @property
    def output(self) -> str:
        """Both streams: some tools print their errors to one, some to the other."""
        return self.stdout + self.stderr

    def rows(self, first_column: str) -> list[dict[str, str]]:
        """Return a printed table, whose header begins with `first_column`, as dicts."""
        rows: list[dict[str, str]] = []
        header: list[str] = []
        for line in self.lines:
            words = line.split()
            if words[0] == first_column:
                header = words
            elif header and len(words) >= len(header):
                rows.append(dict(zip(header, words, strict=False)))
        return rows

    def check(self) -> Completed:
        """Return itself when the tool ended with 0; fail with all that it said otherwise."""
        assert self.exit_code == 0, self.describe()
        return self

    def describe(self) -> str:
        """Return command, exit code and both streams, for the message of an assertion."""
        command = " ".join(self.command)
        return f"{command}: exit {self.exit_code}\n{self.stdout}\n--- stderr\n{self.stderr}"


class ToolRunner:
    """The long-lived JVM: one request line in, one reply line out."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.usable = os.environ.get("TEST_TOOLS", "") != "process"

    def run(
        self, main_class: str, arguments: Iterable[str], data: bytes, timeout_s: float
    ) -> tuple[int, str, str] | None:
        """Run a main class; None when there is no such JVM."""
        if self._process is None and not self._start():
            return None
        assert self._process is not None
        assert self._process.stdin is not None
        words = [data, *(argument.encode() for argument in arguments)]
        line = " ".join([main_class, *("=" + base64.b64encode(word).decode() for word in words)])
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        reply = self._read_line(timeout_s)
        if not reply:
            self.close()
            raise AssertionError(f"{main_class} {list(arguments)} did not end in {timeout_s} s")
        code, out, err = reply.split(b" ")
        streams = [base64.b64decode(word[1:]).decode(errors="replace") for word in (out, err)]
        return int(code), streams[0], streams[1]

    def _start(self) -> bool:
        if not self.usable:
            return False
        try:
            command = java_program(Path(__file__).with_name("ToolRunner.java"))
        except subprocess.CalledProcessError:
            self.usable = False
            return False
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.usable = self._read_line(RUN_TIMEOUT_S) == b"ready\n"
        if not self.usable:
            self.close()
        return self.usable

    def _read_line(self, timeout_s: float) -> bytes:
        """Return the next line of the JVM; empty on its end or when the time is over."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        line = b""
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return b""
                chunk = os.read(descriptor, 1 << 20)
                if not chunk:
                    return b""
                line += chunk
        return line

    def close(self) -> None:
        """End the JVM; the next run starts another."""
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None


class RunningTool:
    """A tool in a process of its own that still runs."""

    def __init__(self, command: list[str], name: str) -> None:
        self.name = name
        self._command = command
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self, input: str | None = None, timeout_s: float = RUN_TIMEOUT_S) -> Completed:
        """Give it the rest of its input, wait for its end and return what it printed."""
        try:
            out, err = self.process.communicate(input, timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(
                f"{self.name} did not end in {timeout_s} s\n{out}\n{err}"
            ) from None
        return Completed((self.name,), self.process.returncode, out, err)

    def stop(self) -> Completed:
        """End the tool as Ctrl-C or `kill` would, and return what it printed."""
        self.process.terminate()
        return self.wait()

    def __enter__(self) -> RunningTool:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.communicate()


class KafkaTools:
    """The tools, pointed at one broker."""

    def __init__(self, address: str, runner: ToolRunner) -> None:
        self.address = address
        self._runner = runner

    def run(
        self,
        tool: str,
        *arguments: str,
        input: str | bytes | None = None,
        check: bool = True,
        timeout_s: float = RUN_TIMEOUT_S,
    ) -> Completed:
        """Run a tool to its end, with --bootstrap-server unless the arguments have an address.

        The test fails when the tool's exit code is not 0, unless check is False.
        """
        full = self._with_address(tool, arguments)
        data = input.encode() if isinstance(input, str) else input or b""
        module = apache_kafka()
        done = None
        if tool not in OWN_PROCESS:
            done = self._runner.run(module.TOOLS[tool], full, data, timeout_s)
        if done is None:
            process = subprocess.run(
                module.tool_command(tool, full),
                input=data,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
            out, err = process.stdout.decode(), process.stderr.decode()
            done = (process.returncode, out, err)
        completed = Completed((tool, *full), *done)
        return completed.check() if check else completed

    def start(self, tool: str, *arguments: str) -> RunningTool:
        """Start a tool in a process of its own; use it in a `with`, so that it surely ends."""
        full = self._with_address(tool, arguments)
        return RunningTool(apache_kafka().tool_command(tool, full), f"{tool} {' '.join(full)}")

    def create_topic(self, topic: str, partitions: int = 1, **config: object) -> str:
        """Create a topic; config keys have _ for Kafka's dots. Returns its name."""
        options = [f"--config={k.replace('_', '.')}={v}" for k, v in config.items()]
        self.run(
            "kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions), *options
        )
        return topic

    def produce(self, topic: str, lines: Iterable[str], *options: str) -> None:
        """Produce one record per line with the console producer, which must not complain."""
        text = "".join(f"{line}\n" for line in lines)
        done = self.run("kafka-console-producer", "--topic", topic, *options, input=text)
        assert "ERROR" not in done.output, done.describe()

    def consume(
        self, topic: str, *options: str, count: int | None = None, timeout_ms: int = 15_000
    ) -> list[str]:
        """Consume with the console consumer and return the lines it printed.

        Args:
            options: more options; --from-beginning unless they have --offset or --group.
            count: how many records to wait for; without it, all that come up to a silence
                of `timeout_ms`.
        """
        chosen = list(options)
        if "--offset" not in options and "--from-beginning" not in options:
            chosen.append("--from-beginning")
        if count is not None:
            chosen += ["--max-messages", str(count)]
        chosen += ["--timeout-ms", str(timeout_ms)]
        # Its exit code is 0 also when the time ran out, but then it has said so on stderr.
        done = self.run("kafka-console-consumer", "--topic", topic, *chosen)
        return done.stdout.splitlines()

    def _with_address(self, tool: str, arguments: tuple[str, ...]) -> list[str]:
        if tool in NO_ADDRESS or GIVEN_ADDRESS & set(arguments):
            return list(arguments)
        address = ["--bootstrap-server", self.address]
        return [*arguments, *address] if tool in ADDRESS_AT_END else [*address, *arguments]
