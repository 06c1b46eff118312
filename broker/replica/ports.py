"""What the replicas ask of the rest of the broker, as narrow protocols; and which brokers live.

`isr_proposals` is an `IsrProposer`, `directory_assignments` are `DirectoryReports`, and
`follower/fetcher` is a `FetcherManager`. `MetadataBrokers` reads the newest image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.state.isr import IsrAnswer, IsrProposal
from kraftrio.wire.primitives import TopicPartition


class IsrProposer(Protocol):
    """Takes proposed ISRs to the active controller (AlterPartition)."""

    def propose(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        proposal: IsrProposal,
        callback: Callable[[IsrAnswer], None],
    ) -> None:
        """Propose; `callback` is called once, later, with what the controller answers."""
        ...


class DirectoryReports(Protocol):
    """Reports to the controller where replicas lie (AssignReplicasToDirs)."""

    def place(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """A replica is in that log directory, or LOST."""
        ...


class FetcherManager(Protocol):
    """Copies the partitions that are followed here from their leaders."""

    def follow(
        self, topic_partition: TopicPartition, topic_id: bytes, leader_id: int, leader_epoch: int
    ) -> None:
        """Fetch a partition from this leader, in this leader epoch, instead of any before."""
        ...

    def stop(self, topic_partition: TopicPartition) -> None:
        """Stop fetching it; answers under way are dropped. Nothing happens if it is not fetched."""
        ...


class ReplicationThrottle(Protocol):
    """How fast throttled replicas may be served, or fetched (KIP-73)."""

    def is_throttled(self, topic_partition: TopicPartition) -> bool: ...
    def exceeded(self) -> bool: ...
    def record(self, size_bytes: int) -> None: ...


class MetadataBrokers:
    """Who is alive, by the newest published image."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def live_epoch(self, broker_id: int) -> int:
        """The broker epoch of a broker that is not fenced, else -1."""
        broker = self._metadata.image.brokers.get(broker_id)
        return -1 if broker is None or broker.fenced else broker.broker_epoch

    def may_join_isr(self, broker_id: int) -> bool:
        """Is it registered, not fenced and not shutting down?"""
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and broker.is_active
