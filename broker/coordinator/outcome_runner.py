"""Carries out what shards decide: replies, appends, changes, and what follows the commit.

Rules
1. An outcome is carried out in one go, with no await: reply, append, apply.
2. The response waits for the records' commit, for at most the commit timeout. Records that come too
   late for it may yet be committed, and count then. So may those that are in the log without having
   been flushed: they are applied as all others, but no client is answered as if they were safe.
3. Failures of an append reach clients as coordinator errors, never as those of producing.
4. A transaction's end marker is appended and applied in one go, too; the shard shows what it
   decided once it is committed. Its sender gets the log's own error, and sends it again.

Called by the runtime.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

from kraftrio.base.clock import Clock
from kraftrio.base.logging_setup import log_event
from kraftrio.broker.coordinator.led_partition import LedPartition, ShardT
from kraftrio.broker.coordinator.outcome import (
    COMMITTED,
    CoordinatorEvent,
    CoordinatorRecord,
    FollowUp,
    Now,
    Outcome,
    ProducerOfBatch,
)
from kraftrio.broker.coordinator.ports import Replicas
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.broker.ports import UnflushedError
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.records.batch import NO_PRODUCER_ID, Record, build_batch
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch

Respond = Callable[[ErrorCode], None]
"""Sends a response, or what an error makes of it."""

Describe: TypeAlias = Callable[[Any, Outcome, bool], Iterable[CoordinatorEvent]]
"""Describes the events of an outcome of a shard; the flag says that no request led to it."""

_CONFIRM_TIMEOUT_MS = 2_000  # then the client is to look for the coordinator again
_SPLIT_RECORDS = 1000  # in a batch of an outcome that need not be atomic

# What Kafka's coordinator writes, with a producer id or without: nobody looks at its sequences.
_BASE_SEQUENCE = 0
_NO_PRODUCER = ProducerOfBatch(NO_PRODUCER_ID, -1)

# What a log says of a writer whose time is over: a zombie, or one that the network held back.
_REPLACED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)


class OutcomeRunner:
    """See the module.

    Attributes:
        describe: returns the events of an outcome; None: there are none.
        event_counts: how often each was, by the type that it is of.
    """

    def __init__(
        self, replicas: Replicas, clock: Clock, settings: CoordinatorSettings, log: logging.Logger
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._settings = settings
        self._log = log
        self.describe: Describe | None = None
        self.event_counts: Counter[tuple[str, str]] = Counter()

    def now(self) -> Now:
        """The moment that a shard is asked at."""
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())

    def commit_deadline_ms(self, now: Now) -> float:
        """Until when a response waits for a commit that is asked for now."""
        return now.monotonic_ms + self._settings.commit_timeout_ms

    def run(
        self,
        led: LedPartition[ShardT],
        outcome: Outcome,
        now: Now,
        respond: Respond | None = None,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Carry out an outcome of a partition's shard.

        Args:
            now: when the shard was asked.
            respond: answers the request; None: there was none.
            guard: of the transaction whose producer the outcome names.
        """
        events: tuple[CoordinatorEvent, ...] = ()
        if self.describe is not None and (outcome.records or outcome.events):
            events = tuple(self.describe(led.shard, outcome, respond is None))
        for ticket, response in outcome.replies:
            ticket.complete(response)
        if outcome.batch is None and not outcome.records:
            self._log_events(events)
            if respond is not None and outcome.stable:
                self._settle_when_committed(led, now, None, respond)
            elif respond is not None and outcome.needs_confirmation:
                self._replicas.when_confirmed(led.topic_partition, _CONFIRM_TIMEOUT_MS, respond)
            elif respond is not None:
                respond(ErrorCode.NONE)
            return
        try:
            self._append(led, outcome, guard, now)
        except KafkaError as error:
            self._log_failure("append", led, error)
            self._settle(led, 0, outcome.follow_up, respond, error.code)
            return
        self._log_events(events)
        self._settle_appended(led, now, outcome.follow_up, respond)

    def _log_events(self, events: Sequence[CoordinatorEvent]) -> None:
        for message, fields in events:
            self.event_counts[message, str(fields.get("type", ""))] += 1
            log_event(self._log, logging.INFO, message, **fields)

    def end_transaction(
        self,
        led: LedPartition[ShardT],
        producer: ProducerOfBatch,
        marker: EndTransactionMarker,
        transaction_version: int,
        respond: Respond,
    ) -> None:
        """Append the marker that ends a transaction, and let the shard change by it."""
        now = self.now()
        batch = build_end_transaction_batch(*producer, marker, timestamp=now.wall_ms)
        try:
            self._append_batch(led, batch, 1, transaction_version=transaction_version)
        except KafkaError as error:
            self._log_failure("marker", led, error)
            respond(error.code)
            return
        led.shard.replay_end_transaction(
            producer.producer_id,
            led.written_end_offset,
            now,
            commit=marker.commit,
            committed=False,
        )
        self._settle_appended(led, now, None, respond)

    def _log_failure(self, what: str, led: LedPartition[ShardT], error: KafkaError) -> None:
        """Producers and coordinators that others have replaced are no news to an operator."""
        level = logging.DEBUG if error.code in _REPLACED else logging.WARNING
        self._log.log(level, "%s failed partition=%s reason=%s", what, led.topic_partition, error)

    def _settle_appended(
        self,
        led: LedPartition[ShardT],
        now: Now,
        follow_up: FollowUp | None,
        respond: Respond | None,
    ) -> None:
        """What follows an append."""
        if led.is_flushed:
            self._settle_when_committed(led, now, follow_up, respond)
        else:
            end_offset = led.written_end_offset
            self._settle(led, end_offset, follow_up, respond, ErrorCode.REQUEST_TIMED_OUT)

    def _settle_when_committed(
        self,
        led: LedPartition[ShardT],
        now: Now,
        follow_up: FollowUp | None,
        respond: Respond | None,
    ) -> None:
        """What follows once everything that was appended so far is committed, or is not in time."""
        end_offset = led.written_end_offset
        self._replicas.when_committed(
            led.topic_partition,
            end_offset,
            self.commit_deadline_ms(now),
            partial(self._settle, led, end_offset, follow_up, respond),
        )

    def _append(
        self, led: LedPartition[ShardT], outcome: Outcome, guard: VerificationGuard | None, now: Now
    ) -> None:
        """Append the records, and let the shard change by them."""
        producer = outcome.producer or _NO_PRODUCER
        if outcome.batch is not None:
            data = outcome.batch.build(
                compression=self._settings.compression,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=_BASE_SEQUENCE,
                transactional=producer is not _NO_PRODUCER,
            )
            self._append_batch(led, data, outcome.batch.record_count, guard=guard)
        records = outcome.records
        step = _SPLIT_RECORDS if outcome.splittable else max(len(records), 1)
        for start in range(0, len(records), step):
            part = records[start : start + step]
            self._append_records(led, part, producer, guard, now, replay=outcome.replay)
        if outcome.change is not None:
            led.shard.apply(
                outcome.change,
                led.written_end_offset,
                now,
                producer_id=producer.producer_id,
            )

    def _append_records(
        self,
        led: LedPartition[ShardT],
        records: Sequence[CoordinatorRecord],
        producer: ProducerOfBatch,
        guard: VerificationGuard | None,
        now: Now,
        *,
        replay: bool,
    ) -> None:
        batch = build_batch(
            [Record(0, now.wall_ms, key, value) for key, value in records],
            compression=self._settings.compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=_BASE_SEQUENCE,
            transactional=producer is not _NO_PRODUCER,
        )
        base_offset = self._append_batch(led, batch, len(records), guard=guard)
        if replay:
            for offset, record in enumerate(records, base_offset):
                led.shard.replay(
                    offset,
                    record.key,
                    record.value,
                    now,
                    producer_id=producer.producer_id,
                    committed=False,
                    messages=record.messages,
                )

    def _append_batch(
        self,
        led: LedPartition[ShardT],
        batch: bytearray,
        record_count: int,
        *,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> int:
        try:
            base_offset = self._replicas.append_to_leader(
                led.topic_partition,
                batch,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=transaction_version,
                guard=guard,
            ).base_offset
            led.is_flushed = True  # and all that was appended before it
        except UnflushedError as error:
            self._log_failure("flush", led, error)
            base_offset = error.base_offset
            led.is_flushed = False
        led.written_end_offset = base_offset + record_count
        return base_offset

    def _settle(
        self,
        led: LedPartition[ShardT],
        end_offset: int,
        follow_up: FollowUp | None,
        respond: Respond | None,
        error: ErrorCode,
    ) -> None:
        """The records of an outcome are committed, or are known to have failed."""
        if error in COMMITTED and led.is_led:
            led.shard.on_committed(end_offset)
        if respond is not None:
            respond(error)
        if follow_up is not None and led.is_led:
            now = self.now()
            self.run(led, led.shard.on_append_done(follow_up, error, now), now)
            led.arm_timer()
        if error is ErrorCode.REQUEST_TIMED_OUT and led.is_led:
            self._replicas.when_committed(
                led.topic_partition, end_offset, None, partial(self._show, led, end_offset)
            )

    def _show(self, led: LedPartition[ShardT], end_offset: int, error: ErrorCode) -> None:
        """Records were committed after their response had been given up."""
        if error in COMMITTED and led.is_led:
            led.shard.on_committed(end_offset)
            led.arm_timer()
