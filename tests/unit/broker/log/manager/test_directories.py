"""Names of partition directories."""

from __future__ import annotations

import pytest

from kraftrio.broker.log.manager.directories import (
    delete_directory_name,
    directory_name,
    is_deleted_name,
    parse_directory_name,
)
from kraftrio.wire.primitives import TopicPartition

UUID = bytes(range(16))


@pytest.mark.parametrize("topic", ["a", "a-b", "a-0", "__consumer_offsets", "x.y_z", "t" * 249])
@pytest.mark.parametrize("partition", [0, 7, 2**31 - 1])
def test_names_come_back(topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    assert parse_directory_name(directory_name(topic_partition)) == topic_partition


@pytest.mark.parametrize("topic", ["a", "t" * 249])
def test_deleted_names_fit_and_are_no_logs(topic: str) -> None:
    """The longest topic is cut, so that the name is one a file system takes."""
    name = delete_directory_name(TopicPartition(topic, 12), UUID)
    assert len(name) <= 255
    assert name.endswith("-12.000102030405060708090a0b0c0d0e0f-delete")
    assert is_deleted_name(name)
    assert parse_directory_name(name) is None


@pytest.mark.parametrize("name", ["", "a", "a-", "-1", "a-x", "a-01", "a b-1", "t" * 250 + "-1",
                                  "a-1.000102030405060708090a0b0c0d0e0f-future"])  # fmt: skip
def test_other_names_are_no_logs(name: str) -> None:
    assert parse_directory_name(name) is None
    assert not is_deleted_name(name)
