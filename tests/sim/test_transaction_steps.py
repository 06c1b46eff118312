"""A crash at each step of a commit, and of an abort: the transaction ends everywhere, one way.

The steps are those of ARCHITECTURE.md, "A transaction". Broker 1 coordinates, 2 follows it; 2 and 3
lead a partition each, which all follow. A step is held by cutting what it needs to go on. Then a
broker crashes, everything is mended, and the client asks for the same end until it is answered. So
with both protocols of transactions: partitions added by a request and one epoch for all
transactions, or partitions added by writing to them and an epoch for each (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from kraftrio.broker.coordinator.transactions.records import read_transaction
from kraftrio.broker.coordinator.transactions.state import TransactionState
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Record, build_batch, iter_headers, iter_records
from kraftrio.wire.records.control import read_end_transaction_marker
from kraftrio.wire.topic_names import TRANSACTION_STATE
from tests.sim.client import SimClient, Unavailable
from tests.sim.log_contents import read_files
from tests.sim.stage import Stage, expect, play

ID = "app"
STATE = TopicPartition(TRANSACTION_STATE, 0)
SECOND, THIRD = TopicPartition("second", 0), TopicPartition("third", 0)  # by their leaders
_COORDINATOR = 1


@dataclass(frozen=True)
class Protocol:
    """What a producer sends for a transaction.

    Attributes:
        adds_partitions: by requests of its own, before it writes.
        has_epochs: one for each transaction, which the end of the one before returns.
    """

    produce_version: int
    end_version: int
    adds_partitions: bool
    has_epochs: bool


OLDER = Protocol(produce_version=11, end_version=3, adds_partitions=True, has_epochs=False)
NEWER = Protocol(produce_version=12, end_version=5, adds_partitions=False, has_epochs=True)


@dataclass
class Producer:
    """A transactional producer, which asks until it is answered."""

    client: SimClient
    protocol: Protocol
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def ask(self, request: Any, version: int, code_of: Callable[[Any], ErrorCode]) -> None:
        """Ask the coordinator of the moment until it has an answer for good."""
        while True:
            try:
                node_id = await self.client.coordinator(ID, 1)
                response = await self.client.call_node(node_id, request, version)
            except Unavailable:
                await trio.sleep(0.1)
                continue
            code = code_of(response)
            if code is ErrorCode.NONE:
                self.last = response
                return
            expect(code in _PASSES, f"{type(request).__name__} was refused: {code.name}")
            await trio.sleep(0.1)

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        await self.ask(request, 5, lambda response: ErrorCode(response.error_code))
        self.producer_id, self.epoch = self.last.producer_id, self.last.producer_epoch

    async def write(self, value: str) -> None:
        """Begin a transaction, and write a record to each partition."""
        if self.protocol.adds_partitions:
            await self._add_partitions()
        for topic_partition in (SECOND, THIRD):
            await self._produce(topic_partition, value)
        self.sequence += 1

    async def _add_partitions(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=one.topic, partitions=[0]) for one in (SECOND, THIRD)
            ],
        )
        await self.ask(request, 3, _code_of_added)

    async def _produce(self, topic_partition: TopicPartition, value: str) -> None:
        while True:
            data = build_batch(
                [Record(0, 1_700_000_000_000, None, value.encode())],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                transactional=True,
            )
            part = PartitionProduceData(index=0, records=memoryview(data))
            topic = TopicProduceData(name=topic_partition.topic, partition_data=[part])
            request = ProduceRequest(
                transactional_id=ID, acks=-1, timeout_ms=30_000, topic_data=[topic]
            )
            try:
                leader, _ = await self.client.leader(*topic_partition)
                response = await self.client.call_node(
                    leader, request, self.protocol.produce_version, 30
                )
            except Unavailable:
                self.client.forget(topic_partition.topic)
                await trio.sleep(0.1)
                continue
            code = response.responses[0].partition_responses[0].error_code
            if code is ErrorCode.NONE:
                return
            self.client.forget(topic_partition.topic)
            await trio.sleep(0.1)

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        version = self.protocol.end_version
        await self.ask(request, version, lambda response: ErrorCode(response.error_code))
        if self.protocol.has_epochs:
            expect(
                (self.last.producer_id, self.last.producer_epoch)
                == (self.producer_id, self.epoch + 1),
                f"the end gave epoch {self.last.producer_epoch} after {self.epoch}",
            )
            self.epoch, self.sequence = self.last.producer_epoch, 0


_PASSES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


def _code_of_added(response: Any) -> ErrorCode:
    codes = {
        one.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)


# -- what the logs hold -------------------------------------------------------------------------


def batches(stage: Stage, node_id: int, topic_partition: TopicPartition) -> memoryview:
    """A replica's log as it was written."""
    log = stage.log(node_id, topic_partition)
    if log is None or log.log_end_offset == 0:
        return memoryview(b"")
    with stage.node(node_id).disk.as_written():
        found = read_files(log, 0, log.log_end_offset)
    assert found is not None
    return memoryview(found.records)


