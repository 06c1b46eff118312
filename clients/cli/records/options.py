"""The options of `kraftrio produce` and `kraftrio consume`, and what they mean.

Owns `ProduceOptions` and `ConsumeOptions`, with an attribute for each option of the command.

Called by: the commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from kraftrio.clients.cli.output import Output
from kraftrio.clients.cli.records.consuming import Wanted
from kraftrio.clients.cli.records.json_lines import InputRecord, parse_record
from kraftrio.clients.cli.records.producing import Destination, Parse
from kraftrio.clients.cli.records.rendering import Renderer, make_renderer
from kraftrio.clients.cli.records.starts import Start
from kraftrio.clients.cli.session import Session, pairs
from kraftrio.clients.cli.times import parse_moment_ms
from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.consumer.config import ConsumerConfig

# Larger than the clients' defaults: who pipes a file wants throughput.
_BATCH_BYTES = 900_000  # a little below what topics take by default
_FETCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """The options of `kraftrio produce`."""

    path: str | None
    line_format: str
    key: str | None
    key_separator: str | None
    headers: tuple[str, ...]
    partition: int | None
    rate: float | None
    acks: str | None
    compression: str | None

    def settings(self, session: Session) -> dict[str, Any]:
        """Return the settings of the producer."""
        given = {"acks": self.acks, "compression_type": self.compression}
        settings = {"batch_size": _BATCH_BYTES, **session.settings(ProducerConfig)}
        return settings | {name: value for name, value in given.items() if value is not None}

    def destination(self, topic: str, now_ms: int) -> Destination:
        """Return where records go, and how lines are read.

        Raises:
            click.UsageError: options contradict each other.
        """
        if self.key_separator is not None and self.line_format == "json":
            raise click.UsageError(
                "--key-separator goes with lines, and JSON has a field for the key"
            )
        headers = pairs(self.headers, "--header")
        return Destination(
            topic,
            self.partition,
            None if self.key is None else self.key.encode(),
            tuple((name, value.encode()) for name, value in headers.items()),
            self._parser(now_ms),
            self.rate,
        )

    def _parser(self, now_ms: int) -> Parse | None:
        if self.line_format == "json":
            return partial(parse_record, now_ms=now_ms)
        separator = self.key_separator
        if separator is None:
            return None
        parting = separator.encode().decode("unicode_escape").encode()

        def parse(line: bytes) -> InputRecord:
            key, found, value = line.partition(parting)
            if not found:
                raise ValueError(f"there is no {separator!r} between key and value")
            return InputRecord(value, key)

        return parse


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The options of `kraftrio consume`."""

    from_beginning: bool
    offset: int | None
    since: str | None
    until: str | None
    tail: int | None
    chosen: tuple[int, ...]
    group: str | None
    count: int | None
    follow: bool | None
    key: str | None
    read_committed: bool
    template: str | None
    value_format: str

    def check(self) -> None:
        """Raise click.UsageError if options contradict each other."""
        starts = {
            "--from-beginning": self.from_beginning,
            "--offset": self.offset is not None,
            "--since": self.since is not None,
            "--tail": self.tail is not None,
        }
        given = [name for name, is_given in starts.items() if is_given]
        if len(given) > 1:
            raise click.UsageError(
                f"{' and '.join(given)} are two ways to say where to begin: give one"
            )
        if self.group is not None:
            self._check_group()
        if self.tail is not None and self.count is not None:
            raise click.UsageError("--tail already says how many")

    def _check_group(self) -> None:
        positions = {
            "--offset": self.offset,
            "--since": self.since,
            "--until": self.until,
            "--tail": self.tail,
        }
        for name, value in positions.items():
            if value is not None:
                raise click.UsageError(
                    f"{name} does not go with --group, which knows where it is;"
                    " kraftrio group reset moves a group"
                )
        if self.chosen:
            raise click.UsageError("--partition does not go with --group, which shares them out")

    @property
    def is_following(self) -> bool:
        """Whether to wait for new records: by default only for a count."""
        return self.count is not None if self.follow is None else self.follow

    @property
    def wanted(self) -> Wanted | None:
        """Which records are printed; None: all."""
        if self.key is None:
            return None
        encoded = self.key.encode()
        return lambda record: record.key == encoded

    def start(self, now_ms: int) -> Start:
        """Return where to begin.

        Raises:
            click.UsageError: what --since says is not a moment.
        """
        since_ms = _moment_ms("--since", self.since, now_ms)
        if self.tail or since_ms is not None:
            return Start(-self.tail if self.tail else self.offset, since_ms)
        has_start = self.from_beginning or self.offset is not None
        at_end = self.tail == 0 or (self.is_following and self.count is None and not has_start)
        return Start(self.offset, None, at_end=at_end)

    def until_ms(self, now_ms: int) -> int | None:
        """Return the moment to end at, in milliseconds since 1970; raises as `start`."""
        return _moment_ms("--until", self.until, now_ms)

    def renderer(self, output: Output) -> Renderer | None:
        """Return what makes lines of records; None: values are printed as they are.

        Raises:
            click.UsageError: the template is wrong.
        """
        value_format = self.value_format
        if value_format == "auto":
            value_format = "text" if output.is_terminal else "raw"
        is_plain = not output.as_json and self.template is None
        if is_plain and value_format == "raw" and self.key is None and self.tail is None:
            return None
        try:
            return make_renderer(
                as_json=output.as_json, template=self.template, value_format=value_format
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    def settings(self, session: Session) -> dict[str, Any]:
        """Return the settings of the consumer."""
        settings = session.settings(ConsumerConfig)
        settings.setdefault("max_partition_fetch_bytes", _FETCH_BYTES)
        settings["group_id"] = self.group
        if self.from_beginning:
            settings["auto_offset_reset"] = "earliest"
        if self.read_committed:
            settings["isolation_level"] = "read_committed"
        return settings


def _moment_ms(name: str, text: str | None, now_ms: int) -> int | None:
    if text is None:
        return None
    try:
        return parse_moment_ms(text, now_ms)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None
