"""`kraftrio produce` and `kraftrio consume`.

Called by: the root of the command line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from kraftrio.base.clock import wall_ms
from kraftrio.clients.cli.names import GROUP, TOPIC
from kraftrio.clients.cli.output import note
from kraftrio.clients.cli.partitions import describe_topics, partitions_of
from kraftrio.clients.cli.records.consuming import Consuming
from kraftrio.clients.cli.records.lines import LineSource
from kraftrio.clients.cli.records.options import ConsumeOptions, ProduceOptions
from kraftrio.clients.cli.records.producing import Producing
from kraftrio.clients.cli.records.progress import show_progress
from kraftrio.clients.cli.records.rendering import FORMATS, Renderer
from kraftrio.clients.cli.records.starts import begin_and_end
from kraftrio.clients.cli.records.writing import Writer, open_writer
from kraftrio.clients.cli.session import Session, cluster_command
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.producer.producer import Producer
from kraftrio.wire.primitives import TopicPartition

_STDIN = 0
_STDOUT = 1


@click.command(
    "produce",
    epilog="Examples: kraftrio produce orders < lines ; kraftrio produce orders --format json"
    ' <<< \'{"key": "a", "value": "b"}\'',
)
@click.argument("topic", type=TOPIC)
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Default: standard input."
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
async def produce(session: Session, topic: str, **given: Any) -> None:
    """Write the lines of a file, or of standard input, to a topic."""
    options = ProduceOptions(**given)
    settings = options.settings(session)
    destination = options.destination(topic, wall_ms())
    partition = options.partition
    async with session.admin() as admin:
        await partitions_of(admin, topic, () if partition is None else (partition,))
    began_at = time.monotonic()
    descriptor = _STDIN if options.path is None else os.open(options.path, os.O_RDONLY)
    source = LineSource(descriptor)
    if options.path is None and sys.stdin.isatty():
        note("a line is a record; end with Ctrl-D")
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
        note(producing.summary)


@click.command(
    "consume",
    epilog="Examples: kraftrio consume orders --from-beginning --count 500 --group readers --json"
    " ; kraftrio consume orders --since '5m ago' --follow --template '{key} {value}\\n'",
)
@click.argument("topics", metavar="TOPIC...", nargs=-1, type=TOPIC, required=True)
@click.option("--from-beginning", is_flag=True, help="Begin with the first records.")
@click.option("--offset", type=int, metavar="N", help="Begin there; -N: that far before the end.")
@click.option("--since", metavar="MOMENT", help="Begin at a time such as '5m ago'.")
@click.option("--until", metavar="MOMENT", help="End at a time.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N.")
@click.option("--partition", "chosen", type=int, multiple=True, metavar="N", help="Default: all.")
@click.option(
    "--group", type=GROUP, metavar="GROUP", help="Read as a member, from where the group is."
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Print so many, and wait for them."
)
@click.option(
    "--follow/--no-follow",
    default=None,
    help="Go on with new records, or stop at the end (the default without --count).",
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
async def consume(session: Session, topics: tuple[str, ...], **given: Any) -> None:
    """Print the records of topics.

    Without --from-beginning, --offset, --since or --tail a group continues at its offsets,
    --follow begins with new records, and everything else begins with the first records.
    """
    options = ConsumeOptions(**given)
    options.check()
    render = options.renderer(session.output)
    now_ms = wall_ms()
    start, until_ms = options.start(now_ms), options.until_ms(now_ms)
    async with session.admin() as admin:
        items = [
            item
            for topic in await describe_topics(admin, topics)
            for item in await partitions_of(admin, topic, options.chosen)
        ]
        begins, ends = await begin_and_end(
            admin, items, start, until_ms, read_committed=options.read_committed
        )
    sys.stdout.flush()
    async with (
        open_writer(_STDOUT) as writer,
        _consumer(session, topics, begins, options) as consumer,
    ):
        consuming = Consuming(
            consumer,
            writer,
            render,
            wanted=options.wanted,
            count=options.count,
            ends=None if options.is_following and options.until is None else ends,
        )
        if options.tail is not None:
            await _print_tail(consumer, writer, render, options, ends)
            if not options.is_following:
                return
        await consuming.run()


@asynccontextmanager
async def _consumer(
    session: Session,
    topics: Sequence[str],
    begins: dict[TopicPartition, int],
    options: ConsumeOptions,
) -> AsyncIterator[Consumer]:
    """Open a consumer of the group, or of the partitions from where the options say."""
    async with Consumer(session.target.servers, **options.settings(session)) as consumer:
        if options.group is not None:
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
    options: ConsumeOptions,
    ends: dict[TopicPartition, int],
) -> None:
    """Print the last records of all partitions together, by their time."""
    assert render is not None and options.tail is not None
    found: list[ConsumerRecord] = []

    def gather(records: Any) -> bytes:
        found.extend(records)
        return b""

    await Consuming(consumer, writer, gather, wanted=options.wanted, ends=ends).run()
    found.sort(key=lambda record: record.timestamp)
    await writer.write(render(found[-options.tail :] if options.tail else []))
