"""Programs that write in transactions: writers, and loops that consume, transform and produce.

Owns: `TransactionalWriter` and `TransferLoop`. Each has one transactional id and goes on, one
process after the other, until told to stop. A process may be killed in the middle of a transaction,
pause longer than its time-out, give up a write that it has sent and abort, or stay alive as a
zombie beside the next one. A loop reads the committed orders of one partition and makes of each a
transfer, a debit in one topic and a credit in another, with the orders' offsets in the transaction.

Called by: `transactional_work`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import trio

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import OffsetFetchRequest, OffsetFetchRequestTopic
from kraftrio.wire.primitives import TopicPartition
from tests.sim.client import SimClient, Unavailable
from tests.sim.transaction_model import Attempt, Source, TransactionHistory
from tests.sim.transactional_client import (
    Contest,
    Fenced,
    MustAbort,
    SessionOptions,
    TransactionalSession,
)
from tests.sim.transactional_readers import TransactionalReader

_CHANCE_OF_ABORT = 0.2
_CHANCE_OF_KILL = 0.05
_CHANCE_OF_SLEEP = 0.04
_CHANCE_OF_GIVING_UP = 0.08
_CHANCE_OF_ZOMBIE = 0.35


Records = Sequence[tuple[TopicPartition, Source | None]]
Write = Callable[[Records], Awaitable[None]]


class _Killed(Exception):
    """The process is no more."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all programs of one simulation share.

    Attributes:
        client: makes a client on a machine of its own.
        start: runs something beside what calls it.
        options: draws how the next process of a program works.
        hold_back: lets what a client has sent to some node arrive late.
    """

    history: TransactionHistory
    client: Callable[[str], SimClient]
    start: Callable[[Callable[[], Awaitable[object]]], None]
    options: Callable[[Random], SessionOptions]
    hold_back: Callable[[SimClient], None]


@dataclass(slots=True, eq=False)
class Processes:
    """The processes of one program, one after the other or beside each other.

    Attributes:
        start: runs something beside what calls it.
        live: is one process, from its start to its end; it is given a name.
    """

    name: str
    start: Callable[[Callable[[], Awaitable[object]]], None]
    rng: Random
    live: Callable[[str], Awaitable[None]]
    running: int = 0
    count: int = 0
    is_stopping: bool = False

    @property
    def is_done(self) -> bool:
        return self.is_stopping and not self.running

    async def run(self) -> None:
        """Start one after the other until told to stop."""
        self.running += 1
        try:
            while not self.is_stopping:
                if self.rng.random() < _CHANCE_OF_ZOMBIE:
                    self.start(self._run_one)
                    await trio.sleep(self.rng.uniform(0.2, 6.0))
                else:
                    await self._run_one()
                await trio.sleep(self.rng.expovariate(1 / 0.3))
        finally:
            self.running -= 1

    async def _run_one(self) -> None:
        name = f"{self.name}{chr(ord('a') + self.count % 26)}{self.count // 26 or ''}"
        self.count += 1
        self.running += 1
        try:
            await self.live(name)
        finally:
            self.running -= 1


class _WireProgram:
    """A program of processes that have a `TransactionalSession` each."""

    def __init__(self, surroundings: Surroundings, transactional_id: str, rng: Random) -> None:
        self._surroundings = surroundings
        self._history = surroundings.history
        self._rng = rng
        self._contest = Contest(transactional_id)
        # All processes with one id: an end of the new protocol takes that of a later transaction
        # without an epoch of its own for its own, in Apache Kafka 4.3 as well.
        self._is_new = surroundings.options(rng).is_new
        self.processes = Processes(transactional_id, surroundings.start, rng, self._live)

    async def _live(self, name: str) -> None:
        client = self._surroundings.client(name)
        options = replace(self._surroundings.options(self._rng), is_new=self._is_new)
        session = TransactionalSession(client, self._history, self._contest, options)
        try:
            await session.begin()
            await self._work(session)
        except (Fenced, MustAbort, Unavailable, _Killed) as error:
            client.note(f"{self._contest.transactional_id} ends: {error!r}")
        finally:
            session.close()

    async def _work(self, session: TransactionalSession) -> None:
        raise NotImplementedError

    async def _transact(
        self,
        session: TransactionalSession,
        body: Callable[[Attempt, Write], Awaitable[None]],
    ) -> bool:
        """Do one transaction in whatever way the dice say; tell whether it was committed.

        Raises:
            Fenced, Unavailable: this process is over.
        """
        attempt, rng = session.transaction(), self._rng

        async def write(records: Records) -> None:
            if rng.random() >= _CHANCE_OF_GIVING_UP:
                await session.write(attempt, records)
                return
            if rng.random() < 0.5:
                self._surroundings.hold_back(session.client)
            with trio.move_on_after(rng.choice((0.0005, 0.005, 0.05))) as scope:
                await session.write(attempt, records)
            if scope.cancelled_caught:
                raise MustAbort("given up")

        try:
            await body(attempt, write)
            if rng.random() < _CHANCE_OF_SLEEP:
                await trio.sleep(1.5 * session.options.timeout_ms / 1000)
            if rng.random() < _CHANCE_OF_KILL:
                raise _Killed
            if rng.random() >= _CHANCE_OF_ABORT:
                await session.end(attempt, commit=True)
                return True
        except MustAbort as error:
            session.client.note(f"{attempt.name} is to be aborted: {error}")
        await session.end(attempt, commit=False)
        return False


class TransactionalWriter(_WireProgram):
    """Writes to several partitions in transactions."""

    def __init__(
        self,
        surroundings: Surroundings,
        transactional_id: str,
        topic_partitions: Sequence[TopicPartition],
        rng: Random,
        interval_s: float,
    ) -> None:
        super().__init__(surroundings, transactional_id, rng)
        self._tps = list(topic_partitions)
        self._interval_s = interval_s

    async def _work(self, session: TransactionalSession) -> None:
        for _ in range(self._rng.randrange(2, 40)):
            if self.processes.is_stopping:
                return
            await self._transact(session, self._write)
            await trio.sleep(self._rng.expovariate(1 / self._interval_s))

    async def _write(self, _attempt: Attempt, write: Write) -> None:
        for _ in range(self._rng.choice((1, 1, 2, 3))):
            count = self._rng.choice((1, 1, 3, 8))
            await write([(self._rng.choice(self._tps), None) for _ in range(count)])
            await trio.sleep(self._rng.expovariate(1 / self._interval_s))


class TransferLoop(_WireProgram):
    """Makes of each committed order of one partition a debit and a credit, exactly once."""

    GROUP = "transfers"

    def __init__(
        self,
        surroundings: Surroundings,
        transactional_id: str,
        orders: TopicPartition,
        outputs: tuple[Sequence[TopicPartition], Sequence[TopicPartition]],
        rng: Random,
    ) -> None:
        super().__init__(surroundings, transactional_id, rng)
        self._orders = orders
        self._debits, self._credits = outputs

    async def _work(self, session: TransactionalSession) -> None:
        tp, rng = self._orders, self._rng
        base = await committed_offset(session.client, self._history, self.GROUP, tp)
        reader = TransactionalReader(session.client, self._history, tp, committed_only=True)
        reader.begin_at(base)
        for _ in range(rng.randrange(5, 60)):
            if self.processes.is_stopping:
                return
            try:
                offsets = await reader.read(200)
            except Unavailable as error:
                session.client.note(f"orders again: {error}")
                session.client.forget(tp.topic)
                await session.client.pause()
                continue
            if not offsets:
                continue

            offsets_sent = {tp: (base, reader.position)}
            transfer = partial(self._transfer, session, offsets, offsets_sent)
            if await self._transact(session, transfer):
                base = reader.position
            else:
                reader.begin_at(base)

    async def _transfer(
        self,
        session: TransactionalSession,
        offsets: Sequence[int],
        offsets_sent: Mapping[TopicPartition, tuple[int, int]],
        attempt: Attempt,
        write: Write,
    ) -> None:
        sources = [Source(self._orders, offset) for offset in offsets]
        debits = [(self._rng.choice(self._debits), source) for source in sources]
        credits = [(self._rng.choice(self._credits), source) for source in sources]
        await write([*debits, *credits])
        await session.send_offsets(attempt, self.GROUP, offsets_sent)


async def committed_offset(
    client: SimClient,
    history: TransactionHistory,
    group: str,
    topic_partition: TopicPartition,
    *,
    require_stable: bool = True,
) -> int:
    """Ask for a committed offset until it is returned.

    Who is no member of the group has no generation by which an old coordinator's answer could be
    found out later, so that it waits until there is none.
    """
    topic = OffsetFetchRequestTopic(
        name=topic_partition.topic, partition_indexes=[topic_partition.partition]
    )
    while True:
        while require_stable and history.commits.has_old_coordinator():
            await client.pause()
        # Without waiting for it, a commit that was answered may be pending still.
        known = history.committed_offset(group, topic_partition) if require_stable else 0
        try:
            node_id = await client.coordinator(group)
            request = OffsetFetchRequest(
                group_id=group, topics=[topic], require_stable=require_stable
            )
            answer = await client.call_node(node_id, request)
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if code is ErrorCode.NONE:
                found: int = max(answer.topics[0].partitions[0].committed_offset, 0)
                history.find_offset(group, topic_partition, known, found)
                return found
            if not code.retriable:
                raise SimulationFailure(f"offset fetch of {group} was answered {code.name}")
            text = code.name
        except Unavailable as error:
            text = str(error)
        client.note(f"offset of {group} again: {text}")
        await client.pause()


async def watch_offsets(
    client: SimClient, history: TransactionHistory, orders: Sequence[TopicPartition]
) -> None:
    """Ask now and then, also without waiting for pending ones, until cancelled."""
    ask = partial(committed_offset, client, history, TransferLoop.GROUP)
    while True:
        await trio.sleep(client.rng.expovariate(1 / 0.3))
        await ask(client.rng.choice(orders), require_stable=client.rng.random() < 0.3)
