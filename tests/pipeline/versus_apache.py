"""The pipeline against kraftrio and against Apache Kafka in one run: same results, rows per second.

    python -m tests.pipeline.versus_apache [--rounds N] [--before 2013-02-01]

Each broker gets the data set once, by our ingest; then Spark runs over it, broker by broker, so
that both have the same share of a noisy machine. A run's speed is all its records over the time of
its batches, Spark's own start left out; the best of all rounds counts.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio
from rich.console import Console
from rich.table import Table

from kraftrio.clients.pipeline.batches import read_batches
from tests.conformance.broker_process import ApacheBroker, Broker
from tests.pipeline import support
from tests.pipeline.support import Feed, Pipeline

EVERYTHING = "2014-12-31"
KINDS: Mapping[str, type[Broker]] = {"kraftrio": Broker, "apache": ApacheBroker}


def rows_per_s(address: str, folder: Path, before: str) -> float:
    """Run the pipeline once, hold its results against DuckDB's, and return its speed."""
    pipeline = Pipeline(address, folder)
    pipeline.run().finish()
    expected = support.expected_results(before)
    support.check_results(support.parquet_results(pipeline.output), expected)
    support.check_results(support.topic_results(address), expected)
    batches = read_batches(pipeline.output / "_progress.jsonl")
    return sum(batch.records for batch in batches) / sum(batch.seconds for batch in batches)


def compare(
    folder: Path, rounds: int, before: str = EVERYTHING, kinds: Sequence[str] = tuple(KINDS)
) -> dict[str, list[float]]:
    """Return the speeds with each broker, round by round."""
    speeds: dict[str, list[float]] = {}
    with contextlib.ExitStack() as started:
        brokers = {
            kind: started.enter_context(KINDS[kind](folder / f"{kind}-broker")) for kind in kinds
        }
        for broker in brokers.values():
            feed = Feed(late=0, bad=0, before=before)
            trio.run(feed.send, broker.address)
        for number in range(rounds):
            for kind, broker in brokers.items():
                speed = rows_per_s(broker.address, folder / f"{kind}-{number}", before)
                speeds.setdefault(kind, []).append(speed)
                print(f"round {number + 1}, {kind}: {speed:,.0f} rows/s", file=sys.stderr)
    return speeds


def main() -> int:
    """Compare and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", default=EVERYTHING, metavar="DATE")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kraftrio-pipeline-") as folder:
        speeds = compare(Path(folder), chosen.rounds, chosen.before)
    best = {kind: max(found) for kind, found in speeds.items()}
    table = Table("broker", "rows/s, best", "all rounds")
    for kind, found in speeds.items():
        table.add_row(kind, f"{best[kind]:,.0f}", ", ".join(f"{speed:,.0f}" for speed in found))
    console = Console()
    console.print(table)
    console.print(f"kraftrio / apache: {best['kraftrio'] / best['apache']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
