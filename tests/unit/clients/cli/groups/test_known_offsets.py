"""What a cluster knows of partitions: both ends, and a moment's offset where there is one."""

from __future__ import annotations

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.cli.groups.known_offsets import known_offsets
from kraftrio.clients.cli.groups.reset import KnownOffsets
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_ends_what_is_committed_and_a_moment(kafka: Kafka) -> None:
    await kafka.create("t", 2)
    await kafka.fill("t", 10)
    now_ms = kafka.now_ms()
    async with Admin(kafka.bootstrap) as admin:
        await admin.delete_records({T0: 2})
        assert await known_offsets(admin, [T0, T1], {T0: 5}, None) == {
            T0: KnownOffsets(2, 10, 5),
            T1: KnownOffsets(0, 0),
        }
        found = await known_offsets(admin, [T0, T1], {}, now_ms - 60_000)
        assert (found[T0].at, found[T1].at) == (2, None)
        found = await known_offsets(admin, [T0], {}, now_ms + 60_000)
        assert found[T0].at is None
        assert await known_offsets(admin, [], {}, None) == {}
