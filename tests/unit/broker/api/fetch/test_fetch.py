"""Fetch of a partition with followers, by them and by consumers."""

from __future__ import annotations

import errno

import pytest
import trio

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.kraft_meta.metadata.quota_image import quota_entity
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    FetchResponse,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from kraftrio.wire.stored_bytes import StoredBytes
from tests.support.logs import batch, records_of
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.api.data_context import SIZE, Follower, Handlers, part, part_response
from tests.unit.broker.replica.replica_context import (
    LAG_MS,
    OTHER_ID,
    TOPIC_ID,
    TP,
    Broker,
    change,
    topic,
)


async def test_consumers_see_what_is_committed_and_followers_all() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(3)
        broker.fetched(2, 3)
        broker.fetched(3, 1)
        seen = part(handlers.fetch(0))
        assert len(records_of(records_view(seen.records))) == 1 and seen.high_watermark == 1
        seen = part(handlers.fetch(1, 3))
        assert len(records_of(records_view(seen.records))) == 2


@pytest.mark.parametrize("has_room", [True, False])
async def test_records_stay_where_they_are(has_room: bool) -> None:
    """An answer holds a little of each partition at most, and nothing while memory is short."""
    broker = Broker()
    async with broker.running():
        broker.lead((1,))
        handlers = Handlers(broker)
        if not has_room:
            handlers.answers_memory.share(lambda: None, lambda: None).hold(1 << 20)
        count = 20_000 // SIZE
        broker.append(count)
        records = part(handlers.fetch(0)).records
        assert isinstance(records, StoredBytes)
        assert len(records_of(records.read(0, len(records)))) == count
        records = part(handlers.fetch(count - 2)).records
        assert isinstance(records, StoredBytes) is not has_room
        assert len(records or b"") == 2 * SIZE


async def test_a_followers_answer_has_the_high_watermark_that_its_fetch_made() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        broker.append(1)
        parked = handlers.produce("t")
        assert part(handlers.fetch(1, 2)).high_watermark == 1
        assert not parked.done
        follower = handlers.fetch(2, 2)
        assert parked.done and parked.value == [(ErrorCode.NONE, 1)]
        assert isinstance(follower, Deferred) and not follower.done


async def test_parked_followers_wake_by_one_request_once(autojump_clock: object) -> None:
    """A request with several partitions is answered to them as a whole."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        broker.publish(
            TopicRecord("u", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1, 2, 3), (1, 2, 3), 1)
        )
        broker.replicas.hosted.leader(TopicPartition("u", 0))
        handlers = Handlers(broker)
        parked = [
            handlers.fetch(0, follower, topic_ids=(TOPIC_ID, OTHER_ID)) for follower in (2, 3)
        ]
        handlers.produce("t", "u")
        for response in parked:
            assert [len(part(response, index).records or b"") for index in (0, 1)] == [SIZE, SIZE]


async def test_parked_followers_do_not_wake_by_commits(autojump_clock: object) -> None:
    """The high watermark goes along with the next records, or when the time is up."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(1)
        first = handlers.fetch(1, 2)
        handlers.fetch(1, 3)
        assert broker.replicas.hosted.leader(TP).state.high_watermark == 1
        assert isinstance(first, Deferred) and not first.done
        await trio.sleep(0.6)
        assert part(first).high_watermark == 1


async def test_failed_fetches_are_no_progress() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.lead()
        handlers = Handlers(broker)
        broker.append(3)
        assert part(handlers.fetch(4, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        diverging = part(handlers.fetch(3, 2, last_fetched_epoch=7))
        assert diverging.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        fenced = part(handlers.fetch(3, 2, leader_epoch=3))
        assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        progress = partition.state.followers.get(2)
        assert progress is not None and progress.log_end_offset == -1
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=1))
        broker.append(1)
        diverging = part(handlers.fetch(4, 2, last_fetched_epoch=0))
        assert diverging.diverging_epoch is not None
        assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 3)
        progress = partition.state.followers.get(2)  # in the new leader epoch
        assert progress is not None and progress.log_end_offset == -1
        part(handlers.fetch(3, 2, last_fetched_epoch=0))
        assert progress.log_end_offset == 3


