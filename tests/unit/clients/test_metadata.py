"""What a client keeps of its cluster: newer news win, and a topic's id says which topic it is."""

from __future__ import annotations

from kraftrio.clients.metadata import ClusterMetadata, is_another
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftrio.wire.primitives import ZERO_UUID

OLD, NEW, NEWEST = b"o" * 16, b"n" * 16, b"x" * 16


def answer(topic_id: bytes, *epochs: int, code: ErrorCode = ErrorCode.NONE) -> MetadataResponse:
    """A response about one topic whose partitions have these leader epochs."""
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=epoch)
        for index, epoch in enumerate(epochs)
    ]
    topic = MetadataResponseTopic(
        name="t", topic_id=topic_id, error_code=code, partitions=partitions
    )
    brokers = [MetadataResponseBroker(node_id=node_id, host="h", port=1) for node_id in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def after(*responses: MetadataResponse) -> ClusterMetadata:
    metadata = ClusterMetadata()
    for response in responses:
        metadata = metadata.updated(response)
    return metadata


def epochs(metadata: ClusterMetadata) -> list[int]:
    return [part.leader_epoch for part in metadata.topics["t"].partitions.values()]


def test_leader_epochs_do_not_go_back_within_a_topic() -> None:
    assert epochs(after(answer(OLD, 4, 4), answer(OLD, 3, 5))) == [4, 5]


def test_a_topic_recreated_begins_with_its_own_epochs() -> None:
    """Lower epochs, fewer partitions: all is as the new topic has it."""
    metadata = after(answer(OLD, 4, 4, 4), answer(NEW, 0, 1))
    assert epochs(metadata) == [0, 1]
    assert metadata.topic_id("t") == NEW
    assert metadata.topics["t"].former_ids == (OLD,)


def test_brokers_that_are_behind_do_not_bring_a_former_topic_back() -> None:
    """An id that was replaced is never right again, whichever broker sends it, and however late."""
    metadata = after(
        answer(OLD, 4), answer(NEW, 0), answer(OLD, 5), answer(NEWEST, 0), answer(NEW, 7)
    )
    assert metadata.topic_id("t") == NEWEST
    assert epochs(metadata) == [0]


def test_the_id_is_kept_while_a_topic_is_gone() -> None:
    """So that a topic that comes after it is known to be another, and the same one to be it."""
    gone = answer(ZERO_UUID, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    metadata = after(answer(OLD, 4), gone)
    assert not metadata.topics["t"].partitions
    assert metadata.topic_id("t") == OLD
    assert epochs(metadata.updated(answer(NEW, 0))) == [0]
    assert metadata.updated(answer(NEW, 0)).topics["t"].former_ids == (OLD,)
    assert metadata.updated(answer(OLD, 4)).topics["t"].former_ids == ()


def test_ids_of_many_former_topics_are_not_kept_for_ever() -> None:
    metadata = after(*(answer(bytes([number]) * 16, 0) for number in range(1, 100)))
    assert len(metadata.topics["t"].former_ids) == 10


def test_a_hint_about_a_former_topic_is_no_news() -> None:
    """A broker answers late, about a topic that has been replaced, with its high epoch."""
    metadata = after(answer(OLD, 4), answer(NEW, 0))
    assert metadata.with_leader("t", 0, 2, 5, topic_id=OLD) is None
    changed = metadata.with_leader("t", 0, 2, 1, topic_id=NEW)
    assert changed is not None
    assert changed.leader("t", 0) == (2, 1)


def test_ids_that_are_not_known_are_of_no_other_topic() -> None:
    assert is_another(OLD, NEW)
    assert not is_another(OLD, OLD)
    assert not is_another(OLD, ZERO_UUID)
    assert not is_another(ZERO_UUID, NEW)
    assert epochs(after(answer(ZERO_UUID, 4), answer(ZERO_UUID, 3))) == [4]
