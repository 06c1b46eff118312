"""The producer's queues: the order of what comes back, partitions that go and come back, ratios."""

from __future__ import annotations

import pytest

from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.queues import TopicQueues
from kraftrio.wire.records.compression import Compression


def batch_of(*serial: int) -> Batch:
    return Batch("t", 0, serial, 0.0, 1000, 1000)


def test_what_is_sent_again_goes_to_its_old_place() -> None:
    topic = TopicQueues("t")
    topic.resize(1)
    queue = topic.queues[0]
    for serial in ((5,), (3,), (4,), (3, 1), (3, 0)):
        queue.put_back(batch_of(*serial))
    assert [batch.serial for batch in queue.batches] == [(3,), (3, 0), (3, 1), (4,), (5,)]


def test_partitions_that_are_gone_keep_their_queue() -> None:
    topic = TopicQueues("t")
    topic.resize(3)
    third = topic.sticky = topic.queues[2]
    topic.resize(1)
    assert third.is_gone
    assert not topic.queues[0].is_gone
    assert topic.sticky is None, "nothing more is put there"
    assert topic.all_queues[2] is third
    topic.resize(4)
    assert topic.queues[2] is third
    assert not third.is_gone


def test_batches_fill_by_what_compression_was_seen_to_save() -> None:
    topic = TopicQueues("t")
    assert topic.batch_limit(1000, Compression.NONE) == 1000
    assert topic.batch_limit(1000, Compression.ZSTD) == 952, "five per cent of margin"
    for _ in range(1000):
        topic.learn_ratio(0.25)
    assert topic.ratio == pytest.approx(0.25, abs=0.06)
    assert topic.batch_limit(1000, Compression.ZSTD) > 3000
    assert topic.batch_limit(1000, Compression.NONE) == 1000
    topic.learn_ratio(0.9)
    assert topic.ratio == 0.9, "worse than expected counts at once"
