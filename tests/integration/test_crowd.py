"""Slow, greedy and hostile clients cost others neither memory nor time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import Record, build_batch
from tests.conformance.broker_process import Broker
from tests.integration.crowd import crowding
from tests.integration.normal_clients import measure_normal_clients
from tests.integration.test_limits import rss_mb
from tests.integration.wire_client import WireClient, fetch_request

pytestmark = pytest.mark.measures

PARTITIONS = 56


def fill(client: WireClient, topic: str, partition_bytes: int) -> None:
    """Make a topic of incompressible records."""
    assert client.create_topic(topic, PARTITIONS) is ErrorCode.NONE
    for partition in range(PARTITIONS):
        for _ in range(partition_bytes // 250_000):
            batch = build_batch([Record(0, 1, None, os.urandom(250_000))])
            assert client.produce(topic, partition, batch, acks=1)[0] is ErrorCode.NONE


class PeakMemory:
    """Watches a broker's memory."""

    def __init__(self, broker: Broker) -> None:
        self.peak_mb = self.idle_mb = rss_mb(broker)
        self._broker = broker
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            self.peak_mb = max(self.peak_mb, rss_mb(self._broker))

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def grown_mb(self) -> float:
        return self.peak_mb - self.idle_mb


def test_a_crowd_costs_others_neither_memory_nor_time(make_broker: Callable[..., Broker]) -> None:
    """20 slow, 20 pipelining and 8 hostile clients ask for gigabytes, and get what they read."""
    broker = make_broker()
    address = (broker.host, broker.port)
    with WireClient(address) as client:
        fill(client, "much", 1_250_000)
    measure_normal_clients(address, 0.5)
    with PeakMemory(broker) as memory, crowding(address, "much", PARTITIONS, 20, 20, 8):
        times = measure_normal_clients(address, 4.0)
    assert memory.grown_mb < 150
    # A bound for busy machines; scripts/bench --crowd measures how much they are slowed down.
    assert max(times.percentile(0.99)) < 200
    assert len(times.received_ms) == len(times.acknowledged_ms) > 50


def test_what_pipelined_fetches_ask_for_is_not_held(make_broker: Callable[..., Broker]) -> None:
    """64 fetches of 50 MB on one connection that reads nothing at first."""
    broker = make_broker()
    address = (broker.host, broker.port)
    with WireClient(address) as client, WireClient(address) as other:
        fill(client, "much", 1_000_000)
        with PeakMemory(broker) as memory:
            asked = fetch_request("much", dict.fromkeys(range(PARTITIONS), 0), max_bytes=50 << 20)
            for _ in range(64):
                client.send(asked)
            begin = time.monotonic()
            assert other.fetch("much", 0, 0)[0] is ErrorCode.NONE
            assert time.monotonic() - begin < 2
            for _ in range(3):
                partitions = client.receive().responses[0].partitions
                assert all(len(partition.records) > 1_000_000 for partition in partitions[:50])
        assert memory.grown_mb < 50
