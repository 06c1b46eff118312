"""Plays a page of the documentation as its reader does: files are written, commands are typed.

A page's blocks are taken in their order, in a folder of the page's own:

    ```python title="worker.py"        a file, as is any block with a title and another language
    ```console                         `$ ` begins what is typed; what stands below is what is read
    ```console title="node 1"          a terminal of its own: its last command may go on, until `^C`
    ```console title="node 1"          ... or what the command that runs there prints next
    ```sh                              what is typed alone; it must succeed
    ```text                            is not played

In what is read, a line of `...` stands for any lines and `…` for any text in a line; moments and
fractions may be other ones than those of the page, and gaps between columns are one blank. Every
line of the page must be there, in its order, and nothing else.

Machines of the page are this one: each HOST:PORT is a port that is free here, and what is below
/etc and /var/lib is below the page's folder.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conformance.broker_process import free_port_pair

DEFAULT_ADDRESS = "localhost:9092"
DEADLINE_S = 150.0  # for Spark on a busy machine
_BLOCK = re.compile(
    r"^( *)```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL
)
_ADDRESS = re.compile(r"\b[a-z][\w.-]*:\d{4,5}\b")
_FOLDER = re.compile(r"(?<![\w/])(/etc|/var/lib|/mnt)/")
_EXPORT = re.compile(r"export (\w+)=(\S*)")
_SHAPES = {
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?": "<moment>",
    r"\b\d+\.\d+\b(?!\.)": "<fraction>",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    for found in _BLOCK.finditer(page):
        line = page.count("\n", 0, found.start()) + 1
        yield Block(found[2], found[3] or "", textwrap.dedent(found[4]), line)


@dataclass
class Step:
    """A command, and the lines that are read of it."""

    command: str
    line: int
    lines: list[str] = field(default_factory=list)
    interrupted: bool = False


def steps(block: Block) -> list[Step]:
    """Read a console block; one that begins without a command is about what runs there."""
    found: list[Step] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(Step(line[2:], number))
            continue
        if not found:
            found.append(Step("", number))
        if line == "^C":
            found[-1].interrupted = True
        elif found[-1].command.endswith("\\") and not found[-1].lines:
            found[-1].command += "\n" + line
        elif line.strip():
            found[-1].lines.append(line)
    return found


def alike(line: str) -> str:
    """Return a line without what differs from run to run."""
    for pattern, name in _SHAPES.items():
        line = re.sub(pattern, name, line)
    return " ".join(line.split())


def fits(wanted: list[str], shown: list[str], *, whole: bool) -> bool:
    """Whether a page's lines are what was read; not `whole`: more may follow."""
    if not wanted:
        return not (whole and shown)
    if wanted[0] == "...":
        return any(fits(wanted[1:], shown[at:], whole=whole) for at in range(len(shown) + 1))
    if not shown:
        return False
    pattern = ".*".join(re.escape(part) for part in alike(wanted[0]).split("…"))
    is_like = re.fullmatch(pattern, alike(shown[0])) is not None
    return is_like and fits(wanted[1:], shown[1:], whole=whole)


class Command:
    """A command that runs, and what it has printed so far."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip():
                self.lines.append(line.rstrip("\n"))

    def wait_for(self, wanted: list[str]) -> bool:
        """Wait until the lines are there; return whether they came."""
        deadline = time.monotonic() + DEADLINE_S
        while not fits(wanted, list(self.lines), whole=False):
            if time.monotonic() > deadline or not self._reader.is_alive():
                return fits(wanted, list(self.lines), whole=False)
            self._reader.join(0.02)
        return True

    def end(self) -> int:
        """Wait for its end and return its status; one that does not end is ended, and reported."""
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            output = "\n".join(self.lines)
            raise AssertionError(f"no end within {DEADLINE_S:.0f} s of\n{output}") from None
        finally:
            self._reader.join(DEADLINE_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            status = self._process.wait()
        return status

    def interrupt(self) -> int:
        """End it as Ctrl-C does."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.end()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.end()


class Reader:
    """A reader who does what pages say; their commands end with the context."""

    def __init__(self, folder: Path, broker: str = "", **environment: str) -> None:
        """Prepare.

        Args:
            folder: where files are written and commands run.
            broker: what runs at the default address; empty: nothing does, until the page starts it.
            environment: variables that commands get beside ours.
        """
        self._folder = folder
        (folder / "mnt").mkdir()
        self._addresses = {DEFAULT_ADDRESS: broker} if broker else {}
        self._terminals: dict[str, Command] = {}
        programs = Path(sys.executable).parent
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("KRAFTRIO_")}
        self._environment = (
            inherited
            | environment
            | {
                "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                "COLUMNS": "100",
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for command in self._terminals.values():
            command.kill()

    def take(self, path: Path) -> None:
        """Take a file that comes with a page."""
        (self._folder / path.name).write_text(self.here(path.read_text()))

    def play(self, page: str) -> None:
        """Do what a page says."""
        for block in blocks(page):
            if block.language == "console":
                self._type(block)
            elif block.language == "sh":
                for line in block.text.replace("\\\n", "\\\0").splitlines():
                    typed = line.replace("\\\0", "\\\n")
                    command = self._run(typed)
                    output = "\n".join(command.lines)
                    assert command.end() == 0, f"line {block.line}: $ {typed}\n{output}"
            elif block.title:
                path = self._folder / self.here(block.title).lstrip("/")
                path = Path(self.here(block.title)) if block.title.startswith("/") else path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.here(block.text))

    def here(self, text: str) -> str:
        """Return a text of the page with the addresses and folders of this machine."""

        def address(found: re.Match[str]) -> str:
            known = self._addresses
            if found[0] not in known:
                known[found[0]] = f"localhost:{free_port_pair()}"
            return known[found[0]]

        return _FOLDER.sub(rf"{self._folder}\1/", _ADDRESS.sub(address, text))

    def _run(self, command: str) -> Command:
        default = self.here(DEFAULT_ADDRESS)
        environment = {"KRAFTRIO_BOOTSTRAP_SERVER": default, **self._environment}
        here = self.here(command)
        if command == "kraftrio start":
            here += f" --listen {default}"
        elif command.startswith("kraftrio security init"):
            here += f" --port {default.rpartition(':')[2]}"
        return Command(here, self._folder, environment)

    def _type(self, block: Block) -> None:
        found = steps(block)
        for step in found:
            exported = _EXPORT.fullmatch(step.command)
            if exported is not None:
                self._environment[exported[1]] = self.here(exported[2])
                continue
            typed = step.command
            command = self._run(typed) if typed else self._terminals.pop(block.title)
            goes_on = bool(block.title) and step is found[-1] and not step.interrupted
            if goes_on:
                self._terminals[block.title] = command
            self._read(command, step, goes_on=goes_on)

    def _read(self, command: Command, step: Step, *, goes_on: bool) -> None:
        """Compare what a command prints with what the page says."""
        wanted = [self.here(line) for line in step.lines]
        if step.interrupted or goes_on:
            is_like = command.wait_for(wanted)
        if step.interrupted:
            command.interrupt()
        elif not goes_on:
            command.end()
            is_like = fits(wanted, command.lines, whole=True)
        assert is_like, "\n".join(
            [f"line {step.line}: $ {step.command}", *command.lines, "but the page says", *wanted]
        )
