"""`kraftrio log`: verify, stats and dump, on the log directories of a stopped broker.

What they show is found out in `broker/log/inspection`. Called by: `root`.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator
from typing import Any

import click

from kraftrio.broker.log.checkpoints import LOCK_FILE
from kraftrio.broker.log.files import ReadOnlyFileSystem
from kraftrio.broker.log.inspection.directory_check import DirectoryCheck
from kraftrio.broker.log.inspection.dump import NotDumpableError, dump_file
from kraftrio.broker.log.inspection.folders import (
    NothingFoundError,
    PartitionFolder,
    directories_of,
    find_folders,
)
from kraftrio.broker.log.inspection.stats import TopicStats, add_partition
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.clients.cli.output import Column, Output, Row, note, number, printable, size_text
from kraftrio.clients.cli.times import moment_text

_FINDINGS = (
    Column("path", "file"),
    number("position"),
    number("offset"),
    Column("fault"),
    Column("remains"),
)
_STATS = (
    Column("topic"),
    number("partitions"),
    number("segments"),
    Column("log_bytes", "bytes", size_text, right=True),
    Column("index_bytes", "indexes", size_text, right=True),
    number("batches"),
    number("records"),
    Column("compression"),
    number("keys"),
    Column("oldest_timestamp", "oldest", moment_text),
    Column("newest_timestamp", "newest", moment_text),
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


@click.group("log", cls=LazyGroup)
def log() -> None:
    """Log directories of a stopped broker, Apache Kafka's too."""


@log.command("verify", epilog="Example: kraftrio log verify kraftrio-data")
@click.argument("paths", metavar="DIR[,DIR]")
@click.option("--headers-only", is_flag=True, help="Do not look into the batches: faster.")
@_JSON
def verify(paths: str, headers_only: bool, as_json: bool) -> None:
    """Check every batch, index, epoch and checkpoint; the exit status is 1 if any is damaged."""
    output = Output(as_json=as_json)
    fs = ReadOnlyFileSystem()
    _warn_of_brokers(fs, paths)
    try:
        verification = DirectoryCheck(fs, paths, with_records=not headers_only)
    except NothingFoundError as error:
        raise CommandError(str(error)) from None
    progress = _ProgressLine(len(verification.folders))
    rows: list[Row] = []
    for finding in verification.run(progress.next):
        rows.append(finding._asdict())
        if as_json:
            output.object(rows[-1])
    progress.end()
    if not as_json:
        output.rows(_FINDINGS, rows)
    facts = verification.checked.values()
    segments = sum(len(each.segments) for each in facts)
    seen = (
        f"{len(facts)} partitions with {segments} segments,"
        f" {size_text(sum(each.size_bytes for each in facts))}"
    )
    if rows:
        files = len({row["path"] for row in rows})
        raise CommandError(f"{files} files are damaged; looked at were {seen}")
    if not as_json:
        output.line(f"{seen}: nothing is damaged")


@log.command("stats", epilog="Example: kraftrio log stats kraftrio-data --json")
@click.argument("paths", metavar="DIR[,DIR]")
@_JSON
def stats(paths: str, as_json: bool) -> None:
    """Show the bytes, batches, codecs and keys of each topic."""
    fs = ReadOnlyFileSystem()
    _warn_of_brokers(fs, paths)
    try:
        folders = find_folders(fs, paths)
    except NothingFoundError as error:
        raise CommandError(str(error)) from None
    topics: dict[str, TopicStats] = {}
    progress = _ProgressLine(len(folders))
    for folder in folders:
        progress.next(folder)
        name = folder.topic_partition.topic
        add_partition(fs, folder, topics.setdefault(name, TopicStats(name)))
    progress.end()
    Output(as_json=as_json).rows(_STATS, [_stats_row(each, as_json) for each in topics.values()])


@log.command("dump", epilog="Example: kraftrio log dump kraftrio-data/orders-0 --records --json")
@click.argument("path", metavar="FILE|DIR")
@click.option("--records", is_flag=True, help="Records instead of batches.")
@_JSON
def dump(path: str, records: bool, as_json: bool) -> None:
    """Show batches, records, entries of indexes, snapshots and checkpoints.

    Of a directory of a partition the log files are shown.
    """
    fs = ReadOnlyFileSystem()
    output = Output(as_json=as_json)
    try:
        for file in _files(fs, path):
            rows = dump_file(fs, file, with_records=records)
            if as_json:
                for row in rows:
                    output.object(row)
            else:
                _show_rows(output, rows)
    except (NotDumpableError, NothingFoundError) as error:
        raise CommandError(str(error)) from None


def _files(fs: ReadOnlyFileSystem, path: str) -> list[str]:
    if not fs.is_directory(path):
        if not fs.exists(path):
            raise CommandError(f"there is no file {path}")
        return [path]
    folders = find_folders(fs, path)
    return [folder.file(base, ".log") for folder in folders for base in folder.bases]


def _show_rows(output: Output, rows: Iterator[Any]) -> None:
    """Print rows as name=value: a log is too long for a table, whose width is known at its end."""
    for row in rows:
        fields = [f"{name}={_shown(value)}" for name, value in row.items() if value is not None]
        output.line(" ".join(fields))


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return printable(repr(text) if " " in text else text)


def _stats_row(stats: TopicStats, as_json: bool) -> Row:
    keys: object = stats.keys
    if stats.has_more_keys and not as_json:
        keys = f">{stats.keys}"
    ratio = stats.compression_ratio
    codecs = ",".join(
        f"{name} {share / max(sum(stats.codecs.values()), 1):.0%}"
        for name, share in sorted(stats.codecs.items())
    )
    return {
        "topic": stats.topic,
        "partitions": stats.partitions,
        "segments": stats.segments,
        "log_bytes": stats.log_bytes,
        "index_bytes": stats.index_bytes,
        "batches": stats.batches,
        "records": stats.records,
        "record_bytes": stats.record_bytes,
        "compression": stats.codecs
        if as_json
        else f"{codecs} ({ratio:.1f}x)"
        if ratio is not None
        else None,
        "keys": keys,
        "null_keys": stats.null_keys,
        "null_values": stats.null_values,
        "oldest_timestamp": stats.oldest_timestamp,
        "newest_timestamp": stats.newest_timestamp,
        "damaged_bytes": stats.damaged_bytes,
    }


def _warn_of_brokers(fs: ReadOnlyFileSystem, paths: str) -> None:
    """Say so if a broker runs on a directory: what it is writing looks like damage."""
    for directory in directories_of(paths):
        path = posixpath.join(directory, LOCK_FILE)
        if not fs.exists(path):
            continue
        try:
            fs.lock(path).release()
        except BlockingIOError:
            note(f"a broker runs on {directory}: what it is writing may look damaged")
        except OSError:
            continue  # nobody may lock what nobody may write


class _ProgressLine:
    """Which partition it is at, on a terminal."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._is_shown = sys.stderr.isatty()

    def next(self, folder: PartitionFolder) -> None:
        """The next partition has begun."""
        self._done += 1
        if self._is_shown:
            item = folder.topic_partition
            text = f"{self._done}/{self._count} {item.topic}-{item.partition}"
            sys.stderr.write(f"\r\x1b[K{printable(text)}")
            sys.stderr.flush()

    def end(self) -> None:
        """All are done."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
