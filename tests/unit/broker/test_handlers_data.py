"""Fetch, ListOffsets, DeleteRecords and Produce of a partition with followers."""

from __future__ import annotations

import random

import pytest
import trio

from kraftrio.broker.context import RequestContext
from kraftrio.broker.fetch_session import FetchSessions
from kraftrio.broker.handlers_fetch import FetchHandlers
from kraftrio.broker.handlers_offsets import EARLIEST, LATEST, OffsetHandlers
from kraftrio.broker.handlers_produce import ProduceHandlers
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.memory_budget import MemoryBudget
from kraftrio.broker.producer_ids import ProducerIdManager
from kraftrio.kraft_meta.deferred import Deferred
from kraftrio.kraft_meta.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftrio.kraft_meta.topic_names import INTERNAL_TOPICS
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionData,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    ReplicaState,
    TopicProduceData,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.stored_bytes import StoredBytes
from tests.support.logs import batch, records_of
from tests.support.sliced import finish
from tests.unit.broker.cluster_context import context
from tests.unit.broker.replica_context import LAG_MS, OTHER_ID, TOPIC_ID, TP, Broker

SIZE = len(batch(b"x"))


class Handlers:
    """The data handlers of broker 1."""

    def __init__(self, broker: Broker, *, selects_by_rack: bool = False) -> None:
        self.broker = broker
        self.quota = Quota()
        self.answers_memory = MemoryBudget(1 << 20)
        self.fetches = FetchHandlers(
            broker.replicas,
            broker.metadata,
            FetchSessions(10, random.Random(1)),
            broker.timers,
            broker.clock,
            55_000_000,
            self.quota,
            self.answers_memory,
            selects_by_rack=selects_by_rack,
        )
        self.offsets = OffsetHandlers(broker.replicas)
        self.produces = ProduceHandlers(
            broker.replicas,
            broker.metadata,
            ProducerIdManager(1, lambda: 10, lambda request: Deferred()),
            broker.clock,
        )

    def fetch(
        self,
        offset: int,
        replica_id: int = -1,
        *,
        broker_epoch: int | None = None,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = 0,
        max_wait_ms: int = 500,
        session: tuple[int, int] = (0, -1),
        topic_ids: tuple[bytes, ...] = (TOPIC_ID,),
        asked: RequestContext | None = None,
    ) -> FetchResponse | Deferred[FetchResponse]:
        """Fetch partition 0 of topics, as a consumer or as a follower."""
        epoch = 10 * replica_id if broker_epoch is None else broker_epoch
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=replica_id, replica_epoch=epoch if replica_id >= 0 else -1
            ),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=last_fetched_epoch,
                            log_start_offset=log_start_offset,
                            partition_max_bytes=1_000_000,
                        )
                    ],
                )
                for topic_id in topic_ids
            ],
        )
        return self.fetches.fetch(request, asked or context(17))

    def produce(
        self, *topics: str, acks: int = -1, timeout_ms: int = 1000
    ) -> Deferred[list[tuple[ErrorCode, int]]]:
        """Produce one record to partition 0 of each topic; the errors and offsets."""
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name,
                    partition_data=[PartitionProduceData(index=0, records=memoryview(batch(b"x")))],
                )
                for name in topics
            ],
        )
        answers: Deferred[list[tuple[ErrorCode, int]]] = Deferred()
        response = self.produces.produce(request, context(12))
        assert response is not None
        if not isinstance(response, Deferred):
            response, done = Deferred(), response
            response.complete(done)
        response.then(
            lambda value: answers.complete(
                [
                    (ErrorCode(part.error_code), part.base_offset)
                    for topic in value.responses
                    for part in topic.partition_responses
                ]
            )
        )
        return answers

    def list_offsets(
        self, timestamp: int, *, version: int = 9, leader_epoch: int = -1, replica_id: int = -1
    ) -> ListOffsetsPartitionResponse:
        """Look for an offset of t-0."""
        request = ListOffsetsRequest(
            replica_id=replica_id,
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=0,
                            current_leader_epoch=leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        return finish(self.offsets.list_offsets(request, context(version))).topics[0].partitions[0]


class Quota:
    """A throttle of every partition, used up or not."""

    def __init__(self) -> None:
        self.throttles = False
        self.used_up = False
        self.recorded = 0

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return self.throttles

    def exceeded(self) -> bool:
        return self.used_up

    def record(self, size_bytes: int) -> None:
        self.recorded += size_bytes


def part(response: FetchResponse | Deferred[FetchResponse], index: int = 0) -> PartitionData:
    """The answer about one topic's partition; it must be there."""
    if isinstance(response, Deferred):
        assert response.done, "still parked"
        response = response.value
    assert response.error_code == ErrorCode.NONE
    return response.responses[index].partitions[0]


def part_response(response: FetchResponse | Deferred[FetchResponse]) -> FetchResponse:
    """An answer that must be there."""
    if isinstance(response, Deferred):
        assert response.done, "still parked"
        return response.value
    return response


async def test_consumers_see_what_is_committed_and_followers_all() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(3)
        broker.fetched(2, 3)
        broker.fetched(3, 1)
        seen = part(handlers.fetch(0))
        assert len(records_of(seen.records or b"")) == 1 and seen.high_watermark == 1
        seen = part(handlers.fetch(1, 3))
        assert len(records_of(seen.records or b"")) == 2


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
        broker.replicas.leader(TopicPartition("u", 0))
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
        assert broker.replicas.high_watermark(TP) == 1
        assert isinstance(first, Deferred) and not first.done
        await trio.sleep(0.6)
        assert part(first).high_watermark == 1


async def test_failed_fetches_tell_no_progress() -> None:
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
        progress = partition.state.progress(2)
        assert progress is not None and progress.log_end_offset == -1
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=1))
        broker.append(1)
        diverging = part(handlers.fetch(4, 2, last_fetched_epoch=0))
        assert diverging.diverging_epoch is not None
        assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 3)
        progress = partition.state.progress(2)  # in the new leader epoch
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
        progress = broker.replicas.leader(TP).state.progress(2)
        assert progress is not None and progress.log_end_offset == 0
        second = handlers.fetch(1, 2, session=(first.session_id, 1))
        assert progress.log_end_offset == 1
        assert isinstance(second, Deferred)
        broker.append(1)
        assert len(part(second).records or b"") == SIZE
        third = handlers.fetch(0, 2, session=(first.session_id, 2), topic_ids=(), max_wait_ms=0)
        assert len(part(third).records or b"") == SIZE, "nothing new was acknowledged"


