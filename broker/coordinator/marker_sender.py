"""Sends the markers of decided transactions to the leaders of their partitions.

Owns: the requests under way. Which markers go where, and what an answer means, is the core's
(`transactions/markers`). Rules
1. There is one request under way to each other broker; what is decided meanwhile goes with the
   next. To this broker itself markers go by direct calls, however many.
2. Nothing is sent from within `write`: it is called by shards, in the midst of a change, and what a
   marker brings about comes back to them. What was written there is sent when `send_now` is called,
   at the latest in the next turn of the event loop.
3. When all markers of a transaction are written its coordinator is notified, once.
4. A producer that goes on with a transactional id may wait for its end (`when_ended`), but not for
   long: a partition without a leader may keep it for hours.

Called by: the shards of the transaction coordinator (it is their `MarkerSink`), the handler of
EndTxn, the metadata publisher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import log_event
from kraftrio.base.statistics import Statistics
from kraftrio.broker.coordinator.transactions.markers import (
    PartitionLeader,
    PendingMarkers,
    SentMarkers,
)
from kraftrio.broker.coordinator.transactions.ports import EndCause, TransactionEnd
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import BrokerRequests, SchedulerPort, TimerPort
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.primitives import TopicPartition

_log = logging.getLogger("kraftrio.transactions")

# As long as Kafka's brokers pause before they ask again (add.partitions.to.txn.retry.backoff.ms).
_LONGEST_WAIT_MS = 20

_AGAINST_PRODUCER = frozenset({EndCause.TIMED_OUT, EndCause.FENCED})


class MarkerSender:
    """See the module.

    Args:
        timeout_ms: how long another broker may take to answer.
    """

    def __init__(
        self,
        links: BrokerRequests,
        metadata: MetadataCache,
        timers: SchedulerPort,
        clock: Clock,
        timeout_ms: float,
    ) -> None:
        self._links = links
        self._metadata = metadata
        self._timers = timers
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._core = PendingMarkers(self._leader_of)
        self._when_written: Callable[[TransactionEnd], Deferred[Any]] = _complete_at_once
        self._waiting: dict[str, list[Deferred[None]]] = {}  # for the end of their transaction
        self._busy: set[int] = set()  # other brokers with a request under way
        self._is_due = self._is_scheduled = self._is_sending = False
        self._retry: TimerPort | None = None
        self._retry_ms = float("inf")
        self._requests_total = 0

    def when_written(self, callback: Callable[[TransactionEnd], Deferred[Any]]) -> None:
        """Set what is called with transactions whose markers are all written.

        Args:
            callback: its result says when the transaction is complete.
        """
        self._when_written = callback

    def when_ended(self, transactional_id: str) -> Deferred[None] | None:
        """Wait for the end of an id's transaction, or a little while; None: none is ending."""
        waiting = self._waiting.get(transactional_id)
        if waiting is None:
            return None
        ended: Deferred[None] = Deferred()
        waiting.append(ended)
        self._timers.schedule(_LONGEST_WAIT_MS, lambda: _complete_once(ended))
        return ended

    def _complete_ended(self, transactional_id: str) -> None:
        for one in self._waiting.pop(transactional_id, []):
            _complete_once(one)

    # -- the shards' port -----------------------------------------------------------------------

    def write(self, end: TransactionEnd) -> None:
        """Write the markers of a transaction whose decision is committed."""
        if end.cause in _AGAINST_PRODUCER:
            log_event(
                _log,
                logging.INFO,
                "transaction aborted",
                transactional_id=end.transactional_id,
                reason=end.cause.value,
                producer_id=end.producer_id,
                epoch=end.producer_epoch,
                partitions=len(end.partitions),
            )
        self._waiting.setdefault(end.transactional_id, [])
        self._core.add(end)
        self._send_soon()

    def drop(self, coordinator_partition: int) -> None:
        """Write nothing more for a coordinator's partition: another broker leads it."""
        for end in self._core.drop(coordinator_partition):
            self._complete_ended(end.transactional_id)

    # -- sending --------------------------------------------------------------------------------

    def metadata_changed(self) -> None:
        """A new image is published: leaders may have moved, topics may be gone."""
        if self._core.pending_count:
            self._core.on_metadata(self._clock.monotonic_ms())
            self._send_soon()

    def _leader_of(self, topic_partition: TopicPartition) -> PartitionLeader | None:
        topic = self._metadata.topic(topic_partition.topic)
        partition = None if topic is None else topic.partitions.get(topic_partition.partition)
        if topic is None or partition is None:
            return None
        return PartitionLeader(partition.leader, topic.topic_id)

    def _send_soon(self) -> None:
        """Rule 2: what waits for a `Deferred` runs in a turn of its own."""
        self._is_due = True
        if self._is_sending or self._is_scheduled:
            return
        self._is_scheduled = True
        turn: Deferred[None] = Deferred()
        turn.when_done(lambda _turn: self._on_turn())
        turn.complete(None)

    def _on_turn(self) -> None:
        self._is_scheduled = False
        self.send_now()

    def send_now(self) -> None:
        """Send what there is to send, and report what is finished; not from within a shard.

        On a single node a transaction is complete after that, so that its producer finds it so.
        """
        if self._is_sending:
            return
        self._is_sending, is_all = True, True
        while self._is_due and is_all:
            self._is_due = False
            is_all = not self._core.assign(self._clock.monotonic_ms())
            for broker_id in self._core.brokers():
                if broker_id not in self._busy:
                    self._send_to(broker_id)
            for end in self._core.pop_fenced():
                self._complete_ended(end.transactional_id)
            for end in self._core.pop_finished():
                completed = self._when_written(end)
                completed.when_done(partial(self._on_complete, end.transactional_id))
        self._is_sending = False
        self._arm()
        if not is_all:
            self._send_soon()  # the rest has another turn

    def _send_to(self, broker_id: int) -> None:
        sent = self._core.take(broker_id, self._clock.monotonic_ms())
        if sent is None:
            return
        self._requests_total += 1
        answer = self._links.send(broker_id, sent.request, timeout_ms=self._timeout_ms)
        if not answer.done and broker_id != self._links.broker_id:
            self._busy.add(broker_id)
        answer.when_done(partial(self._on_answer, sent))

    def _on_complete(self, transactional_id: str, _completed: Deferred[Any]) -> None:
        self._complete_ended(transactional_id)

    def _on_answer(self, sent: SentMarkers, answer: Deferred[Any]) -> None:
        self._busy.discard(sent.broker_id)
        now_ms = self._clock.monotonic_ms()
        if isinstance(answer.error, ConnectionLost):
            self._core.on_failed(sent, now_ms)
        else:
            self._core.on_response(sent, answer.value, now_ms)
        self._send_soon()

    def _arm(self) -> None:
        """Come back when something is to be sent again."""
        due_ms = self._core.next_retry_ms()
        if due_ms is None or due_ms >= self._retry_ms:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._retry_ms = due_ms
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 0)
        self._retry = self._timers.schedule(delay_ms, self._on_retry)

    def _on_retry(self) -> None:
        self._retry, self._retry_ms = None, float("inf")
        self._send_soon()

    def statistics(self) -> Statistics:
        """What is still to be written, and what was."""
        core = self._core
        return {
            "pending_transactions": core.pending_count,
            "busy_brokers": len(self._busy),
            "requests_total": self._requests_total,
            "markers_written_total": core.written_total,
            "markers_retried_total": core.retried_total,
            "markers_skipped_total": core.skipped_total,
            "fenced_transactions_total": core.fenced_total,
        }


def _complete_at_once(_end: TransactionEnd) -> Deferred[Any]:
    return Deferred.completed(None)


def _complete_once(deferred: Deferred[None]) -> None:
    if not deferred.done:
        deferred.complete(None)
