"""Share consumers against scripted brokers: what is delivered, and what brokers are sent."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftrio.clients.errors import (
    AcknowledgementStateError,
    ClosedError,
    CorruptRecordError,
    GroupMaxSizeReachedError,
    InvalidRecordStateError,
    NetworkError,
    ShareSessionNotFoundError,
    TimedOutError,
    UnsupportedVersionError,
)
from kraftrio.clients.share.consumer import ShareConsumer
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import CUT
from tests.unit.clients.share.share_brokers import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    consuming,
    share_brokers,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EXPLICIT = {"share_acknowledgement_mode": "explicit"}


async def take(consumer: ShareConsumer, count: int) -> list[int]:
    return [(await anext(consumer)).offset for _ in range(count)]


async def test_everything_that_was_finished_with_is_accepted() -> None:
    """One by one; at the end the last one, too, and the rest is there for others."""
    async with share_brokers() as brokers:
        brokers.logs[0].append(5)
        async with consuming(brokers) as consumer:
            assert await take(consumer, 3) == [0, 1, 2]
            assert consumer.assignment == {T0} and consumer.subscription == {"t"}
            assert consumer.acquisition_lock_timeout_ms == 30_000
        assert brokers.acknowledged() == {0: [ACCEPT], 1: [ACCEPT], 2: [ACCEPT]}
        assert brokers.logs[0].available == {3, 4}
        assert brokers.heartbeats[0].member_epoch == 0
        assert brokers.heartbeats[-1].member_epoch == -1 and not brokers.epochs


async def test_who_ends_with_an_error_has_not_finished() -> None:
    """What it had in hand is delivered again, to whomever."""
    async with share_brokers() as brokers:
        brokers.logs[0].append(5)
        with pytest.raises(KeyError, match="mine"):
            async with consuming(brokers) as consumer:
                await take(consumer, 3)
                raise KeyError("mine")
        assert brokers.acknowledged() == {0: [ACCEPT], 1: [ACCEPT], 2: [RELEASE]}
        async with consuming(brokers) as consumer:
            record = await anext(consumer)
            assert (record.offset, record.delivery_count) == (2, 2)


async def test_acknowledgements_go_with_the_next_question() -> None:
    """No request of their own; and holes are acknowledged as such."""
    async with share_brokers() as brokers:
        brokers.logs[0].append(3, holes=(1,))
        async with consuming(brokers) as consumer:
            assert await take(consumer, 2) == [0, 2]
            brokers.logs[0].append(1)
            assert await take(consumer, 1) == [3]
            assert brokers.acknowledged() == {0: [ACCEPT], 1: [GAP], 2: [ACCEPT]}
            assert not brokers.acknowledges


async def test_batches_and_polls() -> None:
    """Batches are of one partition; a poll brings all there is, or nothing in time."""
    async with share_brokers(1, 1) as brokers:
        brokers.logs[0].append(2)
        brokers.logs[1].append(3)
        async with consuming(brokers) as consumer:
            found: list[tuple[int, int]] = []
            while len(found) < 5:  # whichever answers come first
                found += [(each.partition, each.offset) for each in await consumer.poll()]
            assert sorted(found) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
            assert not await consumer.poll(timeout_ms=20)
            assert len(brokers.acknowledged(1)) == 3
            brokers.logs[1].append(2)
            async for batch in consumer.batches():
                assert batch.topic_partition == T1 and [each.offset for each in batch] == [3, 4]
                break


async def test_polls_that_do_not_wait_bring_records_too() -> None:
    """The first asks for them, a later one finds them."""
    async with share_brokers() as brokers:
        brokers.logs[0].append(3)
        async with consuming(brokers) as consumer:
            found: list[int] = []
            while len(found) < 3:
                found += [each.offset for each in await consumer.poll(timeout_ms=0)]
                await trio.sleep(0.001)
            assert found == [0, 1, 2]


async def test_the_program_says_what_became_of_each() -> None:
    async with share_brokers() as brokers:
        brokers.logs[0].append(4)
        outcomes: list[Any] = []
        async with consuming(brokers, **EXPLICIT) as consumer:
            consumer.acknowledgement_callback = lambda *outcome: outcomes.append(outcome)
            polled = list(await consumer.poll())
            polled[0].accept()
            polled[1].reject()
            polled[2].release()
            with pytest.raises(AcknowledgementStateError, match="offset 3"):
                await consumer.poll(timeout_ms=0)
            consumer.acknowledge(polled[3])
            assert await consumer.commit() == {T0: None}
            assert brokers.acknowledged() == {0: [ACCEPT], 1: [REJECT], 2: [RELEASE], 3: [ACCEPT]}
            assert outcomes == [(T0, [0, 1, 2, 3], None)]
            again = await anext(consumer)
            assert (again.offset, again.delivery_count) == (2, 2)
        assert brokers.acknowledged()[2] == [RELEASE, RELEASE], (
            "nothing was said of it before the end"
        )


async def test_a_lock_is_renewed_while_the_record_is_worked_on() -> None:
    """It stays in hand over other records; the renewal of locks is sent at once."""
    async with share_brokers() as brokers:
        brokers.logs[0].append(2)
        async with consuming(brokers, **EXPLICIT) as consumer:
            slow = await anext(consumer)
            slow.renew()
            assert await consumer.commit() == {T0: None}
            assert [each.is_renew_ack for each in brokers.acknowledges] == [True]
            quick = await anext(consumer)
            quick.accept()
            slow.renew()
            assert not await consumer.poll(timeout_ms=20), "a renewal is no obstacle"
            slow.accept()
            await consumer.commit()
        assert brokers.acknowledged() == {0: [RENEW, RENEW, ACCEPT], 1: [ACCEPT]}


async def test_renewing_needs_brokers_that_can() -> None:
    """Version 1 has no such acknowledgement: the outcome says so, and the record is lost."""
    async with share_brokers() as brokers:
        brokers.cluster.max_versions[ApiKey.SHARE_ACKNOWLEDGE] = 1
        brokers.logs[0].append(1)
        async with consuming(brokers, **EXPLICIT) as consumer:
            (await anext(consumer)).renew()
            outcome = await consumer.commit()
            assert isinstance(outcome[T0], UnsupportedVersionError)


async def test_acknowledgements_that_come_too_late() -> None:
    """The lock is over, and another member has the record: the outcome is an error, not a raise."""
    async with share_brokers() as brokers:
        brokers.logs[0].append(1)
        async with consuming(brokers, **EXPLICIT) as consumer:
            record = await anext(consumer)
            brokers.logs[0].owner.clear()
            record.accept()
            outcome = await consumer.commit()
            assert isinstance(outcome[T0], InvalidRecordStateError)


async def test_acknowledgements_of_slow_programs_are_sent_in_time() -> None:
    """What was finished with is sent within a tenth of the lock's time, also between questions."""
    async with share_brokers() as brokers:
        brokers.lock_timeout_ms = 300
        brokers.logs[0].append(20)
        async with consuming(brokers) as consumer:
            await take(consumer, 3)
            with trio.fail_after(5):
                while brokers.acknowledged() != {0: [ACCEPT], 1: [ACCEPT]}:  # noqa: ASYNC110
                    await trio.sleep(0.01)


