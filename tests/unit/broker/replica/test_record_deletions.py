"""Deleted records: followers delete them, too, and the dead are not waited for."""

from __future__ import annotations

import trio

from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
)
from kraftrio.wire.errors import ErrorCode
from tests.unit.broker.replica.replica_context import Broker, parked


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
