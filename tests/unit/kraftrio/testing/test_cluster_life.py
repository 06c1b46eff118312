"""A cluster of a test from its start to its end: how quick it is, and what it leaves behind."""

from __future__ import annotations

import gc
import os
import statistics
import threading
import time

import pytest

from kraftrio.testing import KafkaBroker


def test_brokers_are_quick_and_leave_nothing() -> None:
    """Of the processor's time, since others may use it, too: 100 ms a start, 10 ms a reset."""
    KafkaBroker().start().stop()
    gc.collect()
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    starts, resets, waits = [], [], []
    for _ in range(int(os.environ.get("TEST_BROKER_COUNT", "15"))):
        began_s, began = time.process_time(), time.perf_counter()
        with KafkaBroker() as broker:
            starts.append(time.process_time() - began_s)
            waits.append(time.perf_counter() - began)
            broker.create_topic("orders")
            began_s = time.process_time()
            broker.reset()
            resets.append(time.process_time() - began_s)
    start, reset, wait = (1000 * statistics.median(times) for times in (starts, resets, waits))
    print(f"{len(starts)} brokers: ready in {wait:.1f} ms, {start:.1f} of work; reset {reset:.1f}")
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == files
    assert start < 100
    assert reset < 10


def test_what_others_would_meet() -> None:
    """A cluster is whole until a test breaks something, and again once that is over."""
    broker = KafkaBroker()
    assert not broker.life.is_whole
    with broker:
        assert broker.life.is_whole
        broker.node(1).pause()
        assert not broker.life.is_whole
        broker.node(1).resume()
        assert broker.life.is_whole
        broker.refuse("Produce", "NOT_ENOUGH_REPLICAS")
        assert not broker.life.is_whole
    assert not broker.life.is_whole


def test_each_start_has_a_stop() -> None:
    """A second start is refused, a second stop does nothing, and it can be started again."""
    broker = KafkaBroker().start()
    with pytest.raises(RuntimeError, match="this cluster runs already"):
        broker.start()
    broker.stop()
    broker.stop()
    with broker:
        broker.produce("orders", "one")
    with pytest.raises(RuntimeError, match="does not run"):
        broker.life.started()


def test_the_story_is_bounded() -> None:
    """What is kept of large requests stays small; the newest are there."""
    with KafkaBroker() as broker:
        exchanges = broker.life.started()[0].exchanges
        assert exchanges is not None
        exchanges._limit_bytes = 10_000
        broker.produce("orders", *(bytes(4_000) for _ in range(20)))
        assert sum(each.size_bytes for each in exchanges) < 100_000
        assert not exchanges.is_whole
        assert len(exchanges._open) <= len(list(exchanges))
