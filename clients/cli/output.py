"""What commands print: tables for people, one JSON object a line for programs.

Owns `Output` and `Column`. Rules:
1. Results go to standard output, everything else (progress, notes, errors) to standard error.
2. A table is as wide as its contents. On a terminal that is narrower each row becomes a block of
   "name: value" lines; in a pipe or file nothing is ever cut or wrapped.
3. With `--json` each row is one object in a line of its own, with all fields and plain values:
   bytes and milliseconds, not "1.2 MB" and dates.
4. Text from a cluster is shown without characters that control a terminal.

Called by: the commands. `rich`, which knows how wide characters are, is imported by the first
table.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import click

Row = Mapping[str, Any]

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        key: of the column's values in a row.
        title: the heading; None: the key, with blanks for underscores.
        show: makes text of a value that is not None.
        right: align at the right, as numbers are.
    """

    key: str
    title: str | None = None
    show: Callable[[Any], str | None] = str
    right: bool = False

    @property
    def heading(self) -> str:
        """The heading."""
        return self.title if self.title is not None else self.key.replace("_", " ")

    def text(self, row: Row) -> str:
        """Return a row's cell."""
        value = row.get(self.key)
        shown = None if value is None else self.show(value)
        return "-" if shown in (None, "") else printable(str(shown))


def number(key: str, title: str | None = None) -> Column:
    """Make a column of numbers."""
    return Column(key, title, right=True)


class Output:
    """See the module.

    Args:
        as_json: print one object a line instead of tables.
        stream: where to print; None: standard output.
    """

    def __init__(self, *, as_json: bool = False, stream: IO[str] | None = None) -> None:
        self.as_json = as_json
        self._stream = sys.stdout if stream is None else stream

    @property
    def is_terminal(self) -> bool:
        """Whether the output goes to a terminal."""
        return self._stream.isatty()

    def rows(self, columns: Sequence[Column], rows: Iterable[Row], *, title: str = "") -> None:
        """Print rows; in JSON with all their fields, in a table those of the columns.

        Args:
            title: a line above the table, for people.
        """
        if self.as_json:
            for row in rows:
                self.object(row)
            return
        cells = [[column.text(row) for column in columns] for row in rows]
        if title:
            self.line(title)
        if cells:
            self._table(columns, cells)

    def object(self, fields: Row) -> None:
        """Print an object as a line of JSON."""
        self.line(json.dumps(fields, ensure_ascii=False, default=_plain))

    def fields(self, fields: Row, columns: Sequence[Column]) -> None:
        """Print one thing: an object, or a "name: value" line for each of its columns."""
        if self.as_json:
            self.object(fields)
            return
        width = max(len(column.heading) for column in columns) + 1
        for column in columns:
            self.line(f"{column.heading + ':':<{width}} {column.text(fields)}")

    def done(self, sentence: str, fields: Row) -> None:
        """Print what was done: a sentence for people, an object for programs."""
        if self.as_json:
            self.object(fields)
        else:
            self.line(printable(sentence))

    def line(self, text: str = "") -> None:
        """Print a line as it is."""
        self._stream.write(f"{text}\n")

    def flush(self) -> None:
        """Flush what was printed."""
        self._stream.flush()

    def clear(self) -> None:
        """Clear the screen of a terminal."""
        if self.is_terminal and not self.as_json:
            self._stream.write("\x1b[H\x1b[2J")

    # -- tables ---------------------------------------------------------------------------------

    def _table(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
        from rich.cells import cell_len

        headings = [column.heading.upper() for column in columns]
        widths = [max(map(cell_len, column)) for column in zip(headings, *cells, strict=True)]
        if self.is_terminal and sum(widths) + len(_GAP) * (len(widths) - 1) > terminal_width():
            self._blocks(columns, cells)
            return
        for index, row in enumerate((headings, *cells)):
            parts = []
            for column, width, text in zip(columns, widths, row, strict=True):
                padding = " " * (width - cell_len(text))
                parts.append(padding + text if column.right else text + padding)
            self._row(_GAP.join(parts).rstrip(), is_heading=index == 0)

    def _blocks(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
        width = max(len(column.heading) for column in columns) + 1
        for index, row in enumerate(cells):
            if index:
                self.line()
            for column, text in zip(columns, row, strict=True):
                line = f"{column.heading + ':':<{width}} {text}"
                self._row(line, is_heading=column is columns[0])

    def _row(self, text: str, *, is_heading: bool) -> None:
        self.line(click.style(text, bold=True) if is_heading and self.is_terminal else text)


def terminal_width() -> int:
    """Return how many columns the terminal has."""
    return shutil.get_terminal_size().columns


def note(text: str) -> None:
    """Print what is no result to standard error."""
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Return a text with escapes for characters that control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def size_text(size_bytes: int) -> str:
    """Return a number of bytes as people read it."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the last unit takes all")


def joined(items: Iterable[object]) -> str:
    """Return items with commas between them."""
    return ",".join(str(item) for item in items)


def _plain(value: object) -> object:
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
