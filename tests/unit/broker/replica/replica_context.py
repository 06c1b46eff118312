"""The replicas of one broker for tests: real states and logs over files in memory, with the
controller, the other brokers and the fetchers written down instead of met.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import run_waiting
from kraftrio.base.timers import Timers
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.settings import ReplicaSettings
from kraftrio.broker.replica.state.isr import IsrAnswer, IsrMember, IsrProposal
from kraftrio.broker.replica.waiting.waiters import FetchWaiter, FetchWaiters
from kraftrio.kraft_meta.metadata.image import MetadataDelta
from kraftrio.kraft_meta.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch, load_all
from tests.support.memory_files import MemoryFileSystem

TOPIC_ID, OTHER_ID = b"1" * 16, b"2" * 16
TP = TopicPartition("t", 0)
LAG_MS = 10_000


class SteppingClock(Clock):
    """A clock that goes on by 5 ms with each look at it."""

    __slots__ = ("looks",)

    def __init__(self) -> None:
        self.looks = itertools.count()

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + 5 * next(self.looks)


class Proposed(NamedTuple):
    """What a leader asked the controller for."""

    topic_partition: TopicPartition
    topic_id: bytes
    proposal: IsrProposal
    callback: Callable[[IsrAnswer], None]

    @property
    def isr(self) -> tuple[IsrMember, ...]:
        return self.proposal.isr

    def take(self) -> None:
        """The controller agrees."""
        partition_epoch = self.proposal.partition_epoch + 1
        self.callback(IsrAnswer(ErrorCode.NONE, 0, partition_epoch, self.proposal.broker_ids))

    def refuse(self, error: ErrorCode) -> None:
        self.callback(IsrAnswer(error))


class SilentController:
    """A controller that never answers."""

    def propose(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        proposal: IsrProposal,
        callback: Callable[[IsrAnswer], None],
    ) -> None:
        return None

    def place(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        return None


class Broker:
    """Broker 1 over files in memory; a new one on the same files is a restart.

    Brokers 2 and 3 are registered with the epochs 20 and 30.
    """

    def __init__(
        self,
        fs: MemoryFileSystem | None = None,
        *,
        paths: Sequence[str] = ("/a",),
        config: LogConfig | None = None,
        clock: Clock | None = None,
        freeze_objects: Callable[[], None] = lambda: None,
    ) -> None:
        self.fs = fs if fs is not None else MemoryFileSystem()
        self.config = config or LogConfig()
        ids = itertools.count(101)  # the first hundred are reserved
        self.logs = LogManager(self.fs, paths, new_id=lambda: next(ids).to_bytes(16, "big"))
        load_all(self.logs, self.logs.start("AAAAAAAAAAAAAAAAAAAAAQ", 1), 0)
        self.metadata = MetadataCache()
        self.timers = Timers()
        self.clock = clock or Clock()
        self.proposed: list[Proposed] = []
        self.fetching: list[tuple[TopicPartition, bytes, int, int]] = []  # id, leader, epoch
        self.logs_fetched: list[PartitionLog] = []
        self.placed: list[tuple[bytes, int, bytes]] = []  # topic id, partition, directory id
        self.replicas = ReplicaManager(
            ReplicaSettings(1, lambda _: self.config, LAG_MS, freeze_objects),
            self.logs,
            self.metadata,
            self.timers,
            self.clock,
            self,
            self,
        )
        self.replicas.fetch_with(self)
        self._offset = 0
        delta = MetadataDelta(self.metadata.image)
        for broker_id in (1, 2, 3):
            incarnation = bytes([broker_id]) * 16
            delta.replay(
                RegisterBrokerRecord(broker_id, incarnation, 10 * broker_id, (), fenced=False)
            )
        self.metadata.image = delta.apply(0, 1)

    # -- ports --

    def propose(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        proposal: IsrProposal,
        callback: Callable[[IsrAnswer], None],
    ) -> None:
        self.proposed.append(Proposed(topic_partition, topic_id, proposal, callback))

    def follow(
        self, topic_partition: TopicPartition, topic_id: bytes, leader_id: int, leader_epoch: int
    ) -> None:
        self.fetching.append((topic_partition, topic_id, leader_id, leader_epoch))
        followed = self.replicas.hosted.partition(topic_partition)
        assert followed is not None
        self.logs_fetched.append(followed.log)

    def place(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        self.placed.append((topic_id, partition, directory_id))

    def stop(self, topic_partition: TopicPartition) -> None:
        self.fetching.append((topic_partition, b"", -1, -1))

    # -- what tests do; who waited for it has heard of it then --

    def publish(self, *records: MetadataRecord) -> None:
        """Let the broker take over these records as one delta."""
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self._offset += 1
        self.metadata.image = delta.apply(self._offset, 1)
        self.replicas.metadata_changes.apply_delta(delta, self.metadata.image)
        run_waiting()

    def made(self) -> int:
        """How many logs there are."""
        return sum(1 for _ in self.logs.logs())

    def lead(self, isr: tuple[int, ...] = (1, 2, 3)) -> Partition:
        """Lead t-0 of three replicas."""
        self.publish(TopicRecord("t", TOPIC_ID), PartitionRecord(TOPIC_ID, 0, (1, 2, 3), isr, 1))
        return self.replicas.hosted.leader(TP)

    def follow_broker_2(self, epoch: int = 0) -> Partition:
        """Follow broker 2 in t-0."""
        self.publish(
            TopicRecord("t", TOPIC_ID),
            PartitionRecord(TOPIC_ID, 0, (1, 2, 3), (1, 2, 3), 2, leader_epoch=epoch),
        )
        with_log = self.replicas.hosted.partition(TP)
        if with_log is None:
            try:
                self.replicas.hosted.leader(TP)  # asked for, its log is made at once
            except KafkaError as error:
                assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            with_log = self.replicas.hosted.partition(TP)
        assert with_log is not None
        return with_log

    def append(self, count: int = 1) -> int:
        """Append batches of one record to t-0; return the log end offset."""
        for _ in range(count):
            self.replicas.led.append_to_leader(TP, batch(b"x"))
        run_waiting()
        return self.replicas.led.log(TP).log_end_offset

    def fetched(self, replica_id: int, offset: int, log_start_offset: int = 0) -> None:
        """A follower of t-0 has everything before `offset`."""
        self.replicas.isrs.on_follower_fetch(
            self.replicas.hosted.leader(TP), replica_id, 10 * replica_id, offset, log_start_offset,
            self.clock.monotonic_ms(),
        )  # fmt: skip
        run_waiting()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.timers.run)
            yield
            nursery.cancel_scope.cancel()


def topic(count: int = 1, topic_id: bytes = TOPIC_ID) -> list[MetadataRecord]:
    """The records of a topic t led by broker 1, its only replica."""
    partitions = [PartitionRecord(topic_id, index, (1,), (1,), 1) for index in range(count)]
    return [TopicRecord("t", topic_id), *partitions]


def change(**what: object) -> PartitionChangeRecord:
    """A change of t-0."""
    return PartitionChangeRecord(TOPIC_ID, 0, **what)  # type: ignore[arg-type]


def copied(*values: bytes, base_offset: int = 0, leader_epoch: int = 0) -> bytearray:
    """A batch as a leader answers it to a follower."""
    return batch(*values, base_offset=base_offset, leader_epoch=leader_epoch)


def parked(broker: Broker, waiters: FetchWaiters, missing_bytes: int = 1) -> FetchWaiter:
    """A long poll that waits among these for a minute."""
    waiter = FetchWaiter(missing_bytes)
    waiter.park([waiters], broker.timers, 60_000)
    return waiter
