"""A small transactional producer for simulations: every request of it, and each one's answer.

Owns: `TransactionalSession`, what one process does with one transactional id, and `Contest`, what
is known of all processes with that id. Rules:
1. It speaks the protocol before KIP-890 (it adds partitions and groups itself; one epoch for many
   transactions) or the one of transaction.version 2 (an epoch for each), as it is told.
2. It asks again until its patience ends. A write is in doubt then: the transaction must be aborted
   (`MustAbort`) and the epoch bumped; an end in doubt is left to the next process (`Unavailable`).
3. It tells the `TransactionHistory` what it sends and what it was answered.
4. Whatever a broker must never answer fails the simulation at once; so does an answer that fences a
   producer whom nobody can have fenced: no other process began, and no time-out passed.

Called by: the transactional programs, and scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from kraftrio.testing.simulation.world import START_WALL_MS, SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Record, build_batch
from tests.sim.client import SimClient, Unavailable
from tests.sim.transaction_model import Attempt, Life, Source, TransactionHistory

TRANSACTION, GROUP = 1, 0  # key types of FindCoordinator
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_MUST_ABORT = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class Fenced(Exception):
    """This process may write no more."""


class MustAbort(Exception):
    """The transaction cannot be committed any more; it has to be aborted."""


@dataclass(slots=True)
class Contest:
    """Who may have fenced whom of the processes with one transactional id."""

    transactional_id: str
    asks: int = 0  # InitProducerId requests that were sent
    in_flight: int = 0
    is_in_doubt: bool = False  # one was not answered: it may fence whenever it arrives


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a process works.

    Attributes:
        is_new: speaks the protocol of transaction.version 2.
        timeout_ms: of a transaction, for the coordinator.
        patience_s: how long something is asked again.
        knows_time: the brokers' clocks are about right, so time-outs come neither early nor late.
    """

    is_new: bool
    timeout_ms: int = 10_000
    patience_s: float = 10.0
    knows_time: bool = True


@dataclass(slots=True)
class _Batch:
    topic_partition: TopicPartition
    numbers: list[int]  # of its records, within the transaction
    data: bytes


