"""Members of a share group in Java, each a process, and a model of what they may be given.

`Members` starts, kills and stops them; `ShareModel` takes the lines that they write (see
ShareMember.java) in the order in which they come, and says what is wrong.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path

from tests.conformance.java_programs import java_program

PROGRAM = Path(__file__).with_name("ShareMember.java")
START_S = 120.0
STOP_S = 30.0
NICENESS = 5
# A member may write down late that it has got what was acknowledged by another one meanwhile.
LATE_S = 2.0

Record = tuple[int, int]
"""Partition and offset."""


class ShareModel:
    """What is known of each record.

    Args:
        limit: how often a record may be delivered.

    Attributes:
        errors: what happened and must not.
    """

    def __init__(self, limit: int, unseen: int = 0) -> None:
        """Begin without knowing any record.

        Args:
            limit: how often the group's records are delivered.
            unseen: how many deliveries of a record may have been to members that died before they
                reported it.
        """
        self._limit = limit
        self._seen_limit = limit - unseen
        self._lock = threading.Lock()
        self._said: dict[tuple[str, Record], str] = {}
        self.done: dict[Record, float] = {}  # accepted or rejected, and since when that is kept
        self._unsure: set[Record] = set()  # acknowledged, but unknown whether that counts
        self.deliveries: defaultdict[Record, int] = defaultdict(int)
        self.most: dict[Record, int] = {}  # the greatest delivery count
        self.counts: defaultdict[str, int] = defaultdict(int)  # acknowledgements by type
        self.refusals: list[str] = []
        self.errors: list[str] = []

    def take(self, member: str, line: str) -> None:
        """Take a line of a member."""
        word, *words = line.split()
        with self._lock:
            if word == "got":
                partition, offset, count = map(int, words)
                self._on_delivery(member, (partition, offset), count)
            elif word == "said":
                record = int(words[0]), int(words[1])
                self._said[member, record] = words[2]
                self.counts[words[2]] += 1
            elif word == "kept":
                for text in words[1:]:
                    self._on_kept(member, (int(words[0]), int(text)))
            elif word == "unsure":
                self._unsure |= {(int(words[0]), int(text)) for text in words[1:]}
            elif word == "failed":
                self.refusals.append(f"{member}: {line}")

    def _on_delivery(self, member: str, record: Record, count: int) -> None:
        if self._said.pop((member, record), "") != "renew":
            self.deliveries[record] += 1
        if not 1 <= count <= self._limit:
            self.errors.append(f"{record} was delivered for the {count}th time")
        self.most[record] = max(count, self.most.get(record, 0))
        since = self.done.get(record)
        if since is not None and time.monotonic() - since > LATE_S:
            self.errors.append(f"{record} was delivered to {member} after it was done with")

    def _on_kept(self, member: str, record: Record) -> None:
        kind = self._said.get((member, record))
        if kind in ("accept", "reject"):
            self.done.setdefault(record, time.monotonic())

    def lose(self, member: str) -> None:
        """A member was killed: whether its last acknowledgements were taken it has not said."""
        with self._lock:
            self._unsure |= {
                record
                for (name, record), kind in self._said.items()
                if name == member and kind in ("accept", "reject")
            }

    def open_records(self, ends: dict[int, int]) -> list[Record]:
        """Records that are neither finished, nor given up after their last delivery."""
        with self._lock:
            return [
                (partition, offset)
                for partition, end in ends.items()
                for offset in range(end)
                if (partition, offset) not in self.done
                and (partition, offset) not in self._unsure
                and self.most.get((partition, offset), 0) < self._seen_limit
            ]


def lower_priority(pid: int) -> None:
    """Let others run before a process; its threads each have a priority, and hand it on."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), NICENESS)


class Members:
    """The running members of a group."""

    def __init__(self, bootstrap: str, group: str, topic: str, model: ShareModel) -> None:
        """Begin without members."""
        self._arguments = [bootstrap, group, topic]
        self._model = model
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._readers: dict[str, threading.Thread] = {}
        self._ready: dict[str, threading.Event] = {}
        self._seed = 0

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.kill9(name)

    def start(self, *names: str) -> None:
        """Start members, and wait until they subscribe."""
        command = [*java_program(PROGRAM), *self._arguments]
        for name in names:
            self._seed += 1
            process = subprocess.Popen(
                [*command, str(self._seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._processes[name] = process
            self._ready[name] = threading.Event()
            reader = threading.Thread(target=self._read, args=(name, process), daemon=True)
            self._readers[name] = reader
            reader.start()
        for name in names:
            assert self._ready[name].wait(START_S), f"{name} has not started"

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready"):
                # Members whose broker is down spin: it must get up beside them.
                lower_priority(process.pid)
                self._ready[name].set()
            elif line.endswith("\n"):
                self._model.take(name, line)

    def kill9(self, name: str) -> None:
        """Kill a member."""
        process = self._processes.pop(name)
        process.kill()
        self._end(name, process)
        self._model.lose(name)

    def stop(self, name: str) -> None:
        """Let a member close."""
        process = self._processes.pop(name)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(STOP_S) == 0
        self._end(name, process)

    def _end(self, name: str, process: subprocess.Popen[str]) -> None:
        process.wait()
        self._readers.pop(name).join()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
