"""A partition that is found in two log directories at the start, and which of the two is meant.

Owns: `set_duplicates_aside`. This happens when a directory fails, the partition is created again in
another one (its topic was made again, or its replica was moved away and back), and the first
directory is repaired. The one that the metadata means is kept, by topic id and then by directory
(KIP-858); the other is set aside as a stray log, its files untouched. Where the metadata does not
tell, both stay, and the start is refused when they are loaded. Kafka refuses it in all these cases
but that of another topic id.

Called by: broker_role.py, before logs are loaded.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kraftrio.broker.log.checkpoints import (
    PARTITION_METADATA,
    CheckpointError,
    parse_partition_metadata,
)
from kraftrio.broker.log.manager.log_dir import PendingLog
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.wire.primitives import TopicPartition

_logger = logging.getLogger(__name__)


class Placement(NamedTuple):
    """What the metadata says of a replica: its topic's id, and the directory it lies in."""

    topic_id: bytes
    directory_id: bytes


def set_duplicates_aside(
    log_manager: LogManager,
    pending: Sequence[PendingLog],
    placement_of: Callable[[TopicPartition], Placement | None],
) -> list[PendingLog]:
    """Return the logs to load.

    Args:
        placement_of: what the metadata says; None for a partition that it does not place here.
    """
    found: dict[TopicPartition, list[PendingLog]] = {}
    for one in pending:
        found.setdefault(one.topic_partition, []).append(one)
    kept: list[PendingLog] = []
    for topic_partition, candidates in found.items():
        if len(candidates) > 1:
            meant = _log_to_keep(log_manager, candidates, placement_of(topic_partition))
            for other in candidates:
                if meant is not None and other is not meant:
                    path = log_manager.set_pending_aside(other)
                    _logger.warning(
                        "%s is in two log directories: kept in %s, the other set aside as %s",
                        topic_partition, meant.directory.path, path,
                    )  # fmt: skip
            candidates = candidates if meant is None else [meant]
        kept += candidates
    return kept


def _log_to_keep(
    log_manager: LogManager, candidates: list[PendingLog], placement: Placement | None
) -> PendingLog | None:
    """The log that the metadata means, if it is clear; of strays the first goes on as one."""
    if placement is None:
        return candidates[0]
    of_topic = [
        one for one in candidates if _topic_id(log_manager, one) in (None, placement.topic_id)
    ]
    if not of_topic:
        return candidates[0]  # both are of topics that had this name before
    there = [one for one in of_topic if one.directory.directory_id == placement.directory_id]
    for chosen in (of_topic, there):
        if len(chosen) == 1:
            return chosen[0]
    return None


def _topic_id(log_manager: LogManager, pending: PendingLog) -> bytes | None:
    """The topic id in a partition's directory; None if there is none, or it cannot be read."""
    path = posixpath.join(pending.path, PARTITION_METADATA)
    try:
        return parse_partition_metadata(log_manager.fs.read_file(path))
    except (OSError, CheckpointError):
        return None
