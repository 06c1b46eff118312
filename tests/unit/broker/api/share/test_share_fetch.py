"""ShareFetch: sessions, what is answered and when, and who is woken."""

from __future__ import annotations

import pytest
import trio

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import run_waiting
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.kraft_meta.metadata.quota_image import quota_entity
from kraftrio.kraft_meta.metadata.records import RemoveTopicRecord
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import build_batch
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from kraftrio.wire.records.walk import Record
from kraftrio.wire.stored_bytes import StoredBytes
from tests.support.logs import batch
from tests.unit.broker.api.share.share_broker import (
    NAMED,
    Member,
    ShareBroker,
    acquired,
    offsets,
    parts,
)
from tests.unit.broker.replica.replica_context import OTHER_ID, TOPIC_ID, TP, change

ACCEPT, RELEASE, RENEW = (1,), (2,), (4,)


async def test_records_and_what_was_acquired_of_them() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(3, 2)
        response = await Member(broker).fetch()
        (part,) = parts(response)
        assert acquired(response) == [(0, 4, 1)]
        assert offsets(part) == [0, 1, 2, 3, 4]
        assert response.acquisition_lock_timeout_ms == 15_000


async def test_only_the_batches_with_acquired_records_are_sent() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(3, 3, 3)
        member = Member(broker)
        (part,) = parts(await member.fetch(max_records=2))
        assert offsets(part) == [0, 1, 2]
        (part,) = parts(await member.fetch(max_records=1))
        assert offsets(part) == [3, 4, 5]


