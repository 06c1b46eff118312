"""Consumers that read from followers (KIP-392): how far, with which errors, and who sends them."""

from __future__ import annotations

from typing import Any

import trio
import trio.lowlevel

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.kraft_meta.metadata.records import PartitionRecord, RegisterBrokerRecord
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tests.support.logs import batch
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.api.data_context import SIZE, Handlers, part
from tests.unit.broker.replica.replica_context import TOPIC_ID, TP, Broker


def append_as_follower(broker: Broker, offset: int, high_watermark: int, epoch: int = 0) -> None:
    """Take over a batch of one record from the leader."""
    broker.replicas.follower_writes.append_as_follower(
        TP,
        batch(b"x", base_offset=offset, leader_epoch=epoch),
        epoch,
        leader_high_watermark=high_watermark,
        leader_log_start_offset=0,
        topic_id=TOPIC_ID,
    )
    run_waiting()


def consumer_fetch(
    handlers: Handlers,
    offset: int,
    *,
    rack: str = "",
    version: int = 17,
    session: tuple[int, int] = (0, -1),
    max_wait_ms: int = 500,
) -> Any:
    """A consumer's fetch of t-0 with its rack."""
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        rack_id=rack,
        topics=[
            FetchTopic(
                topic="t",
                topic_id=TOPIC_ID,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
                ],
            )
        ],
    )
    return handlers.fetches.fetch(request, context(version))


async def test_a_follower_serves_what_it_knows_to_be_committed() -> None:
    broker = Broker()
    broker.follow_broker_2()
    handlers = Handlers(broker)
    append_as_follower(broker, 0, 0)
    append_as_follower(broker, 1, 1)
    answer = part(handlers.fetch(0))
    assert (answer.error_code, answer.high_watermark, len(answer.records or b"")) == (0, 1, SIZE)
    assert part(handlers.fetch(1, max_wait_ms=0)).records == b""
    assert part(handlers.fetch(3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_leader_epochs_are_checked_there_as_well() -> None:
    broker = Broker()
    broker.follow_broker_2(epoch=4)
    handlers = Handlers(broker)
    assert part(handlers.fetch(0, leader_epoch=4, max_wait_ms=0)).error_code == 0
    assert part(handlers.fetch(0, leader_epoch=3)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part(handlers.fetch(0, leader_epoch=5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_older_versions_and_followers_need_the_leader() -> None:
    broker = Broker()
    broker.follow_broker_2()
    handlers = Handlers(broker)
    answer = part(consumer_fetch(handlers, 0, version=10))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part(handlers.fetch(0, 3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_long_poll_at_a_follower_ends_when_more_is_committed(
    autojump_clock: object,
) -> None:
    broker = Broker()
    async with broker.running():
        broker.follow_broker_2()
        handlers = Handlers(broker)
        parked = handlers.fetch(0)
        assert isinstance(parked, Deferred)
        append_as_follower(broker, 0, 0)
        assert not parked.done, "it is not committed yet"
        broker.replicas.follower_writes.append_as_follower(
            TP,
            b"",
            0,
            leader_high_watermark=1,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        await trio.lowlevel.checkpoint()
        assert len(part(parked).records or b"") == SIZE


async def test_a_long_poll_at_a_follower_ends_with_its_leader(autojump_clock: object) -> None:
    """The reader names the epoch it knows, and must learn of the new one."""
    broker = Broker()
    async with broker.running():
        broker.follow_broker_2()
        handlers = Handlers(broker)
        parked = handlers.fetch(0, leader_epoch=0)
        assert isinstance(parked, Deferred)
        broker.publish(PartitionRecord(TOPIC_ID, 0, (1, 2, 3), (1, 2, 3), 3, leader_epoch=1))
        await trio.lowlevel.checkpoint()
        assert part(parked).error_code == ErrorCode.FENCED_LEADER_EPOCH


def racks(broker: Broker, **racks: str) -> None:
    """Register the brokers again, each with its rack."""
    for name, rack in racks.items():
        number = int(name.removeprefix("b"))
        broker.publish(
            RegisterBrokerRecord(
                number, bytes([number]) * 16, 10 * number, (), rack=rack, fenced=False
            )
        )


async def test_the_leader_names_a_replica_in_the_readers_rack() -> None:
    """At once and without records; only one that is in sync and has what is asked for."""
    broker = Broker()
    racks(broker, b1="x", b2="y", b3="z")
    broker.lead(isr=(1, 2))
    handlers = Handlers(broker, selects_by_rack=True)
    broker.append(2)

    def answer(rack: str, offset: int = 0, version: int = 17) -> PartitionData:
        response = consumer_fetch(handlers, offset, rack=rack, version=version, max_wait_ms=0)
        encode(response, version)
        return part(response)

    assert answer("y").preferred_read_replica == -1, "nothing is known of its progress"
    broker.fetched(2, 2)
    named = answer("y")
    assert (named.preferred_read_replica, named.records, named.high_watermark) == (2, b"", 2)
    assert answer("y", version=11).preferred_read_replica == 2
    for rack in ("x", "z", "elsewhere", ""):
        near = answer(rack)
        assert (near.preferred_read_replica, len(near.records or b"")) == (-1, 2 * SIZE), rack
    assert part(Handlers(broker).fetch(0)).preferred_read_replica == -1


async def test_a_named_replica_is_news_in_a_session() -> None:
    broker = Broker()
    racks(broker, b1="x", b2="y")
    broker.lead(isr=(1, 2))
    handlers = Handlers(broker, selects_by_rack=True)
    broker.append(1)
    first = consumer_fetch(handlers, 0, rack="y", session=(0, 0), max_wait_ms=0)
    broker.fetched(2, 1)
    second = consumer_fetch(handlers, 0, rack="y", session=(first.session_id, 1))
    assert part(second).preferred_read_replica == 2
    third = consumer_fetch(handlers, 0, rack="y", session=(first.session_id, 2))
    assert part(third).preferred_read_replica == 2
