"""Replicas that lead others, and that follow: what waits, what is proposed, what is kept."""

from __future__ import annotations

import errno
import io
import logging

import pytest
import trio

from kraftrio.base.deferred import run_waiting
from kraftrio.base.logging_setup import setup_logging
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.broker.replica.waiters import FetchWaiter, FetchWaiters
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch, records_of
from tests.unit.broker.replica.replica_context import LAG_MS, OTHER_ID, TOPIC_ID, TP, Broker


def change(**what: object) -> PartitionChangeRecord:
    """A change of t-0."""
    return PartitionChangeRecord(TOPIC_ID, 0, **what)  # type: ignore[arg-type]


def copied(*values: bytes, base_offset: int = 0, leader_epoch: int = 0) -> bytearray:
    """A batch as a leader answers it to a follower."""
    return batch(*values, base_offset=base_offset, leader_epoch=leader_epoch)


# -- leading --


def parked(broker: Broker, waiters: FetchWaiters, missing_bytes: int = 1) -> FetchWaiter:
    """A long poll that waits among these for a minute."""
    waiter = FetchWaiter(missing_bytes)
    waiter.park([waiters], broker.timers, 60_000)
    return waiter


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


async def test_late_followers_are_put_out_of_the_isr(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        end = broker.append()
        broker.fetched(3, end)
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, end, None, codes.append)
        await trio.sleep(2 * LAG_MS / 1000)
        [proposal] = broker.proposed
        assert (proposal.topic_partition, proposal.topic_id) == (TP, TOPIC_ID)
        assert [tuple(member) for member in proposal.isr] == [(1, 10), (3, 30)]
        assert not codes
        proposal.take()
        assert codes == [ErrorCode.NONE]


async def test_a_proposal_that_is_refused_over_and_over_is_told_once(
    autojump_clock: object,
) -> None:
    """What is proposed and that it is not taken: a line each, not a hundred."""
    log = io.StringIO()
    handler = setup_logging("INFO", log)
    broker = Broker()
    try:
        async with broker.running():
            broker.lead(isr=(1, 2))
            broker.fetched(3, 0)
            for round_number in range(100):
                broker.proposed[round_number].refuse(ErrorCode.REQUEST_TIMED_OUT)
                await trio.sleep(1)
    finally:
        logging.getLogger().removeHandler(handler)
    assert log.getvalue().count("propose isr") == 1
    assert log.getvalue().count("isr not taken") == 1
    assert log.getvalue().count("\n") == 2


