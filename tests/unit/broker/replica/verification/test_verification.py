"""A Produce waits at the gate until its transactions are verified; late writes are not appended."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.broker.log.producers.verifications import ONGOING, VerificationGuard
from kraftrio.broker.ports import VerificationResult
from kraftrio.broker.replica.verification.coordinator_asker import CoordinatorAsker
from kraftrio.broker.replica.verification.end_waits import EndWaits
from kraftrio.broker.replica.verification.verification import TransactionVerification
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.data import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftrio.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.support.authorizers import Allow
from tests.support.logs import batch
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.api.data_context import Handlers
from tests.unit.broker.replica.replica_context import TOPIC_ID, TP, Broker, change, topic

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


@dataclass
class Settings:
    transaction_partition_verification_enable: bool = True
    add_partitions_to_txn_retry_backoff_ms: int = 20
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    request_timeout_ms: int = 30_000


class Coordinator:
    """Another broker's. Answers at once with `code`, or holds the requests while that is None."""

    broker_id = 2

    def __init__(self) -> None:
        self.code: ErrorCode | None = None
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.held: list[Deferred[Any]] = []

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        self.requests.append(request)
        self.held.append(Deferred())
        answer = self.held[-1]
        if self.code is not None:
            self.reply(self.code)
        return answer

    def reply(self, code: ErrorCode) -> None:
        """Answer the oldest request that is held."""
        request = self.requests[-len(self.held)]
        results = [
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=partition, partition_error_code=code
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in request.transactions
        ]
        self.held.pop(0).complete(AddPartitionsToTxnResponse(results_by_transaction=results))
        run_waiting()


class Ending:
    """The transactions that this broker's coordinators are ending: the ids in `ids`."""

    def __init__(self) -> None:
        self.ids: dict[str, Deferred[None]] = {}

    def when_ended(self, transactional_id: str) -> Deferred[None] | None:
        return self.ids.get(transactional_id)


class Side:
    """A broker with a gate, and a producer."""

    def __init__(self, partitions: int = 2) -> None:
        self.broker = Broker()
        self.broker.publish(*topic(partitions))
        self.coordinator = Coordinator()
        self.settings = Settings()
        self.ending = Ending()
        self.asker = CoordinatorAsker(self.coordinator, lambda _: 1, 1000)
        self.verification = TransactionVerification(
            self.broker.replicas.led,
            self.broker.metadata,
            self.asker,
            EndWaits(self.ending, lambda: self.settings, self.broker.timers, self.broker.clock),
            lambda: self.settings,
            self.broker.clock,
        )
        self.broker.replicas.led.gate = self.verification
        self.handlers = Handlers(self.broker).produces

    def send(
        self,
        *partitions: int,
        version: int = 12,
        sequence: int = 0,
        epoch: int = 0,
        transactional: bool = True,
        producer_ids: tuple[int, ...] = (7, 7, 7),
    ) -> Sent:
        """Produce one record to each partition, in a transaction."""
        data = [
            PartitionProduceData(
                index=index,
                records=memoryview(
                    batch(
                        b"x",
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        sequence=sequence,
                        transactional=transactional,
                    )
                ),
            )
            for index, producer_id in zip(partitions, producer_ids, strict=False)
        ]
        request = ProduceRequest(
            transactional_id="mine",
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="" if version >= 13 else "t", topic_id=TOPIC_ID, partition_data=data
                )
            ],
        )
        return Sent(self.handlers.produce(request, context(version)))

    def codes(self, *partitions: int, **how: Any) -> list[ErrorCode]:
        """The codes of a Produce that is answered at once."""
        return self.send(*partitions, **how).codes()

    def end(self, index: int = 0, epoch: int = 0, version: int = 0) -> None:
        """Append the marker of an abort."""
        marker = build_end_transaction_batch(
            7, epoch, EndTransactionMarker(False, 0), timestamp=self.broker.clock.wall_ms()
        )
        self.broker.replicas.led.append_to_leader(
            TopicPartition("t", index),
            marker,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=version,
        )

    def end_offset(self, index: int = 0) -> int:
        return self.broker.replicas.led.log(TopicPartition("t", index)).log_end_offset

    def is_stable(self, index: int = 0) -> bool:
        log = self.broker.replicas.led.log(TopicPartition("t", index))
        return log.last_stable_offset == log.log_end_offset


