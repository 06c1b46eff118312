"""Figures of a client at one moment: what `statistics()` of each returns.

Frozen values, without a reference to the client. Counts are since it was entered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraftrio.wire.primitives import TopicPartition


@dataclass(frozen=True, slots=True)
class ClusterStatistics:
    """A client's view of its cluster.

    Attributes:
        brokers: how many are known by metadata; 0 before any has answered.
        connected_brokers: to how many it is connected.
        requests_in_flight: how many requests are not answered yet.
        topics: of how many it keeps metadata.
        last_failure: why metadata could not be fetched the last time; None if it could.
    """

    brokers: int
    connected_brokers: int
    requests_in_flight: int
    topics: int
    last_failure: str | None


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """A producer.

    Attributes:
        buffered_bytes: how much of buffer_memory is taken.
        waiting_sends: how many calls of `send` wait for room in it.
        undecided_batches: how many batches are neither written nor given up.
        delivered_records: how many records brokers have.
        failed_records: how many were given up.
    """

    cluster: ClusterStatistics
    buffered_bytes: int
    waiting_sends: int
    undecided_batches: int
    delivered_records: int
    failed_records: int


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """A consumer.

    Attributes:
        lag: how many offsets are behind the position, of each partition that is read, as of the
            last fetch; None: unknown.
        paused: the partitions that are paused.
        buffered_bytes: of answers that the program has not taken yet.
        fetched_records: how many records have come, ahead of the program.
        member_id: in its group; empty outside of any.
        generation_id: of its group, or the member's epoch; -1 outside of any.
    """

    cluster: ClusterStatistics
    lag: Mapping[TopicPartition, int | None]
    paused: frozenset[TopicPartition]
    buffered_bytes: int
    fetched_records: int
    member_id: str
    generation_id: int


@dataclass(frozen=True, slots=True)
class ShareConsumerStatistics:
    """A share consumer.

    Attributes:
        assignment: the partitions that are read, as others may, too.
        waiting_records: acquired, and not handed over yet.
        records_in_hand: handed over, and not acknowledged.
        pending_acknowledgements: made by the program, and not yet sent to brokers.
        member_id: in its group.
        member_epoch: in its group; 0 and less: outside.
    """

    cluster: ClusterStatistics
    assignment: frozenset[TopicPartition]
    waiting_records: int
    records_in_hand: int
    pending_acknowledgements: int
    member_id: str
    member_epoch: int
