"""The producer's core when its topic is re-created: what goes where, in which order and epoch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftrio.clients.errors import TimedOutError
from kraftrio.clients.metadata import ClusterMetadata
from kraftrio.wire.errors import ErrorCode
from tests.unit.clients.producer.producing import PRODUCER_ID, TOPIC, Core, records_of

FIRST, SECOND = b"1" * 16, b"2" * 16


def as_topic(core: Core, topic_id: bytes, partitions: int, *, epoch: int = 0) -> None:
    """Let metadata list a topic with this id."""
    core.leaders = dict.fromkeys(range(partitions), (1, epoch))
    described = replace(core.metadata().topics[TOPIC], topic_id=topic_id)
    core.accumulator.update(ClusterMetadata(topics={TOPIC: described}))


def sequences(core: Core) -> list[tuple[int, int]]:
    """(epoch, sequence) of every batch of the next request."""
    return [(batch.producer_epoch, batch.base_sequence) for batch in core.drain()]


def test_the_first_batch_goes_alone_and_in_a_new_epoch() -> None:
    """The new log knows no producer: it would take the second batch without the first."""
    core = Core(producer_id=PRODUCER_ID, linger_ms=0)
    as_topic(core, FIRST, 1, epoch=4)
    core.accept(b"0")
    core.deliver(core.drain_one())
    as_topic(core, SECOND, 1)
    core.fill(2)
    first = core.drain_one()
    assert (first.producer_epoch, first.base_sequence) == (1, 0)
    assert core.drain() == []
    core.deliver(first)
    assert sequences(core) == [(1, first.record_count)]


def test_what_is_under_way_keeps_its_sequence_until_it_is_answered() -> None:
    """It may have been written to the new topic already: sent again in another epoch, twice."""
    core = Core(producer_id=PRODUCER_ID, linger_ms=0)
    as_topic(core, FIRST, 1, epoch=4)
    core.accept(b"0")
    under_way = core.drain_one()
    core.accept(b"1")
    as_topic(core, SECOND, 1)
    assert core.drain() == []
    core.refuse(under_way, ErrorCode.NETWORK_EXCEPTION)
    core.wait(2_000)
    again = core.drain_one()
    assert again is under_way
    assert (again.producer_epoch, again.base_sequence) == (0, 0)
    core.deliver(again)
    assert sequences(core) == [(1, 0)]


def test_what_backs_off_is_sent_to_the_new_leader_at_once() -> None:
    """Though the new topic's leader epoch is lower than the one it was refused in."""
    core = Core(producer_id=PRODUCER_ID, linger_ms=0, retry_backoff_ms=500)
    as_topic(core, FIRST, 1, epoch=4)
    core.accept(b"0")
    core.refuse(core.drain_one(), ErrorCode.UNKNOWN_TOPIC_ID)
    assert core.drain() == []
    as_topic(core, SECOND, 1)
    assert [record.value for record in records_of(core.drain_one())] == [b"0"]


def test_partitions_come_and_go_with_the_topic() -> None:
    """Keys belong to the partitions there are; what waits for one that is gone waits on."""
    core = Core(4, producer_id=PRODUCER_ID, linger_ms=0)
    as_topic(core, FIRST, 4, epoch=4)
    waiting = core.accept(b"gone", partition=3)
    as_topic(core, SECOND, 2)
    assert len(core.topic.queues) == 2
    keyed = [core.accept(b"x", key=b"%d" % number).partition for number in range(20)]
    assert set(keyed) == {0, 1}
    assert {batch.partition for batch in core.drain()} == {0, 1}
    as_topic(core, b"3" * 16, 4)
    assert [batch.partition for batch in core.drain()] == [3]
    assert not waiting.done


def test_what_waits_for_a_partition_that_is_gone_is_given_up_in_the_end() -> None:
    core = Core(2, producer_id=PRODUCER_ID, linger_ms=0, delivery_timeout_ms=40_000)
    as_topic(core, FIRST, 2)
    waiting = core.accept(b"gone", partition=1)
    as_topic(core, SECOND, 1)
    core.wait(40_001)
    with pytest.raises(TimedOutError, match="the topic was re-created, without that partition"):
        waiting.result()


def test_metadata_that_is_behind_takes_no_partition_away() -> None:
    """A broker that does not know new partitions yet lists the same topic."""
    core = Core(4, producer_id=PRODUCER_ID)
    as_topic(core, FIRST, 4)
    as_topic(core, FIRST, 2)
    assert len(core.topic.queues) == 4