class TransactionalSession:
    """See the module; it begins with `begin`, and has one transaction after another."""

    def __init__(
        self,
        client: SimClient,
        history: TransactionHistory,
        contest: Contest,
        options: SessionOptions,
    ) -> None:
        self.client = client
        self.options = options
        self._history = history
        self._contest = contest
        self._life = Life(contest.transactional_id, -1, -1)
        self._older_asks = 0  # InitProducerId requests that cannot fence this process
        self._newest = -1
        self._begin_s = 0.0  # of the transaction
        self._coordinators: dict[tuple[int, str], int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._is_begun = False  # the coordinator may know of the transaction
        self._added: set[TopicPartition] = set()
        self._in_doubt: set[TopicPartition] = set()
        self._errors: list[Exception] = []

    @property
    def transactional_id(self) -> str:
        return self._contest.transactional_id

    # -- lives ------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Become the producer with this id; the one before is fenced.

        Raises:
            Unavailable: not within the patience.
        """
        await self._init(-1, -1)

    async def _bump(self) -> None:
        """Go on with a new epoch, so that what was in doubt is nowhere (KIP-360)."""
        await self._init(self._life.producer_id, self._life.producer_epoch)

    async def _init(self, producer_id: int, producer_epoch: int) -> None:
        contest = self._contest
        is_bump = producer_id >= 0
        older_asks = self._older_asks

        def make() -> InitProducerIdRequest:
            nonlocal older_asks
            self._newest = self._history.newest_epoch(contest.transactional_id)
            # Of those that are under way now, each may be served after this one.
            older_asks = contest.asks - contest.in_flight + 1
            # One that was served before refuses this epoch, if this is not yet a new process.
            self._older_asks = self._older_asks + 1 if is_bump else older_asks
            contest.asks += 1
            contest.in_flight += 1
            return InitProducerIdRequest(
                transactional_id=contest.transactional_id,
                transaction_timeout_ms=self.options.timeout_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )

        def is_over(is_answered: bool) -> None:
            contest.in_flight -= 1
            contest.is_in_doubt |= not is_answered

        answer = await self._ask(make, 5 if self.options.is_new else 4, _code_of, on_end=is_over)
        self._life = self._history.begin_life(
            contest.transactional_id, answer.producer_id, answer.producer_epoch, self._newest
        )
        self.client.note(
            f"{contest.transactional_id} is producer {answer.producer_id}"
            f" epoch {answer.producer_epoch}"
        )
        self._older_asks = older_asks
        self._begin_s = self.client.world.now_s
        self._sequences.clear()
        self._in_doubt.clear()

    def close(self) -> None:
        """Vanish, as a process that is killed."""
        self.client.close()

    # -- transactions -----------------------------------------------------------------------------

    def transaction(self) -> Attempt:
        """Begin a transaction."""
        self._begin_s = self.client.world.now_s
        self._is_begun = False
        self._added.clear()
        return self._history.attempt(self._life)

    async def write(
        self, attempt: Attempt, records: Sequence[tuple[TopicPartition, Source | None]]
    ) -> None:
        """Write records, those of a partition in one batch, all partitions at once.

        Raises:
            Fenced, MustAbort: see there.
        """
        batches = self._make_batches(attempt, records)
        self._is_begun = True
        self._in_doubt |= batches.keys()
        if not self.options.is_new:
            await self._add_partitions([tp for tp in batches if tp not in self._added])
        self._added |= batches.keys()
        self._errors.clear()
        async with trio.open_nursery() as nursery:
            for batch in batches.values():
                nursery.start_soon(self._produce, attempt, batch)
        for error in self._errors:
            raise error
        self._in_doubt -= batches.keys()

    def _make_batches(
        self, attempt: Attempt, records: Sequence[tuple[TopicPartition, Source | None]]
    ) -> dict[TopicPartition, _Batch]:
        now_ms = START_WALL_MS + int(self.client.world.now_s * 1000)
        numbers: dict[TopicPartition, list[int]] = {}
        values: dict[TopicPartition, list[Record]] = {}
        for tp, source in records:
            numbers.setdefault(tp, []).append(len(attempt.sent))
            value = self._history.new_record(attempt, tp, source)
            values.setdefault(tp, []).append(Record(0, now_ms, None, value.encode()))
        batches = {}
        for tp in numbers:
            sequence = self._sequences.get(tp, 0)
            self._sequences[tp] = sequence + len(numbers[tp])
            data = build_batch(
                values[tp],
                producer_id=self._life.producer_id,
                producer_epoch=self._life.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            batches[tp] = _Batch(tp, numbers[tp], bytes(data))
        return batches

    async def _add_partitions(self, tps: Sequence[TopicPartition]) -> None:
        if not tps:
            return
        topics: dict[str, list[int]] = {}
        for tp in tps:
            topics.setdefault(tp.topic, []).append(tp.partition)

        def make() -> AddPartitionsToTxnRequest:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._life.producer_id,
                v3_and_below_producer_epoch=self._life.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )

        def code_of(answer: Any) -> ErrorCode:
            codes = [
                ErrorCode(partition.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ]
            # Where one of them is refused, the others are not attempted.
            telling = [c for c in codes if c not in (ErrorCode.NONE, _NOT_ATTEMPTED)]
            return telling[0] if telling else max(codes)

        await self._ask_or_abort(make, 3, code_of)

    async def _produce(self, attempt: Attempt, batch: _Batch) -> None:
        world = self.client.world
        deadline_s = world.now_s + self.options.patience_s
        try:
            while True:
                try:
                    if await self._produce_once(attempt, batch):
                        return
                    text = "refused"
                except Unavailable as error:
                    text = str(error)
                self.client.note(f"{attempt.name} to {_name(batch.topic_partition)} again: {text}")
                if world.now_s > deadline_s:
                    raise MustAbort(f"no answer for {attempt.name}")
                self.client.forget(batch.topic_partition.topic)
                await self.client.pause()
        except (Fenced, MustAbort, SimulationFailure) as error:
            self._errors.append(error)

    async def _produce_once(self, attempt: Attempt, batch: _Batch) -> bool:
        tp, options = batch.topic_partition, self.options
        leader, _ = await self.client.leader(*tp)
        data = PartitionProduceData(index=tp.partition, records=memoryview(batch.data))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=3_000,
            topic_data=[TopicProduceData(name=tp.topic, partition_data=[data])],
        )
        self._history.send(attempt, batch.numbers)
        response = await self.client.call_node(leader, request, 12 if options.is_new else 11, 3.0)
        answer = response.responses[0].partition_responses[0]
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            offset = answer.base_offset if code is ErrorCode.NONE else -1
            self._history.acknowledge(attempt, batch.numbers, offset if offset >= 0 else None)
            return True
        # A leader of the past may answer OUT_OF_ORDER_SEQUENCE_NUMBER: it lacks what came before.
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._judge("Produce", code)
        self.client.note(f"{attempt.name} to {_name(tp)}: {code.name}")
        return False

    async def send_offsets(
        self, attempt: Attempt, group: str, offsets: Mapping[TopicPartition, tuple[int, int]]
    ) -> None:
        """Commit offsets of a group within the transaction: those known so far, and the new ones.

        Raises:
            Fenced, MustAbort: see there.
        """
        self._is_begun = True
        self._history.send_offsets(attempt, group, offsets)
        if not self.options.is_new:
            await self._ask_or_abort(
                lambda: AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self._life.producer_id,
                    producer_epoch=self._life.producer_epoch,
                    group_id=group,
                ),
                3,
                _code_of,
            )
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for tp, (_, offset) in offsets.items():
            topics.setdefault(tp.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition, committed_offset=offset, committed_metadata=""
                )
            )

        def make() -> TxnOffsetCommitRequest:
            return TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self._life.producer_id,
                producer_epoch=self._life.producer_epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )

        def code_of(answer: Any) -> ErrorCode:
            return max(ErrorCode(p.error_code) for t in answer.topics for p in t.partitions)

        version = 5 if self.options.is_new else 3
        await self._ask_or_abort(make, version, code_of, key=(GROUP, group))

    async def end(self, attempt: Attempt, *, commit: bool) -> None:
        """Commit or abort.

        Raises:
            Fenced: a newer producer, or the time-out, has decided about it.
            MustAbort: it cannot be committed.
            Unavailable: nobody answered within the patience.
        """
        if not self._is_begun:
            self._history.end(attempt, commit=commit)  # the coordinator knows of no transaction
            return

        def make() -> EndTxnRequest:
            if commit:
                self._history.ask_commit(attempt)
            return EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._life.producer_id,
                producer_epoch=self._life.producer_epoch,
                committed=commit,
            )

        version = 5 if self.options.is_new else 3
        try:
            answer = await self._ask(make, version, _code_of)
        except (Fenced, MustAbort) as error:
            if commit:
                self._history.refuse_commit(attempt)
                raise
            raise Fenced(str(error)) from error
        self._history.end(attempt, commit=commit)
        if self.options.is_new:
            self._history.go_on(self._life, answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
            self._in_doubt.clear()
        elif self._in_doubt:
            await self._bump()

    # -- requests ---------------------------------------------------------------------------------

    async def _ask_or_abort(
        self,
        make: Callable[[], Any],
        version: int,
        code_of: Callable[[Any], ErrorCode],
        key: tuple[int, str] | None = None,
    ) -> Any:
        try:
            return await self._ask(make, version, code_of, key)
        except Unavailable as error:
            raise MustAbort(str(error)) from error

    async def _ask(
        self,
        make: Callable[[], Any],
        version: int,
        code_of: Callable[[Any], ErrorCode],
        key: tuple[int, str] | None = None,
        on_end: Callable[[bool], None] | None = None,
    ) -> Any:
        """Ask a coordinator again and again.

        Args:
            key: type and name of what is coordinated; None: the transactional id.
            on_end: called for each request that was sent with whether it was answered.

        Raises:
            Fenced, MustAbort: so it was answered.
            Unavailable: not within the patience.
        """
        world, client = self.client.world, self.client
        key = key or (TRANSACTION, self.transactional_id)
        deadline_s = world.now_s + self.options.patience_s
        while True:
            name = "FindCoordinator"
            try:
                if key not in self._coordinators:
                    self._coordinators[key] = await client.coordinator(key[1], key[0])
                request = make()
                name = type(request).__name__.removesuffix("Request")
                answer = await self._send(self._coordinators[key], request, version, on_end)
                code = code_of(answer)
                if code is ErrorCode.NONE:
                    return answer
                text = code.name
            except Unavailable as error:
                self._coordinators.pop(key, None)
                code, text = ErrorCode.NONE, str(error)
            if code in _MOVED:
                self._coordinators.pop(key, None)
            client.note(f"{self.transactional_id}: {name} again: {text}")
            self._judge(name, code)
            if world.now_s > deadline_s:
                raise Unavailable(f"{name} was not answered in time")
            await client.pause()

    async def _send(
        self, node_id: int, request: Any, version: int, on_end: Callable[[bool], None] | None
    ) -> Any:
        is_answered = False
        try:
            answer = await self.client.call_node(node_id, request, version, extra_s=5)
            is_answered = True
            return answer
        finally:
            if on_end is not None:
                on_end(is_answered)

    def _judge(self, name: str, code: ErrorCode) -> None:
        """Raise for an answer after which this transaction, or this process, cannot go on."""
        if code in _FENCED:
            if not self._may_be_fenced():
                raise SimulationFailure(
                    f"{name} of {self.transactional_id} epoch {self._life.producer_epoch} was"
                    f" answered {code.name}, though nobody can have fenced it"
                )
            raise Fenced(f"{name}: {code.name}")
        if code in _MUST_ABORT:
            raise MustAbort(f"{name}: {code.name}")
        if code is not ErrorCode.NONE and not code.retriable:
            raise SimulationFailure(f"{name} of {self.transactional_id} was answered {code.name}")

    def _may_be_fenced(self) -> bool:
        contest, options = self._contest, self.options
        age_s = self.client.world.now_s - self._begin_s
        return (
            contest.is_in_doubt
            or contest.asks > self._older_asks
            or not options.knows_time
            or age_s > 0.9 * options.timeout_ms / 1000
        )


_NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED


def _code_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"