async def test_records_whose_lock_is_over_are_left_to_others() -> None:
    async with share_brokers() as brokers:
        brokers.lock_timeout_ms = 50
        brokers.logs[0].append(3)
        async with consuming(brokers) as consumer:
            await take(consumer, 1)
            await trio.sleep(0.06)
            brokers.lock_timeout_ms = 30_000
            brokers.logs[0].append(1)
            assert await take(consumer, 1) == [3]


async def test_a_lost_session_is_opened_again() -> None:
    """Its acknowledgements have failed: the broker hands the records out once more."""
    async with share_brokers() as brokers:
        brokers.logs[0].append(2)
        async with consuming(brokers, **EXPLICIT) as consumer:
            (await anext(consumer)).accept()
            [session] = brokers.epochs
            brokers.end_session(session)
            outcome = await consumer.commit()
            assert isinstance(outcome[T0], ShareSessionNotFoundError)
            second = await anext(consumer)  # of the first delivery, lost with the session
            second.accept()
            outcome = await consumer.commit()
            assert isinstance(outcome[T0], ShareSessionNotFoundError)
            found = {}
            for _ in range(2):
                record = await anext(consumer)
                record.accept()
                found[record.offset] = record.delivery_count
            assert found == {0: 2, 1: 2}
            assert await consumer.commit() == {T0: None}


@pytest.mark.parametrize(
    "refusal",
    [
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        CUT,
    ],
)
async def test_questions_that_fail_are_asked_again(refusal: Any) -> None:
    async with share_brokers() as brokers:
        brokers.refusals = [refusal, refusal]
        brokers.logs[0].append(1)
        async with consuming(brokers) as consumer:
            assert await take(consumer, 1) == [0]
        assert [each.share_session_epoch for each in brokers.fetches[:3]] == [0, 0, 0]


async def test_a_lost_answer_to_an_acknowledgement() -> None:
    """Nobody knows whether it counts; the records come again if not."""
    async with share_brokers() as brokers:
        brokers.logs[0].append(1)
        brokers.acknowledge_refusals = [CUT]
        async with consuming(brokers, **EXPLICIT) as consumer:
            (await anext(consumer)).accept()
            outcome = await consumer.commit()
            assert isinstance(outcome[T0], NetworkError)


async def test_commits_have_a_time() -> None:
    async with share_brokers() as brokers:
        brokers.logs[0].append(1)
        brokers.acknowledge_refusals = [trio.Event()]
        async with consuming(brokers, request_timeout_ms=500, **EXPLICIT) as consumer:
            (await anext(consumer)).accept()
            with pytest.raises(TimedOutError):
                await consumer.commit(timeout_ms=30)