class Follower:
    """Broker 2 with a session over t-0, fetching again and again from where it is."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.offset = 0
        first = handlers.fetch(0, 2, session=(0, 0), max_wait_ms=0)
        assert isinstance(first, FetchResponse)
        self.session_id, self.epoch = first.session_id, 0
        self.take(first)

    def take(self, response: FetchResponse) -> int:
        """Count what an answer brings; return how many partitions it tells of."""
        for topic in response.responses:
            self.offset += len(records_of(topic.partitions[0].records or b""))
        return len(response.responses)

    def fetch(self, *, named: bool, **how: int) -> FetchResponse | Deferred[FetchResponse]:
        self.epoch += 1
        return self.handlers.fetch(
            self.offset,
            2,
            session=(self.session_id, self.epoch),
            topic_ids=(TOPIC_ID,) if named else (),
            **how,  # type: ignore[arg-type]
        )

    async def idle(self, seconds: int) -> None:
        """Fetch with nothing to name, two times a second."""
        for _ in range(2 * seconds):
            response = self.fetch(named=False)
            assert isinstance(response, Deferred)
            self.take(await response.wait())


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
    """It has news to tell, and its connection is served in order."""
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


async def test_a_follower_hears_at_once_that_a_topic_is_unknown(autojump_clock: object) -> None:
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


async def test_a_quiet_follower_hears_of_commits_and_of_other_leaders(
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
        told = follower.fetch(named=False, max_wait_ms=0)
        assert part(told).high_watermark == 1
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


async def test_latest_offsets_after_an_election() -> None:
    """KIP-207: nobody sees the end of the log go back while the new leader finds out."""
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        broker.replicas.append_as_follower(
            TP, batch(b"a", b"b"), 0, leader_high_watermark=1, leader_log_start_offset=0
        )
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=1, isr=(1, 3)))
        handlers = Handlers(broker)
        future = 2**60
        for timestamp in (LATEST, future):
            assert handlers.list_offsets(timestamp).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            old = handlers.list_offsets(timestamp, version=4)
            assert old.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert handlers.list_offsets(EARLIEST).offset == 0
        assert handlers.list_offsets(0).offset == 0
        assert handlers.list_offsets(LATEST, replica_id=3).offset == 2
        broker.fetched(3, 2)
        assert partition.state.high_watermark == 2
        latest = handlers.list_offsets(LATEST)
        assert (latest.error_code, latest.offset, latest.leader_epoch) == (ErrorCode.NONE, 2, 1)
        assert handlers.list_offsets(future).offset == -1


@pytest.mark.parametrize(
    ("leader_epoch", "expected"),
    [
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_offsets_are_found_in_the_leader_epoch_asked(
    leader_epoch: int, expected: ErrorCode
) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1,))
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=1))
        answer = Handlers(broker).list_offsets(EARLIEST, leader_epoch=leader_epoch)
        assert answer.error_code == expected


def delete_records(
    handlers: Handlers, *, offset: int, timeout_ms: int
) -> Deferred[tuple[ErrorCode, int]]:
    """Delete the records of t-0 before an offset, which followers have to do, too."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
        ],
        timeout_ms=timeout_ms,
    )
    response = finish(handlers.offsets.delete_records(request, context(2)))
    answer: Deferred[tuple[ErrorCode, int]] = Deferred()
    assert isinstance(response, Deferred), "followers have to delete, too"
    response.then(
        lambda value: answer.complete(
            (
                ErrorCode(value.topics[0].partitions[0].error_code),
                value.topics[0].partitions[0].low_watermark,
            )
        )
    )
    return answer


