"""Programs in a simulation that use the library's own clients: `Producer`, `Consumer`, `Admin`.

Owns: `Machine`, where a program and its clients live, and the programs: `ProducerProgram`,
`ReaderProgram` (partitions assigned by hand), `GroupProgram` (a member of a group) and
`TopicProgram`, whose topic is made again while others use it. Rules:
1. Nothing of the clients is replaced but their network and their chance; records get the simulated
   time as their timestamps.
2. Programs handle what a program must expect (`KafkaClientError`s that are retriable, what a group
   answers a member that lost its place) and go on. Everything else a client raises ends the
   simulation.
3. They tell the `History` what was acknowledged, read, owned and committed. `describe` says what a
   program still waits for, "" when that is nothing: once the faults are over that must come.

Called by: scenarios, and simulations that want the library's clients beside the small ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import NewTopic
from kraftrio.clients.consumer.consumer import Consumer, ConsumerRecord, RebalanceListener
from kraftrio.clients.errors import (
    CommitFailedError,
    CorruptRecordError,
    InvalidReplicationFactorError,
    KafkaClientError,
    RebalanceInProgressError,
    RetriableError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kraftrio.clients.producer.producer import Delivery, Producer
from kraftrio.testing.simulation.cluster import SimCluster
from kraftrio.testing.simulation.incarnation import current
from kraftrio.testing.simulation.world import START_WALL_MS, SimulationFailure, World
from kraftrio.wire.primitives import TopicPartition
from tests.sim.history import History, Promise, Sender
from tests.sim.producers import DAMAGED_RECORDS

_POLL_MS = 500
_BATCH_BYTES = 4_000  # so that a batch fits into the shortest segments
_LOST_PLACE = (CommitFailedError, RebalanceInProgressError)


class Machine:
    """A machine for one program: its clients reach the cluster over a network of their own."""

    def __init__(self, cluster: SimCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.host = cluster.new_host(name)
        self.network = cluster.secured(self.host)
        self.rng: Random = cluster.world.rng(f"program-{name}")
        self._bootstrap = [f"{host}:{port}" for host, port in cluster.bootstrap]

    @property
    def world(self) -> World:
        return self.cluster.world

    def now_ms(self) -> int:
        """The wall clock."""
        return START_WALL_MS + int(self.world.now_s * 1000)

    def note(self, text: str) -> None:
        """Write a line of the trace."""
        self.world.note(self.name, "client", text)

    @contextmanager
    def life(self) -> Iterator[None]:
        """Run what the body starts as one process: its log lines come into the trace."""
        token = current.set(self.world.incarnate(self.name))
        try:
            yield
        finally:
            current.reset(token)

    def _client_rng(self) -> Random:
        return Random(self.rng.getrandbits(64))

    def producer(self, **settings: Any) -> Producer:
        settings = {"batch_size": _BATCH_BYTES, **settings}
        return Producer(self._bootstrap, network=self.network, rng=self._client_rng(), **settings)

    def consumer(self, **settings: Any) -> Consumer:
        # Two members of one program are told apart by more than when they were made.
        settings = {"client_id": self.name, **settings}
        return Consumer(self._bootstrap, network=self.network, rng=self._client_rng(), **settings)

    def admin(self, **settings: Any) -> Admin:
        return Admin(self._bootstrap, network=self.network, rng=self._client_rng(), **settings)

    def tolerate_damage(self, error: CorruptRecordError) -> None:
        """Take note of damaged records where faults damage them; raise the error elsewhere."""
        if not self.world.tolerates(DAMAGED_RECORDS):
            raise error
        self.note(f"damaged records: {error}")

    async def pause(self, longest_s: float = 0.5) -> None:
        """Back off."""
        await trio.sleep(self.rng.uniform(0.02, longest_s))


class ProducerProgram:
    """Writes numbered records to some partitions until told to stop.

    Args:
        settings: of the producer; acks=all and idempotence are the history's promises.
        interval_s: how long it rests between bursts of records, on average.
    """

    def __init__(
        self,
        machine: Machine,
        history: History,
        topic_partitions: Sequence[TopicPartition],
        *,
        interval_s: float = 0.1,
        largest_burst: int = 5,
        **settings: Any,
    ) -> None:
        self._machine = machine
        self._history = history
        self._settings = settings
        self._interval_s = interval_s
        self._largest_burst = largest_burst
        promise = Promise(
            settings.get("acks", "all") in ("all", -1), settings.get("enable_idempotence", True)
        )
        self._senders = [
            history.sender(f"{machine.name}:{tp.topic}-{tp.partition}", tp, promise)
            for tp in topic_partitions
        ]
        self._waiting: deque[tuple[Sender, int, Delivery]] = deque()
        self.given_up = 0
        self.is_stopping = False
        self.is_done = False

    def describe(self) -> str:
        """Tell what still waits; "" when everything is decided."""
        return "" if self.is_done else f"{self._machine.name} with {len(self._waiting)} records"

    async def run(self) -> None:
        """Write until told to stop and everything is decided."""
        machine = self._machine
        with machine.life():
            async with machine.producer(**self._settings) as producer:
                while not self.is_stopping:
                    for _ in range(machine.rng.randint(1, self._largest_burst)):
                        await self._send(producer, machine.rng.choice(self._senders))
                    self._look_at_decided()
                    await trio.sleep(machine.rng.expovariate(1 / self._interval_s))
        self._look_at_decided()
        if self._waiting:
            raise SimulationFailure(f"a producer has ended, but not {self.describe()}")
        self.is_done = True

    async def _send(self, producer: Producer, sender: Sender) -> None:
        number = sender.sent
        sender.sent += 1  # a reader may see it before `send` returns
        topic, partition = sender.topic_partition
        try:
            delivery = await producer.send(
                topic,
                f"{sender.name}/{number}".encode(),
                partition=partition,
                timestamp_ms=self._machine.now_ms(),
            )
        except RetriableError as error:
            self._machine.note(f"{sender.name}/{number} not accepted: {error}")
        else:
            self._waiting.append((sender, number, delivery))

    def _look_at_decided(self) -> None:
        undecided: deque[tuple[Sender, int, Delivery]] = deque()
        for sender, number, delivery in self._waiting:
            if not delivery.done:
                undecided.append((sender, number, delivery))
                continue
            try:
                offset = delivery.result().offset
            except RetriableError as error:
                self.given_up += 1
                self._machine.note(f"{sender.name}/{number} given up: {error}")
            else:
                self._history.acknowledge(sender, number, 1, offset if offset >= 0 else None)
        self._waiting = undecided


class Passage:
    """The order in which a consumer is given one partition's records: no gap, nothing twice.

    Args:
        lives: how often the topic may have been made so far. Each time its offsets begin at 0 once
            more. The record there is another one, unless the producer, not knowing whether it was
            taken before, has sent it again.
    """

    def __init__(
        self, who: str, topic_partition: TopicPartition, lives: Callable[[], int] = lambda: 1
    ) -> None:
        self._who = who
        self._tp = topic_partition
        self._lives = lives
        self._begin_count = 1
        self.next_offset: int | None = None

    def take(self, record: ConsumerRecord) -> None:
        """Take note of the next record.

        Raises:
            SimulationFailure: it is not the one that must come next.
        """
        expected = self.next_offset
        self.next_offset = record.offset + 1
        if expected is None or record.offset == expected:
            return
        self._begin_count += 1
        if record.offset or self._begin_count > self._lives():
            raise SimulationFailure(
                f"{self._who} was given {self._tp.topic}-{self._tp.partition} from offset"
                f" {record.offset}, where {expected} comes next"
            )


class ReaderProgram:
    """Reads all of some partitions, again and again, with partitions assigned by hand.

    Args:
        settings: of the consumer.
    """

    def __init__(
        self,
        machine: Machine,
        history: History,
        topic_partitions: Sequence[TopicPartition],
        **settings: Any,
    ) -> None:
        self._machine = machine
        self._history = history
        self._tps = list(topic_partitions)
        self._settings = settings
        self._reread_count = 0
        self.is_stopping = False  # it does not begin again: a quota lets it read so much, no more
        self.positions: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        with self._machine.life():
            while True:
                # No policy: a consumer that loses its position gets an error.
                settings = {"auto_offset_reset": "none", **self._settings}
                async with self._machine.consumer(**settings) as consumer:
                    consumer.assign(self._tps)
                    consumer.seek_to_beginning()
                    await self._read(consumer)

    async def _read(self, consumer: Consumer) -> None:
        world, rng = self._machine.world, self._machine.rng
        passages = {tp: Passage(self._machine.name, tp) for tp in self._tps}
        while True:
            try:
                records = await consumer.poll(_POLL_MS)
            except RetriableError as error:
                self._machine.note(f"poll again: {error}")
                continue
            except CorruptRecordError as error:
                self._machine.tolerate_damage(error)
                return
            for record in records:
                self._see(record, passages)
            begins_again = not self.is_stopping and rng.random() < 0.004
            if begins_again or world.reread_count != self._reread_count:
                self._reread_count = world.reread_count
                return

    def _see(self, record: ConsumerRecord, passages: dict[TopicPartition, Passage]) -> None:
        tp = TopicPartition(record.topic, record.partition)
        passages[tp].take(record)
        value = (record.value or b"").decode()
        self._history.see(self._machine.name, tp, record.offset, value)
        self.positions[tp] = record.offset + 1


class _Owner(RebalanceListener):
    """Tells the history what a member owns, and where it begins."""

    def __init__(self, program: GroupProgram, consumer: Consumer) -> None:
        self._program = program
        self._consumer = consumer

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._program.begin(self._consumer, partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._program.end(partitions)


class GroupProgram:
    """A member of a group: reads what it owns, commits in steps, leaves, crashes, comes again."""

    def __init__(
        self, machine: Machine, history: History, group: str, topic: str, **settings: Any
    ) -> None:
        self._machine = machine
        self._history = history
        self._group = group
        self._topic = topic
        self._settings = settings
        self._passages: dict[TopicPartition, Passage] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.commit_count = 0

    async def run(self) -> None:
        """Be a member, again and again, until cancelled."""
        machine = self._machine
        while True:
            with machine.life(), trio.CancelScope() as scope:
                async with machine.consumer(
                    group_id=self._group,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    **self._settings,
                ) as consumer:
                    await consumer.subscribe(self._topic, listener=_Owner(self, consumer))
                    await self._work(consumer)
                    if machine.rng.random() < 0.5:
                        scope.cancel()  # a hasty farewell
            self.end(list(self._passages))
            await machine.pause(2.0)

    async def _work(self, consumer: Consumer) -> None:
        rng = self._machine.rng
        for _ in range(rng.randrange(20, 200)):
            try:
                records = await consumer.poll(_POLL_MS)
                for record in records:
                    self._see(record)
                if rng.random() < 0.5:
                    await self._commit(consumer)
            except (RetriableError, *_LOST_PLACE) as error:
                self._machine.note(f"group {self._group} again: {error}")
            except CorruptRecordError as error:
                self._machine.tolerate_damage(error)
                return
            await trio.sleep(rng.uniform(0.01, 0.3))

    def _see(self, record: ConsumerRecord) -> None:
        tp = TopicPartition(record.topic, record.partition)
        self._passages[tp].take(record)
        value = (record.value or b"").decode()
        self._history.see(self._machine.name, tp, record.offset, value)
        self.positions[tp] = record.offset + 1

    async def _commit(self, consumer: Consumer) -> None:
        """Commit, or be cancelled while at it: what is in doubt then counts for nothing."""
        positions = {tp: await consumer.position(tp) for tp in sorted(consumer.assignment)}
        patience_s = math.inf if self._machine.rng.random() < 0.8 else 0.005
        with trio.move_on_after(patience_s) as scope:
            await consumer.commit(positions, timeout_ms=10_000)
        if scope.cancelled_caught or not positions:
            return
        for tp, offset in positions.items():
            self._history.commit(self._group, tp, offset)
        self.commit_count += 1

    async def begin(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """These are the member's own now: what it begins at was committed, or something later."""
        member = consumer.group_metadata()
        owner = member.group_instance_id or member.member_id  # a static one keeps its place
        known = self._history.committed(self._group, partitions)
        for tp in partitions:
            self._history.own(self._group, member.generation_id, tp, owner)
            self._passages[tp] = Passage(self._machine.name, tp)
        if not partitions:
            return
        found = await consumer.offsets.committed(partitions)
        for tp in partitions:
            committed = found[tp]
            offset = 0 if committed is None else committed.offset
            self._history.check_committed(self._group, tp, known[tp], offset)
        owned = [f"{tp.topic}-{tp.partition}" for tp in partitions]
        self._machine.note(f"group {self._group} generation {member.generation_id} owns {owned}")

    def end(self, partitions: list[TopicPartition]) -> None:
        """These are given up."""
        for tp in partitions:
            self._passages.pop(tp, None)


