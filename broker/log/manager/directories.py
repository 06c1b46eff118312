"""Names of partition directories, as Kafka makes them. Pure.

<topic>-<partition>                        a log
<topic>-<partition>.<32 hex>-delete        a log whose topic is deleted; the name is cut so that
                                           the name keeps within 255 characters (KAFKA-4893)
<topic>-<partition>.<32 hex>-future        a log being moved between log directories
<topic>-<partition>.<32 hex>-stray         an unknown log
"""

from __future__ import annotations

import re

from kraftrio.wire.primitives import TopicPartition

METADATA_DIRECTORY = "__cluster_metadata-0"
"""The folder of the metadata log, which the log manager does not manage."""
DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"

_MAX_NAME_CHARS = 255
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_MARKED = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-(?:delete|future|stray)")
_FUTURE = re.compile(r"(?P<name>.+)\.[0-9a-f]{32}-future")


def directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def delete_directory_name(topic_partition: TopicPartition, unique_id: bytes) -> str:
    """The name of a log directory that waits for its removal."""
    return _marked_name(topic_partition, unique_id, DELETE_SUFFIX)


def stray_directory_name(topic_partition: TopicPartition, unique_id: bytes) -> str:
    """The name of a log directory that the metadata knows nothing of."""
    return _marked_name(topic_partition, unique_id, STRAY_SUFFIX)


def future_directory_name(topic_partition: TopicPartition, unique_id: bytes) -> str:
    """The name of a log directory that will take the place of another one (KIP-113)."""
    return f"{directory_name(topic_partition)}.{unique_id.hex()}{FUTURE_SUFFIX}"


def has_future_name(topic_partition: TopicPartition) -> bool:
    """Is the topic's name short enough for a future log (KAFKA-4893)?"""
    return len(future_directory_name(topic_partition, bytes(16))) <= _MAX_NAME_CHARS


def parse_future_name(name: str) -> TopicPartition | None:
    """The partition a future log belongs to; None for any other directory."""
    match = _FUTURE.fullmatch(name)
    return None if match is None else parse_directory_name(match["name"])


def _marked_name(topic_partition: TopicPartition, unique_id: bytes, mark: str) -> str:
    suffix = f"-{topic_partition.partition}.{unique_id.hex()}{mark}"
    return topic_partition.topic[: _MAX_NAME_CHARS - len(suffix)] + suffix


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition a directory belongs to; None for directories that are no log in use."""
    match = _PARTITION.fullmatch(name)
    if match is None or _MARKED.fullmatch(name):
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def is_deleted_name(name: str) -> bool:
    return _MARKED.fullmatch(name) is not None and name.endswith(DELETE_SUFFIX)
