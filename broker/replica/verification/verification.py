"""Verification of transactions: no batch begins one in a partition unknown to its coordinator.

A write that comes late, after its transaction was aborted, would begin another one that nobody
ends, and hold the last stable offset for ever (KIP-890). Rules:
1. The first batch of a producer's transaction in a partition waits until the coordinator has said
   that the partition is part of it. For newer clients the coordinator adds it just then.
2. While the transaction is open in the partition, batches pass by a look at the producer's state.
3. An answer counts for the transaction that was asked about: its guard says at the append whether
   that has ended meanwhile (`log/producers/verifications`).
4. While the producer's last transaction ends (CONCURRENT_TRANSACTIONS) newer clients' writes wait
   here for a moment (`end_waits`).
5. The marker of that last transaction may reach the partition between question and answer: the
   answer is then none about the next transaction (rule 3), and newer clients' are asked for again.
6. `transaction.partition.verification.enable` turns off rule 1 for older clients.

`TransactionVerification` is the gate of Produce; the group coordinator's offsets use `verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.broker.log.producers.verifications import ONGOING, VerificationGuard
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import VerificationResult
from kraftrio.broker.replica.append_gate import GateDecision, Refusal, RequestedPartition
from kraftrio.broker.replica.led_partitions import LedPartitions
from kraftrio.broker.replica.verification.client_support import (
    ClientSupport,
    produce_refusal,
)
from kraftrio.broker.replica.verification.coordinator_asker import CoordinatorAsker
from kraftrio.broker.replica.verification.end_waits import EndWait, EndWaits
from kraftrio.broker.replica.verification.questions import Question, Unverified
from kraftrio.wire.errors import CorruptBatchError, ErrorCode, KafkaError
from kraftrio.wire.messages.data import ProduceRequest
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import is_transactional, parse_header, stored_producer


class VerificationSettings(Protocol):
    """The settings in force (BrokerConfig)."""

    @property
    def transaction_partition_verification_enable(self) -> bool: ...


class _Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


class _FirstBatch(NamedTuple):
    """A transactional batch of a request."""

    requested: RequestedPartition
    topic_partition: TopicPartition
    producer: _Producer
    base_sequence: int


@dataclass(slots=True)
class _Entrant:
    """A Produce at the gate."""

    transactional_id: str
    support: ClientSupport
    batches: list[_FirstBatch]
    end_wait: EndWait
    admitted: Deferred[GateDecision] = field(default_factory=Deferred)


class TransactionVerification:
    """See the module."""

    def __init__(
        self,
        led: LedPartitions,
        metadata: MetadataCache,
        asker: CoordinatorAsker,
        end_waits: EndWaits,
        settings: Callable[[], VerificationSettings],
        clock: Clock,
    ) -> None:
        self._led = led
        self._metadata = metadata
        self._asker = asker
        self.statistics = asker.statistics
        self._end_waits = end_waits
        self._settings = settings
        self._clock = clock

    # -- Produce ---------------------------------------------------------------------------------

    def admit(
        self, request: ProduceRequest, *, api_version: int, by_id: bool
    ) -> Deferred[GateDecision] | None:
        """Verify the transactional batches of a request that need it; None: none does."""
        transactional_id = request.transactional_id
        if transactional_id is None or self._are_open(request, by_id=by_id):
            return None
        batches = list(self._transactional_batches(request, by_id=by_id))
        if len({batch.producer for batch in batches}) > 1:
            return Deferred.completed(_refuse_all(request, by_id=by_id))
        support = ClientSupport.of_produce(api_version)
        if not batches or not self._is_asked_for(support):
            return None
        end_wait = self._end_waits.begin(transactional_id)
        entrant = _Entrant(transactional_id, support, batches, end_wait)
        return entrant.admitted if self._examine(entrant) else None

    def _are_open(self, request: ProduceRequest, *, by_id: bool) -> bool:
        """Whether all of a request belongs to transactions that are open already, or to none."""
        producer: tuple[int, int] | None = None
        for topic in request.topic_data:
            name = self._metadata.topic_name(topic.topic_id) if by_id else topic.name
            for data in topic.partition_data:
                records = data.records
                if records is None or not is_transactional(records):
                    continue
                stored = stored_producer(records)
                if name is None or (producer is not None and stored != producer):
                    return False
                producer = stored
                if not self._led.has_ongoing_transaction(TopicPartition(name, data.index), *stored):
                    return False
        return True

    def _is_asked_for(self, support: ClientSupport) -> bool:
        return support.adds_partitions or self._settings().transaction_partition_verification_enable

    def _transactional_batches(
        self, request: ProduceRequest, *, by_id: bool
    ) -> Iterable[_FirstBatch]:
        """What belongs to a transaction; what the append refuses anyway is left out."""
        for topic in request.topic_data:
            name = self._metadata.topic_name(topic.topic_id) if by_id else topic.name
            if name is None:
                continue
            for data in topic.partition_data:
                records = data.records
                if records is None or not is_transactional(records):
                    continue
                try:
                    header = parse_header(records)
                except CorruptBatchError:
                    continue
                if header.producer_id >= 0:
                    yield _FirstBatch(
                        (topic.topic_id if by_id else topic.name, data.index),
                        TopicPartition(name, data.index),
                        _Producer(header.producer_id, header.producer_epoch),
                        header.base_sequence,
                    )

    def _examine(self, entrant: _Entrant) -> bool:
        """Look at the partitions, ask for those that need it; False: none does."""
        admission = GateDecision({}, {})
        unverified: dict[TopicPartition, RequestedPartition] = {}
        for batch in entrant.batches:
            try:
                guard = self._start(
                    batch.topic_partition, batch.producer, batch.base_sequence, entrant.support
                )
            except KafkaError as error:
                # Kafka gives no words here, and clients have their own for the code.
                admission.refusals[batch.requested] = Refusal(error.code)
                continue
            admission.guards[batch.requested] = guard
            if guard is not ONGOING:
                unverified[batch.topic_partition] = batch.requested
        if unverified:
            question = Question(
                entrant.transactional_id,
                *entrant.batches[0].producer,
                list(unverified),
                entrant.support.adds_partitions,
            )
            self._asker.ask(question)
            question.answer.then(
                lambda answer: self._on_answer(entrant, admission, unverified, answer)
            )
        elif admission.refusals:
            entrant.admitted.complete(admission)
        return bool(unverified or admission.refusals)

    def _on_answer(
        self,
        entrant: _Entrant,
        admission: GateDecision,
        asked: dict[TopicPartition, RequestedPartition],
        answer: Unverified,
    ) -> None:
        support = entrant.support
        codes = dict(answer)
        for topic_partition, requested in asked.items():
            guard = admission.guards[requested]
            if topic_partition not in codes and self._was_overtaken(
                topic_partition, entrant.batches[0].producer, guard, support
            ):
                codes[topic_partition] = ErrorCode.CONCURRENT_TRANSACTIONS
        if (
            support.adds_partitions
            and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            and not entrant.end_wait.is_over
        ):
            if ErrorCode.CONCURRENT_TRANSACTIONS in answer.values():
                entrant.end_wait.ask_later(lambda: self._examine_again(entrant))
            else:
                self._examine_again(entrant)  # the transaction before has ended by now
            return
        for topic_partition, code in codes.items():
            admission.refusals[asked[topic_partition]] = produce_refusal(
                support.known(code), support
            )
        entrant.admitted.complete(admission)

    def _examine_again(self, entrant: _Entrant) -> None:
        if not self._examine(entrant):  # all of them are open by now
            guards = {batch.requested: ONGOING for batch in entrant.batches}
            entrant.admitted.complete(GateDecision({}, guards))

    # -- offsets ---------------------------------------------------------------------------------

    def verify(
        self,
        topic_partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        adds_partition: bool,
        knows_abortable: bool,
    ) -> Deferred[VerificationResult]:
        """Verify a coordinator's own write, which has no sequence (see `TransactionVerifier`).

        The code is the coordinator's, or NETWORK_EXCEPTION where it did not answer.
        """
        support = ClientSupport.of(adds_partition=adds_partition, knows_abortable=knows_abortable)
        if not self._is_asked_for(support):
            return Deferred.completed(VerificationResult(ErrorCode.NONE))
        verified: Deferred[VerificationResult] = Deferred()
        producer = _Producer(producer_id, producer_epoch)
        end_wait = self._end_waits.begin(transactional_id)

        def ask() -> None:
            try:
                guard = self._start(topic_partition, producer, 0, support)
            except KafkaError as error:
                verified.complete(VerificationResult(error.code))
                return
            if guard is ONGOING:
                verified.complete(VerificationResult(ErrorCode.NONE, guard))
                return
            question = Question(transactional_id, *producer, [topic_partition], adds_partition)
            self._asker.ask(question)
            question.answer.then(partial(on_answer, guard))

        def on_answer(guard: VerificationGuard, answer: Unverified) -> None:
            code = answer.get(topic_partition, ErrorCode.NONE)
            if code is ErrorCode.NONE and self._was_overtaken(
                topic_partition, producer, guard, support
            ):
                code = ErrorCode.CONCURRENT_TRANSACTIONS
            if (
                code is ErrorCode.CONCURRENT_TRANSACTIONS
                and support.adds_partitions
                and not end_wait.is_over
            ):
                end_wait.ask_later(ask)
            else:
                verified.complete(VerificationResult(support.known(code), guard))

        ask()
        return verified

    def _was_overtaken(
        self,
        topic_partition: TopicPartition,
        producer: _Producer,
        guard: VerificationGuard,
        support: ClientSupport,
    ) -> bool:
        """Whether the producer's last transaction ended while a newer client's next was verified.

        Older clients add partitions before they write, and that waits for the end.
        """
        if not support.adds_partitions:
            return False
        try:
            log = self._led.log(topic_partition)
        except KafkaError:
            return False  # the append says so
        return log.producer_state.was_overtaken(*producer, guard)

    def _start(
        self,
        topic_partition: TopicPartition,
        producer: _Producer,
        sequence: int,
        support: ClientSupport,
    ) -> VerificationGuard:
        """The guard of a write (KafkaError: it is refused already)."""
        return self._led.log(topic_partition).producer_state.start_verification(
            *producer,
            sequence,
            self._clock.wall_ms(),
            adds_partition=support.adds_partitions,
        )


def _refuse_all(request: ProduceRequest, *, by_id: bool) -> GateDecision:
    refusal = Refusal(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        "the transactional batches of a request must have one producer id and epoch",
    )
    return GateDecision(
        {
            (topic.topic_id if by_id else topic.name, data.index): refusal
            for topic in request.topic_data
            for data in topic.partition_data
        },
        {},
    )