async def test_record_limit_is_version_2() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(9)
        member = Member(broker)
        assert await member.acquire(max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
        assert await member.acquire(max_records=3, share_acquire_mode=1) == [(2, 4, 1)]


async def test_many_records_stay_where_they_are() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(*[1] * 400)
        (part,) = parts(await Member(broker).fetch(max_records=150))
        assert isinstance(part.records, StoredBytes)
        assert len(part.records) == 150 * len(batch(b"x"))


async def test_each_partition_gets_its_share() -> None:
    broker = ShareBroker()
    size = len(batch(b"x"))
    async with broker.running(partitions=3):
        for index in range(3):
            for _ in range(10):
                broker.broker.replicas.led.append_to_leader(
                    TP._replace(partition=index), batch(b"x")
                )
        found = parts(await Member(broker).fetch(partitions=[0, 1, 2], max_bytes=9 * size))
        assert [len(offsets(part)) for part in found] == [3, 3, 3]


async def test_the_first_batch_comes_whole_whatever_its_size() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(9)
        assert await Member(broker).acquire(max_bytes=10) == [(0, 8, 1)]


def transactional(first: int, count: int) -> bytearray:
    return bytearray(
        build_batch(
            [Record(0, 0, b"k", b"x") for _ in range(count)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=first,
            transactional=True,
        )
    )


async def test_committed_records_alone(autojump_clock: trio.testing.MockClock) -> None:
    """Nothing of open transactions is acquired, and nothing of aborted ones."""
    broker = ShareBroker()
    broker.settings.values["share.isolation.level"] = "read_committed"
    led = broker.broker.replicas.led
    async with broker.running():
        broker.append(2)
        led.append_to_leader(TP, transactional(0, 3))
        broker.append(2)
        member = Member(broker)
        assert await member.acquire() == [(0, 1, 1)]
        response = member.start_fetch(max_wait_ms=10_000)
        await trio.sleep(0.1)
        assert not response.done
        marker = EndTransactionMarker(commit=False, coordinator_epoch=0)
        led.append_to_leader(
            TP,
            build_end_transaction_batch(7, 0, marker, timestamp=0),
            origin=AppendOrigin.COORDINATOR,
        )
        run_waiting()
        assert acquired(await response.wait()) == [(5, 7, 1)]
        assert [tuple(batch) for batch in broker.kept.writes[-1].batches] == [(2, 4, 4, 1)]


# -- waiting --------------------------------------------------------------------------------------


async def test_a_fetch_waits_for_records(autojump_clock: trio.testing.MockClock) -> None:
    broker = ShareBroker()
    async with broker.running():
        member = Member(broker)
        response = member.start_fetch()
        await trio.sleep(0.1)
        assert not response.done
        broker.append(2)
        assert acquired(await response.wait()) == [(0, 1, 1)]
        assert trio.current_time() == pytest.approx(0.1)


async def test_or_for_its_time(autojump_clock: trio.testing.MockClock) -> None:
    broker = ShareBroker()
    async with broker.running():
        member = Member(broker)
        began = trio.current_time()
        (part,) = parts(await member.fetch(max_wait_ms=500))
        assert (part.acquired_records, part.records) == ([], b"")
        assert trio.current_time() - began == pytest.approx(0.5)


async def test_its_time_is_up_when_the_timer_says_so(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock may be a rounding error behind the timer: it would wait for ever."""
    broker = ShareBroker()
    async with broker.running():
        member = Member(broker)
        await member.fetch(max_wait_ms=0)
        now_ms = broker.broker.clock.monotonic_ms()
        monkeypatch.setattr(Clock, "monotonic_ms", lambda self: now_ms)
        with trio.fail_after(10):
            await member.fetch(max_wait_ms=500)
        assert parts(await member.fetch(max_wait_ms=500)) == []  # no news
        assert parts(await member.fetch(max_wait_ms=0)) == []


async def test_a_fetch_waits_for_as_much_as_it_wants(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broker = ShareBroker()
    size = len(batch(b"x"))
    async with broker.running():
        response = Member(broker).start_fetch(min_bytes=3 * size, max_wait_ms=10_000)
        for _ in range(2):
            broker.append(1)
            await trio.sleep(0.1)
            assert not response.done
        broker.append(1)
        assert acquired(await response.wait()) == [(0, 2, 1)]
        assert trio.current_time() == pytest.approx(0.2)


async def test_who_waits_gets_what_is_released(autojump_clock: trio.testing.MockClock) -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4)
        first, second = Member(broker, "m1"), Member(broker, "m2")
        await first.acquire()
        response = second.start_fetch(max_wait_ms=10_000)
        await trio.sleep(0.1)
        await first.acknowledge((0, 1, RELEASE))
        assert acquired(await response.wait()) == [(0, 1, 2)]
        assert trio.current_time() < 1


async def test_who_waits_gets_what_was_held_for_too_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4)
        await Member(broker, "m1").acquire()
        began = trio.current_time()
        response = Member(broker, "m2").start_fetch(max_wait_ms=30_000)
        assert acquired(await response.wait()) == [(0, 3, 2)]
        assert trio.current_time() - began == pytest.approx(15, abs=0.1)


async def test_members_take_turns(autojump_clock: trio.testing.MockClock) -> None:
    """Each batch wakes one of those who wait, in the order in which they came."""
    broker = ShareBroker()
    async with broker.running():
        members = [Member(broker, f"m{at}") for at in range(3)]
        responses = [member.start_fetch(max_wait_ms=10_000) for member in members]
        for at in range(3):
            broker.append(1)
            await trio.sleep(0.1)
            assert [response.done for response in responses] == [one <= at for one in range(3)]
            assert acquired(responses[at].value) == [(at, at, 1)]


async def test_what_one_leaves_is_for_the_next(autojump_clock: trio.testing.MockClock) -> None:
    broker = ShareBroker()
    async with broker.running():
        members = [Member(broker, f"m{at}") for at in range(3)]
        responses = [
            member.start_fetch(max_wait_ms=10_000, max_records=2, share_acquire_mode=1)
            for member in members
        ]
        broker.append(5)
        await trio.sleep(0.1)
        got = [acquired(response.value) for response in responses]
        assert got == [[(0, 1, 1)], [(2, 3, 1)], [(4, 4, 1)]]


async def test_a_closed_connection_holds_no_other_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broker = ShareBroker()
    async with broker.running():
        first, second = Member(broker, "m1"), Member(broker, "m2")
        first.start_fetch(max_wait_ms=10_000)
        response = second.start_fetch(max_wait_ms=10_000)
        await trio.sleep(0.1)
        broker.append(1)
        first.close()  # it was woken, and will not look
        assert acquired(await response.wait()) == [(0, 0, 1)]
        assert trio.current_time() < 1


async def test_what_is_still_loading_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(2)
        broker.kept.is_slow = True
        response = Member(broker).start_fetch(max_wait_ms=10_000)
        await trio.sleep(0.1)
        assert not response.done
        broker.kept.answer()
        assert acquired(await response.wait()) == [(0, 1, 1)]


# -- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(5, ErrorCode.INVALID_SHARE_SESSION_EPOCH), (0, ErrorCode.NONE), (-1, ErrorCode.NONE)],
)
async def test_epochs_of_a_session(epoch: int, error: ErrorCode) -> None:
    broker = ShareBroker()
    async with broker.running():
        member = Member(broker)
        await member.fetch(max_wait_ms=0)
        assert (await member.fetch(epoch=epoch, max_wait_ms=0)).error_code is error
        stranger = Member(broker, "m2")
        response = await stranger.fetch(epoch=1)
        assert response.error_code is ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_too_many_sessions_are_refused_after_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broker = ShareBroker(sessions=1)
    async with broker.running():
        first = Member(broker, "m1")
        await first.fetch(max_wait_ms=0)
        began = trio.current_time()
        response = await Member(broker, "m2").fetch(max_wait_ms=700)
        assert response.error_code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert trio.current_time() - began == pytest.approx(0.7)
        first.close()
        assert (await Member(broker, "m3").fetch(max_wait_ms=0)).error_code is ErrorCode.NONE


async def test_partitions_come_and_go() -> None:
    broker = ShareBroker()
    async with broker.running(partitions=2):
        broker.append(2)
        member = Member(broker)
        await member.fetch(partitions=[1], max_wait_ms=0)
        added = await member.fetch(partitions=[0], max_wait_ms=0)
        assert acquired(added) == [(0, 1, 1)]
        broker.append(2)
        assert parts(await member.fetch(forget=[0], max_wait_ms=0)) == []


async def test_a_session_ends_with_its_connection(autojump_clock: trio.testing.MockClock) -> None:
    """What the member has is taken back, and counts as delivered."""
    broker = ShareBroker()
    async with broker.running():
        broker.append(2)
        first, second = Member(broker, "m1"), Member(broker, "m2")
        await first.acquire()
        response = second.start_fetch(max_wait_ms=10_000)
        await trio.sleep(0.1)
        first.close()
        assert acquired(await response.wait()) == [(0, 1, 2)]
        assert trio.current_time() < 1


async def test_a_session_of_another_connection_takes_its_place() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(2)
        old = Member(broker)
        assert await old.acquire() == [(0, 1, 1)]
        new = Member(broker)
        await new.fetch(max_wait_ms=0)
        old.close()  # ends nothing of the new one
        assert (await new.fetch(max_wait_ms=0)).error_code is ErrorCode.NONE
        assert old.client.on_close == []


async def test_the_last_fetch_acknowledges_and_releases() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4)
        member = Member(broker)
        await member.acquire()
        response = await member.fetch((0, 1, ACCEPT), epoch=-1)
        (part,) = parts(response)
        assert part.acknowledge_error_code is ErrorCode.NONE and not part.acquired_records
        assert await Member(broker, "m2").acquire() == [(2, 3, 2)]


async def test_the_first_fetch_has_no_acknowledgements() -> None:
    broker = ShareBroker()
    async with broker.running():
        response = await Member(broker).fetch((0, 1, ACCEPT))
        assert response.error_code is ErrorCode.INVALID_REQUEST


async def test_share_partitions_end_with_their_group() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4)
        member = Member(broker)
        await member.acquire()
        await member.acknowledge((0, 3, ACCEPT))
        assert broker.partitions.statistics()["share_partitions"] == 1
        member.close()
        assert broker.partitions.statistics()["share_partitions"] == 0
        broker.append(1)
        assert await Member(broker).acquire() == [(4, 4, 1)]
        assert broker.kept.read_count == 2


# -- acknowledgements that come along -------------------------------------------------------------


async def test_acknowledgements_come_along() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4)
        member = Member(broker)
        await member.acquire()
        broker.append(2)
        response = await member.fetch((0, 3, ACCEPT))
        assert acquired(response) == [(4, 5, 1)]
        assert broker.led.core.start_offset == 4


async def test_the_answer_waits_until_they_are_kept() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4)
        member = Member(broker)
        await member.acquire()
        broker.append(2)
        broker.kept.is_slow = True
        response = member.start_fetch((0, 3, ACCEPT))
        await trio.lowlevel.checkpoint()
        assert not response.done
        broker.kept.answer()
        assert acquired(await response.wait()) == [(4, 5, 1)]


async def test_errors_of_acknowledgements_are_returned_beside_the_records() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4)
        member = Member(broker)
        await member.fetch(max_wait_ms=0, max_records=0)
        (part,) = parts(await member.fetch((0, 3, ACCEPT)))
        assert part.acknowledge_error_code is ErrorCode.INVALID_RECORD_STATE
        assert part.error_code is ErrorCode.NONE
        assert len(part.acquired_records) == 1


async def test_a_fetch_that_renews_asks_for_no_records() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4)
        member = Member(broker)
        await member.acquire()
        nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
        response = await member.fetch((0, 3, RENEW), is_renew_ack=True, **nothing)
        assert parts(response)[0].acknowledge_error_code is ErrorCode.NONE
        response = await member.fetch((0, 3, RENEW), is_renew_ack=True, epoch=2)
        assert response.error_code is ErrorCode.INVALID_REQUEST


# -- errors ---------------------------------------------------------------------------------------


async def test_who_may_not_ask_at_all() -> None:
    broker = ShareBroker()
    async with broker.running():
        for member_id in ("", "m" * 37):
            response = await Member(broker, member_id).fetch()
            assert response.error_code is ErrorCode.INVALID_REQUEST
        broker.is_enabled = False
        assert (await Member(broker).fetch()).error_code is ErrorCode.UNSUPPORTED_VERSION


async def test_topics_and_partitions_that_are_unknown() -> None:
    broker = ShareBroker()
    async with broker.running():
        (part,) = parts(await Member(broker).fetch(topic_id=OTHER_ID))
        assert part.error_code is ErrorCode.UNKNOWN_TOPIC_ID
        (part,) = parts(await Member(broker, "m2").fetch(partitions=[7]))
        assert part.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_leader_elsewhere_is_named(autojump_clock: trio.testing.MockClock) -> None:
    """Waiting members are answered at once."""
    broker = ShareBroker()
    async with broker.running():
        member = Member(broker)
        response = member.start_fetch(max_wait_ms=10_000)
        await trio.sleep(0.1)
        broker.broker.publish(change(leader=2, replicas=(2,), isr=(2,)))
        (part,) = parts(await response.wait())
        assert trio.current_time() < 1
        assert part.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 1)
        (part,) = parts(await member.fetch(max_wait_ms=0))
        assert part.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_topic_is_deleted(autojump_clock: trio.testing.MockClock) -> None:
    """Waiting members are answered, and nothing is left of what its groups were given."""
    broker = ShareBroker()
    async with broker.running():
        broker.append(2)
        member = Member(broker)
        await member.acquire()
        response = member.start_fetch(max_wait_ms=10_000)
        await trio.sleep(0.1)
        broker.broker.publish(RemoveTopicRecord(TOPIC_ID))
        broker.partitions.metadata_changed()
        (part,) = parts(await response.wait())
        assert trio.current_time() < 1
        assert part.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.partitions.statistics()["share_partitions"] == 0
        (part,) = parts(await member.fetch())
        assert part.error_code is ErrorCode.UNKNOWN_TOPIC_ID


async def test_settings_change_while_they_are_used(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(2)
        member = Member(broker)
        await member.acquire()
        broker.settings.values["share.record.lock.duration.ms"] = 1_000
        broker.settings.values["share.delivery.count.limit"] = 2
        await trio.sleep(16)
        response = await member.fetch()
        assert acquired(response) == [(0, 1, 2)]
        assert response.acquisition_lock_timeout_ms == 1_000
        await trio.sleep(1.1)
        assert await member.acquire() == []  # it was the last time
        assert broker.led.core.start_offset == 2


async def test_a_new_leader_epoch_loads_what_was_kept() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(4, 4)
        member = Member(broker)
        await member.acquire(max_records=4)
        await member.acknowledge((0, 1, ACCEPT), (2, 3, RELEASE))
        broker.broker.publish(change(leader=1))
        assert await member.acquire() == [(2, 3, 2), (4, 7, 1)]


@pytest.mark.parametrize(
    ("kept", "answered"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_state_that_cannot_be_read(kept: ErrorCode, answered: ErrorCode) -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(1)
        broker.kept.error = kept
        member = Member(broker)
        (part,) = parts(await member.fetch())
        assert part.error_code is answered
        broker.kept.error = ErrorCode.NONE
        assert await member.acquire() == [(0, 0, 1)]


async def test_the_start_of_the_log_moves(autojump_clock: trio.testing.MockClock) -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(2, 2, 2)
        member = Member(broker)
        await member.acquire(max_records=2)
        partition = broker.broker.replicas.hosted.leader(TP)
        broker.broker.replicas.deletions.delete_records(partition, 4)
        run_waiting()
        assert await member.acquire() == [(4, 5, 1)]


async def test_sessions_and_share_partitions_are_counted() -> None:
    broker = ShareBroker()
    async with broker.running():
        broker.append(3)
        member = Member(broker)
        await member.acquire()
        assert broker.partitions.statistics() == {
            "share_partitions": 1,
            "share_sessions": 1,
            "records_in_flight": 3,
            "waiting_share_fetches": 0,
        }
        assert broker.partitions.lead("g", NAMED) is broker.led


async def test_a_member_with_a_quota_gets_less_and_is_told_to_wait() -> None:
    """What it has acquired it is given; it comes no sooner for the rest."""
    broker = ShareBroker()
    async with broker.running():
        broker.append(*[1] * 30)
        size = len(batch(b"0"))
        entity = quota_entity({"user": None})
        broker.throttle.quotas.change({entity: {"consumer_byte_rate": float(size)}})
        member = Member(broker)
        first = await member.fetch()
        assert (acquired(first), first.throttle_time_ms) == ([(0, 9, 1)], 0)
        second = await member.fetch()
        assert acquired(second) == [(10, 19, 1)]
        assert second.throttle_time_ms > 9000
