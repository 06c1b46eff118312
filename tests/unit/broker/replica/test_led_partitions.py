"""Appends to what is led here: who is woken, and what acks=all waits for."""

from __future__ import annotations

import errno

import pytest
import trio

from kraftrio.base.deferred import run_waiting
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.ports import UnflushedError
from kraftrio.kraft_meta.metadata.records import (
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.support.logs import batch
from tests.unit.broker.replica.replica_context import (
    TOPIC_ID,
    TP,
    Broker,
    change,
    parked,
)


async def test_acks_wait_for_the_whole_isr() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        codes: list[ErrorCode] = []
        end = broker.append(2)
        broker.replicas.led.when_committed(TP, end, None, codes.append)
        broker.fetched(2, end)
        broker.fetched(3, end - 1)
        assert not codes and not broker.replicas.led.is_committed(TP, end)
        broker.fetched(3, end)
        assert codes == [ErrorCode.NONE] and broker.replicas.led.is_committed(TP, end)
        assert broker.replicas.led.log(TP).high_watermark == end


async def test_acks_that_do_not_come_time_out(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        codes: list[ErrorCode] = []
        deadline_ms = broker.clock.monotonic_ms() + 100
        broker.replicas.led.when_committed(TP, broker.append(), deadline_ms, codes.append)
        await trio.sleep(1)
        assert codes == [ErrorCode.REQUEST_TIMED_OUT]


async def test_acks_of_a_deposed_leader() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, broker.append(), None, codes.append)
        broker.publish(change(leader=2))
        broker.replicas.led.when_committed(TP, 1, None, codes.append)
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        assert broker.fetching == [(TP, b"", -1, -1), (TP, TOPIC_ID, 2, 1)]


async def test_acks_with_too_few_replicas() -> None:
    """Refused before the append; and after it where the ISR has shrunk since."""
    broker = Broker(config=LogConfig(min_insync_replicas=2))
    async with broker.running():
        broker.lead()
        end = broker.append()
        broker.fetched(2, end)
        broker.fetched(3, end)
        broker.publish(change(isr=(1,)))
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, end, None, codes.append)
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        assert not broker.replicas.led.is_committed(TP, end)
        with pytest.raises(KafkaError) as caught:
            broker.append()
        assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_fewer_demanded_replicas_commit_at_once() -> None:
    broker = Broker(config=LogConfig(min_insync_replicas=2))
    async with broker.running():
        broker.lead(isr=(1,))
        broker.replicas.led.append_to_leader(TP, batch(b"x"), required_acks=1)
        assert broker.replicas.hosted.leader(TP).state.high_watermark == 0
        broker.config = LogConfig(min_insync_replicas=1)
        broker.replicas.metadata_changes.update_configs(["t"])
        assert broker.replicas.hosted.leader(TP).state.high_watermark == 1


async def test_consumers_wake_by_commits_and_followers_by_appends() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.lead()
        woken: list[str] = []
        parked(broker, partition.fetch_waiters).woken.then(lambda _: woken.append("consumer"))
        for name in ("follower 2", "follower 3"):
            waiter = parked(broker, partition.follower_waiters)
            waiter.woken.then(lambda _, name=name: woken.append(name))  # type: ignore[misc]
        end = broker.append()
        assert woken == ["follower 2", "follower 3"]
        broker.fetched(2, end)
        broker.fetched(3, end)
        assert woken[2:] == ["consumer"]
        assert not partition.fetch_waiters and not partition.follower_waiters


async def test_followers_are_woken_once_for_several_appends() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.lead()
        woken: list[int] = []
        waiter = parked(broker, partition.follower_waiters)
        waiter.woken.then(lambda _: woken.append(partition.log.log_end_offset))
        for _ in range(3):
            broker.replicas.led.append_to_leader(TP, batch(b"x"), wake_followers=False)
        assert waiter.is_parked
        broker.replicas.led.wake_followers()
        run_waiting()
        assert woken == [3]


async def test_a_consumer_waits_for_as_many_bytes_as_it_asked_for() -> None:
    """Commits are counted in the bytes of the appends that they reach."""
    broker = Broker()
    async with broker.running():
        partition = broker.lead(isr=(1, 2))
        size = len(batch(b"x"))
        waiter = parked(broker, partition.fetch_waiters, 2 * size)
        broker.append(3)
        broker.fetched(2, 1)
        assert waiter.is_parked
        broker.fetched(2, 2)
        assert waiter.woken.done


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
async def test_a_batch_whose_flush_failed_is_committed_all_the_same(
    replicas: tuple[int, ...], autojump_clock: object
) -> None:
    """It is in the log: its producer sends it again, and waits for a duplicate."""
    broker = Broker(config=LogConfig(flush_messages=1))
    async with broker.running():
        broker.publish(
            TopicRecord("t", TOPIC_ID), PartitionRecord(TOPIC_ID, 0, replicas, replicas, 1)
        )
        partition = broker.replicas.hosted.leader(TP)
        broker.fs.fail("sync", partition.log.directory, errno.EMFILE)
        with pytest.raises(UnflushedError) as caught:
            broker.append()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert caught.value.base_offset == 0
        assert partition.log.log_end_offset == 1
        broker.fs.heal()
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, 1, None, codes.append)
        if replicas != (1,):
            broker.fetched(2, 1)
        await trio.sleep(1)
        assert codes == [ErrorCode.NONE]


async def test_what_could_not_be_written_is_not_in_the_log() -> None:
    """Its caller must be able to distinguish that from a flush that failed."""
    broker = Broker()
    async with broker.running():
        partition = broker.lead()
        broker.fs.fail("write", partition.log.directory, errno.ENOSPC)
        with pytest.raises(KafkaError) as caught:
            broker.append()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not isinstance(caught.value, UnflushedError)
        assert partition.log.log_end_offset == 0
