"""Programs that use the library's own clients for transactions: `Producer` and `Consumer`.

Owns: `LibraryWriter` and `LibraryLoop`, beside those on the wire (`transactional_programs`), of the
same processes: some are cancelled in the middle of a transaction, as zombies others live on beside
their successor. A loop is a member of a group, so that its partitions change hands, too. They
handle what a program must expect and tell the `TransactionHistory` the rest.

Called by: `transactional_work`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from kraftrio.clients.consumer.consumer import Consumer, ConsumerRecord, RebalanceListener
from kraftrio.clients.errors import (
    CommitFailedError,
    CorruptRecordError,
    FatalProducerError,
    KafkaClientError,
    RebalanceInProgressError,
    RetriableError,
    TransactionAbortedError,
    TransactionInDoubtError,
)
from kraftrio.clients.producer.producer import Delivery, Producer
from kraftrio.clients.producer.transactions.transaction import Transaction
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.primitives import TopicPartition
from tests.sim.library_clients import Machine
from tests.sim.transaction_model import Attempt, Life, Passage, Source, TransactionHistory
from tests.sim.transactional_programs import Processes

_CHANCE_OF_ABORT = 0.15
_CHANCE_OF_CANCELLATION = 0.05
_POLL_MS = 300
_IMPATIENT: dict[str, Any] = {"request_timeout_ms": 2_000, "metadata_max_age_ms": 5_000}


class _GivenUp(Exception):
    """The program does not want to commit this transaction."""


@dataclass(slots=True)
class Workshop:
    """What the programs of one simulation share.

    Attributes:
        machine: makes a machine by its name.
        start: runs something beside what calls it.
    """

    history: TransactionHistory
    machine: Callable[[str], Machine]
    start: Callable[[Callable[[], Awaitable[object]]], None]
    timeouts_ms: Sequence[int]


class _LibraryProgram:
    """A program of processes that have a producer each."""

    def __init__(self, workshop: Workshop, transactional_id: str, rng: Random) -> None:
        self._workshop = workshop
        self._history = workshop.history
        self._transactional_id = transactional_id
        self._rng = rng
        self.processes = Processes(transactional_id, workshop.start, rng, self._live)

    async def _live(self, name: str) -> None:
        machine = self._workshop.machine(name)
        newest = self._history.newest_epoch(self._transactional_id)
        settings = {
            "transactional_id": self._transactional_id,
            "transaction_timeout_ms": self._rng.choice(self._workshop.timeouts_ms),
            "linger_ms": self._rng.choice((0, 20)),
            **_IMPATIENT,
        }
        with machine.life(), trio.CancelScope() as scope:
            try:
                async with machine.producer(**settings) as producer:
                    life = self._history.begin_life(
                        self._transactional_id, *_identity_of(producer), newest
                    )
                    machine.note(f"{self._transactional_id} has epoch {life.producer_epoch}")
                    work = _Work(machine, self._history, producer, life, scope)
                    await self._work(work)
            except (FatalProducerError, RetriableError) as error:
                machine.note(f"{self._transactional_id} ends: {error!r}")

    async def _work(self, work: _Work) -> None:
        raise NotImplementedError


def _identity_of(producer: Producer) -> tuple[int, int]:
    manager = producer._transactions
    assert manager is not None
    return manager._identity


@dataclass(slots=True)
class _Work:
    """One process, and its transactions."""

    machine: Machine
    history: TransactionHistory
    producer: Producer
    life: Life
    scope: trio.CancelScope
    _waiting: list[tuple[int, Delivery]] = field(default_factory=list)

    async def transact(self, body: Callable[[Attempt, Transaction], Awaitable[None]]) -> bool:
        """Do one transaction in whatever way the dice say; tell whether it was committed.

        Raises:
            FatalProducerError: the producer can only be closed.
        """
        rng, history = self.machine.rng, self.history
        attempt = history.attempt(self.life)
        self._waiting.clear()
        try:
            async with self.producer.transaction() as transaction:
                await body(attempt, transaction)
                if rng.random() < _CHANCE_OF_CANCELLATION:
                    self.scope.cancel()
                    await trio.lowlevel.checkpoint()
                if rng.random() < _CHANCE_OF_ABORT:
                    raise _GivenUp
                history.ask_commit(attempt)
        except TransactionAbortedError as error:
            self.machine.note(f"{attempt.name} is aborted: {error!r}")
            self._acknowledge(attempt)
            history.end(attempt, commit=False)
        except _GivenUp:
            self._acknowledge(attempt)
            history.end(attempt, commit=False)
        except TransactionInDoubtError:
            raise
        except FatalProducerError:
            if attempt.asked:
                history.refuse_commit(attempt)
            raise
        else:
            self._acknowledge(attempt)
            if any(not delivery.done for _, delivery in self._waiting):
                raise SimulationFailure(f"{attempt.name} is committed before it is written")
            history.end(attempt, commit=True)
        self._go_on()
        return attempt.outcome is True

    def _go_on(self) -> None:
        identity = _identity_of(self.producer)
        if identity != (self.life.producer_id, self.life.producer_epoch):
            self.history.go_on(self.life, *identity)

    async def send(
        self, attempt: Attempt, topic_partition: TopicPartition, source: Source | None = None
    ) -> None:
        """Send one record."""
        number = len(attempt.sent)
        value = self.history.new_record(attempt, topic_partition, source)
        self.history.send(attempt, [number])
        delivery = await self.producer.send(
            topic_partition.topic,
            value.encode(),
            partition=topic_partition.partition,
            timestamp_ms=self.machine.now_ms(),
        )
        self._waiting.append((number, delivery))

    def _acknowledge(self, attempt: Attempt) -> None:
        for number, delivery in self._waiting:
            if not delivery.done:
                continue
            try:
                offset = delivery.result().offset
            except KafkaClientError as error:
                self.machine.note(f"{attempt.name}/{number} given up: {error}")
            else:
                self.history.acknowledge(attempt, [number], offset if offset >= 0 else None)


class LibraryWriter(_LibraryProgram):
    """Writes to several partitions in transactions."""

    def __init__(
        self,
        workshop: Workshop,
        transactional_id: str,
        topic_partitions: Sequence[TopicPartition],
        rng: Random,
        interval_s: float = 0.2,
    ) -> None:
        super().__init__(workshop, transactional_id, rng)
        self._tps = list(topic_partitions)
        self._interval_s = interval_s

    async def _work(self, work: _Work) -> None:
        rng = self._rng

        async def body(attempt: Attempt, _transaction: Transaction) -> None:
            for _ in range(rng.choice((1, 2, 5, 20))):
                await work.send(attempt, rng.choice(self._tps))
                if rng.random() < 0.2:
                    await trio.sleep(rng.expovariate(1 / self._interval_s))

        for _ in range(rng.randrange(2, 40)):
            if self.processes.is_stopping:
                return
            await work.transact(body)
            await trio.sleep(rng.expovariate(1 / self._interval_s))


class LibraryLoop(_LibraryProgram):
    """Makes of each committed order a debit and a credit, as a member of a group."""

    GROUP = "library-transfers"

    def __init__(
        self,
        workshop: Workshop,
        transactional_id: str,
        orders: Sequence[TopicPartition],
        outputs: tuple[Sequence[TopicPartition], Sequence[TopicPartition]],
        rng: Random,
    ) -> None:
        super().__init__(workshop, transactional_id, rng)
        self._orders = list(orders)
        self._debits, self._credits = outputs

    async def _work(self, work: _Work) -> None:
        async with work.machine.consumer(
            group_id=self.GROUP,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            **_IMPATIENT,
        ) as consumer:
            owned = _Owned(work, consumer)
            await consumer.subscribe(self._orders[0].topic, listener=owned)
            for _ in range(self._rng.randrange(10, 100)):
                if self.processes.is_stopping:
                    return
                await self._transfer(work, consumer, owned)

    async def _transfer(self, work: _Work, consumer: Consumer, owned: _Owned) -> None:
        rng, machine = self._rng, work.machine
        try:
            records = list(await consumer.poll(_POLL_MS))
        except (RetriableError, CommitFailedError, RebalanceInProgressError) as error:
            machine.note(f"poll again: {error}")
            return
        except CorruptRecordError as error:
            machine.tolerate_damage(error)
            return
        if not records:
            return

        async def body(attempt: Attempt, transaction: Transaction) -> None:
            for record in records:
                source = owned.take(record)
                await work.send(attempt, rng.choice(self._debits), source)
                await work.send(attempt, rng.choice(self._credits), source)
            spans = {
                tp: (owned.bases[tp], position.offset)
                for tp, position in consumer.positions().items()
                if tp in owned.bases
            }
            self._history.send_offsets(attempt, self.GROUP, spans)
            await transaction.send_offsets(consumer)

        if await work.transact(body):
            owned.settle(consumer)
        else:
            owned.rewind(consumer)


class _Owned(RebalanceListener):
    """The partitions of a member: where the transaction under way began in each, and what came."""

    def __init__(self, work: _Work, consumer: Consumer) -> None:
        self._work = work
        self._consumer = consumer
        self._passages: dict[TopicPartition, Passage] = {}
        self.bases: dict[TopicPartition, int] = {}

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        history = self._work.history
        known = {tp: history.committed_offset(LibraryLoop.GROUP, tp) for tp in partitions}
        if not partitions:
            return
        found = await self._consumer.offsets.committed(partitions)
        for tp in partitions:
            committed = found[tp]
            offset = 0 if committed is None else committed.offset
            history.find_offset(LibraryLoop.GROUP, tp, known[tp], offset)
            self._begin(tp, offset)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self.bases.pop(tp, None)
            self._passages.pop(tp, None)

    def _begin(self, tp: TopicPartition, offset: int) -> None:
        self.bases[tp] = offset
        self._passages[tp] = self._work.history.passage(
            self._work.machine.name, tp, offset, committed_only=True
        )

    def take(self, record: ConsumerRecord) -> Source:
        """Take note of a record that came."""
        tp = TopicPartition(record.topic, record.partition)
        value = (record.value or b"").decode()
        self._work.history.see(self._passages[tp], record.offset, value)
        return Source(tp, record.offset)

    def settle(self, consumer: Consumer) -> None:
        """What was consumed is committed."""
        for tp, position in consumer.positions().items():
            if tp in self.bases:
                self.bases[tp] = position.offset
                self._work.history.move(self._passages[tp], position.offset)

    def rewind(self, consumer: Consumer) -> None:
        """What was consumed is to be consumed again."""
        for tp, offset in self.bases.items():
            consumer.seek(tp, offset)
            self._begin(tp, offset)