async def test_delete_records_answers_with_the_low_watermark(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        end = broker.append(5)
        broker.fetched(2, end)
        broker.fetched(3, end)

        first = delete_records(handlers, offset=3, timeout_ms=1000)
        handlers.fetch(end, 2, log_start_offset=4)
        assert not first.done
        handlers.fetch(end, 3, log_start_offset=3)
        assert first.done and first.value == (ErrorCode.NONE, 3)
        second = delete_records(handlers, offset=-1, timeout_ms=100)
        await trio.sleep(1)
        assert second.value == (ErrorCode.REQUEST_TIMED_OUT, -1)


_MOVED_AWAY = PartitionChangeRecord(
    TOPIC_ID, 0, leader=2, isr=(2, 3), replicas=(2, 3), removing_replicas=()
)
_DELETED = RemoveTopicRecord(TOPIC_ID)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_MOVED_AWAY, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (PartitionChangeRecord(TOPIC_ID, 0, leader=2), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_DELETED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["replica moved away", "another replica leads", "topic deleted"],
)
async def test_whoever_waits_hears_where_the_partition_went(
    autojump_clock: object, change: MetadataRecord, expected: ErrorCode
) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION says that a topic is gone; one that moved is looked for."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(3)
        for follower in (2, 3):
            broker.fetched(follower, 3)
        produced = handlers.produce("t")
        deleted = delete_records(handlers, offset=2, timeout_ms=1000)
        confirmed: list[ErrorCode] = []
        broker.replicas.when_confirmed(TP, 1000, confirmed.append)
        consumed = handlers.fetch(3, leader_epoch=0)
        followed = handlers.fetch(4, 2)
        assert not produced.done and not deleted.done and not confirmed
        broker.publish(change)
        assert produced.done and produced.value == [(expected, -1)]
        assert deleted.done and deleted.value == (expected, -1)
        assert confirmed == [expected]
        still_here = isinstance(change, PartitionChangeRecord) and not change.replicas
        for fetched in (consumed, followed):
            answer = part(fetched)
            if still_here and fetched is consumed:  # it could go on reading here (KIP-392)
                assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
            else:
                assert answer.error_code == expected
            leader = -1 if expected is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else 2
            assert ((answer.current_leader and answer.current_leader.leader_id) or -1) == leader


async def refused_by_sequence(broker: Broker, handlers: Handlers) -> Deferred[int]:
    """A producer's batch that this leader, with what it knows, finds out of order."""
    broker.replicas.append_to_leader(TP, batch(b"x", producer_id=7, producer_epoch=0, sequence=0))
    out_of_order = batch(b"x", producer_id=7, producer_epoch=0, sequence=5)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[PartitionProduceData(index=0, records=memoryview(out_of_order))],
            )
        ],
    )
    response = handlers.produces.produce(request, context(12))
    assert isinstance(response, Deferred)
    code: Deferred[int] = Deferred()
    response.then(lambda value: code.complete(value.responses[0].partition_responses[0].error_code))
    return code


