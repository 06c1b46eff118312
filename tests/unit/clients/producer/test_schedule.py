"""The producer's schedule: what lingers, what backs off, and whose turn it is at which leader."""

from __future__ import annotations

from math import inf

import pytest

from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.queues import PartitionQueue, TopicQueues
from kraftrio.clients.producer.schedule import SendSchedule


@pytest.fixture
def queues() -> list[PartitionQueue]:
    topic = TopicQueues("t")
    topic.resize(3)
    for queue, leader_id in zip(topic.queues, (1, 2, 1), strict=True):
        queue.leader_id = leader_id
    return topic.queues


def batch_of(queue: PartitionQueue, *, is_closed: bool = False) -> Batch:
    batch = Batch(queue.topic, queue.partition, (0,), 0.0, 1000, 1000)
    batch.is_closed = is_closed
    return batch


def test_nothing_is_due_in_an_empty_schedule() -> None:
    schedule = SendSchedule()
    assert schedule.nodes() == []
    assert schedule.next_due_ms == inf
    assert not schedule.lacks_leader
    assert not schedule.wants_sender


def test_each_leader_has_its_partitions_once_in_turn(queues: list[PartitionQueue]) -> None:
    schedule = SendSchedule()
    for queue in (queues[2], queues[1], queues[0], queues[2]):
        schedule.add(queue)
    assert schedule.wants_sender
    assert schedule.nodes() == [1, 2]
    assert not schedule.wants_sender, "it was looked at"
    assert list(schedule.queues(1) or ()) == [queues[2], queues[0]]
    assert list(schedule.queues(2) or ()) == [queues[1]]


def test_a_batch_that_was_filled_while_it_lingered_is_not_due(
    queues: list[PartitionQueue],
) -> None:
    schedule = SendSchedule()
    schedule.linger(queues[0], batch_of(queues[0]), 30.0)
    schedule.linger(queues[1], batch_of(queues[1], is_closed=True), 20.0)
    schedule.linger(queues[2], batch_of(queues[2]), 10.0)
    assert schedule.next_due_ms == 10.0
    assert schedule.end_lingering(9.9) == []
    assert schedule.end_lingering(25.0) == [queues[2]]
    assert schedule.next_due_ms == 30.0
    assert schedule.end_lingering(30.0) == [queues[0]]


def test_what_backs_off_is_sent_when_it_is_due_unless_it_has_ended(
    queues: list[PartitionQueue],
) -> None:
    schedule = SendSchedule()
    for queue, retry_at_ms in ((queues[0], 20.0), (queues[1], 10.0)):
        batch = batch_of(queue)
        batch.retry_at_ms = retry_at_ms
        schedule.back_off(queue, batch)
        if queue is queues[1]:
            batch.deliver(0, -1)
    assert schedule.next_due_ms == 10.0
    schedule.end_back_offs(5.0)
    assert schedule.next_due_ms == 20.0, "the one that has ended is forgotten"
    assert schedule.nodes() == []
    schedule.end_back_offs(20.0)
    assert schedule.nodes() == [1]


def test_a_new_leader_is_asked_at_once(queues: list[PartitionQueue]) -> None:
    schedule = SendSchedule()
    for queue in queues[:2]:
        batch = batch_of(queue)
        batch.retry_at_ms = 1000.0
        batch.leader_epoch = queue.leader_epoch = 4
        schedule.back_off(queue, batch)
    schedule.add(queues[2])
    queues[2].leader_id = -1
    queues[0].leader_id, queues[0].leader_epoch = 3, 5
    schedule.leaders_changed()
    assert schedule.nodes() == [3], "partition 1 still backs off, nobody leads partition 2"
    assert schedule.lacks_leader
