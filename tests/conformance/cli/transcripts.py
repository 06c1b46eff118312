"""Transcripts: what a user types, and what is printed then, as text files.

    $ topic create {topic} --partitions 3       in a pipe
    topic {topic} created

    $40 topic list                              on a terminal of 40 columns
    $ produce {topic} <<< one\\ntwo               with something to read
    $ topic describe nothing
    status 1
    kraftrio: there is no topic ...

{topic}, {other}, {group} and {txn} are names of the run's own, and {broker} is its HOST:PORT. In
what is expected `<n>` is any number, `<time>` a moment, `<...>` any text in a line, and a line of
`...` any lines. Gaps between columns count as one blank. `#` begins a comment.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.cli.terminal import run

_COMMAND = re.compile(r"\$(\d*) (.*)")
_STATUS = re.compile(r"status (\d+)")
_HOLES = {
    "<n>": r"-?\d[\d.,]*",
    "<time>": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    "<...>": r".*",
}
_WORDS = ("topic", "other", "group", "txn")


@dataclass
class Step:
    """A command, and what is expected of it."""

    command: str
    typed: bytes
    width: int | None
    status: int = 0
    lines: list[str] = field(default_factory=list)


def read_steps(path: Path) -> list[Step]:
    """Read a transcript."""
    steps: list[Step] = []
    for line in path.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        found = _COMMAND.fullmatch(line)
        if found is not None:
            command, _, typed = found[2].partition(" <<< ")
            width = int(found[1]) if found[1] else None
            data = typed.replace("\\n", "\n").replace("\\t", "\t").encode()
            steps.append(Step(command, data.strip(b" ") + b"\n" if typed else b"", width))
        elif (status := _STATUS.fullmatch(line)) is not None:
            steps[-1].status = int(status[1])
        else:
            steps[-1].lines.append(line)
    return steps


def play(path: Path, bootstrap: str, suffix: str) -> None:
    """Type a transcript's commands, and compare what is read.

    Args:
        suffix: makes names of this run's own.
    """
    names = {f"{{{word}}}": f"{word}{suffix}" for word in _WORDS} | {"{broker}": bootstrap}
    for step in read_steps(path):
        arguments = shlex.split(_named(step.command, names))
        ended = run(
            *arguments,
            bootstrap=bootstrap,
            typed=_named(step.typed.decode(), names).encode(),
            width=step.width,
        )
        shown = [" ".join(line.split()) for line in ended.everything.splitlines() if line.strip()]
        wanted = [_pattern(" ".join(_named(line, names).split())) for line in step.lines]
        output = f"$ {step.command}\n" + "\n".join(shown)
        assert ended.status == step.status, f"status {ended.status}\n{output}"
        assert _fits(wanted, shown), (
            f"{path.name}: expected\n{chr(10).join(step.lines)}\nof {output}"
        )


def _named(text: str, names: dict[str, str]) -> str:
    for word, name in names.items():
        text = text.replace(word, name)
    return text


def _pattern(line: str) -> re.Pattern[str] | None:
    """Return what a line must look like; None: any lines."""
    if line == "...":
        return None
    parts = re.split("(" + "|".join(map(re.escape, _HOLES)) + ")", line)
    return re.compile("".join(_HOLES.get(part, re.escape(part)) for part in parts))


def _fits(wanted: list[re.Pattern[str] | None], shown: list[str]) -> bool:
    if not wanted:
        return not shown
    if wanted[0] is None:
        return any(_fits(wanted[1:], shown[start:]) for start in range(len(shown) + 1))
    return bool(shown) and bool(wanted[0].fullmatch(shown[0])) and _fits(wanted[1:], shown[1:])
