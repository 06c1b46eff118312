"""A pipeline that goes on: new records, late ones, a watermark that drops, signals, a dead JVM."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
import trio

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


def send_flights(address: str, *times: str) -> None:
    """Send made-up flights of an airline that there is not."""

    async def send() -> None:
        async with Producer(address) as producer:
            for time in times:
                value = json.dumps({**FLIGHT, "time_hour": time}).encode()
                await producer.send("flights", value, key=b"N14228")

    trio.run(send)


def own_results(pipeline: Pipeline) -> dict[str, int]:
    """Return how many of the made-up flights are counted, by hour."""
    found = support.parquet_results(pipeline.output)
    return {key[0]: result["flights"] for key, result in found.items() if key[2] == "ZZ"}


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


def test_it_goes_on(broker: Broker, tmp_path: Path) -> None:
    """Records are counted when they come, also late; what the watermark has passed is not.

    On the way the JVM dies and the command is told to stop; each time the next run goes on.
    """
    trio.run(Feed(late=0, bad=0, before="2013-01-15").send, broker.address)
    pipeline = Pipeline(broker.address, tmp_path)
    watermark = ("--watermark", "3 days")

    run = pipeline.run(*watermark, "--max-offsets-per-trigger", "7000", available_now=False)
    run.wait_for(lambda: any("lag 0" in line for line in run.batches()), "all batches")
    send_flights(broker.address, "2013-01-13T10:00:00Z", "2013-01-13T10:00:00Z")
    run.wait_for(lambda: " 2 records" in run.lines[-1], "the flights that came later")
    os.kill(jvm_of(run), signal.SIGKILL)
    assert run.wait() == 1, run.text
    assert len(run.errors) == 1, run.text
    assert "Spark ended by itself" in run.errors[0], run.text

    send_flights(broker.address, "2013-01-13T10:00:00Z", "2013-01-01T10:00:00Z")
    run = pipeline.run(*watermark, available_now=False)
    run.wait_for(lambda: " 2 records" in "\n".join(run.batches()), "the flights that came last")
    assert "1 too late" in run.batches()[-1], run.text
    os.kill(run.process.pid, signal.SIGTERM)
    run.finish()
    assert "stopping" in run.lines[-1]

    assert own_results(pipeline) == {"2013-01-13T10:00:00Z": 3}
    found = support.parquet_results(pipeline.output)
    others = {key: result for key, result in found.items() if key[2] != "ZZ"}
    support.check_results(others, support.expected_results("2013-01-15"))