class Sent:
    """A Produce that is answered, or waits at the gate."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self._waits_for: Deferred[Any] | None = None
        if isinstance(answer, Generator):
            self._waits_for = next(answer)

    @property
    def waits(self) -> bool:
        return self._waits_for is not None and not self._waits_for.done

    async def decided(self) -> None:
        """Wait until the gate has decided."""
        assert self._waits_for is not None
        with trio.fail_after(1):
            await self._waits_for.wait()

    def answers(self) -> list[PartitionProduceResponse]:
        assert not self.waits
        if isinstance(self._answer, Generator):
            try:
                next(self._answer)
            except StopIteration as end:
                self._answer = end.value
        response = self._answer
        if isinstance(response, Deferred):  # a leader that doubts whether it leads asks around
            response = response.value
        assert isinstance(response, ProduceResponse)
        return [part for one in response.responses for part in one.partition_responses]

    def codes(self) -> list[ErrorCode]:
        return [part.error_code for part in self.answers()]


@pytest.fixture
async def side() -> Side:
    return Side()


async def test_the_first_batch_waits_and_the_others_pass(side: Side) -> None:
    first = side.send(0, 1)
    assert first.waits and side.end_offset() == 0
    (transaction,) = side.coordinator.requests[0].transactions
    assert (transaction.transactional_id, transaction.producer_id) == ("mine", 7)
    assert (transaction.producer_epoch, transaction.verify_only) == (0, False)
    assert [(one.name, one.partitions) for one in transaction.topics] == [("t", [0, 1])]
    side.coordinator.reply(NONE)
    assert first.codes() == [NONE, NONE]
    assert side.codes(0, 1, sequence=1) == [NONE, NONE]
    assert len(side.coordinator.requests) == 1
    side.end(epoch=1, version=2)
    side.coordinator.code = NONE
    assert side.codes(0, epoch=1) == [NONE], "the next transaction is asked for again"
    assert len(side.coordinator.requests) == 2


async def test_an_answer_at_once_needs_no_wait(side: Side) -> None:
    """On the coordinator's own broker, also where topics are named by their ids."""
    side.coordinator.code = NONE
    assert side.codes(0, version=13) == [NONE]
    assert side.end_offset() == 1


async def test_only_partitions_without_an_open_transaction_are_asked_for(side: Side) -> None:
    side.coordinator.code = NONE
    assert side.codes(0) == [NONE]
    assert side.codes(0, 1, sequence=0) == [NONE, NONE], "one of them is a duplicate"
    assert side.coordinator.requests[1].transactions[0].topics[0].partitions == [1]


async def test_what_is_not_part_of_a_transaction_is_not_asked_for(side: Side) -> None:
    """A batch outside of it may be sent under a transactional id, but not beside an open one."""
    assert side.codes(0, transactional=False) == [NONE]
    assert not side.coordinator.requests
    side.coordinator.code = NONE
    assert side.codes(0, sequence=1) == [NONE]
    assert side.codes(0, sequence=2, transactional=False) == [ErrorCode.INVALID_TXN_STATE]


@pytest.mark.parametrize(
    ("answered", "old", "abortable", "adds"),
    [
        # What the coordinator says; Produce 10, 11 and 12
        ("TRANSACTION_ABORTABLE", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "same"),
        ("INVALID_TXN_STATE", "INVALID_TXN_STATE", "same", "same"),
        ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "same", "same"),
        ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH", "same", "same"),
        ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING", "same", "same"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_ENOUGH_REPLICAS", "same", "same"),
        ("COORDINATOR_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS", "same", "same"),
        ("NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "same", "same"),
        ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS", "same", "CONCURRENT_TRANSACTIONS"),
        ("TOPIC_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "same", "same"),
    ],
)
async def test_errors_by_version(
    answered: str, old: str, abortable: str, adds: str, side: Side
) -> None:
    side.settings.add_partitions_to_txn_retry_backoff_max_ms = 0
    side.coordinator.code = ErrorCode[answered]
    expected = old
    for version, code in ((3, old), (10, old), (11, abortable), (12, adds), (13, adds)):
        expected = expected if code == "same" else code
        assert side.codes(0, version=version) == [ErrorCode[expected]], version
        last = side.coordinator.requests[-1].transactions[0]
        assert last.verify_only == (version < 12)
    assert side.end_offset() == 0 and side.is_stable()


async def test_a_lost_answer_is_returned_as_too_few_replicas(side: Side) -> None:
    sent = side.send(0)
    side.coordinator.held.pop().fail(ConnectionLost("reset"))
    run_waiting()
    (answer,) = sent.answers()
    assert answer.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer.error_message is not None and "NETWORK_EXCEPTION" in answer.error_message


async def test_late_writes_from_before_an_abort_are_never_appended(side: Side) -> None:
    """The coordinator's answer was on its way while the transaction ended (KIP-890)."""
    late = side.send(0, version=10)
    side.end()
    side.coordinator.reply(NONE)
    assert late.codes() == [ErrorCode.INVALID_TXN_STATE]
    late = side.send(0)
    side.end(epoch=1, version=2)
    side.coordinator.reply(NONE)
    assert late.codes() == [ErrorCode.INVALID_TXN_STATE], "though the guard came before the epoch"
    (answer,) = side.send(0).answers()
    assert answer.error_code is ErrorCode.INVALID_PRODUCER_EPOCH, "without asking"
    assert answer.error_message is None, "clients have the words"
    assert len(side.coordinator.requests) == 2
    assert side.end_offset() == 2 and side.is_stable()