async def test_proposals_are_sent_again_after_trouble(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        broker.fetched(3, 0)
        broker.proposed[0].refuse(ErrorCode.REQUEST_TIMED_OUT)
        assert len(broker.proposed) == 1
        await trio.sleep(1)
        assert len(broker.proposed) == 2 and broker.proposed[1].isr == broker.proposed[0].isr
        broker.proposed[1].refuse(ErrorCode.REQUEST_TIMED_OUT)
        broker.publish(change(isr=(1, 2, 3)))
        await trio.sleep(1)
        assert len(broker.proposed) == 2


async def test_a_new_leader_shows_what_was_known_to_be_committed() -> None:
    """It goes on from the high watermark that it had as a follower, once followers fetch."""
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        broker.replicas.follower_writes.append_as_follower(
            TP,
            copied(b"a", b"b", b"c"),
            0,
            leader_high_watermark=2,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        broker.publish(change(leader=1, isr=(1, 3)))
        assert partition.state.high_watermark == 2
        assert partition.state.offset_is_behind_epoch
        assert partition.log.leader_epoch_at(3) == 1
        broker.fetched(3, 3)
        assert partition.state.high_watermark == 3


async def test_deleted_records_wait_for_live_followers(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.lead()
        end = broker.append(4)
        broker.fetched(2, end)
        broker.fetched(3, end)
        waiter = parked(broker, partition.follower_waiters)
        assert broker.replicas.deletions.delete_records(partition, 3) == 3
        assert waiter.woken.done, "followers learn the new start by an answer"
        codes: list[ErrorCode] = []
        broker.replicas.deletions.when_deleted(partition, 3, 60_000, codes.append)
        broker.fetched(2, end, log_start_offset=3)
        assert not codes
        broker.publish(BrokerRegistrationChangeRecord(3, 30, fenced=True))
        assert codes == [ErrorCode.NONE]
        broker.replicas.deletions.delete_records(partition, 4)
        broker.replicas.deletions.when_deleted(partition, 4, 100, codes.append)
        await trio.sleep(1)
        assert codes[1:] == [ErrorCode.REQUEST_TIMED_OUT]


# -- following --


async def test_followers_keep_what_leaders_sent() -> None:
    """To the byte; with the leader's high watermark and log start as far as we have come."""
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2(epoch=3)
        assert broker.fetching == [(TP, TOPIC_ID, 2, 3)]
        assert partition.state.role is Role.FOLLOWER
        sent = bytes(copied(b"a", b"b", leader_epoch=3))
        broker.replicas.follower_writes.append_as_follower(
            TP,
            bytearray(sent),
            3,
            leader_high_watermark=7,
            leader_log_start_offset=1,
            topic_id=TOPIC_ID,
        )
        log = partition.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, 2, 2)
        assert partition.state.high_watermark == 2
        read = log.read(1, 1000, max_offset=2, min_one_batch=True)
        assert bytes(read.records) == sent
        broker.replicas.follower_writes.append_as_follower(
            TP,
            b"",
            3,
            leader_high_watermark=1,
            leader_log_start_offset=9,
            topic_id=TOPIC_ID,
        )
        assert (log.log_start_offset, log.high_watermark) == (2, 2)


@pytest.mark.parametrize(
    ("epoch", "topic_id", "expected"),
    [
        (2, TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH),
        (4, TOPIC_ID, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (3, OTHER_ID, ErrorCode.INCONSISTENT_TOPIC_ID),
    ],
)
async def test_followers_take_nothing_of_another_leadership(
    epoch: int, topic_id: bytes, expected: ErrorCode
) -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2(epoch=3)
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.append_as_follower(
                TP, copied(b"a", leader_epoch=2), epoch,
                leader_high_watermark=1, leader_log_start_offset=0, topic_id=topic_id,
            )  # fmt: skip
        assert caught.value.code is expected
        for cut in (
            broker.replicas.follower_writes.truncate,
            broker.replicas.follower_writes.truncate_fully_and_start_at,
        ):
            with pytest.raises(KafkaError) as caught:
                cut(TP, 0, epoch, topic_id)
            assert caught.value.code is expected
        assert partition.log.log_end_offset == 0


async def test_a_leader_is_no_follower() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.truncate(TP, 0, 0, TOPIC_ID)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.truncate(TopicPartition("none", 0), 0, 0, TOPIC_ID)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_truncation_takes_the_high_watermark_along() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        for offset in range(5):
            broker.replicas.follower_writes.append_as_follower(
                TP, copied(b"x", base_offset=offset), 0,
                leader_high_watermark=5, leader_log_start_offset=0, topic_id=TOPIC_ID,
            )  # fmt: skip
        broker.replicas.follower_writes.truncate(TP, 3, 0, TOPIC_ID)
        assert (partition.state.high_watermark, partition.log.log_end_offset) == (3, 3)
        broker.replicas.follower_writes.truncate_fully_and_start_at(TP, 40, 0, TOPIC_ID)
        assert (partition.state.high_watermark, partition.log.log_end_offset) == (40, 40)


async def test_a_cut_that_the_disk_stops_takes_the_high_watermark_along() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        for offset in range(5):
            broker.replicas.follower_writes.append_as_follower(
                TP, copied(b"x", base_offset=offset), 0,
                leader_high_watermark=5, leader_log_start_offset=0, topic_id=TOPIC_ID,
            )  # fmt: skip
        broker.fs.fail("sync", partition.log.directory, errno.ENOSPC)
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.truncate(TP, 3, 0, TOPIC_ID)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (3, 3)
        assert partition.state.high_watermark == 3


async def test_fetchers_are_told_of_each_leader_epoch() -> None:
    """Also of the same leader's, and when nobody leads; not of an ISR alone."""
    broker = Broker()
    async with broker.running():
        broker.follow_broker_2()
        broker.publish(change(isr=(2, 3)))
        broker.publish(change(leader=2))
        broker.publish(change(leader=-1))
        broker.publish(change(leader=3))
        assert broker.fetching == [
            (TP, TOPIC_ID, 2, 0),
            (TP, TOPIC_ID, 2, 1),
            (TP, b"", -1, -1),
            (TP, TOPIC_ID, 3, 3),
        ]


async def test_a_high_watermark_outlives_a_restart() -> None:
    """Of leaders and of followers, by replication-offset-checkpoint."""
    first = Broker()
    async with first.running():
        first.follow_broker_2()
        first.replicas.follower_writes.append_as_follower(
            TP,
            copied(b"a", b"b", b"c"),
            0,
            leader_high_watermark=2,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        first.publish(TopicRecord("led", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1, 2), (1, 2), 1))
        led = TopicPartition("led", 0)
        for _ in range(3):
            first.replicas.led.append_to_leader(led, batch(b"x"))
        first.replicas.isrs.on_follower_fetch(first.replicas.hosted.leader(led), 2, 20, 1, 0, 0)
        first.logs.write_checkpoints()
        assert b"\nled 0 1\n" in first.fs.read_file("/a/replication-offset-checkpoint")
        assert b"\nt 0 2\n" in first.fs.read_file("/a/replication-offset-checkpoint")
        first.logs.close()
        second = Broker(first.fs)
        second.publish(
            TopicRecord("t", TOPIC_ID),
            PartitionRecord(TOPIC_ID, 0, (1, 2, 3), (1, 2, 3), 1, leader_epoch=5),
        )
        assert second.replicas.hosted.leader(TP).state.high_watermark == 2


# -- what the controller decides --


async def test_a_topic_made_again_shares_nothing_with_the_first() -> None:
    broker = Broker()
    async with broker.running():
        old = broker.lead()
        broker.append(3)
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, 3, None, codes.append)
        broker.fetched(2, 0)
        broker.publish(
            RemoveTopicRecord(TOPIC_ID),
            TopicRecord("t", OTHER_ID),
            PartitionRecord(OTHER_ID, 0, (1, 2, 3), (1, 2), 1),
        )
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        new = broker.replicas.hosted.leader(TP)
        assert new is not old and new.topic_id == OTHER_ID and new.log.log_end_offset == 0
        assert old.state.role is Role.NONE
        broker.fetched(3, 0)
        assert broker.proposed[-1].topic_id == OTHER_ID


async def test_a_followed_topic_made_again(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.follow_broker_2()
        broker.replicas.follower_writes.append_as_follower(
            TP,
            copied(b"a"),
            0,
            leader_high_watermark=1,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        broker.publish(
            RemoveTopicRecord(TOPIC_ID),
            TopicRecord("t", OTHER_ID),
            PartitionRecord(OTHER_ID, 0, (1, 2, 3), (1, 2), 2),
        )
        await trio.sleep(1)
        assert broker.fetching[1:] == [(TP, b"", -1, -1), (TP, OTHER_ID, 2, 0)]
        with pytest.raises(KafkaError):
            broker.replicas.follower_writes.append_as_follower(
                TP, copied(b"b", base_offset=1), 0,
                leader_high_watermark=1, leader_log_start_offset=0, topic_id=TOPIC_ID,
            )  # fmt: skip
        partition = broker.replicas.hosted.partition(TP)
        assert partition is not None and partition.log.log_end_offset == 0


async def test_replicas_that_move_away_take_their_logs_along(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        broker.append()
        broker.publish(change(replicas=(2, 3), isr=(2, 3), leader=2))
        assert broker.replicas.hosted.partition(TP) is None and broker.made() == 0
        assert broker.fetching[-1] == (TP, b"", -1, -1)
        broker.publish(change(replicas=(1, 2, 3)))
        await trio.sleep(1)
        partition = broker.replicas.hosted.partition(TP)
        assert partition is not None and partition.log.log_end_offset == 0
        assert broker.fetching[-1] == (TP, TOPIC_ID, 2, 1)


async def test_a_bumped_epoch_wakes_parked_fetches() -> None:
    """They named the epoch before, and have to hear so."""
    broker = Broker()
    async with broker.running():
        partition = broker.lead()
        waiters = [
            parked(broker, partition.fetch_waiters),
            parked(broker, partition.follower_waiters),
        ]
        broker.publish(change(leader=1))
        assert all(waiter.woken.done for waiter in waiters)


# -- failed disks --


async def test_a_failed_directory_takes_its_replicas_alone(autojump_clock: object) -> None:
    broker = Broker(paths=("/a", "/b"))
    async with broker.running():
        broker.lead()
        broker.publish(
            TopicRecord("followed", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1, 2), (1, 2), 2)
        )
        await trio.sleep(1)
        followed = broker.replicas.hosted.partition(TopicPartition("followed", 0))
        led = broker.replicas.hosted.partition(TP)
        assert led is not None and followed is not None
        assert led.log.directory[:2] != followed.log.directory[:2]
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, broker.append(), None, codes.append)
        broker.fs.fail("write", led.log.directory, errno.EIO)
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                broker.append()
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert broker.replicas.failures.offline_partitions() == [TP]
        assert followed.state.role is Role.FOLLOWER
        broker.fetching.clear()
        broker.publish(change(leader=2))
        assert broker.fetching == []


async def test_a_leader_without_room_gives_way_and_follows_once_there_is_some(
    autojump_clock: object,
) -> None:
    broker = Broker(config=LogConfig(min_insync_replicas=2))
    async with broker.running():
        partition = broker.lead()
        end = broker.append(3)
        broker.fetched(2, end)
        broker.fs.fail("write", "/a/", errno.ENOSPC)
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                broker.append()
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.proposed == [], "broker 3 lacks a record"
        broker.fetched(3, end)
        for _ in range(2):
            with pytest.raises(KafkaError):
                broker.append()
        assert [[member.broker_id for member in p.isr] for p in broker.proposed] == [[2, 3]]
        broker.fetching.clear()
        broker.publish(change(leader=2, isr=(2, 3)))
        assert partition.state.role is Role.FOLLOWER
        await trio.sleep(10)
        assert broker.fetching == [(TP, b"", -1, -1)], "not followed while it could not write"
        broker.fs.heal()
        await trio.sleep(2)
        assert broker.fetching[1:] == [(TP, TOPIC_ID, 2, 1)]
        assert ".kraftrio-room" not in broker.fs.list_directory("/a")


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
        with pytest.raises(KafkaError) as caught:
            broker.append()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log.log_end_offset == 1
        broker.fs.heal()
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, 1, None, codes.append)
        if replicas != (1,):
            broker.fetched(2, 1)
        await trio.sleep(1)
        assert codes == [ErrorCode.NONE]


async def test_a_full_directory_concerns_what_lies_in_it_alone(autojump_clock: object) -> None:
    """What is taken away, or led again, while it waits is not followed later."""
    broker = Broker(paths=("/a", "/b"))
    async with broker.running():
        led = broker.lead()
        end = broker.append(3)
        broker.fetched(2, end)
        broker.fetched(3, end)
        broker.fs.fail("write", led.log.directory[:2], errno.ENOSPC)
        with pytest.raises(KafkaError):
            broker.append()
        broker.publish(change(leader=2, isr=(2, 3)))
        broker.fetching.clear()
        broker.publish(
            TopicRecord("followed", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1, 2), (1, 2), 2)
        )
        await trio.sleep(1)
        assert broker.fetching == [(TopicPartition("followed", 0), OTHER_ID, 2, 0)]
        broker.publish(change(leader=1, isr=(1, 2, 3)))
        broker.fs.heal()
        await trio.sleep(3)
        assert (TP, TOPIC_ID, 2, 1) not in broker.fetching
        assert broker.append() == end + 1


async def test_a_followed_replica_on_a_failed_disk_is_fetched_no_more() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        broker.fs.fail("write", partition.log.directory, errno.EIO)
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.append_as_follower(
                TP,
                copied(b"a"),
                0,
                leader_high_watermark=1,
                leader_log_start_offset=0,
                topic_id=TOPIC_ID,
            )
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.fetching[-1] == (TP, b"", -1, -1)
        broker.publish(change(leader=3))
        assert broker.fetching[-1] == (TP, b"", -1, -1)


async def test_a_full_disk_leaves_a_follower_in_service() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        broker.fs.fail("write", partition.log.directory, errno.ENOSPC)
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.append_as_follower(
                TP,
                copied(b"a"),
                0,
                leader_high_watermark=1,
                leader_log_start_offset=0,
                topic_id=TOPIC_ID,
            )
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        broker.fs.heal()
        broker.replicas.follower_writes.append_as_follower(
            TP,
            copied(b"a"),
            0,
            leader_high_watermark=1,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        read = partition.log.read(0, 1000, max_offset=1, min_one_batch=True)
        assert [record.value for record in records_of(read.records)] == [b"a"]
