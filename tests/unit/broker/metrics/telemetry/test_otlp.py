"""OTLP messages are read, and what is none is refused."""

from __future__ import annotations

import random

import pytest

from kraftrio.broker.metrics.telemetry.otlp import PushedPoint, read_metrics
from kraftrio.wire.errors import RemoteProtocolError
from tests.unit.broker.metrics.telemetry.otlp_messages import (
    counter,
    double,
    gauge,
    number,
    part,
    point,
    pushed,
    signed,
)


def test_gauges_and_counters() -> None:
    data = pushed(
        gauge("a.b", point(1.5, {"topic": "t", "id": "x"}), point(-3)),
        counter("c", point(7), temporality=2),
        counter("d", point(8)),
    )
    assert list(read_metrics(data)) == [
        PushedPoint("a.b", (("id", "x"), ("topic", "t")), 1.5, False, False),
        PushedPoint("a.b", (), -3, False, False),
        PushedPoint("c", (), 7, True, False),
        PushedPoint("d", (), 8, True, True),
    ]


def test_a_histogram_is_its_count_and_sum() -> None:
    data = part(1, signed(4, 9) + double(5, 2.5)) + number(2, 2)
    metric = part(1, b"h") + part(9, data)
    assert [(one.name, one.value) for one in read_metrics(pushed(metric))] == [
        ("h.count", 9),
        ("h.sum", 2.5),
    ]


def test_unknown_fields_are_passed_over() -> None:
    data = number(99, 5) + pushed(gauge("a", point(1.0))) + part(98, b"x")
    assert [one.name for one in read_metrics(data)] == ["a"]


def test_garbage_is_refused_and_nothing_else() -> None:
    rng = random.Random(5)
    sound = pushed(gauge("a.b", point(1.5, {"topic": "t"})), counter("c", point(7)))
    refused = 0
    for _ in range(3000):
        data = bytearray(sound)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            list(read_metrics(bytes(data[: rng.randrange(1, len(data) + 1)])))
        except RemoteProtocolError:
            refused += 1
    assert refused > 500


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x80" * 11, b"\x0b"])
def test_what_is_cut(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(read_metrics(data))
