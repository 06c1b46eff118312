"""What transactions need from outside: settings, producer ids, a way to write markers.

The broker's configuration and the marker sender fit; tests bring their own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from kraftrio.wire.primitives import TopicPartition

TakeProducerId: TypeAlias = Callable[[], int | None]
"""Gives a new producer id; None: there is none at hand now."""

TransactionVersion: TypeAlias = Callable[[], int]
"""The level of the feature `transaction.version` that the cluster is at: 0, 1 or 2."""


class NeedsProducerId(Enum):
    """The response to a request that is to come again once a producer id is at hand.

    Nothing was decided and nothing appended.
    """

    NEEDS_PRODUCER_ID = "needs producer id"


NEEDS_PRODUCER_ID = NeedsProducerId.NEEDS_PRODUCER_ID


class TransactionProperties(Protocol):
    """What transactions ask of the broker's configuration, which fits as it is."""

    @property
    def transaction_max_timeout_ms(self) -> int: ...
    @property
    def transactional_id_expiration_ms(self) -> int: ...
    @property
    def transaction_two_phase_commit_enable(self) -> bool: ...


class EndCause(Enum):
    """Who decided that a transaction ends.

    REQUESTED: its producer.
    TIMED_OUT: the coordinator, since it took longer than its time-out.
    FENCED: a newer producer of the transactional id, which is waiting for it.
    TAKEN_OVER: an earlier coordinator; this one has loaded the decision.
    """

    REQUESTED = "requested"
    TIMED_OUT = "timed out"
    FENCED = "fenced"
    TAKEN_OVER = "taken over"


class TransactionEnd(NamedTuple):
    """A transaction that was decided: the markers to write.

    Attributes:
        coordinator_partition: the partition of `__transaction_state` that decided.
        coordinator_epoch: the leader epoch of that partition; partitions refuse lower ones.
        producer_epoch: the one in the markers; under transaction version 2 it is above that of
            the transaction's batches.
        transaction_version: of the client; partitions check the epoch by it.
    """

    transactional_id: str
    coordinator_partition: int
    coordinator_epoch: int
    producer_id: int
    producer_epoch: int
    commit: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]
    cause: EndCause = EndCause.REQUESTED


class MarkerSink(Protocol):
    """Writes the markers of decided transactions, through whatever comes in between."""

    def write(self, end: TransactionEnd) -> None:
        """See that markers get into all partitions, then call the shard's `markers_written`."""

    def drop(self, coordinator_partition: int) -> None:
        """Stop with everything that a partition decided; its next leader goes on with it."""
