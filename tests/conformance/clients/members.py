"""A member of a consumer group, whatever its client: in a thread of ours or in its own process.

A `Member` keeps what it has received and what it is assigned; the test asks it to commit and to
leave, and waits with `wait_until` for the result. Nothing here sleeps: every event wakes the
waiting test, and every wait has a deadline, after which the failure shows the state of each member.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.conformance.clients.records import Received, Record

DEADLINE_S = 30.0
OUTPUT_TAIL_CHARACTERS = 3000

T = TypeVar("T")

_changed = threading.Condition()


def wait_until(
    condition: Callable[[], bool], members: Sequence[Member], wanted: str, *, s: float = DEADLINE_S
) -> None:
    """Wait until the condition holds; fail when a member breaks or the time is over."""

    def over() -> bool:
        return any(member.failure for member in members) or condition()

    with _changed:
        _changed.wait_for(over, s)
        state = "\n".join(member.describe() for member in members)
        assert not any(member.failure for member in members), f"a client failed\n{state}"
        assert condition(), f"not in {s} s: {wanted}\n{state}"


class Member(ABC):
    """One consumer in a group."""

    def __init__(self, name: str) -> None:
        """Name a member; `start` makes it join."""
        self.name = name
        self.received: list[Received] = []
        self.keys: set[bytes] = set()
        self.assignment: frozenset[int] = frozenset()
        self.failure = ""
        self._left = False

    @abstractmethod
    def start(self) -> None:
        """Begin to join."""

    @abstractmethod
    def _ask(self, command: str) -> None:
        """Have the member carry out a command, and wait for its end."""

    def commit(self) -> None:
        """Commit the position behind what was received."""
        self._ask("commit")

    def leave(self) -> None:
        """Leave the group properly, without committing, and end."""
        if not self._left:
            self._left = True
            self._ask("leave")

    @abstractmethod
    def abandon(self) -> None:
        """End in any way, after a failure."""

    def add(self, found: Iterable[Received]) -> None:
        """Take note of records that arrived."""
        with _changed:
            for one in found:
                self.received.append(one)
                self.keys.add(one.record.key)
            _changed.notify_all()

    def assign(self, partitions: Iterable[int]) -> None:
        """Take note of what the member is assigned now, all of it."""
        with _changed:
            self.assignment = frozenset(partitions)
            _changed.notify_all()

    def fail(self, reason: str) -> None:
        """Take note that the client broke."""
        with _changed:
            self.failure = self.failure or reason
            _changed.notify_all()

    def describe(self) -> str:
        """Return the member's state for the message of a failure."""
        have = f"{self.name}: {len(self.received)} records, partitions {sorted(self.assignment)}"
        return f"{have}\n{self.failure}" if self.failure else have

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self.leave()
        else:
            self.abandon()


class ThreadMember(Member):
    """A member whose client is a Python library, driven by a thread of its own."""

    def __init__(self, name: str) -> None:
        """Prepare the thread."""
        super().__init__(name)
        self._wanted: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]
        self._wanted = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    @abstractmethod
    def open(self) -> None:
        """Make the consumer and subscribe; called in the thread, as the other hooks are."""

    @abstractmethod
    def poll(self) -> Iterable[Received]:
        """Return what has arrived; soon even if nothing has, since commands wait for this."""

    @abstractmethod
    def commit_positions(self) -> None:
        """Commit what `poll` has returned."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group and free the consumer."""

    def start(self) -> None:
        self._thread.start()

    def _main(self) -> None:
        try:
            self.open()
            leaving = False
            while not leaving:
                self.add(list(self.poll()))
                leaving = self._carry_out()
        except BaseException:  # the thread's end: the test must get whatever it was
            self.fail(traceback.format_exc())

    def _carry_out(self) -> bool:
        """Carry out what is asked for; return whether the member has left."""
        while not self._wanted.empty():
            action, done = self._wanted.get_nowait()
            try:
                done.set_result(action())
            except Exception as error:  # goes to the thread that asked
                done.set_exception(error)
            if action == self.close:
                return True
        return False

    def do(self, action: Callable[[], T]) -> T:
        """Have something done in the member's thread, and return what it returns."""
        done: Future[T] = Future()
        self._wanted.put((action, done))
        try:
            return done.result(DEADLINE_S)
        except FutureTimeoutError:
            raise AssertionError(f"{action} did not end\n{self.describe()}") from None

    def _ask(self, command: str) -> None:
        self.do(self.close if command == "leave" else self.commit_positions)
        if command == "leave":
            self._thread.join(DEADLINE_S)

    def abandon(self) -> None:
        self._wanted.put((self.close, Future()))
        self._thread.join(DEADLINE_S / 3)


