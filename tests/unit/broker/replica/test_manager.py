"""The figures of all replicas of a broker."""

from __future__ import annotations

import trio

from kraftrio.base.statistics import HasStatistics
from kraftrio.kraft_meta.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.primitives import TopicPartition
from tests.unit.broker.replica.replica_context import LAG_MS, OTHER_ID, TOPIC_ID, TP, Broker


async def test_replicas_are_counted_by_their_state() -> None:
    broker = Broker()
    shell: HasStatistics = broker.replicas
    assert set(shell.statistics().values()) == {0}
    broker.lead(isr=(1, 2))
    other = [PartitionRecord(OTHER_ID, index, (1, 2), (1, 2), 2) for index in range(3)]
    broker.publish(TopicRecord("u", OTHER_ID), *other)
    broker.replicas.hosted.find(TopicPartition("u", 0))
    figures = shell.statistics()
    assert figures["partitions"] == 2 and figures["leader_partitions"] == 1
    assert figures["partitions_without_log"] == 2
    assert figures["under_replicated_partitions"] == 1
    broker.replicas.failures.go_offline([TP])
    assert shell.statistics()["offline_partitions"] == 1


async def test_changes_of_isrs_are_counted(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        end = broker.append()
        broker.fetched(3, end)
        broker.proposed[-1].take()
        assert broker.replicas.statistics()["isr_expands_total"] == 1
        broker.proposed.clear()
        while not broker.proposed:  # 2 has never fetched
            await _pass(LAG_MS / 2)
        broker.proposed[-1].take()
        figures = broker.replicas.statistics()
        assert (figures["isr_expands_total"], figures["isr_shrinks_total"]) == (1, 1)
        shrunken = PartitionChangeRecord(TOPIC_ID, 0, isr=(1,))
        broker.publish(shrunken)
        assert broker.replicas.statistics()["isr_shrinks_total"] == 1, "only what it asked for"


async def _pass(time_ms: float) -> None:
    await trio.sleep(time_ms / 1000)
