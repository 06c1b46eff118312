"""What a user sees while something is going on: lines, and bars where there is a terminal.

Bars are drawn by rich; into a file or a pipe go plain lines instead, each bar's at most once in
LINE_EVERY_S, and the last one. Called by: `cli`.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

LINE_EVERY_S: Final = 5.0


class Bars:
    """Several counts that grow towards their totals; to be entered with `with`."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout)
        self._progress = Progress(
            TextColumn("{task.description:12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>14}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._totals: dict[str, tuple[int, int]] = {}  # first, total
        self._begun: dict[str, float] = {}
        self._shown: dict[str, tuple[int, str]] = {}  # where each bar stands, and its rate
        self._printed_at = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def print_line(self, line: str) -> None:
        """Show a line above the bars."""
        if self._console.is_terminal:
            self._progress.console.print(line, markup=False, highlight=False)
        else:
            print(line, flush=True)

    def add(self, name: str, done: int, total: int) -> None:
        """Begin a bar."""
        self._totals[name] = (done, total)
        self._begun[name] = time.monotonic()
        self._shown[name] = (-1, "")
        self._tasks[name] = self._progress.add_task(name, completed=done, total=total, rate="")

    def advance(self, name: str, done: int) -> None:
        """Let a bar stand at `done`."""
        first, total = self._totals[name]
        if done == self._shown[name][0]:
            return
        elapsed_s = time.monotonic() - self._begun[name]
        rate = f"{(done - first) / elapsed_s:,.0f} rows/s" if elapsed_s > 0.05 else ""
        rate = "was there" if done == first == total else rate
        self._shown[name] = (done, rate)
        self._progress.update(self._tasks[name], completed=done, rate=rate)
        if self._console.is_terminal:
            return
        now = time.monotonic()
        if done == total or now - self._printed_at >= LINE_EVERY_S:
            self._printed_at = now
            print(f"{name:12} {done:,}/{total:,}  {rate}", flush=True)
