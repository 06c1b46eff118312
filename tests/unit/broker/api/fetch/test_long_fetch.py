"""Fetches of very many partitions, in parts: the same answers as at once, and nothing lost between.

What counts as very many is set to one, so that small requests show it.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import pytest
import trio

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.api.fetch import long_fetch
from kraftrio.kraft_meta.metadata.quota_image import quota_entity
from kraftrio.kraft_meta.metadata.records import PartitionRecord, TopicRecord
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.api.data_context import Handlers
from tests.unit.broker.replica.replica_context import OTHER_ID, TOPIC_ID, Broker

COUNT = 12
_UNKNOWN_ID = b"9" * 16
_VERSION = 17


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Limit]:
    yield Limit(monkeypatch)


class Limit:
    """Above how many partitions a fetch is worked on in parts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(long_fetch, "_READ_AT_ONCE", 1)

    def set(self, count: int) -> None:
        self._monkeypatch.setattr(long_fetch, "PART_ENTRIES", count)


class Side:
    """A broker that leads the partitions of `t`, follows in `u`, and is asked in one of two ways.

    Args:
        most: partitions that are read at once.
    """

    def __init__(self, limit: Limit, most: int) -> None:
        self.broker = Broker()
        self.limit, self.most = limit, most
        self.handlers = Handlers(self.broker)
        self.asked = context(_VERSION)
        self.steps = 0

    def lead(self, replica_id: int) -> None:
        """Lead; all is committed at once for consumers, and for followers when they say so."""
        isr = (1,) if replica_id < 0 else (1, 2)
        leading = [PartitionRecord(TOPIC_ID, index, (1, 2), isr, 1) for index in range(COUNT)]
        following = PartitionRecord(OTHER_ID, 0, (1, 2), (1, 2), 2)
        self.broker.publish(
            TopicRecord("t", TOPIC_ID), *leading, TopicRecord("u", OTHER_ID), following
        )

    def append(self, index: int) -> None:
        """Add a record to t-`index`."""
        self.broker.replicas.led.append_to_leader(TopicPartition("t", index), batch(b"x"))

    def start(self, request: FetchRequest) -> Any:
        """Handle a fetch; what comes is a response, or a wait for one."""
        return self.end(self.begin(request))

    def begin(self, request: FetchRequest) -> Any:
        """Handle a fetch; it may be work in parts."""
        self.limit.set(self.most)
        return self.handlers.fetches.fetch(request, self.asked)

    def end(self, answer: Any, steps: int = 10_000) -> Any:
        """Do what is left of some work, or so many steps of it."""
        while type(answer) is GeneratorType and steps:
            try:
                next(answer)
            except StopIteration as end:
                answer = end.value
            self.steps += 1
            steps -= 1
        return answer

    def awaited(self, answer: Any) -> FetchResponse:
        """What has been waited for has come."""
        if isinstance(answer, Deferred):
            run_waiting()
            assert answer.done, "still parked"
            answer = self.end(answer.value)
        assert isinstance(answer, FetchResponse)
        return answer

    def fetch(self, request: FetchRequest) -> FetchResponse:
        response = self.start(request)
        assert isinstance(response, FetchResponse)
        return response


def request(
    *offsets: tuple[bytes, int, int],
    session: tuple[int, int] = (0, -1),
    replica_id: int = -1,
    max_wait_ms: int = 0,
    forgotten: tuple[int, ...] = (),
    isolation_level: int = 0,
    max_bytes: int = 1 << 20,
) -> FetchRequest:
    """A fetch of (topic id, partition, offset)."""
    return FetchRequest(
        replica_state=ReplicaState(
            replica_id=replica_id, replica_epoch=10 * replica_id if replica_id >= 0 else -1
        ),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
                ],
            )
            for topic_id, index, offset in offsets
        ],
        forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=list(forgotten))],
    )


def record_bytes(response: FetchResponse) -> dict[tuple[bytes, int], int]:
    """How many bytes of records an answer has of each of its partitions."""
    return {
        (topic.topic_id, part.partition_index): len(part.records or b"")
        for topic in response.responses
        for part in topic.partitions
    }