async def test_a_batch_of_an_open_transaction_that_waited_for_another(side: Side) -> None:
    side.coordinator.code = NONE
    assert side.codes(0, version=10) == [NONE]
    side.coordinator.code = None
    both = side.send(0, 1, sequence=1, version=10, producer_ids=(7, 7))
    side.end()
    side.coordinator.reply(NONE)
    assert both.codes() == [ErrorCode.INVALID_TXN_STATE, NONE]
    assert side.is_stable(0) and not side.is_stable(1)


async def test_newer_clients_wait_while_their_last_transaction_ends(
    side: Side, autojump_clock: trio.testing.MockClock
) -> None:
    async with side.broker.running():
        sent = side.send(0)
        for pause_ms in (1, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, 17.0859375, 20, 20):
            side.coordinator.reply(CONCURRENT)
            await trio.sleep(pause_ms / 1000 - 0.0001)
            assert not side.coordinator.held
            await trio.sleep(0.0002)
            assert side.coordinator.held, "it is asked again after a pause"
        side.coordinator.reply(NONE)
        assert sent.codes() == [NONE]
        started = trio.current_time()
        side.coordinator.code = CONCURRENT
        sent = side.send(1)
        await sent.decided()
        assert 0.1 <= trio.current_time() - started < 0.13
        assert sent.codes() == [CONCURRENT]


@pytest.mark.parametrize("code", [NONE, CONCURRENT])
async def test_the_last_transaction_ends_while_the_next_is_verified(
    side: Side, code: ErrorCode, autojump_clock: trio.testing.MockClock
) -> None:
    """Its marker comes after the question, and the coordinator answers about the next one.

    Only another question can be about a transaction that began after the marker.
    """
    async with side.broker.running():
        side.coordinator.code = NONE
        assert side.codes(0) == [NONE]
        side.end(epoch=1, version=2)
        assert side.codes(0, epoch=1) == [NONE]
        side.coordinator.code = None
        sent = side.send(0, epoch=2)
        assert not sent.waits or side.coordinator.held
        side.end(epoch=2, version=2)
        side.coordinator.reply(NONE)
        assert side.coordinator.held, "it is asked again, at once"
        side.coordinator.code = code
        side.coordinator.reply(code)
        if code is not NONE:
            await sent.decided()
        assert sent.codes() == [code]
        assert side.is_stable() is (code is not NONE)


async def test_the_end_of_the_last_transaction_is_known_from_a_coordinator_here(
    side: Side, autojump_clock: trio.testing.MockClock
) -> None:
    """No pause is too long, and none too short."""
    async with side.broker.running():
        ended = side.ending.ids["mine"] = Deferred()
        sent = side.send(0)
        side.coordinator.reply(CONCURRENT)
        await trio.sleep(0.09)
        assert not side.coordinator.held
        ended.complete(None)
        run_waiting()
        side.coordinator.reply(NONE)
        assert sent.codes() == [NONE]


