"""A pipeline that goes on, with --exactly-once: new records, late ones, a watermark that drops,
signals, a dead JVM, a batch that is done again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
import trio

from kraftrio.clients.pipeline import batches
from kraftrio.clients.producer.producer import Producer
from tests.conformance.broker_process import Broker
from tests.pipeline import support
from tests.pipeline.support import Command, Feed, Pipeline

pytestmark = pytest.mark.timeout(600)

FLIGHT = {
    "origin": "EWR",
    "carrier": "ZZ",
    "tailnum": "N14228",
    "dep_time": 600,
    "dep_delay": 10,
}
HOUR = ("2013-01-13T10:00:00Z", "EWR")
MADE_UP = {
    "flights": 3,
    "cancelled": 0,
    "dep_delay_mean": 10.0,
    "dep_delay_median": 10.0,
    "dep_delay_p95": 10.0,
}
BEFORE = "2013-01-15"


def send_flights(address: str, *times: str) -> None:
    """Send made-up flights of an airline that there is not, all at once."""

    async def send() -> None:
        async with Producer(address, linger_ms=100) as producer:
            for time in times:
                value = json.dumps({**FLIGHT, "time_hour": time}).encode()
                await producer.send("flights", value, key=b"N14228")

    trio.run(send)


def jvm_of(command: Command) -> int:
    """Return the process id of the JVM that a command has started, in the command's group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, tail = path.read_text().rpartition(")")
            pid, _, name = head.partition(" (")
            if name == "java" and int(tail.split()[2]) == command.process.pid:
                found.append(int(pid))
    (jvm,) = found
    return jvm


def forget_last_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as a driver does that dies once its last whole batch is put out."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    remove(checkpoint / "commits" / str(last))
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        if int(path.name) > last:
            remove(path)


def remove(path: Path) -> None:
    """Remove a file of a checkpoint, and the one with its checksum."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_it_goes_on(broker: Broker, tmp_path: Path) -> None:
    """Records are counted when they come, also late; what the watermark has passed is not.

    On the way the JVM dies and a batch that was put out is done again, and the command is told to
    stop. With --exactly-once, what a batch puts into topics is there whole and once all the same.
    """
    feed = Feed(late=0, bad=0.01, before=BEFORE)
    trio.run(feed.send, broker.address)
    pipeline = Pipeline(broker.address, tmp_path)
    three_batches = ("--max-offsets-per-trigger", "5000")
    options = ("--exactly-once", "--watermark", "3 days", *three_batches)

    run = pipeline.run(*options, available_now=False)
    run.wait_for(lambda: len(run.batches()) > 1, "two batches")
    os.kill(jvm_of(run), signal.SIGKILL)
    assert run.wait() == 1, run.text
    assert len(run.errors) == 1, run.text
    assert "Spark ended by itself" in run.errors[0], run.text
    forget_last_commit(pipeline.checkpoint)
    send_flights(broker.address, HOUR[0], HOUR[0])

    run = pipeline.run(*options, available_now=False)
    run.wait_for(lambda: any("lag 0" in line for line in run.batches()), "all batches")
    send_flights(broker.address, HOUR[0], "2013-01-01T10:00:00Z")
    run.wait_for(lambda: " 2 records" in run.lines[-1], "the flights that came last")
    assert "1 too late" in run.batches()[-1], run.text
    os.kill(run.process.pid, signal.SIGTERM)
    run.finish()
    assert "stopping" in run.lines[-1]

    expected = support.expected_results(BEFORE)
    weather = next(result for key, result in expected.items() if key[:2] == HOUR)
    expected = expected | {(*HOUR, "ZZ"): {**weather, **MADE_UP}}
    support.check_results(support.parquet_results(pipeline.output), expected)
    support.check_results(support.topic_results(broker.address), expected)
    support.check_dead_letters(broker.address, feed.letters)
    sent = len(support.read_topics(broker.address, "delays.hourly"))
    noted = batches.read_batches(pipeline.output / "_progress.jsonl")
    assert sent == sum(batch.results for batch in noted), "a batch of results is there twice"
