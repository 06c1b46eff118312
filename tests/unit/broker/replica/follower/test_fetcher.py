"""Brokers that copy from each other over loopback: real servers, handlers, replicas and logs.

Only the controller is missing: a test publishes the metadata itself, to each broker when it likes.
"""

from __future__ import annotations

import errno
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from kraftrio.base.clock import Clock
from kraftrio.base.timers import Timers
from kraftrio.broker.api.fetch.fetch import FetchHandlers
from kraftrio.broker.api.fetch.reads import FetchSettings
from kraftrio.broker.api.fetch.session import FetchSessions
from kraftrio.broker.api.offsets import OffsetHandlers
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import AppendOrigin, PartitionLog
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.follower.fetcher import ReplicaFetchers
from kraftrio.broker.replica.follower.leader_fetcher import FollowerContext
from kraftrio.broker.replica.manager import ReplicaManager
from kraftrio.broker.replica.quota import Direction, ReplicationQuota
from kraftrio.broker.replica.settings import ReplicaSettings
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.server import ServerListener
from kraftrio.kraft_meta.metadata.image import Endpoint, MetadataDelta
from kraftrio.kraft_meta.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch, load_all
from tests.support.memory_files import MemoryFileSystem
from tests.support.server_limits import LIMITS
from tests.unit.broker.replica.replica_context import SilentController

TOPIC_ID = b"1" * 16
TP = TopicPartition("t", 0)


