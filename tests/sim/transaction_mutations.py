"""Deliberate breaches of what transactions promise (see `mutations`, which switches them in)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraftrio.broker.coordinator.groups.offset_state import OffsetState
from kraftrio.broker.coordinator.transactions import markers, requests
from kraftrio.broker.coordinator.transactions.markers import PendingMarkers
from kraftrio.broker.coordinator.transactions.producer_epochs import ProducerIdentity
from kraftrio.broker.coordinator.transactions.shard import TransactionShard
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.producers import producer_state
from kraftrio.broker.log.producers.producer_state import ProducerStateManager
from kraftrio.broker.replica.verification.verification import TransactionVerification
from kraftrio.wire.errors import ErrorCode
from tests.sim.options import Transactions

Patch = tuple[Any, str, Any]


def _no_fencing_by_epoch() -> list[Patch]:
    """Neither the coordinator nor partitions look at a producer's epoch."""

    def check_producer(transaction: Any, producer: Any) -> ErrorCode:
        is_same = producer.producer_id == transaction.producer.producer_id
        return ErrorCode.NONE if is_same else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    original = producer_state.ProducerStateManager.start_verification

    def start_verification(
        self: ProducerStateManager, producer_id: int, producer_epoch: int, *others: Any, **more: Any
    ) -> Any:
        entry = self.get(producer_id)
        epoch = producer_epoch if entry is None else max(producer_epoch, entry.producer_epoch)
        return original(self, producer_id, epoch, *others, **more)

    return [
        (requests, "_check_producer", check_producer),
        (producer_state, "_check_epoch", lambda entry, header, is_fenced: None),
        (ProducerStateManager, "start_verification", start_verification),
    ]


def _marker_before_the_decision_is_committed() -> list[Patch]:
    """The coordinator sends markers as soon as the decision is in its own log."""
    original = TransactionShard.apply

    def apply(
        self: TransactionShard, change: Any, end_offset: int, now: Any, **options: Any
    ) -> None:
        original(self, change, end_offset, now, **options)
        for after in change.after:
            if after.state.is_prepared and after.partitions:
                self._finish(after, change.cause, now)

    return [(TransactionShard, "apply", apply)]


def _stable_past_an_open_transaction() -> list[Patch]:
    return [(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))]


def _stable_once_the_marker_is_appended() -> list[Patch]:
    """A transaction holds nothing back any more though its marker is not replicated."""
    original = ProducerStateManager.update

    def update(self: ProducerStateManager, *arguments: Any, **options: Any) -> Any:
        completed = original(self, *arguments, **options)
        self._unreplicated = None
        return completed

    return [(ProducerStateManager, "update", update)]


def _pending_offset_is_shown() -> list[Patch]:
    """Offsets within a transaction count as soon as they are written."""
    original = OffsetState.store

    def store(
        self: OffsetState, change: Any, end_offset: int, *, producer_id: int | None = None
    ) -> None:
        original(self, change, end_offset)

    return [(OffsetState, "store", store)]


def _marker_lost_with_the_leader() -> list[Patch]:
    """Who does not lead a partition any more is believed to have written the marker."""
    moved = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT}
    written = frozenset({ErrorCode.NONE, *moved})

    def on_failed(self: PendingMarkers, sent: Any, now_ms: float) -> None:
        self._in_flight.remove(sent)
        for pending, partitions in sent.partitions.items():
            for topic_partition in sorted(partitions):
                self._settle(pending, topic_partition)

    return [(markers, "_WRITTEN", written), (PendingMarkers, "on_failed", on_failed)]


def _verification_is_skipped() -> list[Patch]:
    """Partitions append whatever comes; only new clients' requests reach the coordinator."""

    def is_asked_for(self: TransactionVerification, support: Any) -> bool:
        return bool(support.adds_partitions)

    return [(TransactionVerification, "_is_asked_for", is_asked_for)]


def _complete_before_all_markers() -> list[Patch]:
    """The first partition that has its marker stands for all."""

    def finish(self: PendingMarkers, pending: Any) -> None:
        if not pending.is_dropped:
            self._forget(pending)
            self._finished.append(pending.end)

    return [(PendingMarkers, "_finish_if_done", finish)]


def _timeout_without_a_new_epoch() -> list[Patch]:
    """Who was too slow is aborted, but not fenced."""
    return [(ProducerIdentity, "fenced", lambda self, *_arguments, **_options: self.unchanged())]


def _aborted_transaction_is_not_listed() -> list[Patch]:
    """Fetch leaves out the first of several aborted transactions."""
    original = PartitionLog.aborted_transactions

    def aborted_transactions(self: PartitionLog, start_offset: int, end_offset: int) -> Any:
        found = original(self, start_offset, end_offset)
        return found[1:] if len(found) > 1 else found

    return [(PartitionLog, "aborted_transactions", aborted_transactions)]


def _decided_transactions_are_not_taken_over() -> list[Patch]:
    """A new leader of the coordinator's partition does not go on with what was decided."""
    original = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, now: Any) -> Any:
        self._prepared_ids = {}
        return original(self, now)

    return [(TransactionShard, "on_loaded", on_loaded)]


_TRANSACTIONS: Mapping[str, Any] = {
    "nodes": 3,
    "faults": ("kill", "isolate", "lose_answers", "pause"),
    "fault_gap_s": 1.0,
    "fault_length_s": 2.0,
    "duration_s": 15.0,
    "idempotent_producers": 0,
    "plain_producers": 0,
    "weak_producers": 0,
    "readers": 0,
    "groups": 0,
    "admin_gap_s": 1e9,
    "library": (),
    "uses": (),
    "transactional": True,
    "transactions": Transactions(3, 2, (2, 1, 1), (3_000,), 2),
    "properties": {
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
        "replica.lag.time.max.ms": "1000",
    },
}
_OLD_CLIENTS: Mapping[str, Any] = {
    **_TRANSACTIONS,
    "transactions": Transactions(3, 2, (2, 1, 1), (3_000,), 1),
}

TRANSACTION_MUTATIONS: dict[str, tuple[Callable[[], list[Patch]], Mapping[str, Any]]] = {
    "no-fencing-by-producer-epoch": (_no_fencing_by_epoch, _OLD_CLIENTS),
    "marker-before-the-decision-is-committed": (
        _marker_before_the_decision_is_committed,
        _TRANSACTIONS,
    ),
    "stable-past-an-open-transaction": (_stable_past_an_open_transaction, _TRANSACTIONS),
    "stable-once-the-marker-is-appended": (_stable_once_the_marker_is_appended, _TRANSACTIONS),
    "pending-offset-is-shown": (_pending_offset_is_shown, _TRANSACTIONS),
    "marker-lost-with-the-leader": (_marker_lost_with_the_leader, _TRANSACTIONS),
    "verification-is-skipped": (_verification_is_skipped, _OLD_CLIENTS),
    "complete-before-all-markers": (_complete_before_all_markers, _TRANSACTIONS),
    "timeout-without-a-new-epoch": (
        _timeout_without_a_new_epoch,
        {**_OLD_CLIENTS, "transactions": Transactions(3, 2, (2, 1, 1), (700,), 1)},
    ),
    "aborted-transaction-is-not-listed": (_aborted_transaction_is_not_listed, _TRANSACTIONS),
    "decided-transactions-are-not-taken-over": (
        _decided_transactions_are_not_taken_over,
        _TRANSACTIONS,
    ),
}
