"""Transactions in a swarm: topics of their own, who writes and reads them, and what must hold last.

Owns: `TransactionalWork`. Writers fill `orders` and two topics of accounts, loops make transfers
of the orders, readers of committed and of all data follow. Once the faults are over
1. every transaction is decided within the time-outs, and every replica's last stable offset is its
   high watermark, in the topic of offsets as well,
2. readers have read all, and
3. `TransactionHistory.check` holds for the logs of all replicas and the committed offsets.

Called by: `simulation`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random

from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.primitives import TopicPartition
from tests.sim.client import SimClient
from tests.sim.library_clients import Machine
from tests.sim.log_contents import content_of, entries_of
from tests.sim.options import Transactions
from tests.sim.transaction_model import GroupPartition, TransactionHistory
from tests.sim.transactional_client import SessionOptions
from tests.sim.transactional_library import LibraryLoop, LibraryWriter, Workshop
from tests.sim.transactional_programs import (
    Surroundings,
    TransactionalWriter,
    TransferLoop,
    committed_offset,
    watch_offsets,
)
from tests.sim.transactional_readers import TransactionalReader

ORDERS, DEBITS, CREDITS = "orders", "debits", "credits"
TOPICS = (ORDERS, DEBITS, CREDITS)
Program = TransactionalWriter | TransferLoop | LibraryWriter | LibraryLoop
Start = Callable[[Callable[[], Awaitable[object]]], None]


class TransactionalWork:
    """See the module.

    Args:
        options: None: there are no transactions.
        client, machine: make what a process of a program lives on, by its name.
        start: runs something as a part of the simulation.
        hold_back: lets what a client has sent to some node arrive late.
        has_old_coordinator: see `known_commits`.
        knows_time: the clocks of brokers stay about right.
    """

    def __init__(
        self,
        options: Transactions | None,
        rng: Random,
        client: Callable[[str], SimClient],
        machine: Callable[[str], Machine],
        start: Start,
        *,
        hold_back: Callable[[SimClient], None],
        has_old_coordinator: Callable[[], bool],
        knows_time: bool,
    ) -> None:
        self._options = options
        self._rng = rng
        self._client = client
        self._machine = machine
        self._start = start
        self._hold_back = hold_back
        self._knows_time = knows_time
        self.history = TransactionHistory(has_old_coordinator)
        self._partitions: dict[str, list[TopicPartition]] = {}
        if options is not None:
            counts = zip(TOPICS, options.partitions, strict=True)
            for topic, count in counts:
                self._partitions[topic] = [TopicPartition(topic, i) for i in range(count)]
        self._programs: list[Program] = []
        self._readers: list[TransactionalReader] = []

    @property
    def topics(self) -> Mapping[str, int]:
        """The topics to make, and their numbers of partitions."""
        return {topic: len(tps) for topic, tps in self._partitions.items()}

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [tp for tps in self._partitions.values() for tp in tps]

    def begin(self) -> None:
        """Start all programs and readers."""
        options = self._options
        if options is None:
            return
        orders = self._partitions[ORDERS][: options.loops]
        self._make_wire_programs(options, orders)
        if options.library:
            self._make_library_programs(options)
        for program in self._programs:
            self._start(program.processes.run)
        if orders:
            self._start(partial(watch_offsets, self._client("to"), self.history, orders))
        for committed_only in (True, False):
            client = self._client("trc" if committed_only else "tru")
            for tp in self.topic_partitions:
                reader = TransactionalReader(
                    client, self.history, tp, committed_only=committed_only
                )
                self._readers.append(reader)
                self._start(reader.run)

    def _make_wire_programs(self, options: Transactions, orders: Sequence[TopicPartition]) -> None:
        surroundings = Surroundings(
            self.history, self._client, self._start, self._draw_session, self._hold_back
        )
        for number in range(options.writers):
            rng = self._new_rng()
            interval_s = rng.choice((0.05, 0.2, 0.5))
            tps = self._partitions[ORDERS] + self._rng.sample(self.topic_partitions, 2)
            writer = TransactionalWriter(surroundings, f"tw{number}", tps, rng, interval_s)
            self._programs.append(writer)
        for tp in orders:
            name, rng = f"tl{tp.partition}", self._new_rng()
            self._programs.append(TransferLoop(surroundings, name, tp, self._outputs, rng))

    def _make_library_programs(self, options: Transactions) -> None:
        workshop = Workshop(self.history, self._machine, self._start, options.timeouts_ms)
        tps = self._partitions[ORDERS] + self._rng.sample(self.topic_partitions, 2)
        self._programs.append(LibraryWriter(workshop, "lw0", tps, self._new_rng()))
        orders = self._partitions[ORDERS]
        for number in range(2 if options.loops else 0):
            name, rng = f"ll{number}", self._new_rng()
            self._programs.append(LibraryLoop(workshop, name, orders, self._outputs, rng))

    def _new_rng(self) -> Random:
        return Random(self._rng.getrandbits(64))

    @property
    def _outputs(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        return self._partitions[DEBITS], self._partitions[CREDITS]

    def _draw_session(self, rng: Random) -> SessionOptions:
        assert self._options is not None
        return SessionOptions(
            is_new=self._options.version >= 2 and rng.random() < 0.6,
            timeout_ms=rng.choice(self._options.timeouts_ms),
            patience_s=rng.choice((2.0, 10.0, 20.0)),
            knows_time=self._knows_time,
        )

    # -- the end ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let every process end the transaction that it is in, and no other one begin.

        Readers read to the end, and begin no more.
        """
        for program in self._programs:
            program.processes.is_stopping = True
        for reader in self._readers:
            reader.is_stopping = True

    def unfinished(self) -> str:
        """Tell of a program that is not done yet; "" when all are."""
        waiting = [p.processes for p in self._programs if not p.processes.is_done]
        return ", ".join(f"{p.name} with {p.running}" for p in waiting)

    def undecided(self, logs_of: Callable[[TopicPartition], Sequence[PartitionLog]]) -> str:
        """Tell of a replica with a transaction that is not decided; "" when all are."""
        for tp in self.topic_partitions:
            for log in logs_of(tp):
                if log.last_stable_offset != log.high_watermark:
                    return f"{log} is stable up to {log.last_stable_offset} of {log.high_watermark}"
        return ""

    def unread(self) -> str:
        """Tell of a reader that is not at the end; "" when all are."""
        behind = [reader for reader in self._readers if not reader.is_at_end]
        return f"{len(behind)} readers, one at {behind[0].position}" if behind else ""

    async def check(self, logs_of: Callable[[TopicPartition], Sequence[PartitionLog]]) -> None:
        """Compare everything with the final logs, which are the same on all replicas."""
        if self._options is None:
            return
        offsets: dict[GroupPartition, int] = {}
        client = self._client("te")
        for group in (TransferLoop.GROUP, LibraryLoop.GROUP):
            for tp in self._partitions[ORDERS]:
                found = await committed_offset(client, self.history, group, tp)
                offsets[GroupPartition(group, tp)] = found
        logs = {tp: list(entries_of(content_of(logs_of(tp)[0]))) for tp in self.topic_partitions}
        self.history.check(logs, offsets)