@pytest.mark.parametrize(
    ("replica_id", "broker_epoch", "leader_epoch", "expected"),
    [
        (2, 20, 0, ErrorCode.NONE),
        (2, -1, 0, ErrorCode.NONE),
        (2, 19, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # a former life of broker 2
        (4, 40, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),  # a reassignment that we have not heard of?
        (4, 40, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_who_may_fetch_as_a_follower(
    replica_id: int, broker_epoch: int, leader_epoch: int, expected: ErrorCode
) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(1)
        answer = part(
            handlers.fetch(
                0, replica_id, broker_epoch=broker_epoch, leader_epoch=leader_epoch, max_wait_ms=0
            )
        )
        assert answer.error_code == expected


async def test_no_follower_fetches_from_a_follower() -> None:
    broker = Broker()
    async with broker.running():
        broker.follow_broker_2()
        handlers = Handlers(broker)
        answer = part(handlers.fetch(0, 3))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader is not None and answer.current_leader.leader_id == 2


async def test_a_session_of_a_follower_goes_on_with_what_it_has(autojump_clock: object) -> None:
    """Only changed partitions are named, and progress is noted all the same."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(1)
        first = handlers.fetch(0, 2, session=(0, 0))
        assert isinstance(first, FetchResponse) and first.session_id
        progress = broker.replicas.hosted.leader(TP).state.followers.get(2)
        assert progress is not None and progress.log_end_offset == 0
        second = handlers.fetch(1, 2, session=(first.session_id, 1))
        assert progress.log_end_offset == 1
        assert isinstance(second, Deferred)
        broker.append(1)
        assert len(part(second).records or b"") == SIZE
        third = handlers.fetch(0, 2, session=(first.session_id, 2), topic_ids=(), max_wait_ms=0)
        assert len(part(third).records or b"") == SIZE, "nothing new was acknowledged"


async def test_a_quiet_partition_wakes_a_follower_at_once(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        broker.append(1)
        follower = Follower(Handlers(broker))
        assert follower.offset == 1
        follower.take(part_response(follower.fetch(named=True, max_wait_ms=0)))
        await follower.idle(3)
        for offset in range(1, 4):
            parked = follower.fetch(named=offset > 1)
            assert isinstance(parked, Deferred) and not parked.done
            broker.append(1)
            assert follower.take(part_response(parked)) == 1
            assert follower.offset == offset + 1


async def test_a_follower_that_asks_again_is_answered_first(autojump_clock: object) -> None:
    """It has news to return, and its connection is served in order."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        follower = Follower(Handlers(broker))
        follower.take(part_response(follower.fetch(named=True, max_wait_ms=0)))
        parked = follower.fetch(named=True)
        assert isinstance(parked, Deferred) and not parked.done
        again = follower.fetch(named=True)
        assert parked.done
        assert isinstance(again, Deferred) and not again.done


async def test_a_follower_is_answered_at_once_that_a_topic_is_unknown(
    autojump_clock: object,
) -> None:
    """A consumer waits out its long poll, so that it does not spin."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        answer = handlers.fetch(0, 2, topic_ids=(TOPIC_ID, OTHER_ID))
        assert isinstance(answer, FetchResponse)
        codes = [topic.partitions[0].error_code for topic in answer.responses]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
        assert isinstance(handlers.fetch(0, topic_ids=(TOPIC_ID, OTHER_ID)), Deferred)


async def test_readers_of_committed_records_wait_for_the_stable_offset(
    autojump_clock: object,
) -> None:
    """What an open transaction writes does not wake them: it would, again and again."""
    broker = Broker()
    broker.publish(*topic(1))
    handlers = Handlers(broker)

    def send(producer_id: int, sequence: int, *, transactional: bool) -> None:
        records = batch(
            b"x",
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequence,
            transactional=transactional,
        )
        broker.replicas.led.append_to_leader(TP, records)
        run_waiting()

    def fetch(offset: int, min_bytes: int = 1) -> Deferred[FetchResponse]:
        response = handlers.fetch(
            offset, isolation_level=1, max_wait_ms=60_000, min_bytes=min_bytes
        )
        assert isinstance(response, Deferred)
        return response

    async with broker.running():
        waits = fetch(0)
        send(7, 0, transactional=False)
        assert part(waits).last_stable_offset == 1, "there is no transaction"
        waits, wants_more = fetch(1), fetch(1, min_bytes=4 * SIZE)
        send(8, 0, transactional=True)
        send(7, 1, transactional=False)
        assert not waits.done
        broker.replicas.led.append_to_leader(
            TP,
            build_end_transaction_batch(8, 0, EndTransactionMarker(True, 0), timestamp=0),
            origin=AppendOrigin.COORDINATOR,
        )
        run_waiting()
        answer = part(waits)
        assert answer.last_stable_offset == 4 and answer.records
        assert not wants_more.done, "two batches and a marker are less than four batches"
        send(7, 2, transactional=False)
        assert part(wants_more).last_stable_offset == 5
        waits = fetch(5)
        broker.publish(change(leader=2))
        assert waits.done
        assert not broker.replicas.hosted.find(TP).stable_waiters.waiting


async def test_the_long_poll_of_a_client_that_is_gone_is_dropped(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.lead()
        handlers = Handlers(broker)
        asked = context(17)
        waits = handlers.fetch(0, max_wait_ms=2**31 - 1, asked=asked)
        assert isinstance(waits, Deferred)
        assert len(partition.fetch_waiters) == 1
        asked.client.closed()
        assert not partition.fetch_waiters
        broker.append(1)
        assert not waits.done


async def test_a_follower_of_a_quiet_partition_is_not_late(autojump_clock: object) -> None:
    """It fetched all the time, though its fetches did not name the partition."""
    broker = Broker()
    async with broker.running():
        partition = broker.lead(isr=(1, 2))
        follower = Follower(Handlers(broker))
        await follower.idle(3 * LAG_MS // 1000)
        broker.append(1)
        state = partition.state
        assert state.check_isr(broker.clock.monotonic_ms()) is None
        follower.take(part_response(follower.fetch(named=False)))
        follower.take(part_response(follower.fetch(named=True, max_wait_ms=0)))
        assert state.high_watermark == 1
        await trio.sleep(3 * LAG_MS / 1000)
        assert not broker.proposed
        broker.append(1)
        assert state.check_isr(broker.clock.monotonic_ms()) is not None


async def test_a_quiet_follower_joins_the_isr_when_it_may(autojump_clock: object) -> None:
    """Who is fenced, or put out, while its partitions are quiet comes back by its next fetch."""
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        follower = Follower(Handlers(broker))
        await follower.idle(1)
        broker.publish(
            BrokerRegistrationChangeRecord(2, 20, fenced=True),
            PartitionChangeRecord(TOPIC_ID, 0, isr=(1,)),
        )
        await follower.idle(1)
        assert not broker.proposed
        broker.publish(BrokerRegistrationChangeRecord(2, 20, fenced=False))
        await follower.idle(1)
        assert [member.broker_id for member in broker.proposed[0].isr] == [1, 2]


async def test_a_quiet_follower_learns_of_commits_and_of_other_leaders(
    autojump_clock: object,
) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(1)
        follower = Follower(handlers)
        follower.take(part_response(follower.fetch(named=True, max_wait_ms=0)))
        quiet = follower.fetch(named=False, max_wait_ms=0)
        assert isinstance(quiet, FetchResponse) and not quiet.responses
        handlers.fetch(1, 3)
        updated = follower.fetch(named=False, max_wait_ms=0)
        assert part(updated).high_watermark == 1
        quiet = follower.fetch(named=False, max_wait_ms=0)
        assert isinstance(quiet, FetchResponse) and not quiet.responses
        parked = follower.fetch(named=False)
        assert isinstance(parked, Deferred)
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=3))
        assert part(parked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_throttled_followers_wait_outside_of_the_isr_only(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        handlers.quota.throttles = handlers.quota.used_up = True
        broker.append(2)
        assert len(part(handlers.fetch(0, 2)).records or b"") == 2 * SIZE
        broker.fetched(2, 2)
        held = handlers.fetch(0, 3)
        assert isinstance(held, Deferred)
        broker.append(1)
        assert not held.done
        await trio.sleep(0.6)
        assert part(held).records == b"" and part(held).high_watermark == 2
        assert handlers.quota.recorded == 2 * SIZE
        handlers.quota.used_up = False
        assert len(part(handlers.fetch(0, 3)).records or b"") == 3 * SIZE
        assert handlers.quota.recorded == 5 * SIZE
        handlers.quota.throttles, handlers.quota.used_up = False, True
        assert len(part(handlers.fetch(0, 3)).records or b"") == 3 * SIZE
        assert handlers.quota.recorded == 5 * SIZE


async def test_a_follower_that_is_being_taken_into_the_isr_is_not_throttled() -> None:
    """The high watermark waits for it from the proposal on, and producers with it."""
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        handlers.quota.throttles = handlers.quota.used_up = True
        broker.fetched(3, 0)
        assert [one.broker_id for one in broker.proposed[-1].isr] == [1, 2, 3]
        broker.append(1)
        assert len(part(handlers.fetch(0, 3)).records or b"") == SIZE


def hold_to(handlers: Handlers, bytes_per_second: float) -> None:
    entity = quota_entity({"user": None})
    handlers.throttle.quotas.change({entity: {"consumer_byte_rate": bytes_per_second}})


def answered(fetched: FetchResponse | Deferred[FetchResponse]) -> tuple[int, int, int]:
    """How long to wait, in which session, and how many records there are."""
    response = fetched.value if isinstance(fetched, Deferred) else fetched
    parts = [one for topic in response.responses for one in topic.partitions]
    count = sum(len(records_of(records_view(one.records))) for one in parts)
    return response.throttle_time_ms, response.session_id, count


async def test_a_consumer_gets_no_more_at_once_than_its_quota_allows() -> None:
    """Nothing for as long as that would make it wait, and then the same again."""
    broker = Broker()
    async with broker.running():
        broker.lead((1,))
        handlers = Handlers(broker)
        broker.append(100)
        hold_to(handlers, SIZE)  # ten at once
        assert answered(handlers.fetch(0)) == (0, 0, 10)
        wait_ms, session, count = answered(handlers.fetch(10))
        assert (wait_ms > 9000, session, count) == (True, 0, 0)
        assert answered(handlers.fetch(10, replica_id=-2))[0] > 9000
        hold_to(handlers, 100 * SIZE)
        assert answered(handlers.fetch(10)) == (0, 0, 90)


async def test_a_batch_above_all_windows_of_a_quota_still_comes() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead((1,))
        handlers = Handlers(broker)
        broker.append(2)
        hold_to(handlers, 1)
        wait_ms, _, count = answered(handlers.fetch(0))
        assert (wait_ms > 10_000, count) == (True, 1)
        assert answered(handlers.fetch(1))[2] == 0


async def test_the_session_of_a_consumer_that_waits_stays_as_it_was() -> None:
    """It misses nothing; a new one is not made, since an answer without partitions makes none."""
    broker = Broker()
    async with broker.running():
        broker.lead((1,))
        handlers = Handlers(broker)
        broker.append(100)
        hold_to(handlers, SIZE)
        _, session, count = answered(handlers.fetch(0, session=(0, 0)))
        assert (session > 0, count) == (True, 10)
        wait_ms, same, count = answered(handlers.fetch(10, session=(session, 1)))
        assert (wait_ms > 0, same, count) == (True, session, 0)
        assert answered(handlers.fetch(10, session=(0, 0)))[1:] == (0, 0)
        assert len(handlers.sessions) == 1
        hold_to(handlers, 1000 * SIZE)
        assert answered(handlers.fetch(10, session=(session, 2))) == (0, session, 90)


async def test_followers_have_no_quota() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(100)
        hold_to(handlers, 1)
        assert answered(handlers.fetch(0, 2)) == (0, 0, 100)


async def test_aborted_transactions_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the records themselves: an error of the partition, and no partial answer."""
    broker = Broker()
    broker.publish(*topic(1))
    handlers = Handlers(broker)

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with broker.running():
        broker.replicas.led.append_to_leader(TP, batch(b"x"))
        run_waiting()
        log = broker.replicas.hosted.leader(TP).log
        monkeypatch.setattr(type(log), "aborted_transactions", fail)
        answer = part(handlers.fetch(0, isolation_level=1))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not answer.records and not answer.aborted_transactions
        monkeypatch.undo()
        assert len(part(handlers.fetch(0, isolation_level=1)).records or b"") == SIZE
