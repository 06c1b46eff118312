"""Where a share group begins."""

from __future__ import annotations

import pytest

from kraftrio.broker.share.initial_offset import duration_ms, initial_offset
from kraftrio.wire.records.batch import build_batch
from kraftrio.wire.records.walk import Record
from tests.unit.broker.replica.replica_context import TP, Broker, topic

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("by_duration:PT1H", HOUR_MS),
        ("by_duration:P1DT2H3M4.5S", 26 * HOUR_MS + 184_500),
        ("by_duration:PT0.0015S", 1),
        ("by_duration:P2D", 48 * HOUR_MS),
    ],
)
def test_durations(reset: str, expected: int) -> None:
    assert duration_ms(reset) == expected


def test_what_is_no_duration() -> None:
    with pytest.raises(ValueError, match="by_duration:1h is not a setting"):
        duration_ms("by_duration:1h")


@pytest.mark.parametrize(
    ("reset", "offset"),
    [
        ("earliest", 1),
        ("latest", 4),
        ("by_duration:PT1H", 3),
        ("by_duration:PT3H", 1),
        ("by_duration:PT0S", 4),  # the next one to come
    ],
)
async def test_where_a_group_begins(reset: str, offset: int) -> None:
    broker = Broker()
    async with broker.running():
        broker.publish(*topic())
        now_ms = 100 * HOUR_MS
        for hours in (3, 2, 1.5, 0.5):
            record = Record(0, now_ms - int(hours * HOUR_MS), b"k", b"v")
            broker.replicas.led.append_to_leader(TP, build_batch([record]))
        partition = broker.replicas.hosted.leader(TP)
        broker.replicas.deletions.delete_records(partition, 1)
        assert initial_offset(partition, reset, broker.replicas.reads, now_ms) == offset
