"""Where a consumer begins: what is asked again, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import trio
import trio.testing

from kraftrio.clients.consumer_config import ConsumerConfig, OffsetReset, ResetTo
from kraftrio.clients.errors import KafkaClientError, LeaderNotAvailableError
from kraftrio.clients.fetch_state import FetchState, FetchStatus, PartitionState
from kraftrio.clients.offsets import OffsetAndTimestamp
from kraftrio.clients.positions import Positions
from kraftrio.wire.primitives import TopicPartition

RESET, COMMITTED = TopicPartition("t", 0), TopicPartition("t", 1)


class NoLeaders:
    """A cluster of which nothing is known."""

    def leader(self, topic: str, partition: int) -> None:
        return None

    def request_refresh(self) -> None: ...


class SlowOffsets:
    """An OffsetClient: no leader is known at first, and the coordinator takes its time."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        await trio.sleep(1.0)
        return {partition: OffsetAndTimestamp(7, -1, 1) for partition in partitions}

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaClientError | None]:
        await trio.lowlevel.checkpoint()
        self.asked_at.append(trio.current_time())
        if len(self.asked_at) == 1:
            return dict.fromkeys(wanted, LeaderNotAvailableError("no leader is known"))
        return {partition: OffsetAndTimestamp(0, -1, 1) for partition in wanted}


def _state(state: FetchState, topic_partition: TopicPartition) -> PartitionState:
    found = state.get(topic_partition)
    assert found is not None
    return found


async def test_what_backed_off_while_another_answer_took_long_is_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its pause is over before anybody could wait for the end of it."""
    state, offsets = FetchState(), SlowOffsets()
    state.assign([RESET, COMMITTED])
    state.request_reset(_state(state, RESET), OffsetReset(ResetTo.EARLIEST))
    config = ConsumerConfig(bootstrap_servers=["h:1"], group_id="g", retry_backoff_ms=100)
    cluster: Any = NoLeaders()
    failures: list[KafkaClientError] = []
    positions = Positions(cluster, config, state, cast(Any, offsets), failures.append)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(positions.run)
            while _state(state, RESET).status is FetchStatus.RESETTING:
                await positions.wait_change()
            nursery.cancel_scope.cancel()
    assert len(offsets.asked_at) == 2
    assert failures == []
