"""What clients push is kept within bounds, and refused as KIP-714 says."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from kraftrio.broker.metrics.telemetry.client_metrics import ClientMetrics
from kraftrio.broker.metrics.telemetry.subscriptions import ClientIdentity
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.metrics.telemetry.otlp_messages import counter, gauge, point, pushed

ID = b"c" * 16
INTERVAL_MS = 1000


class Clients:
    """Client metrics with one subscription to everything; time is the test's."""

    def __init__(self, max_series: int = 100) -> None:
        self.resources: list[dict[str, str]] = [{"metrics": "*", "interval.ms": str(INTERVAL_MS)}]
        self.metrics = ClientMetrics(lambda: self.resources, max_series)
        self.now_ms = 0.0
        self.subscription_id = 0

    def ask(self, instance_id: bytes = ID) -> None:
        identity = ClientIdentity(instance_id.hex(), "app", "lib", "1", "host", "1")
        found = self.metrics.subscribe(instance_id, identity, self.now_ms)
        self.subscription_id = found.subscription_id

    def push(self, data: bytes, instance_id: bytes = ID, **changes: Any) -> None:
        asked: dict[str, Any] = {
            "subscription_id": self.subscription_id,
            "compression": 0,
            "data": data,
        }
        asked |= {
            "compression": 0,
            "now_ms": self.now_ms,
            "max_bytes": 10_000,
            "terminating": False,
        } | changes
        self.metrics.push(instance_id, **asked)

    def refused(self, data: bytes = b"", **changes: Any) -> ErrorCode:
        with pytest.raises(KafkaError) as raised:
            self.push(data, **changes)
        return raised.value.code

    def shown(self) -> dict[tuple[str, ...], float]:
        """The values, by the name of the metric and those of its own labels."""
        found: dict[tuple[str, ...], float] = {}
        for family in self.metrics.families(self.now_ms):
            for labels, value in family.series:
                own = sorted(text for name, text in labels.items() if "client" not in name)
                found[(family.name, *own)] = value
        return found


def test_the_newest_gauge_and_the_sum_of_a_counter_are_shown() -> None:
    clients = Clients()
    clients.ask()
    name = "org.apache.kafka.producer.record.send.total"
    for value in (3, 4):
        clients.push(
            pushed(counter(name, point(value)), gauge("x.y-z", point(float(value), {"t-1": "a"})))
        )
        clients.now_ms += INTERVAL_MS
    assert clients.shown() == {
        ("kafka_client_producer_record_send_total",): 7,
        ("kafka_client_x_y_z", "a"): 4,
    }
    (family, _) = clients.metrics.families(clients.now_ms)
    labels, _ = family.series[0]
    assert labels == {"client_id": "app", "client_instance_id": ID.hex()}


def test_compressed_pushes() -> None:
    clients = Clients()
    clients.ask()
    data = pushed(gauge("a", point(1.0)))
    packer = zlib.compressobj(wbits=31)
    clients.push(packer.compress(data) + packer.flush(), compression=1)
    assert clients.shown() == {("kafka_client_a",): 1}
    clients.now_ms += INTERVAL_MS
    packer = zlib.compressobj(wbits=31)
    bomb = packer.compress(bytes(1 << 20)) + packer.flush()
    assert clients.refused(bomb, compression=1) is ErrorCode.TELEMETRY_TOO_LARGE
    clients.now_ms += INTERVAL_MS
    assert clients.refused(b"none", compression=1) is ErrorCode.INVALID_RECORD


def test_refusals() -> None:
    clients = Clients()
    assert clients.refused() is ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "it has not asked"
    clients.ask()
    assert clients.refused(instance_id=bytes(16)) is ErrorCode.INVALID_REQUEST
    assert clients.refused(subscription_id=5) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    clients.ask()  # at once: the error asked it to
    clients.now_ms += 1
    assert clients.refused(compression=9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert clients.refused() is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "refused ones count"
    clients.now_ms += INTERVAL_MS
    assert clients.refused(bytes(10_001)) is ErrorCode.TELEMETRY_TOO_LARGE
    clients.now_ms += INTERVAL_MS
    clients.push(b"")
    clients.now_ms += 1
    assert clients.refused() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clients.push(b"", terminating=True)
    assert clients.refused() is ErrorCode.INVALID_REQUEST, "it has ended"
    clients.ask(b"d" * 16)
    with pytest.raises(KafkaError):
        clients.ask(b"d" * 16)


def test_who_pushes_does_not_ask() -> None:
    """Until an interval has passed since the last push."""
    clients = Clients()
    clients.ask()
    clients.now_ms += INTERVAL_MS
    clients.push(b"")
    clients.now_ms += 1
    with pytest.raises(KafkaError, match="THROTTLING_QUOTA_EXCEEDED"):
        clients.ask()
    clients.now_ms += INTERVAL_MS
    clients.ask()


def test_a_push_for_a_changed_subscription_is_refused() -> None:
    """At once, and the client may ask at once."""
    clients = Clients()
    clients.ask()
    clients.now_ms += INTERVAL_MS
    clients.push(b"")
    clients.resources[0]["metrics"] = "a."
    clients.now_ms += 1
    assert clients.refused() is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    clients.ask()
    clients.resources[0]["metrics"] = "b."
    clients.ask()


def test_bounds() -> None:
    clients = Clients(max_series=3)
    clients.ask()
    clients.push(pushed(gauge("a", *(point(1.0, {"n": str(index)}) for index in range(9)))))
    assert len(clients.shown()) == 3
    clients.now_ms = 10 * INTERVAL_MS
    assert clients.shown() == {}, "it has missed its pushes"
    clients.ask(b"e" * 16)
    clients.push(pushed(gauge("b", point(1.0))), b"e" * 16)
    assert len(clients.shown()) == 1, "their room is free again"
    for index in range(1100):
        clients.ask(index.to_bytes(16, "big") or ID)
    assert len(clients.metrics._clients) == 1000