def states(stage: Stage, node_id: int) -> list[TransactionState]:
    """The states that a replica of the coordinator's log has of the id, in order."""
    records = batches(stage, node_id, STATE)
    found = []
    for header in iter_headers(records, allow_partial=True):
        for record in iter_records(records, header):
            assert record.value is not None
            found.append(read_transaction(ID, record.value).state)
    return found


def markers(stage: Stage, node_id: int, topic_partition: TopicPartition) -> list[bool]:
    """The markers in a replica, in order: True for a commit."""
    records = batches(stage, node_id, topic_partition)
    found = []
    for header in iter_headers(records, allow_partial=True):
        marker = read_end_transaction_marker(records, header) if header.is_control else None
        if marker is not None:
            found.append(marker.commit)
    return found


def is_committed(stage: Stage, node_id: int, topic_partition: TopicPartition) -> bool:
    end = stage.end(node_id, topic_partition)
    return end == stage.high_watermark(node_id, topic_partition)


# -- the steps ----------------------------------------------------------------------------------


class Look:
    """How far the end of the transaction has come."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def states(self) -> list[TransactionState]:
        """What was decided, as the coordinator's log has it."""
        return [one for one in states(self._stage, _COORDINATOR) if one in _ENDING]

    @property
    def is_decided(self) -> bool:
        return len(self.states) == 1

    @property
    def is_completing(self) -> bool:
        return len(self.states) == 2

    @property
    def state_is_committed(self) -> bool:
        return is_committed(self._stage, _COORDINATOR, STATE)

    @property
    def second(self) -> int:
        """How many markers the leader of SECOND has."""
        return len(markers(self._stage, 2, SECOND))

    @property
    def third(self) -> int:
        """How many markers the leader of THIRD has."""
        return len(markers(self._stage, 3, THIRD))

    def is_committed(self, topic_partition: TopicPartition, leader: int) -> bool:
        return is_committed(self._stage, leader, topic_partition)


_ENDING = frozenset(TransactionState) - {TransactionState.EMPTY, TransactionState.ONGOING}


@dataclass(frozen=True)
class Step:
    """Where to crash.

    Attributes:
        cut: the ways (from, to) that are cut at the start, or `when` something is so.
        reached: whether the step is reached.
        crashing: the broker that crashes then.
    """

    name: str
    cut: tuple[tuple[int, int], ...]
    reached: Callable[[Look], bool]
    crashing: int = _COORDINATOR
    when: Callable[[Look], bool] = lambda _look: True


