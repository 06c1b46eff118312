"""What the requests of a share session name."""

from __future__ import annotations

from kraftrio.clients.arguments.values import MAX_INT32
from kraftrio.clients.share.acknowledgements import TopicIdPartition
from kraftrio.clients.share.session import Named, ShareSession, acknowledge_topics
from kraftrio.wire.primitives import TopicPartition

A, B = b"a" * 16, b"b" * 16
A0, A1, B0 = (
    TopicIdPartition(A, TopicPartition("a", 0)),
    TopicIdPartition(A, TopicPartition("a", 1)),
    TopicIdPartition(B, TopicPartition("b", 0)),
)


def shown(named: Named) -> tuple[dict[bytes, list[int]], dict[bytes, list[int]]]:
    return (
        {each.topic_id: [p.partition_index for p in each.partitions] for each in named.topics},
        {each.topic_id: each.partitions for each in named.forgotten},
    )


def test_later_requests_name_what_has_changed() -> None:
    session = ShareSession()
    assert session.epoch == 0 and not session.is_open
    assert shown(session.fetch([A0, A1], {})) == ({A: [0, 1]}, {})
    session.answered()
    assert session.epoch == 1 and session.is_open
    assert shown(session.fetch([A1, A0], {})) == ({}, {})
    session.answered()
    assert shown(session.fetch([A1, B0], {})) == ({B: [0]}, {A: [0]})
    assert session.epoch == 2


def test_acknowledgements_are_named_with_their_partitions() -> None:
    session = ShareSession()
    session.fetch([A0, A1], {})
    session.answered()
    [topic] = session.fetch([A0, A1, B0], {A1: {4: 1, 5: 1}}).topics[1:]
    [partition] = topic.partitions
    assert (topic.topic_id, partition.partition_index) == (A, 1)
    [batch] = partition.acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (4, 5, [1])
    [alone] = acknowledge_topics({A1: {4: 1}})
    assert alone.partitions[0].acknowledgement_batches[0].first_offset == 4


def test_a_session_that_is_lost_begins_again() -> None:
    session = ShareSession()
    session.fetch([A0], {})
    session.answered()
    session.reset()
    assert session.epoch == 0 and shown(session.fetch([A0], {})) == ({A: [0]}, {})


def test_epochs_go_round() -> None:
    """After the largest comes 1: 0 opens a session."""
    session = ShareSession()
    session.epoch = MAX_INT32
    session.answered()
    assert session.epoch == 1