async def test_sequences_are_refused_by_a_leader_that_is_followed(autojump_clock: object) -> None:
    """Each member of the ISR fetches once more, as soon as it is answered."""
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2, 3))
        handlers = Handlers(broker)
        follower = Follower(handlers)
        parked = follower.fetch(named=False)
        assert isinstance(parked, Deferred) and not parked.done
        code = await refused_by_sequence(broker, handlers)
        assert parked.done, "the append has woken it already"
        follower.take(parked.value)
        handlers.fetch(1, 3)
        follower.take(part_response(follower.fetch(named=True)))  # perhaps sent before
        follower.fetch(named=True)
        assert not code.done, "broker 3 may have been made leader"
        handlers.fetch(1, 3)
        assert code.done and code.value == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_parked_follower_shows_at_once_that_it_follows(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        handlers.quota.throttles = False
        follower = Follower(handlers)
        broker.replicas.append_to_leader(
            TP, batch(b"x", producer_id=7, producer_epoch=0, sequence=0)
        )
        follower.take(part_response(follower.fetch(named=False)))
        parked = follower.fetch(named=True)
        assert isinstance(parked, Deferred) and not parked.done
        codes: list[ErrorCode] = []
        broker.replicas.when_confirmed(TP, 30_000, codes.append)
        assert parked.done and not codes
        follower.take(parked.value)
        assert isinstance(follower.fetch(named=False), Deferred), "and it may wait again"
        assert codes == [ErrorCode.NONE]


async def test_sequences_are_not_judged_by_a_leader_that_nobody_follows(
    autojump_clock: object,
) -> None:
    """It was cut off, and another one may lead since: the producer has to look."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        alone = await refused_by_sequence(broker, handlers)
        await trio.sleep(1)
        assert not alone.done
        await trio.sleep(2)
        assert alone.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_sequences_are_not_judged_by_a_deposed_leader(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        deposed = await refused_by_sequence(broker, handlers)
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=2))
        assert deposed.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_sequences_are_not_judged_by_fetches_in_another_leader_epoch(
    autojump_clock: object,
) -> None:
    """Another one may have led between the two, though we heard of both changes at once."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        refused = await refused_by_sequence(broker, handlers)
        broker.publish(
            PartitionChangeRecord(TOPIC_ID, 0, leader=2),
            PartitionChangeRecord(TOPIC_ID, 0, leader=1),
        )
        assert refused.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_sequences_are_judged_by_the_last_in_the_isr(autojump_clock: object) -> None:
    """No other can lead, and whoever is put out of the ISR is waited for no more."""
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        code = await refused_by_sequence(broker, handlers)
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, isr=(1,)))
        assert code.value == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        codes: list[ErrorCode] = []
        broker.replicas.when_confirmed(TP, 1000, codes.append)
        assert codes == [ErrorCode.NONE]


async def test_produce_with_too_few_replicas(autojump_clock: object) -> None:
    broker = Broker(config=LogConfig(min_insync_replicas=2))
    async with broker.running():
        broker.lead(isr=(1, 2))
        handlers = Handlers(broker)
        late = handlers.produce("t", timeout_ms=100)
        await trio.sleep(1)
        assert late.value == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, isr=(1,)))
        assert handlers.produce("t").value == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
        assert handlers.produce("t", acks=1).value == [(ErrorCode.NONE, 1)]


# -- internal topics, and producers -----------------------------------------------------------


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("version", [3, 12, 13])
async def test_internal_topics_are_written_by_brokers_and_tools_alone(
    topic: str, version: int
) -> None:
    """INVALID_TOPIC_EXCEPTION for anybody else; a partition that is not there comes first."""
    broker = Broker()
    broker.publish(TopicRecord(topic, TOPIC_ID), PartitionRecord(TOPIC_ID, 0, (1,), (1,), 1))
    handlers = Handlers(broker)

    def produce(client_id: str | None) -> list[int]:
        asked = context(version)
        asked.client_id = client_id
        topic_data = TopicProduceData(
            name="" if version == 13 else topic,
            topic_id=TOPIC_ID,
            partition_data=[
                PartitionProduceData(index=index, records=memoryview(batch(b"x")))
                for index in (0, 9)
            ],
        )
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic_data])
        response = handlers.produces.produce(request, asked)
        assert isinstance(response, ProduceResponse)
        return [one.error_code for one in response.responses[0].partition_responses]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for client_id in ("app", None, ""):
        assert produce(client_id) == [ErrorCode.INVALID_TOPIC_EXCEPTION, unknown]
    assert broker.replicas.log(TopicPartition(topic, 0)).log_end_offset == 0
    assert produce("__admin_client") == [ErrorCode.NONE, unknown]


async def test_producers_are_described_by_every_replica() -> None:
    """A follower knows them, too, and a replica that nobody has asked for yet; others do not."""
    broker = Broker()
    async with broker.running():
        handlers = Handlers(broker)

        def describe(topic: str = "t") -> tuple[int, list[int]]:
            request = DescribeProducersRequest(
                topics=[DescribeProducersTopicRequest(name=topic, partition_indexes=[0])]
            )
            response = handlers.produces.describe_producers(request, context(0))
            (answer,) = response.topics[0].partitions
            return answer.error_code, [one.producer_id for one in answer.active_producers]

        broker.publish(
            TopicRecord("t", TOPIC_ID), PartitionRecord(TOPIC_ID, 0, (1, 2, 3), (1, 2, 3), 2)
        )
        assert describe() == (ErrorCode.NONE, [])
        broker.replicas.append_as_follower(
            TP,
            batch(b"x", producer_id=7, producer_epoch=0, sequence=0),
            0,
            leader_high_watermark=0,
            leader_log_start_offset=0,
        )
        assert describe() == (ErrorCode.NONE, [7])
        broker.publish(TopicRecord("u", OTHER_ID), PartitionRecord(OTHER_ID, 0, (2, 3), (2, 3), 2))
        assert describe("u") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        assert describe("none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        broker.replicas.go_offline([TP])
        assert describe() == (ErrorCode.KAFKA_STORAGE_ERROR, [])