class LineReader:
    """The output of a process: its stdout by lines with a deadline, the end of its stderr."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Begin to read both streams, each in a thread, so that neither blocks the process."""
        self._process = process
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr = b""
        self._threads = [
            threading.Thread(target=target, daemon=True)
            for target in (self._read_lines, self._read_noise)
        ]
        for thread in self._threads:
            thread.start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_noise(self) -> None:
        assert self._process.stderr is not None
        while chunk := os.read(self._process.stderr.fileno(), 1 << 16):
            self._stderr = (self._stderr + chunk)[-OUTPUT_TAIL_CHARACTERS:]

    def next_line(self, timeout_s: float | None) -> bytes | None:
        """Return the next line; None at the end of the stream or of the time."""
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def noise(self) -> str:
        """Return the end of what was written to stderr."""
        return self._stderr.decode(errors="replace").strip()

    def close(self) -> None:
        """Free the streams of the process, which must have ended."""
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


class ProcessMember(Member):
    """A member in a process of its own that speaks in lines of JSON.

    It prints {"assigned": [PARTITION, ...]}, {"records": [[PARTITION, OFFSET, RECORD], ...]} and,
    after a command that it read from its input (commit, leave), {"done": COMMAND}. Anything else
    is a failure.
    """

    def __init__(self, name: str, command: Sequence[str], **environment: str) -> None:
        """Prepare the process."""
        super().__init__(name)
        self._command = list(command)
        self._environment = os.environ | environment
        self._process: subprocess.Popen[bytes] | None = None
        self._output: LineReader | None = None
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def start(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment
        )
        self._output = LineReader(self._process)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process is not None
        assert self._output is not None
        try:
            while (line := self._output.next_line(None)) is not None:
                self._take(json.loads(line))
        except Exception:  # the thread's end: the test must get whatever it was
            self.fail(traceback.format_exc())
        if not self._left:
            self.fail(f"the process ended by itself with {self._process.wait()}")
        self._done.put("end")

    def _take(self, event: dict[str, Any]) -> None:
        if "records" in event:
            self.add([Received(p, offset, record_of(row)) for p, offset, row in event["records"]])
        elif "assigned" in event:
            self.assign(event["assigned"])
        elif "done" in event:
            self._done.put(event["done"])
        else:
            self.fail(f"{event}")

    def _ask(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        try:
            answer = self._done.get(timeout=DEADLINE_S)
        except queue.Empty:
            raise AssertionError(f"{command} did not end\n{self.describe()}") from None
        assert answer == command, f"{command}: {answer}\n{self.describe()}"
        if command == "leave":
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        try:
            code = self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.abandon()
            raise AssertionError(f"the process did not end\n{self.describe()}") from None
        self._free()
        assert code == 0, f"exit code {code}\n{self.describe()}"

    def _free(self) -> None:
        assert self._output is not None
        self._thread.join(DEADLINE_S)
        self._output.close()

    def abandon(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._left = True
            self._process.kill()
            self._process.wait()
            self._free()

    def describe(self) -> str:
        noise = self._output.noise() if self._output is not None else ""
        return super().describe() + (f"\n--- stderr of {self.name}\n{noise}" if noise else "")


def row_of(record: Record) -> list[Any]:
    """Return a record as JSON takes it: bytes in base64."""
    headers = [[name, to_text(value)] for name, value in record.headers]
    return [to_text(record.key), to_text(record.value), headers, record.timestamp_ms]


def record_of(row: list[Any]) -> Record:
    """Return the record of such a row."""
    key, value, headers, timestamp_ms = row
    pairs = tuple((name, to_bytes(text)) for name, text in headers)
    return Record(to_bytes(key) or b"", to_bytes(value), pairs, timestamp_ms)


def to_text(data: bytes | None) -> str | None:
    """Return bytes in base64, null as it is."""
    return None if data is None else base64.b64encode(data).decode()


def to_bytes(text: str | None) -> bytes | None:
    """Return the bytes of base64, null as it is."""
    return None if text is None else base64.b64decode(text)
