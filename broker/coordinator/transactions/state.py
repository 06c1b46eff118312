"""One transactional id: its states, which moves are legal, and what is known of its transaction.

Owns `TransactionMetadata`, the hard state of a transactional id. Rules:
1. It is immutable; a change makes another one, which counts once its record is committed (`shard`).
2. Moves go by `LEGAL_MOVES`; another one is our bug.
3. Epochs never fall under one producer id, partitions are only added until the end.

Called by `requests`, `records`, `listing` and `shard`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from kraftrio.broker.coordinator.transactions.producer_epochs import ProducerIdentity
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition

NO_TIMESTAMP = -1
NO_TIMEOUT_MS = 2**31 - 1
"""The time-out of transactions whose end an outside coordinator decides (KIP-939): none."""


class TransactionState(Enum):
    """The state of a transactional id; the value is its number in the log.

    EMPTY: has a producer, and no transaction yet. Begins one; is aborted without having begun one.
    ONGOING: partitions are added until it is committed or aborted.
    PREPARE_COMMIT, PREPARE_ABORT: decided; markers are being written.
    COMPLETE_COMMIT, COMPLETE_ABORT: all markers are written. The next transaction may begin.
    DEAD: expired; its tombstone is being written.
    PREPARE_EPOCH_FENCE: known by name to Kafka's tools. Aborting a transaction against its producer
        is prepared as PREPARE_ABORT at once.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def wire_name(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return _WIRE_NAMES[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is decided, and not yet ended everywhere."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction; only such an id expires."""
        return self in _IDLE


_WIRE_NAMES = {
    state: "".join(word.capitalize() for word in state.name.split("_"))
    for state in TransactionState
}
STATES_BY_NAME: Mapping[str, TransactionState] = {
    name: state for state, name in _WIRE_NAMES.items()
}
_IDLE = frozenset(
    {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
)
_FROM_IDLE = frozenset(
    {
        TransactionState.EMPTY,  # InitProducerId
        TransactionState.ONGOING,  # AddPartitionsToTxn
        TransactionState.PREPARE_ABORT,  # EndTxn 5: the client need not know whether one had begun
        TransactionState.DEAD,  # expiry
    }
)

LEGAL_MOVES: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _FROM_IDLE,
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
        }
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: _FROM_IDLE,
    TransactionState.COMPLETE_ABORT: _FROM_IDLE,
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id as the log has it.

    Attributes:
        timeout_ms: after which an ongoing transaction is aborted.
        partitions: of the transaction that goes on or is ending.
        start_ms: when it began (wall clock); -1 before the first one.
        last_update_ms: when it last changed (wall clock); expiry goes by it.
        client_version: the transaction version that its client speaks, 0 for 0 and 1.
    """

    transactional_id: str
    producer: ProducerIdentity
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    client_version: int = 0

    def emptied(
        self, producer: ProducerIdentity, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """After InitProducerId: a producer without a transaction."""
        return replace(
            self._moved_to(TransactionState.EMPTY, producer, now_ms),
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """After AddPartitionsToTxn; the first one begins a transaction."""
        return replace(
            self._moved_to(TransactionState.ONGOING, self.producer.unchanged(), now_ms),
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            client_version=client_version,
        )

    def ending(
        self, producer: ProducerIdentity, *, commit: bool, client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Decided: markers are to be written under the identity given here."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return replace(
            self._moved_to(state, producer, now_ms),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            client_version=client_version,
        )

    def ended(self, now_ms: int) -> TransactionMetadata:
        """All markers are written."""
        state = (
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT
        )
        producer = self.producer.ended(self.client_version)
        return replace(self._moved_to(state, producer, now_ms), partitions=frozenset())

    def expired(self) -> TransactionMetadata:
        """Forgotten: a tombstone takes its record away."""
        return self._moved_to(TransactionState.DEAD, self.producer, self.last_update_ms)

    @property
    def has_timeout(self) -> bool:
        """Whether the coordinator may abort the transaction by itself."""
        return self.timeout_ms != NO_TIMEOUT_MS

    def is_of(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether a producer is the current one."""
        return producer == (self.producer.producer_id, self.producer.epoch)

    def _moved_to(
        self, state: TransactionState, producer: ProducerIdentity, now_ms: int
    ) -> TransactionMetadata:
        assert state in LEGAL_MOVES[self.state], (
            f"{self.transactional_id}: {self.state.name} to {state.name}"
        )
        if producer.producer_id == self.producer.producer_id:
            assert producer.epoch >= self.producer.epoch, f"{self.transactional_id}: {producer}"
        return replace(self, state=state, producer=producer, last_update_ms=now_ms)
