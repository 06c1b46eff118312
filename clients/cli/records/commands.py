"""`kraftrio produce` and `kraftrio consume`.

Called by: the root of the command line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import click

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.cli.output import tell
from kraftrio.clients.cli.partitions import describe_topics, partitions_of
from kraftrio.clients.cli.records.consuming import Consuming, Wanted
from kraftrio.clients.cli.records.json_lines import InputRecord, parse_record
from kraftrio.clients.cli.records.lines import LineSource
from kraftrio.clients.cli.records.producing import Destination, Producing
from kraftrio.clients.cli.records.progress import show_progress
from kraftrio.clients.cli.records.rendering import FORMATS, Renderer, make_renderer
from kraftrio.clients.cli.records.starts import Start, begin_and_end
from kraftrio.clients.cli.records.writing import Writer, open_writer
from kraftrio.clients.cli.session import Session, cluster_command, pairs
from kraftrio.clients.cli.times import parse_moment_ms
from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.primitives import TopicPartition

_STDIN = 0
_STDOUT = 1
# Larger than the defaults of the clients: who pipes a file wants throughput.
_BATCH_BYTES = 900_000  # a little below what topics take unless told otherwise
_FETCH_BYTES = 8 << 20


@click.command(
    "produce",
    epilog="Examples: kraftrio produce orders < lines ; kraftrio produce orders --format json"
    ' <<< \'{"key": "a", "value": "b"}\'',
)
@click.argument("topic")
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Default: what comes in."
)
@click.option(
    "--format",
    "line_format",
    type=click.Choice(("lines", "json")),
    default="lines",
    help="A line is a value, or a JSON object with value, key, headers, timestamp, partition.",
)
@click.option("--key", metavar="TEXT", help="The key of all records.")
@click.option("--key-separator", metavar="TEXT", help="A line is key, this, and value.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="Of all records.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Default: by the key.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Records a second."
)
@click.option("--acks", type=click.Choice(("all", "1", "0")), help="Default: all.")
@click.option(
    "--compression",
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    help="Default: none.",
)
@cluster_command
async def produce(
    session: Session,
    topic: str,
    path: str | None,
    line_format: str,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    rate: float | None,
    acks: str | None,
    compression: str | None,
) -> None:
    """Write lines into a topic: of a file, or of what comes in."""
    if key_separator is not None and line_format == "json":
        raise click.UsageError("--key-separator goes with lines, and JSON has a field for the key")
    given = {"acks": acks, "compression_type": compression}
    settings = {"batch_size": _BATCH_BYTES, **session.settings(ProducerConfig)}
    settings |= {name: value for name, value in given.items() if value is not None}
    destination = Destination(
        topic,
        partition,
        None if key is None else key.encode(),
        tuple((name, value.encode()) for name, value in pairs(headers, "--header").items()),
        _parser(session, line_format, key_separator),
        rate,
    )
    async with session.admin() as admin:
        await partitions_of(admin, topic, () if partition is None else (partition,))
    began_at = time.monotonic()
    descriptor = _STDIN if path is None else os.open(path, os.O_RDONLY)
    source = LineSource(descriptor)
    if path is None and sys.stdin.isatty():
        tell("a line is a record; end with Ctrl-D")
    async with Producer(session.target.servers, **settings) as producer:
        producing = Producing(producer, destination)
        async with show_progress(source, lambda: producing.sent_records):
            await producing.run(source)
    if session.output.as_json:
        session.output.object(
            {
                "topic": topic,
                "records": producing.written_records,
                "bytes": producing.sent_bytes,
                "seconds": round(time.monotonic() - began_at, 3),
            }
        )
    else:
        tell(producing.summary)


def _parser(session: Session, line_format: str, separator: str | None) -> Any:
    if line_format == "json":
        return partial(parse_record, now_ms=session.now_ms())
    if separator is None:
        return None
    parting = separator.encode().decode("unicode_escape").encode()

    def parse(line: bytes) -> InputRecord:
        key, found, value = line.partition(parting)
        if not found:
            raise ValueError(f"there is no {separator!r} between key and value")
        return InputRecord(value, key)

    return parse


@click.command(
    "consume",
    epilog="Examples: kraftrio consume orders --from-beginning --count 500 --group readers --json"
    " ; kraftrio consume orders --since '5m ago' --follow --template '{key} {value}\\n'",
)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--from-beginning", is_flag=True, help="Begin with the first records.")
@click.option("--offset", type=int, metavar="N", help="Begin there; -N: that far before the end.")
@click.option("--since", metavar="MOMENT", help="Begin at a time such as '5m ago'.")
@click.option("--until", metavar="MOMENT", help="End at a time.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N.")
@click.option("--partition", "chosen", type=int, multiple=True, metavar="N", help="Default: all.")
@click.option("--group", metavar="GROUP", help="Read as a member, from where the group is.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="So many, waiting for them.")
@click.option(
    "--follow/--no-follow",
    default=None,
    help="Go on with what comes, or stop at the end (the default without --count).",
)
@click.option("--key", metavar="TEXT", help="Only records with this key.")
@click.option("--read-committed", is_flag=True, help="Leave out what transactions did not commit.")
@click.option(
    "--template", metavar="TEXT", help="Such as '{partition} {offset} {time} {key} {value}\\n'."
)
@click.option(
    "--value-format",
    type=click.Choice(FORMATS),
    default="auto",
    help="Of keys and values; auto: readable on a terminal, as they are elsewhere.",
)
@cluster_command
async def consume(session: Session, topics: tuple[str, ...], **options: Any) -> None:
    """Print the records of topics.

    Without --from-beginning, --offset, --since or --tail a group goes on where it is, --follow
    begins with what comes from now on, and everything else begins with the first records.
    """
    if options["follow"] is None:
        options["follow"] = options["count"] is not None
    _check_consume(topics, options)
    render = _renderer(session, options)
    wanted = _wanted(options["key"])
    async with session.admin() as admin:
        items = [
            item
            for topic in await describe_topics(admin, topics)
            for item in await partitions_of(admin, topic, options["chosen"])
        ]
        begins, ends = await _begin_and_end(session, admin, items, options)
    sys.stdout.flush()
    async with (
        open_writer(_STDOUT) as writer,
        _consumer(session, topics, begins, options) as consumer,
    ):
        consuming = Consuming(
            consumer,
            writer,
            render,
            wanted=wanted,
            count=options["count"],
            ends=None if options["follow"] and options["until"] is None else ends,
        )
        if options["tail"] is not None:
            await _print_tail(consumer, writer, render, wanted, ends, options["tail"])
            if not options["follow"]:
                return
        await consuming.run()


def _check_consume(topics: Sequence[str], options: dict[str, Any]) -> None:
    starts = [
        name
        for name in ("from_beginning", "offset", "since", "tail")
        if options[name] not in (None, False)
    ]
    if len(starts) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in starts)
        raise click.UsageError(f"{names} are two ways to say where to begin: give one")
    if options["group"] is not None:
        for name in ("offset", "since", "until", "tail"):
            if options[name] is not None:
                raise click.UsageError(
                    f"--{name} does not go with --group, which knows where it is;"
                    " kraftrio group reset moves a group"
                )
        if options["chosen"]:
            raise click.UsageError("--partition does not go with --group, which shares them out")
    if options["tail"] is not None and options["count"] is not None:
        raise click.UsageError("--tail already says how many")


def _renderer(session: Session, options: dict[str, Any]) -> Renderer | None:
    value_format = options["value_format"]
    if value_format == "auto":
        value_format = "text" if session.output.is_terminal else "raw"
    is_plain = not session.output.as_json and options["template"] is None
    if is_plain and value_format == "raw" and options["key"] is None and options["tail"] is None:
        return None
    try:
        return make_renderer(
            as_json=session.output.as_json,
            template=options["template"],
            value_format=value_format,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _wanted(key: str | None) -> Wanted | None:
    if key is None:
        return None
    encoded = key.encode()
    return lambda record: record.key == encoded


async def _begin_and_end(
    session: Session, admin: Admin, items: Sequence[TopicPartition], options: dict[str, Any]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    tail = options["tail"]
    has_start = options["from_beginning"] or options["offset"] is not None
    start = Start(
        offset=-tail if tail else options["offset"],
        at_ms=_moment(session, "--since", options["since"]),
        at_end=tail == 0 or (options["follow"] and options["count"] is None and not has_start),
    )
    if tail or options["since"] is not None:
        start = Start(start.offset, start.at_ms)
    return await begin_and_end(
        admin,
        items,
        start,
        _moment(session, "--until", options["until"]),
        read_committed=options["read_committed"],
    )


def _moment(session: Session, name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_moment_ms(text, session.now_ms())
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


@asynccontextmanager
async def _consumer(
    session: Session,
    topics: Sequence[str],
    begins: dict[TopicPartition, int],
    options: dict[str, Any],
) -> AsyncIterator[Consumer]:
    """Open a consumer that reads what is to be read."""
    settings = session.settings(ConsumerConfig)
    settings.setdefault("max_partition_fetch_bytes", _FETCH_BYTES)
    settings["group_id"] = options["group"]
    if options["from_beginning"]:
        settings["auto_offset_reset"] = "earliest"
    if options["read_committed"]:
        settings["isolation_level"] = "read_committed"
    async with Consumer(session.target.servers, **settings) as consumer:
        if options["group"] is not None:
            await consumer.subscribe(list(topics))
        else:
            consumer.assign(begins)
            for item, offset in begins.items():
                consumer.seek(item, offset)
        yield consumer


async def _print_tail(
    consumer: Consumer,
    writer: Writer,
    render: Renderer | None,
    wanted: Wanted | None,
    ends: dict[TopicPartition, int],
    count: int,
) -> None:
    """Print the last records of all partitions together, by their time."""
    assert render is not None
    found: list[ConsumerRecord] = []

    def gather(records: Any) -> bytes:
        found.extend(records)
        return b""

    await Consuming(consumer, writer, gather, wanted=wanted, ends=ends).run()
    found.sort(key=lambda record: record.timestamp)
    await writer.write(render(found[-count:] if count else []))
