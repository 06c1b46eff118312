"""What the share coordinator's shards need from outside: settings, topics, a log to prune.

The broker's configuration and the coordinator's shell fit; tests bring their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

PartitionCount: TypeAlias = Callable[[bytes], int]
"""How many partitions the topic of an id has, by the newest metadata; 0 if there is none."""

Prune: TypeAlias = Callable[[int], bool]
"""Deletes the records of the shard's partition below an offset, which is committed; says whether it
could."""


class ShareStateProperties(Protocol):
    """What shards ask of the broker's configuration, which fits as it is."""

    @property
    def share_coordinator_snapshot_update_records_per_snapshot(self) -> int: ...
    @property
    def share_coordinator_state_topic_prune_interval_ms(self) -> int: ...
    @property
    def share_coordinator_cold_partition_snapshot_interval_ms(self) -> int: ...