@pytest.mark.parametrize(("epoch", "is_late"), [(2, False), (1, True)])
async def test_offsets_of_the_next_transaction_wait_for_the_end_of_the_last(
    side: Side, epoch: int, is_late: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """It is asked about again. Late ones, of a fenced producer, are for the append to refuse."""
    async with side.broker.running():
        asked = side.verification.verify(
            TP, "mine", 7, epoch, adds_partition=True, knows_abortable=True
        )
        side.coordinator.reply(CONCURRENT)
        await trio.sleep(0.0011)
        side.end(epoch=2, version=2)
        side.coordinator.reply(NONE)
        if not is_late:
            assert not asked.done, "that was no answer about the next one"
            await trio.sleep(0.0016)
            side.coordinator.reply(NONE)
        assert asked.value.error is NONE


async def test_offsets_do_not_wait_for_ever(
    side: Side, autojump_clock: trio.testing.MockClock
) -> None:
    """Then they are to be sent again. An older client's never wait: it has added its group."""
    async with side.broker.running():
        side.coordinator.code = CONCURRENT
        started = trio.current_time()
        for adds, waits_s in ((False, 0.0), (True, 0.1)):
            decided = trio.Event()
            asked = side.verification.verify(
                TP, "mine", 7, 0, adds_partition=adds, knows_abortable=True
            )
            asked.when_done(lambda _, decided=decided: decided.set())  # type: ignore[misc]
            run_waiting()
            await decided.wait()
            assert asked.value.error is CONCURRENT
            assert waits_s <= trio.current_time() - started < waits_s + 0.03


async def test_a_transaction_that_opened_during_the_wait(
    side: Side, autojump_clock: trio.testing.MockClock
) -> None:
    """The same batch came over another connection."""
    async with side.broker.running():
        first = side.send(0)
        side.coordinator.reply(CONCURRENT)
        side.coordinator.code = NONE
        assert side.codes(0) == [NONE]
        await first.decided()
        assert first.codes() == [NONE], "a duplicate"
        assert side.end_offset() == 1


async def test_verification_can_be_turned_off(side: Side) -> None:
    """Only for clients that add partitions by themselves."""
    side.settings.transaction_partition_verification_enable = False
    assert side.codes(0, version=11) == [NONE]
    assert not side.coordinator.requests
    assert side.send(1, version=12).waits


async def test_one_producer_for_each_request(side: Side) -> None:
    for is_on in (True, False):
        side.settings.transaction_partition_verification_enable = is_on
        refused = side.codes(0, 1, producer_ids=(7, 8), version=11)
        assert refused == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not side.coordinator.requests


async def test_partitions_that_are_not_led_here_are_refused_without_asking(side: Side) -> None:
    sent = side.send(0, 9)
    assert side.coordinator.requests[0].transactions[0].topics[0].partitions == [0]
    side.coordinator.reply(NONE)
    assert sent.codes() == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    side.broker.publish(change(leader=2))
    assert side.codes(0, 9) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_what_was_refused_for_a_while_is_not_overtaken(side: Side) -> None:
    """The second of two batches under way must not be appended before the first."""
    side.coordinator.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert side.codes(0, version=11) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    side.coordinator.code = NONE
    for _ in range(2):
        assert side.codes(0, version=11, sequence=1) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert side.codes(0, version=11) == [NONE]
    assert side.codes(0, version=11, sequence=1) == [NONE]


async def test_offsets_are_verified_too(side: Side) -> None:
    def verify(
        *, adds: bool = False, abortable: bool = False, epoch: int = 0
    ) -> Deferred[VerificationResult]:
        return side.verification.verify(
            TP, "mine", 7, epoch, adds_partition=adds, knows_abortable=abortable
        )

    def append(guard: object) -> None:
        assert isinstance(guard, VerificationGuard)
        records = batch(b"o", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
        side.broker.replicas.led.append_to_leader(
            TP, records, origin=AppendOrigin.COORDINATOR, guard=guard
        )

    asked = verify()
    assert not asked.done and side.coordinator.requests[0].transactions[0].verify_only
    side.coordinator.reply(ErrorCode.TRANSACTION_ABORTABLE)
    assert asked.value.error is ErrorCode.INVALID_TXN_STATE
    asked = verify(abortable=True)
    side.coordinator.reply(ErrorCode.TRANSACTION_ABORTABLE)
    assert asked.value.error is ErrorCode.TRANSACTION_ABORTABLE
    asked = verify(adds=True, abortable=True)
    assert not side.coordinator.requests[2].transactions[0].verify_only
    side.coordinator.reply(NONE)
    assert asked.value.error is NONE
    side.end()
    with pytest.raises(KafkaError) as caught:
        append(asked.value.guard)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    side.coordinator.code = NONE
    append(verify(adds=True).value.guard)
    assert verify().value == VerificationResult(NONE, ONGOING)
    side.end(epoch=1)
    assert verify().value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    side.settings.transaction_partition_verification_enable = False
    assert verify(epoch=1).value == VerificationResult(NONE)
    side.broker.publish(change(leader=2))
    moved = verify(adds=True, epoch=1)
    assert moved.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("partitions", [1, 300])
async def test_who_may_not_write_under_the_transactional_id(partitions: int) -> None:
    """Nothing of the request is appended, nor asked."""
    side = Side(partitions=300)
    asked = context(12)
    asked.authorizer = Allow([(AclOperation.WRITE, Resource(ResourceType.TOPIC, "t"))])
    records = batch(b"x", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    data = [PartitionProduceData(index=i, records=memoryview(records)) for i in range(partitions)]
    request = ProduceRequest(
        transactional_id="mine",
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=data)],
    )
    response = finish(side.handlers.produce(request, asked))
    assert isinstance(response, ProduceResponse)
    codes = [part.error_code for one in response.responses for part in one.partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * partitions
    assert side.end_offset() == 0 and not side.coordinator.requests
    mine = Resource(ResourceType.TRANSACTIONAL_ID, "mine")
    assert isinstance(asked.authorizer, Allow)
    assert (AclOperation.WRITE, mine) in [one[2:] for one in asked.authorizer.asked]