class TopicProgram:
    """A topic that is deleted and made again, beside a producer and consumers that go on.

    Its number of partitions is drawn again each time. Told to stop (`is_stopping`), it lets the
    topic be: what is acknowledged from then on every consumer of it must read in bounded time.
    """

    def __init__(self, machine: Machine, topic: str, *, most_partitions: int = 4) -> None:
        self._machine = machine
        self._most_partitions = most_partitions
        self.topic = topic
        self.lives = 0
        self.is_stopping = False
        self._replication_factor = 1
        self._is_settled = False
        self._must_be_read: set[bytes] = set()
        self._read: dict[str, set[bytes]] = {}
        self._acknowledged = 0

    def describe(self) -> str:
        """Tell what still must come; "" when nothing must."""
        if not self._is_settled:
            return f"{self.topic} is not let be yet"
        if self._acknowledged < _ENOUGH:
            return f"{self.topic}: {self._acknowledged} records written since it stays"
        for who, read in sorted(self._read.items()):
            if missing := self._must_be_read - read:
                return f"{who} has not read {len(missing)} of {self.topic}, as {min(missing)!r}"
        return ""

    async def begin(self, replication_factor: int = 1) -> None:
        """Make the topic for the first time."""
        self._replication_factor = replication_factor
        self.lives = 1
        with self._machine.life():
            async with self._machine.admin() as admin:
                await self._create(admin)

    async def run(self, gap_s: float = 5.0) -> None:
        """Delete it and make it again, now and then, until told to stop."""
        with self._machine.life():
            async with self._machine.admin() as admin:
                while not self.is_stopping:
                    await trio.sleep(min(self._machine.rng.expovariate(1 / gap_s), 5 * gap_s))
                    await self._renew(admin)
        self._is_settled = True

    async def _renew(self, admin: Admin) -> None:
        self.lives += 1  # whoever makes it: a producer that goes on may be the first
        await self._until_done(lambda: admin.delete_topics([self.topic]))
        if self._machine.rng.random() < 0.5:
            await self._machine.pause(3.0)
        await self._create(admin)

    async def _create(self, admin: Admin) -> None:
        count = self._machine.rng.randint(1, self._most_partitions)
        new = NewTopic(self.topic, count, self._replication_factor)
        await self._until_done(lambda: admin.create_topics([new]))
        self._machine.note(f"{self.topic} is made, life {self.lives}, {count} partitions")

    async def _until_done(self, act: Any) -> None:
        """Ask until it is done; a second time may find that the first one did it."""
        while True:
            try:
                await act()
            except (TopicExistsError, UnknownTopicOrPartitionError):
                return
            except (RetriableError, InvalidReplicationFactorError) as error:
                # Few brokers, or none, may be there right now.
                self._machine.note(f"{self.topic} again: {error}")
                await self._machine.pause()
            else:
                return

    # -- those who use it -----------------------------------------------------------------------

    async def write(self, machine: Machine, interval_s: float = 0.2, **settings: Any) -> None:
        """Write until cancelled: keyed records, which go where the topic's partitions say."""
        number = 0
        waiting: deque[tuple[bytes, bool, Delivery]] = deque()
        with machine.life():
            async with machine.producer(**settings) as producer:
                while True:
                    value = f"{machine.name}/{number}".encode()
                    number += 1
                    counts = self._is_settled
                    try:
                        delivery = await producer.send(
                            self.topic,
                            value,
                            key=b"%d" % machine.rng.randrange(100),
                            timestamp_ms=machine.now_ms(),
                        )
                        waiting.append((value, counts, delivery))
                    except RetriableError as error:
                        machine.note(f"{value.decode()} not accepted: {error}")
                    waiting = self._acknowledge(machine, waiting)
                    await trio.sleep(machine.rng.expovariate(1 / interval_s))

    def _acknowledge(
        self, machine: Machine, waiting: deque[tuple[bytes, bool, Delivery]]
    ) -> deque[tuple[bytes, bool, Delivery]]:
        undecided: deque[tuple[bytes, bool, Delivery]] = deque()
        for value, counts, delivery in waiting:
            if not delivery.done:
                undecided.append((value, counts, delivery))
                continue
            try:
                delivery.result()
            except RetriableError as error:
                machine.note(f"{value.decode()} given up: {error}")
                continue
            if counts:
                self._acknowledged += 1
                if len(self._must_be_read) < _ENOUGH:
                    self._must_be_read.add(value)
        return undecided

    async def read(self, machine: Machine, *, group: str | None = None, **settings: Any) -> None:
        """Read until cancelled: as a member of a group, or all partitions there may be by hand."""
        read = self._read.setdefault(machine.name, set())
        passages: dict[TopicPartition, Passage] = {}
        settings = {"auto_offset_reset": "earliest", "group_id": group, **settings}
        with machine.life():
            async with machine.consumer(**settings) as consumer:
                if group is None:
                    count = self._most_partitions
                    consumer.assign(TopicPartition(self.topic, index) for index in range(count))
                else:
                    await consumer.subscribe(self.topic)
                while True:
                    try:
                        records = await consumer.poll(_POLL_MS)
                    except KafkaClientError as error:
                        if isinstance(error, CorruptRecordError):
                            machine.tolerate_damage(error)
                        elif not error.retriable and not isinstance(error, _LOST_PLACE):
                            raise
                        machine.note(f"poll again: {error}")
                        await machine.pause()
                        continue
                    for record in records:
                        tp = TopicPartition(record.topic, record.partition)
                        if group is None:
                            passage = passages.setdefault(
                                tp, Passage(machine.name, tp, lambda: self.lives)
                            )
                            passage.take(record)
                        read.add(record.value or b"")


_ENOUGH = 20  # records of a topic that stays, which everybody must have read
