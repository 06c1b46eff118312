"""ShareAcknowledge: what it may say, and what is answered when it fails."""

from __future__ import annotations

import pytest
import trio

from kraftrio.broker.share.led_share_partition import error_of_state
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_fetch import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeResponse,
)
from tests.unit.broker.api.share.share_broker import Member, ShareBroker
from tests.unit.broker.replica.replica_context import OTHER_ID, change

ACCEPT, RELEASE, REJECT, RENEW = (1,), (2,), (3,), (4,)


def part(response: ShareAcknowledgeResponse) -> ShareAcknowledgePartitionData:
    assert response.error_code is ErrorCode.NONE, response
    return response.responses[0].partitions[0]


async def joined(broker: ShareBroker) -> Member:
    """A member that has 0-3 and 4-7."""
    broker.append(4, 4)
    member = Member(broker)
    await member.acquire(max_records=4)
    await member.acquire(max_records=4)
    return member


async def test_records_are_done_with_when_that_is_kept() -> None:
    broker = ShareBroker()
    async with broker.running():
        member = await joined(broker)
        response = await member.acknowledge((0, 3, ACCEPT), (4, 7, (1, 3, 2, 0)))
        assert part(response).error_code is ErrorCode.NONE
        assert response.acquisition_lock_timeout_ms == 15_000
        write = broker.kept.writes[-1]
        assert [tuple(batch) for batch in write.batches] == [
            (0, 4, 2, 1),
            (5, 5, 4, 1),
            (6, 6, 0, 1),
            (7, 7, 4, 1),
        ]
        assert await Member(broker, "m2").acquire() == [(6, 6, 2)]


@pytest.mark.parametrize(
    ("batches", "version"),
    [
        ([(3, 0, ACCEPT)], 2),
        ([(4, 7, ACCEPT), (0, 3, ACCEPT)], 2),
        ([(0, 3, ())], 2),
        ([(0, 3, (1, 1))], 2),
        ([(0, 3, (5,))], 2),
        ([(0, 3, (-1,))], 2),
        ([(0, 3, RENEW)], 2),  # without saying that it has renewals
        ([(0, 3, RENEW)], 1),
        ([(100, 103, ACCEPT)], 2),
    ],
)
async def test_what_cannot_be_meant(
    batches: list[tuple[int, int, tuple[int, ...]]], version: int
) -> None:
    broker = ShareBroker()
    async with broker.running():
        member = await joined(broker)
        answer = part(await member.acknowledge(*batches, version=version))
        assert answer.error_code is ErrorCode.INVALID_REQUEST
        assert broker.kept.writes == []
        assert part(await member.acknowledge((0, 7, ACCEPT))).error_code is ErrorCode.NONE


async def test_locks_are_renewed(autojump_clock: trio.testing.MockClock) -> None:
    broker = ShareBroker()
    async with broker.running():
        member = await joined(broker)
        await trio.sleep(10)
        assert part(await member.acknowledge((0, 3, RENEW), renews=True)).error_code == 0
        await trio.sleep(10)
        assert await Member(broker, "m2").acquire() == [(4, 7, 2)]
        assert broker.kept.writes[-1].start_offset == 0


async def test_records_of_others() -> None:
    broker = ShareBroker()
    async with broker.running():
        await joined(broker)
        other = Member(broker, "m2")
        await other.fetch(max_wait_ms=0)
        answer = part(await other.acknowledge((0, 3, ACCEPT)))
        assert answer.error_code is ErrorCode.INVALID_RECORD_STATE
        assert answer.error_message == "Member is not the owner of batch record"


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (0, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (7, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (2, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
)
async def test_epochs(epoch: int, error: ErrorCode) -> None:
    broker = ShareBroker()
    async with broker.running():
        member = await joined(broker)
        assert (await member.acknowledge((0, 3, ACCEPT), epoch=epoch)).error_code is error


async def test_the_last_one_gives_the_rest_back() -> None:
    broker = ShareBroker()
    async with broker.running():
        member = await joined(broker)
        await member.acknowledge((0, 3, ACCEPT), epoch=-1)
        response = await member.acknowledge((4, 7, ACCEPT))
        assert response.error_code is ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await Member(broker, "m2").acquire() == [(4, 7, 2)]


async def test_a_write_that_fails_leaves_the_records_with_the_member() -> None:
    broker = ShareBroker()
    async with broker.running():
        member = await joined(broker)
        broker.kept.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = part(await member.acknowledge((0, 3, ACCEPT)))
        assert answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.kept.error = ErrorCode.NONE
        assert part(await member.acknowledge((0, 7, ACCEPT))).error_code is ErrorCode.NONE


@pytest.mark.parametrize("kept", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND])
async def test_a_write_that_is_fenced_ends_the_share_partition(kept: ErrorCode) -> None:
    broker = ShareBroker()
    async with broker.running():
        member = await joined(broker)
        broker.kept.error = kept
        answer = part(await member.acknowledge((0, 3, ACCEPT)))
        assert answer.error_code is error_of_state(kept).code
        broker.kept.error = ErrorCode.NONE
        answer = part(await member.acknowledge((0, 3, ACCEPT)))
        assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await member.acquire(max_records=4) == [(0, 3, 1)]


async def test_one_write_is_under_way_at_a_time() -> None:
    """What comes meanwhile is written together."""
    broker = ShareBroker()
    async with broker.running():
        broker.append(1, 1, 1, 1)
        members = [Member(broker, f"m{at}") for at in range(4)]
        for member in members:
            await member.acquire(max_records=1)
        broker.kept.is_slow = True
        async with trio.open_nursery() as nursery:
            for at, member in enumerate(members):
                nursery.start_soon(member.acknowledge, (at, at, ACCEPT))
            await trio.testing.wait_all_tasks_blocked()
            assert len(broker.kept.writes) == 1
            broker.kept.answer()
            await trio.testing.wait_all_tasks_blocked()
            assert len(broker.kept.writes) == 2
            broker.kept.answer()
        first, second = broker.kept.writes
        assert sum(last - at + 1 for at, last, _, _ in (*first.batches, *second.batches)) == 4
        assert broker.led.core.start_offset == 4


async def test_what_is_not_here() -> None:
    broker = ShareBroker()
    async with broker.running():
        member = await joined(broker)
        answer = part(await member.acknowledge((0, 3, ACCEPT), topic_id=OTHER_ID))
        assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_ID
        answer = part(await member.acknowledge((0, 3, ACCEPT), partition=5))
        assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.broker.publish(change(leader=2, replicas=(2,), isr=(2,)))
        response = await member.acknowledge((0, 3, ACCEPT))
        assert part(response).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert part(response).current_leader.leader_id == 2
