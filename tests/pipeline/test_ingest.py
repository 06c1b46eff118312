"""Ingest as a live stream: its pace, its order, and that it goes on where it was killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kraftrio.clients.consumer.records import ConsumerRecord
from tests.conformance.broker_process import Broker
from tests.pipeline import support
from tests.pipeline.support import Pipeline

pytestmark = pytest.mark.timeout(300)

HOUR_MS = 3_600_000
FIRST_MS = 1_357_020_000_000  # the first hour of weather, 2013-01-01T06:00:00Z


def replayed(pipeline: Pipeline, seconds: float, *pace: str) -> list[ConsumerRecord]:
    """Ingest at some pace, kill it after some seconds of replay, and return what has come."""
    command = pipeline.ingest(*pace)
    command.wait_for(lambda: any("airlines" in line for line in command.lines), "the replay")
    time.sleep(seconds)
    command.kill9()
    return support.read_topics(pipeline.address, "flights", "weather")


def test_rate(broker: Broker, tmp_path: Path) -> None:
    """So many records a second, flights and weather together by time, and on where it ended."""
    pipeline = Pipeline(broker.address, tmp_path)
    first = replayed(pipeline, 4, "--rate", "300")
    assert 300 < len(first) < 3000
    both = replayed(pipeline, 4, "--rate", "300")
    assert len(first) + 300 < len(both) < 6000
    rows = [(record.topic, dict(record.headers)["row"]) for record in both]
    assert len(set(rows)) == len(rows)
    for topic in ("flights", "weather"):
        numbers = sorted(int(number or b"") for name, number in rows if name == topic)
        assert numbers == list(range(len(numbers)))
    latest = {
        topic: max(record.timestamp for record in both if record.topic == topic)
        for topic in ("flights", "weather")
    }
    assert abs(latest["flights"] - latest["weather"]) <= 2 * HOUR_MS


def test_speedup(broker: Broker, tmp_path: Path) -> None:
    """So many seconds of 2013 a second."""
    found = replayed(Pipeline(broker.address, tmp_path), 4, "--speedup", "36000")
    hours = (max(record.timestamp for record in found) - FIRST_MS) / HOUR_MS
    assert 20 < hours < 200
