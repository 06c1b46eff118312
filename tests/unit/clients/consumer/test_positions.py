"""Where a consumer begins: what is asked again, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import trio
import trio.testing

from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.config import ConsumerConfig, OffsetReset, ResetTo
from kraftrio.clients.consumer.offsets import EpochEnd, OffsetAndTimestamp
from kraftrio.clients.consumer.partition import AssignedPartition, FetchStatus, Position
from kraftrio.clients.consumer.positions import Positions
from kraftrio.clients.errors import KafkaClientError, LeaderNotAvailableError
from kraftrio.wire.primitives import TopicPartition

RESET, COMMITTED = TopicPartition("t", 0), TopicPartition("t", 1)


class NoLeaders:
    """A cluster of which nothing is known."""

    def __init__(self) -> None:
        self.metadata = self

    def leader(self, topic: str, partition: int) -> None:
        return None

    def request_refresh(self) -> None: ...


class NewLeaders:
    """A cluster of which there is a new leader after each request."""

    def __init__(self) -> None:
        self.epoch = 1
        self.metadata = self

    def leader(self, topic: str, partition: int) -> tuple[int, int]:
        return 1, self.epoch

    def topic_id(self, topic: str) -> bytes:
        return bytes(16)


class EpochEnds:
    """An OffsetClient whose first answer comes when the leader is another one already."""

    def __init__(self, cluster: NewLeaders, state: AssignedPartitions) -> None:
        self._cluster = cluster
        self._state = state
        self.count = 0

    async def epoch_ends(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd]:
        await trio.lowlevel.checkpoint()
        self.count += 1
        if self.count == 1:
            self._cluster.epoch = 2
            self._state.leader_seen(_state(self._state, RESET), 2)
        return {partition: EpochEnd(1, 10) for partition in wanted}


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


def _state(state: AssignedPartitions, topic_partition: TopicPartition) -> AssignedPartition:
    found = state.get(topic_partition)
    assert found is not None
    return found


async def test_what_backed_off_while_another_answer_took_long_is_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its pause is over before anybody could wait for the end of it."""
    state, offsets = AssignedPartitions(), SlowOffsets()
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


async def test_what_was_asked_of_a_former_leader_is_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The answer counts for nothing, and nobody else wakes the positions."""
    state, cluster = AssignedPartitions(), NewLeaders()
    offsets = EpochEnds(cluster, state)
    state.assign([RESET])
    state.seek(_state(state, RESET), Position(5, 1), validate=True)
    config = ConsumerConfig(bootstrap_servers=["h:1"], retry_backoff_ms=100)
    failures: list[KafkaClientError] = []
    positions = Positions(cast(Any, cluster), config, state, cast(Any, offsets), failures.append)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(positions.run)
            while _state(state, RESET).status is not FetchStatus.FETCHING:
                await positions.wait_change()
            nursery.cancel_scope.cancel()
    assert (offsets.count, failures) == (2, [])