@pytest.mark.parametrize("replica_id", [-1, 2])
@pytest.mark.parametrize("seed", range(10))
async def test_the_same_answers_as_at_once(
    limit: Limit, seed: int, replica_id: int, autojump_clock: object
) -> None:
    """Random fetches, with sessions and without, parked and not, of two brokers of one history."""
    rng = random.Random(seed)
    at_once, in_parts = Side(limit, 1000), Side(limit, 0)
    async with at_once.broker.running(), in_parts.broker.running():
        sides = (at_once, in_parts)
        for side in sides:
            side.lead(replica_id)
        session, ends = (0, 0), [0] * COUNT
        parked = answered = 0
        for _ in range(40):
            for index in rng.sample(range(COUNT), rng.choice((0, 0, 3))):
                ends[index] += 1
                for side in sides:
                    side.append(index)
            named = [
                (TOPIC_ID, index, rng.choice((*[end] * 15, end // 2)))
                for index, end in enumerate(ends)
                if rng.random() < 0.5
            ]
            named += [(OTHER_ID, 0, 0)] * (rng.random() < 0.05)
            named += [(_UNKNOWN_ID, 0, 0)] * (rng.random() < 0.05)
            named += [(TOPIC_ID, COUNT, 0)] * (rng.random() < 0.05)
            if rng.random() < 0.2:
                session = (session[0], rng.choice((0, -1, 77)))
            fetch = request(
                *rng.sample(named, len(named)),
                session=session,
                replica_id=replica_id,
                max_wait_ms=rng.choice((0, 500)),
                forgotten=tuple(rng.sample(range(COUNT), rng.randrange(3))),
                isolation_level=rng.randrange(2),
                max_bytes=rng.choice((100, 300, 1 << 20)),
            )
            answers = [side.start(fetch) for side in sides]
            if isinstance(answers[0], Deferred):
                assert isinstance(answers[1], Deferred)
                parked += 1
                if rng.random() < 0.5:
                    ends[0] += 1
                    for side in sides:
                        side.append(0)
                await trio.sleep(1)
            responses = [side.awaited(one) for side, one in zip(sides, answers, strict=True)]
            one, other = (encode(response, _VERSION) for response in responses)
            assert one == other
            answered += bool(responses[0].responses)
            session = (responses[0].session_id, max(session[1], 0) + 1)
            if not session[0] or responses[0].error_code != ErrorCode.NONE:
                session = (0, 0)
        assert in_parts.steps > 50 and not at_once.steps
        assert answered > 5 and parked


def everything(**how: Any) -> FetchRequest:
    return request(*((TOPIC_ID, index, 0) for index in range(COUNT)), **how)


@pytest.mark.parametrize("replica_id", [-1, 2])
async def test_what_comes_between_the_parts_of_a_look_is_not_missed(
    limit: Limit, replica_id: int, autojump_clock: object
) -> None:
    """Whenever it comes, it is returned, though its partition may have been looked at before."""
    for steps in range(100):
        side = Side(limit, 0)
        async with side.broker.running():
            side.lead(replica_id)
            work = side.begin(everything(session=(0, 0), replica_id=replica_id, max_wait_ms=500))
            answer = side.end(work, steps)
            side.append(0)
            assert record_bytes(side.awaited(side.end(answer)))[TOPIC_ID, 0] > 0
            if isinstance(answer, Deferred):
                break
    assert steps > 2 * COUNT


@pytest.mark.parametrize("replica_id", [-1, 2])
async def test_news_between_the_parts_of_an_answer_comes_with_the_next_one(
    limit: Limit, replica_id: int, autojump_clock: object
) -> None:
    """A follower's session has a partition at its end read no more until there is news of it."""
    for steps in range(100):
        side = Side(limit, 0)
        async with side.broker.running():
            side.lead(replica_id)
            answer = side.end(side.begin(everything(session=(0, 0), replica_id=replica_id)), steps)
            side.append(0)
            first = side.awaited(side.end(answer))
            second = side.fetch(request(session=(first.session_id, 1), replica_id=replica_id))
            assert (record_bytes(first) | record_bytes(second))[TOPIC_ID, 0] > 0
            if isinstance(answer, FetchResponse):
                break
    assert steps > 2 * COUNT


async def test_a_later_fetch_of_the_session_ends_an_earlier_one(
    limit: Limit, autojump_clock: object
) -> None:
    """What the earlier one has not returned yet, the later one returns."""
    side = Side(limit, 0)
    async with side.broker.running():
        side.lead(-1)
        first = side.fetch(everything(session=(0, 0)))
        for index in range(COUNT):
            side.append(index)
        earlier = side.begin(request(session=(first.session_id, 1)))
        for _ in range(4):
            next(earlier)
        later = side.fetch(request(session=(first.session_id, 2)))
        assert len(record_bytes(later)) == COUNT
        assert 0 < len(record_bytes(side.awaited(side.end(earlier)))) < COUNT


async def test_a_parked_follower_that_asks_again_is_answered(
    limit: Limit, autojump_clock: object
) -> None:
    side = Side(limit, 0)
    async with side.broker.running():
        side.lead(2)
        first = side.fetch(everything(session=(0, 0), replica_id=2))
        named = [(TOPIC_ID, index, 0) for index in range(2)]
        asks: dict[str, Any] = {"replica_id": 2, "max_wait_ms": 500}
        parked = side.start(request(*named, session=(first.session_id, 1), **asks))
        assert isinstance(parked, Deferred) and not parked.done
        again = side.start(request(*named, session=(first.session_id, 2), **asks))
        assert not record_bytes(side.awaited(parked))
        side.append(1)
        assert record_bytes(side.awaited(again)) == {(TOPIC_ID, 1): len(batch(b"x"))}


@pytest.mark.parametrize("parks", [False, True])
async def test_a_client_that_is_gone_is_waited_for_no_more(
    limit: Limit, parks: bool, autojump_clock: object
) -> None:
    """Its connection ended while its fetch looked, or was parked."""
    side = Side(limit, 0)
    async with side.broker.running():
        side.lead(-1)
        partition = side.broker.replicas.hosted.leader(TopicPartition("t", 0))
        work = side.begin(everything(max_wait_ms=500))
        while not partition.fetch_waiters:
            next(work)
        if parks:
            assert isinstance(side.end(work), Deferred)
        side.asked.client.closed()
        assert not partition.fetch_waiters


async def test_what_is_held_costs_the_garbage_collector_nothing(
    limit: Limit, autojump_clock: object
) -> None:
    """Each of its runs would take long, at once, if it had to look at every partition."""
    count = 3000
    side = Side(limit, 0)
    wanted = request()
    wanted.topics = [
        FetchTopic(topic_id=_UNKNOWN_ID, partitions=each(_partition, range(1000, 1000 + count)))
    ]
    gc.collect()
    before = len(gc.get_objects())
    work = side.begin(wanted)
    side.end(work, count + 10)
    gc.collect()
    assert len(gc.get_objects()) < before + count / 10, "what is asked for"
    response = side.awaited(side.end(work))
    gc.collect()
    assert len(gc.get_objects()) < before + count / 10, "what is answered"
    assert [part.partition_index for part in response.responses[0].partitions] == [
        *range(1000, 1000 + count)
    ]


def _partition(index: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=2**40 + index, partition_max_bytes=1000)


async def test_a_consumer_with_a_quota_gets_what_was_read_and_how_long_to_wait(
    limit: Limit,
) -> None:
    side = Side(limit, 1)
    async with side.broker.running():
        side.lead(-1)
        for index in range(COUNT):
            side.append(index)
        size = len(batch(b"x"))
        entity = quota_entity({"user": None})
        side.handlers.throttle.quotas.change({entity: {"consumer_byte_rate": float(size)}})
        response = side.fetch(request(*((TOPIC_ID, index, 0) for index in range(COUNT))))
        given = [part for one in response.responses for part in one.partitions if part.records]
        assert (len(given), response.throttle_time_ms) == (10, 0)
        response = side.fetch(request(*((TOPIC_ID, index, 0) for index in range(5))))
        given = [part for one in response.responses for part in one.partitions if part.records]
        assert (len(given), response.throttle_time_ms > 4000) == (5, True)
