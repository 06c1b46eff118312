"""Golden traces: scenario files of commands, each followed by the lines that it brought about.

A file has comments (`# ...`), empty lines, commands (`> propose 1 a`) and, indented below each
command, its trace. `check` runs the commands and compares; with TEST_REWRITE=1 in the environment
it writes the traces again, and a reviewer reads the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

REWRITE = "TEST_REWRITE"

Interpreter = Callable[[str], Iterable[str]]
"""Runs a command; gives the lines of its trace."""


def traced(text: str, interpret: Interpreter) -> str:
    """Return a scenario with the traces that its commands bring about now."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue  # a trace of before
        lines.append(line)
        if line.startswith("> "):
            lines += [f"    {trace}".rstrip() for trace in interpret(line.removeprefix("> "))]
    return "\n".join(lines) + "\n"


def check(path: Path, interpret: Interpreter) -> None:
    """Run a scenario; its traces must be those in the file, or are written to it."""
    before = path.read_text()
    now = traced(before, interpret)
    if os.environ.get(REWRITE) == "1":
        path.write_text(now)
    else:
        assert now == before, f"if this is as it should be, run with {REWRITE}=1: {path}"
