"""`kraftrio perf`: produce, consume, end-to-end.

Called by: the root of the command line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.clients.cli.output import Column, Output, note, number, size_text, terminal_width
from kraftrio.clients.cli.perf.measuring import (
    Load,
    measure_consume,
    measure_end_to_end,
    measure_produce,
    own_topic,
)
from kraftrio.clients.cli.perf.results import Measurement, histogram, plot
from kraftrio.clients.cli.session import Session, cluster_command

Measure = Callable[[Session, str, str, Load], Awaitable[Measurement]]

_ROWS = (
    Column("measured"),
    Column("cluster"),
    number("records"),
    number("seconds"),
    number("records_per_s", "records/s"),
    Column("bytes_per_s", "bytes/s", size_text, right=True),
    number("p50_ms", "p50 ms"),
    number("p95_ms", "p95 ms"),
    number("p99_ms", "p99 ms"),
    number("p99.9_ms", "p99.9 ms"),
    number("max_ms", "max ms"),
)
_BAR_COLUMNS = 40


@click.group("perf", cls=LazyGroup)
def perf() -> None:
    """Measure how fast records are written and read: produce, consume, end-to-end."""


def _options(records: int) -> Callable[[Any], Any]:
    """Return the options that the measurements share."""

    def decorate(command: Any) -> Any:
        for option in (
            click.option("--compare", metavar="HOST:PORT", help="Measure another cluster, too."),
            click.option(
                "--rate",
                type=click.FloatRange(min=0, min_open=True),
                metavar="N",
                help="Records a second (default: as fast as they are taken).",
            ),
            click.option(
                "--size",
                type=click.IntRange(min=1),
                default=100,
                metavar="BYTES",
                help="Of a value (default 100).",
            ),
            click.option(
                "--records",
                type=click.IntRange(min=1),
                default=records,
                metavar="N",
                help=f"How many (default {records}).",
            ),
        ):
            command = option(command)
        return command

    return decorate


@perf.command("produce", epilog="Example: kraftrio perf produce --compare apache:9092")
@_options(500_000)
@click.option("--partitions", type=click.IntRange(min=1), default=1, help="Of the topic.")
@click.option("--acks", type=click.Choice(("all", "1", "0")), default="all", help="Default: all.")
@click.option(
    "--compression",
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    default="none",
    help="Default: none.",
)
@cluster_command
async def produce(session: Session, compare: str | None, **options: Any) -> None:
    """Send records to a new topic; the latency is that of batches."""
    await _run(session, compare, measure_produce, _load(options))


@perf.command("consume", epilog="Example: kraftrio perf consume --records 1000000")
@_options(500_000)
@click.option("--partitions", type=click.IntRange(min=1), default=1, help="Of the topic.")
@cluster_command
async def consume(session: Session, compare: str | None, **options: Any) -> None:
    """Read records that were sent to a new topic before."""

    async def fill_and_read(session: Session, servers: str, topic: str, load: Load) -> Measurement:
        await measure_produce(session, servers, topic, load)
        return await measure_consume(session, servers, topic, load)

    await _run(session, compare, fill_and_read, _load(options))


@perf.command("end-to-end", epilog="Example: kraftrio perf end-to-end --records 1000")
@_options(5_000)
@click.option("--acks", type=click.Choice(("all", "1")), default="all", help="Default: all.")
@cluster_command
async def end_to_end(session: Session, compare: str | None, **options: Any) -> None:
    """Send records one by one, and wait until a consumer has each."""
    await _run(session, compare, measure_end_to_end, _load(options))


def _load(options: dict[str, Any]) -> Load:
    return Load(
        options["records"],
        options["size"],
        options.get("partitions", 1),
        options["rate"],
        options.get("acks", "all"),
        options.get("compression", "none"),
    )


async def _run(session: Session, compare: str | None, measure: Measure, load: Load) -> None:
    async with session.admin():
        pass  # a cluster that does not answer is reported in one sentence
    measured: list[Measurement] = []
    for servers in [session.target.servers, *([] if compare is None else [compare])]:
        async with own_topic(session, servers, load) as topic:
            measured.append(await measure(session, servers, topic, load))
    output = session.output
    output.rows(_ROWS, [each.row for each in measured])
    if output.as_json:
        return
    for each in measured:
        _draw(output, each)
    if len(measured) > 1:
        ours, other = (each.row["records_per_s"] for each in measured)
        output.line()
        output.line(f"{ours / max(other, 1):.2f} times the records/s of {compare}")
    note("the topics of the measurement are deleted")


def _draw(output: Output, measured: Measurement) -> None:
    """Draw the rate over time, and the distribution of the latencies."""
    width = terminal_width() if output.is_terminal else 100
    output.line()
    output.line(f"{measured.what} {measured.servers}: records/s over {measured.duration_s:.0f} s")
    output.line(f"  {plot(measured.per_second, width - 4)}")
    bins = histogram(measured.latencies_ms)
    most = max((count for _, _, count in bins), default=0)
    columns = max(min(_BAR_COLUMNS, width - 40), 5)
    for low, high, count in bins:
        bar = "█" * round(count / most * columns)
        output.line(f"  {low:9.2f} to {high:9.2f} ms {count:9} {bar}".rstrip())