class Broker:
    """One broker without a controller."""

    def __init__(self, broker_id: int, **properties: str) -> None:
        self.broker_id = broker_id
        self.fs = MemoryFileSystem()
        ids = itertools.count(1)
        self.logs = LogManager(self.fs, ["/a"], new_id=lambda: next(ids).to_bytes(16, "big"))
        load_all(self.logs, self.logs.start("AAAAAAAAAAAAAAAAAAAAAQ", broker_id), 0)
        self.metadata = MetadataCache()
        self.timers, self.clock, self.network = Timers(), Clock(), SystemNetwork()
        self.replicas = ReplicaManager(
            ReplicaSettings(broker_id, lambda _: LogConfig()),
            self.logs,
            self.metadata,
            self.timers,
            self.clock,
            SilentController(),
            SilentController(),
        )
        self.config = BrokerConfig(
            {
                "node.id": str(broker_id),
                "process.roles": "broker",
                "controller.quorum.voters": "9@localhost:9093",
                "listeners": "PLAINTEXT://localhost:9092",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": "/a",
                **{name.replace("_", "."): value for name, value in properties.items()},
            }
        )
        self.quota = ReplicationQuota(Direction.FOLLOWER, broker_id, self.clock.monotonic_ms)
        self.fetchers = ReplicaFetchers(
            FollowerContext(
                broker_id=broker_id,
                broker_epoch=lambda: 10 + broker_id,
                replicas=self.replicas.follower_writes,
                metadata=self.metadata,
                config=self.config,
                network=self.network,
                clock=self.clock,
                rng=random.Random(broker_id),
                quota=self.quota,
            )
        )
        self.replicas.fetch_with(self.fetchers)
        self.dispatcher = Dispatcher(
            {
                **FetchHandlers(
                    self.replicas,
                    self.metadata,
                    FetchSessions(10, random.Random(7)),
                    self.timers,
                    self.clock,
                    FetchSettings(50 << 20),
                ).table(),
                **OffsetHandlers(self.replicas).table(),
            }
        )
        self.sock = self.network.bind("127.0.0.1", 0)
        self.port = self.sock.getsockname()[1]
        self.listening = trio.CancelScope()
        self._offset = 0

    async def listen(self) -> None:
        """Serve until `listening` is cancelled."""
        with trio.CancelScope() as self.listening:
            await ServerListener(
                "PLAINTEXT", self.sock, self.dispatcher, LIMITS, self.network
            ).run()

    async def listen_again(self) -> None:
        self.sock = self.network.bind("127.0.0.1", self.port)
        await self.listen()

    def registered(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            self.broker_id,
            b"i" * 16,
            10 + self.broker_id,
            (Endpoint("PLAINTEXT", "127.0.0.1", self.port, 0),),
            fenced=False,
        )

    def publish(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self._offset += 1
        self.metadata.image = delta.apply(self._offset, 1)
        self.replicas.metadata_changes.apply_delta(delta, self.metadata.image)
        self.fetchers.metadata_changed()

    def write(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.replicas.led.append_to_leader(
                TopicPartition("t", partition), batch(value), origin=AppendOrigin.COORDINATOR
            )

    def log(self, partition: int = 0) -> PartitionLog:
        replica = self.replicas.hosted.partition(TopicPartition("t", partition))
        assert replica is not None
        return replica.log

    def content(self, partition: int = 0) -> bytes:
        log = self.log(partition)
        return bytes(
            log.read(
                log.log_start_offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True
            ).records
        )


def led_by(
    leader: int, epoch: int, *, partition: int = 0, isr: tuple[int, ...] = (1, 2)
) -> PartitionRecord:
    return PartitionRecord(TOPIC_ID, partition, (1, 2), isr, leader, epoch, epoch)


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until something is so."""
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110  # there is nobody who could tell
            await trio.sleep(0.001)


class Cluster:
    """Brokers 1 and 2."""

    def __init__(self, nursery: trio.Nursery, **properties: str) -> None:
        self.one, self.two = Broker(1, **properties), Broker(2, **properties)
        self.nursery = nursery
        for broker in (self.one, self.two):
            nursery.start_soon(broker.timers.run)
            nursery.start_soon(broker.listen)
            nursery.start_soon(broker.fetchers.run)
        self.publish(self.one.registered(), self.two.registered(), TopicRecord("t", TOPIC_ID))

    def publish(self, *records: MetadataRecord) -> None:
        for broker in (self.one, self.two):
            broker.publish(*records)

    async def replicated(self, partition: int = 0) -> None:
        """Both logs exist and are equal, and the leader knows everything to be committed."""

        def is_so() -> bool:
            tp = TopicPartition("t", partition)
            if None in (
                self.one.replicas.hosted.partition(tp),
                self.two.replicas.hosted.partition(tp),
            ):
                return False
            one, two = self.one.log(partition), self.two.log(partition)
            committed = max(one.high_watermark, two.high_watermark)
            return one.log_end_offset == two.log_end_offset == committed

        await until(is_so)
        assert self.one.content(partition) == self.two.content(partition)


@asynccontextmanager
async def cluster(**properties: str) -> AsyncIterator[Cluster]:
    async with trio.open_nursery() as nursery:
        with trio.fail_after(20):
            yield Cluster(nursery, **properties)
        nursery.cancel_scope.cancel()


async def test_what_the_leader_has_is_copied_and_committed() -> None:
    """Records of before and after the follower began, and the high watermark soon after."""
    async with cluster() as nodes:
        nodes.one.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        nodes.one.write(b"a", b"b")
        nodes.two.publish(led_by(1, 0))
        await nodes.replicated()
        nodes.one.write(b"c")
        done: list[ErrorCode] = []
        nodes.one.replicas.led.when_committed(TP, 3, None, done.append)
        await until(lambda: bool(done))
        assert done == [ErrorCode.NONE]
        await nodes.replicated()
        await until(lambda: nodes.two.log().high_watermark == 3)
        assert nodes.two.fetchers.lag == {TP: 0}
        assert nodes.two.fetchers.statistics() == {
            "leaders": 1,
            "partitions": 1,
            "max_lag_records": 0,
        }


async def test_a_new_leader_is_followed_and_the_old_one_gives_up_what_only_it_has() -> None:
    """The deposed leader copies from the new one, after truncation."""
    async with cluster() as nodes:
        nodes.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        nodes.one.write(b"a")
        await nodes.replicated()
        nodes.two.publish(led_by(2, 1))  # one does not know yet
        nodes.one.write(b"lost")
        nodes.two.write(b"kept", b"more")
        nodes.one.publish(led_by(2, 1))
        await nodes.replicated()
        values = [batch.header.partition_leader_epoch for batch in nodes.one.log().batches(0)]
        assert values == [0, 1, 1]


async def test_metadata_may_reach_the_follower_first() -> None:
    """The leader does not know of the topic, then not of its epoch: it is asked again at once."""
    async with cluster() as nodes:
        nodes.two.publish(led_by(1, 0))
        await trio.sleep(0.03)
        nodes.one.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        nodes.one.write(b"a")
        await nodes.replicated()
        started = trio.current_time()
        nodes.two.publish(led_by(1, 1))
        await trio.sleep(0.03)
        nodes.one.publish(led_by(1, 1))
        nodes.one.write(b"b")
        await nodes.replicated()
        assert trio.current_time() - started < 0.4, "not only after a long poll or the backoff"


async def test_a_new_partition_of_a_leader_that_is_polled_is_fetched() -> None:
    """With the next request, once the parked one is answered."""
    async with cluster() as nodes:
        nodes.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        await nodes.replicated()
        await trio.sleep(0.02)  # the poll is parked now
        nodes.publish(led_by(1, 0, partition=1))
        nodes.one.replicas.hosted.leader(TopicPartition("t", 1))
        nodes.one.write(b"a", partition=1)
        await nodes.replicated(partition=1)


async def test_a_leader_that_restarts_is_found_again(caplog: pytest.LogCaptureFixture) -> None:
    """One line says that it went, one that it is back."""
    caplog.set_level(logging.INFO, "kraftrio.replication")
    async with cluster() as nodes:
        nodes.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        await nodes.replicated()
        nodes.one.listening.cancel()
        await trio.sleep(0.1)
        nodes.one.write(b"a")
        nodes.nursery.start_soon(nodes.one.listen_again)
        await nodes.replicated()
    lines = [record.getMessage().split(" leader")[0] for record in caplog.records]
    assert lines == ["replication interrupted", "replication resumed"]


async def test_a_leader_at_another_address_is_followed_at_once() -> None:
    """Metadata that names a new address interrupts waiting and the old connection."""
    async with cluster() as nodes:
        nodes.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        await nodes.replicated()
        nodes.one.listening.cancel()
        await trio.sleep(0.5)  # the next attempt is half a second away
        nodes.one.sock = nodes.one.network.bind("127.0.0.1", 0)
        nodes.one.port = nodes.one.sock.getsockname()[1]
        nodes.nursery.start_soon(nodes.one.listen)
        nodes.one.write(b"a")
        started = trio.current_time()
        nodes.publish(nodes.one.registered())
        await nodes.replicated()
        assert trio.current_time() - started < 0.25


async def test_nothing_is_fetched_from_a_leader_of_nothing() -> None:
    """The last partition leaves and with it the connection."""
    async with cluster() as nodes:
        nodes.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        await nodes.replicated()
        await until(lambda: nodes.two.fetchers.lag == {TP: 0})
        nodes.publish(RemoveTopicRecord(TOPIC_ID))
        assert nodes.two.fetchers.lag == {}
        await until(lambda: not nodes.two.fetchers._leaders)


async def test_a_topic_made_again_under_its_name_is_another_one() -> None:
    """Nothing of the old topic gets into the new one's log."""
    other_id = b"2" * 16
    async with cluster() as nodes:
        nodes.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        nodes.one.write(b"old", b"old")
        await nodes.replicated()
        nodes.publish(
            RemoveTopicRecord(TOPIC_ID),
            TopicRecord("t", other_id),
            PartitionRecord(other_id, 0, (1, 2), (1, 2), 1, 0, 0),
        )
        nodes.one.replicas.hosted.leader(TP)
        nodes.one.write(b"new")
        await nodes.replicated()
        assert b"new" in nodes.two.content()
        assert b"old" not in nodes.two.content()


async def test_deleted_records_go_at_the_follower_too() -> None:
    """And the leader learns of it, so that DeleteRecords can answer."""
    async with cluster() as nodes:
        nodes.publish(led_by(1, 0))
        partition = nodes.one.replicas.hosted.leader(TP)
        nodes.one.write(b"a", b"b", b"c")
        await nodes.replicated()
        assert nodes.one.replicas.deletions.delete_records(partition, 2) == 2
        await until(lambda: nodes.two.log().log_start_offset == 2)
        await until(lambda: partition.low_watermark() == 2)


async def test_a_follower_whose_records_are_deleted_at_the_leader_starts_over() -> None:
    """OFFSET_OUT_OF_RANGE, over the real ListOffsets."""
    async with cluster() as nodes:
        nodes.one.publish(led_by(1, 0, isr=(1,)))
        partition = nodes.one.replicas.hosted.leader(TP)
        nodes.one.write(*[b"x"] * 5)
        nodes.one.replicas.deletions.delete_records(partition, 3)
        nodes.two.publish(led_by(1, 0, isr=(1,)))
        await until(lambda: nodes.two.fetchers.lag == {TP: 0})
        await nodes.replicated()
        assert nodes.two.log().log_start_offset == 3


async def test_a_full_disk_delays_and_loses_nothing() -> None:
    """The follower asks again once there is room."""
    async with cluster(replica_fetch_backoff_ms="20") as nodes:
        nodes.publish(led_by(1, 0))
        nodes.one.replicas.hosted.leader(TP)
        await nodes.replicated()
        nodes.two.fs.fail("write", ".log", errno.ENOSPC)
        nodes.one.write(b"a")
        await trio.sleep(0.1)
        assert nodes.two.log().log_end_offset == 0
        nodes.two.fs.heal()
        await nodes.replicated()


async def test_a_throttled_replica_that_lags_waits_for_the_quota() -> None:
    """Others of the same leader go on meanwhile."""
    async with cluster() as nodes:
        name = Direction.FOLLOWER.replicas_config
        nodes.two.quota.set_topic("t", {name: "0:2"})
        nodes.two.quota.set_rate(1000)
        nodes.two.quota.record(1300)  # one second and a third
        nodes.one.publish(led_by(1, 0), led_by(1, 0, partition=1))
        nodes.one.replicas.hosted.leader(TP)
        nodes.one.replicas.hosted.leader(TopicPartition("t", 1))
        nodes.one.write(b"a")
        nodes.one.write(b"a", partition=1)
        nodes.two.publish(led_by(1, 0), led_by(1, 0, partition=1))
        await nodes.replicated(partition=1)
        assert nodes.two.log().log_end_offset == 0
        await nodes.replicated()