async def test_the_new_leader_is_asked() -> None:
    """The old one names it; its records are delivered again by the new one."""
    async with share_brokers(1, nodes=2) as brokers:
        brokers.logs[0].append(1)
        async with consuming(brokers) as consumer:
            await take(consumer, 1)
            brokers.cluster.lead("t", 0, 2)
            brokers.logs[0].append(1)
            assert await take(consumer, 1) == [1]
            assert brokers.cluster.requests[2, "ShareFetch"] > 0


async def test_partitions_of_several_brokers() -> None:
    """Each has a session of its own, and gets the acknowledgements of what it handed out."""
    async with share_brokers(1, 2, nodes=2) as brokers:
        for log in brokers.logs:
            log.append(3)
        async with consuming(brokers) as consumer:
            await take(consumer, 6)
            outcome = await consumer.commit()
            assert outcome and not any(outcome.values())
        for partition in (0, 1):
            assert brokers.acknowledged(partition) == {0: [ACCEPT], 1: [ACCEPT], 2: [ACCEPT]}
        assert not brokers.epochs


async def test_a_limit_of_records_is_kept() -> None:
    """With share_acquire_mode "record_limit" one broker is asked at a time, for no more."""
    async with share_brokers(1, 2, nodes=2) as brokers:
        for log in brokers.logs:
            log.append(5)
        limits: Any = {"share_acquire_mode": "record_limit", "max_poll_records": 2}
        async with consuming(brokers, **limits) as consumer:
            found = 0
            while found < 10:
                polled = await consumer.poll()
                assert len(polled) <= 2
                found += len(polled)
            await consumer.commit()
            for log in brokers.logs:
                log.append(5)
            await consumer.poll()
            await trio.sleep(0.02)
            assert sum(len(log.owner) for log in brokers.logs) == 2, "of one broker"
        assert {each.share_acquire_mode for each in brokers.fetches} == {1}


async def test_unreadable_records_are_rejected() -> None:
    """The program learns of it once, and goes on with what can be read."""
    async with share_brokers() as brokers:
        log = brokers.logs[0]
        log.append(1)
        base, data = log.batches[0]
        log.batches[0] = (base, data[:-1] + bytes([data[-1] ^ 1]))
        log.append(1)
        async with consuming(brokers) as consumer:
            with pytest.raises(CorruptRecordError, match="t-0 cannot be read, and are rejected"):
                await take(consumer, 1)
            assert await take(consumer, 1) == [1]
        assert brokers.acknowledged() == {0: [REJECT], 1: [ACCEPT]}


async def test_membership() -> None:
    """Who is fenced joins again; a coordinator that moves is found; who is refused learns it."""
    async with share_brokers() as brokers:
        brokers.heartbeat_refusals = [ErrorCode.NOT_COORDINATOR]
        brokers.logs[0].append(1)
        async with consuming(brokers) as consumer:
            await take(consumer, 1)
            brokers.heartbeat_refusals = [ErrorCode.UNKNOWN_MEMBER_ID]
            brokers.logs[0].append(1)
            assert await take(consumer, 1) == [1]
            with trio.fail_after(5):
                while sum(each.member_epoch == 0 for each in brokers.heartbeats) < 3:
                    await consumer.poll(timeout_ms=5)
            assert len({each.member_id for each in brokers.heartbeats}) == 1
            await consumer.unsubscribe()
            assert brokers.heartbeats[-1].member_epoch == -1 and not consumer.assignment
        brokers.heartbeat_refusals = [ErrorCode.GROUP_MAX_SIZE_REACHED]
        async with consuming(brokers) as consumer:
            for _ in range(2):
                with pytest.raises(GroupMaxSizeReachedError):
                    await anext(consumer)


async def test_an_application_that_does_not_poll_leaves_the_group() -> None:
    async with share_brokers() as brokers:
        brokers.logs[0].append(1)
        async with consuming(brokers, max_poll_interval_ms=60) as consumer:
            await take(consumer, 1)
            with trio.fail_after(5):
                while brokers.heartbeats[-1].member_epoch != -1:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert not consumer.assignment
            brokers.logs[0].append(1)
            assert await take(consumer, 1) == [1]


async def test_brokers_without_share_groups() -> None:
    async with share_brokers() as brokers:
        brokers.cluster.max_versions[ApiKey.SHARE_GROUP_HEARTBEAT] = -1
        async with consuming(brokers) as consumer:
            with pytest.raises(UnsupportedVersionError, match="share groups need brokers"):
                await anext(consumer)


async def test_calls_in_their_time() -> None:
    """One task takes records, of a consumer that is open."""
    async with share_brokers() as brokers:
        async with consuming(brokers) as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(consumer.poll)
            while not consumer._calls.is_waiting:
                await trio.lowlevel.checkpoint()
            with pytest.raises(trio.BusyResourceError):
                await anext(consumer)
            with pytest.raises(TypeError):
                await consumer.subscribe([b"t"])  # type: ignore[list-item]
            nursery.cancel_scope.cancel()
        with pytest.raises(ClosedError):
            await consumer.poll()
        with pytest.raises(ClosedError):
            await consumer.commit()