STEPS = [
    Step("1: the end is asked for", (), lambda look: not look.states),
    Step(
        "2: the decision is appended on the leader alone",
        ((1, 2),),
        lambda look: look.is_decided and not look.state_is_committed,
    ),
    Step(
        "2: the decision is replicated, which the leader does not know",
        ((2, 1),),
        lambda look: look.is_decided and not look.state_is_committed,
    ),
    Step(
        "3: the decision is committed, and its marker is on no other broker",
        ((1, 3), (2, 1)),
        lambda look: look.is_decided and look.state_is_committed and look.third == 0,
        when=lambda look: look.is_decided and look.state_is_committed,
    ),
    Step(
        "4: one of two markers is written",
        ((1, 3),),
        lambda look: look.is_decided and look.second == 1 and look.is_committed(SECOND, 2),
    ),
    Step(
        "4: one of two markers is written, and the leader of the other crashes",
        ((1, 3),),
        lambda look: look.is_decided and look.second == 1,
        crashing=3,
    ),
    Step(
        "5: a marker is appended on its leader alone, which crashes",
        ((3, 1), (3, 2)),
        lambda look: look.third == 1 and not look.is_committed(THIRD, 3),
        crashing=3,
        when=lambda look: look.third == 1,
    ),
    Step(
        "5: a marker is appended on its leader alone, and the coordinator crashes",
        ((3, 1), (3, 2)),
        lambda look: look.third == 1 and not look.is_committed(THIRD, 3),
        when=lambda look: look.third == 1,
    ),
    Step(
        "6: completion is appended on the leader alone",
        ((1, 2),),
        lambda look: look.is_completing and not look.state_is_committed,
        when=lambda look: (
            look.second == look.third == 1
            and look.is_committed(SECOND, 2)  # which broker 1 has to fetch for
            and look.is_committed(THIRD, 3)
        ),
    ),
    Step("7: completion is committed", (), lambda look: look.is_completing),
]


@pytest.mark.parametrize("protocol", [OLDER, NEWER], ids=["older", "newer"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_crash_at_any_step_ends_the_transaction_everywhere_one_way(
    step: Step, commit: bool, protocol: Protocol
) -> None:
    async def script(stage: Stage) -> None:
        await stage.create(TRANSACTION_STATE, [1, 2], unclean_leader_election_enable=False)
        await stage.create(SECOND.topic, [2, 3, 1])
        await stage.create(THIRD.topic, [3, 2, 1])
        producer = Producer(stage.client("producer"), protocol)
        await producer.init()
        await producer.write("first")
        look, ended = Look(stage), trio.Event()

        async def end() -> None:
            await producer.end(commit=commit)
            ended.set()

        stage.start(end)
        await stage.until(lambda: step.when(look), "the cut is due")
        for source, target in step.cut:
            stage.hang([source], [target])
        await stage.until(lambda: step.reached(look), step.name)
        stage.node(step.crashing).crash()
        stage.mend()
        stage.node(step.crashing).start()
        await stage.until(ended.is_set, "the client has its answer")
        await stage.until(lambda: _has_ended(stage, commit=commit), "it has ended everywhere")
        await producer.write("second")
        await producer.end(commit=True)
        await stage.until(
            lambda: all(_values_are_stable(stage, one) for one in (SECOND, THIRD)),
            "nothing holds back what follows",
        )

    play(script)


def _has_ended(stage: Stage, *, commit: bool) -> bool:
    """Whether every replica has the same end of the first transaction, and no other."""
    ended = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    return all(
        set(markers(stage, node_id, one)) == {commit} and _is_stable(stage, node_id, one)
        for node_id in (1, 2, 3)
        for one in (SECOND, THIRD)
    ) and all(states(stage, node_id)[-1:] == [ended] for node_id in (1, 2))


def _values_are_stable(stage: Stage, topic_partition: TopicPartition) -> bool:
    return all(_is_stable(stage, node_id, topic_partition) for node_id in (1, 2, 3))


def _is_stable(stage: Stage, node_id: int, topic_partition: TopicPartition) -> bool:
    """Whether a replica has all of its leader's, and no open transaction holds anything back."""
    log = stage.log(node_id, topic_partition)
    return log is not None and log.last_stable_offset == log.high_watermark == log.log_end_offset
