"""Asks where logs begin and end, and where a time lies in them, and remembers every answer.

Owns: `OffsetsWatcher`, a client of ListOffsets. What it demands
1. The end of a partition does not go back within a leader epoch.
2. A partition does not begin before what was deleted of it, once that was acknowledged; unless a
   process may die: where a log starts is written down from time to time only, as in Kafka.
3. The first record at or after a time is the same for ever, and later times lie at later offsets:
   compared with each other at once, and with the log itself in the end (only for partitions whose
   beginning stays).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import trio

from kraftrio.testing.simulation.world import START_WALL_MS, SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraftrio.wire.primitives import TopicPartition
from tests.sim.client import SimClient, Unavailable

EARLIEST, LATEST = -2, -1


class OffsetsWatcher:
    """See the module.

    Args:
        topic_partitions: those to ask about.
        trimmed: their topic may lose records at its beginning.
    """

    def __init__(
        self, client: SimClient, topic_partitions: Sequence[TopicPartition], trimmed: str
    ) -> None:
        self._client = client
        self._tps = list(topic_partitions)
        self._trimmed = trimmed
        self._ends: dict[tuple[TopicPartition, int], int] = {}
        self._by_time: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        self.deleted: dict[TopicPartition, int] = {}  # what was acknowledged to be gone before
        self.forgets_deletions = False  # where the beginning of a log may be forgotten
        self.count = 0

    async def run(self) -> None:
        """Ask until cancelled."""
        rng = self._client.rng
        while True:
            await trio.sleep(rng.expovariate(1 / 0.5))
            tp = rng.choice(self._tps)
            try:
                await rng.choice((self._ask_end, self._ask_beginning, self._ask_time))(tp)
            except Unavailable as error:
                self._client.note(f"offsets of {_name(tp)} again: {error}")
                self._client.forget(tp.topic)

    async def ask(
        self, tp: TopicPartition, timestamp: int
    ) -> tuple[ListOffsetsPartitionResponse, int]:
        """Ask the leader once; return its answer and its leader epoch.

        Raises:
            Unavailable: it is not to be had now.
        """
        leader, epoch = await self._client.leader(*tp)
        asked = ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=tp.topic, partitions=[asked])]
        )
        response = await self._client.call_node(leader, request, 7)
        answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            if not code.retriable:
                raise SimulationFailure(f"offsets of {_name(tp)} were answered {code.name}")
            raise Unavailable(code.name)
        self.count += 1
        return answer, epoch

    async def _ask_end(self, tp: TopicPartition) -> None:
        answer, epoch = await self.ask(tp, LATEST)
        before = self._ends.get((tp, epoch), 0)
        self._ends[tp, epoch] = answer.offset
        if answer.offset < before:
            raise SimulationFailure(
                f"{_name(tp)} ended at {before} in leader epoch {epoch}, now at {answer.offset}"
            )

    async def _ask_beginning(self, tp: TopicPartition) -> None:
        deleted = self.known_deleted(tp)
        answer, _ = await self.ask(tp, EARLIEST)
        if answer.offset < deleted or (answer.offset and tp.topic != self._trimmed):
            raise SimulationFailure(
                f"{_name(tp)} begins at {answer.offset}, and was deleted before {deleted}"
            )

    def known_deleted(self, tp: TopicPartition) -> int:
        """Where a partition begins at least."""
        return 0 if self.forgets_deletions else self.deleted.get(tp, 0)

    async def _ask_time(self, tp: TopicPartition) -> None:
        if tp.topic == self._trimmed:
            return
        world, rng = self._client.world, self._client.rng
        time_ms = START_WALL_MS + rng.randrange(int(world.now_s * 1000) + 1)
        answer, _ = await self.ask(tp, time_ms)
        known = self._by_time[tp]
        offset = answer.offset
        for other_ms, other in known.items():
            is_found_late = offset < 0 and other_ms >= time_ms
            is_early = offset >= 0 and other_ms <= time_ms and other > offset
            is_late = offset >= 0 and other_ms >= time_ms and other < offset
            if is_found_late or is_early or is_late:
                raise SimulationFailure(
                    f"{_name(tp)}: time {time_ms} lies at {offset}, but {other_ms} at {other}"
                )
        if offset >= 0:
            known[time_ms] = offset

    def check_log(self, tp: TopicPartition, times: Sequence[tuple[int, int]]) -> None:
        """Compare what was answered with the records of the final log: (offset, timestamp)."""
        for time_ms, offset in self._by_time[tp].items():
            expected = next((at for at, timestamp in times if timestamp >= time_ms), -1)
            if offset != expected:
                raise SimulationFailure(
                    f"{_name(tp)}: time {time_ms} was answered with {offset}, and lies at"
                    f" {expected}"
                )


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"
