"""Replicas become leaders, followers, or go away, and those who wait are answered."""

from __future__ import annotations

import pytest
import trio

from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.kraft_meta.metadata.records import (
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.replica.replica_context import (
    OTHER_ID,
    TOPIC_ID,
    TP,
    Broker,
    change,
    copied,
    parked,
)


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
        assert partition.log.leader_epochs.epoch_for_offset(3) == 1
        broker.fetched(3, 3)
        assert partition.state.high_watermark == 3


async def test_fetchers_are_notified_of_each_leader_epoch() -> None:
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
    """They named the epoch before, and have to get that error."""
    broker = Broker()
    async with broker.running():
        partition = broker.lead()
        waiters = [
            parked(broker, partition.fetch_waiters),
            parked(broker, partition.follower_waiters),
        ]
        broker.publish(change(leader=1))
        assert all(waiter.woken.done for waiter in waiters)
