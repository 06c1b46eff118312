"""A share group whose members come and go, while leaders and coordinators die: one run by its seed.

Owns: `run_share_group`. Records are written all the time, and brokers killed in turns: the leaders
of the topic's partitions, the coordinator of the group, and those that keep its state. Then there
is peace: members stay, and accept what they get, until nothing is left. At last every broker is
restarted by kill -9, one after the other, and nothing may change by that: what was kept is all that
counts. Records that are written then are delivered as before.

Called by: the tests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from kraftrio.testing.simulation.world import START_WALL_MS, SimulationFailure, describe
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kraftrio.wire.messages.data import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftrio.wire.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
)
from kraftrio.wire.records.batch import Record, build_batch
from tests.sim.client import SimClient, Unavailable
from tests.sim.share_group_model import Place, ShareGroupModel
from tests.sim.share_member import ShareMember
from tests.sim.stage import Stage, expect, play

GROUP, TOPIC = "group", "work"
SESSION_S, LOCK_S = 3.0, 2.0
SETTLED_WITHIN_S = 60.0
_GROUP_RESOURCE = 32


@dataclass(slots=True)
class Result:
    """What came of one run; `counts` is the model's tally."""

    failure: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    digest: str = ""


def run_share_group(seed: int) -> Result:
    """Play one seed; a broken promise is in the result."""
    rng = Random(f"share group {seed}")
    result = Result()
    limit = rng.randint(2, 5)
    properties = {
        "offsets.topic.num.partitions": "3",
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.snapshot.update.records.per.snapshot": str(rng.choice((1, 7, 50))),
        "share.coordinator.state.topic.prune.interval.ms": str(rng.choice((2000, 300_000))),
        "share.coordinator.cold.partition.snapshot.interval.ms": str(rng.choice((3000, 300_000))),
        "group.share.min.session.timeout.ms": str(int(SESSION_S * 1000)),
        "group.share.session.timeout.ms": str(int(SESSION_S * 1000)),
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.assignment.interval.ms": str(rng.choice((0, 300, 1000))),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
        "group.share.delivery.count.limit": str(limit),
        "group.share.initialize.retry.interval.ms": "2000",
    }

    async def script(stage: Stage) -> None:
        await _Run(stage, rng, result, limit).play()

    try:
        world = play(script, seed=f"share group {seed}", properties=properties)
    except SimulationFailure as failure:
        result.failure = str(failure)
    except BaseExceptionGroup as group:
        result.failure = describe(group)
    else:
        result.digest = world.trace.digest()
    return result


class _Writer:
    """Writes records to all partitions; what was not acknowledged may be there or not."""

    def __init__(
        self, client: SimClient, rng: Random, model: ShareGroupModel, partition_count: int
    ) -> None:
        self._client = client
        self._rng = rng
        self._model = model
        self._partition_count = partition_count
        self._number = 0
        self.is_stopping = False

    async def run(self) -> None:
        while not self.is_stopping:
            await self.write(self._rng.randrange(self._partition_count))
            await trio.sleep(self._rng.uniform(0.05, 0.5))

    async def write(self, partition: int) -> bool:
        """Write some records as one batch; return whether that was acknowledged."""
        numbers = range(self._number, self._number + self._rng.randint(1, 6))
        self._number = numbers.stop
        values = [f"record {number}".encode() for number in numbers]
        batch = build_batch(
            [Record(at, START_WALL_MS, None, value) for at, value in enumerate(values)]
        )
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=3_000, topic_data=[topic])
        try:
            leader, _ = await self._client.leader(TOPIC, partition)
            response = await self._client.call_node(leader, request)
        except Unavailable:
            self._client.forget(TOPIC)
            return False
        answer = response.responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.NONE:
            self._client.forget(TOPIC)
            return False
        for at, value in enumerate(values):
            self._model.write(Place(partition, answer.base_offset + at), value)
        return True


class _Run:
    def __init__(self, stage: Stage, rng: Random, result: Result, limit: int) -> None:
        self._stage = stage
        self._rng = rng
        self._result = result
        self._partition_count = rng.randint(1, 4)
        self._model = ShareGroupModel(limit, LOCK_S)
        self._client = stage.client("observer")
        self._lives = dict.fromkeys((1, 2, 3), 0)
        self._members: list[ShareMember] = []
        self._writer = _Writer(
            stage.client("writer"), Random(rng.random()), self._model, self._partition_count
        )

    async def play(self) -> None:
        """Work under faults, peace, and the death of every broker."""
        await self._prepare()
        for number in range(self._rng.randint(2, 4)):
            member = ShareMember(
                f"m{number}",
                GROUP,
                TOPIC,
                self._model,
                self._stage.client,
                self._lives.__getitem__,
                Random(self._rng.random()),
                LOCK_S,
            )
            self._members.append(member)
            self._stage.start(member.run)
        self._stage.start(self._writer.run)
        for _ in range(self._rng.randint(2, 5)):
            await trio.sleep(self._rng.uniform(1.0, 8.0))
            await self._kill(self._rng.choice((1, 2, 3)))
        self._writer.is_stopping = True
        for member in self._members:
            member.is_calm = True
        await self._settle("in peace")
        offsets, group = await self._offsets(), await self._describe()
        for node_id in self._lives:
            await self._kill(node_id)
        await trio.sleep(2 * SESSION_S)
        await self._settle("after all brokers were killed")
        found = await self._offsets()
        expect(found == offsets, f"the group was at {offsets}, and is at {found} after it was read")
        now = await self._describe()
        expect(now == group, f"the group was {group}, and is {now} after it was read")
        for partition in range(self._partition_count):
            while not await self._writer.write(partition):
                await self._client.pause()
        await self._settle("with new records")
        self._result.counts = self._model.tally

    async def _prepare(self) -> None:
        topic = CreatableTopic(
            name=TOPIC, num_partitions=self._partition_count, replication_factor=3
        )
        response = await self._client.call_any(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        expect(response.topics[0].error_code == ErrorCode.NONE, f"no topic: {response}")
        resource = IncrementalAlterConfigsResource(
            resource_type=_GROUP_RESOURCE,
            resource_name=GROUP,
            configs=[IncrementalAlterableConfig(name="share.auto.offset.reset", value="earliest")],
        )
        altered = await self._client.call_any(IncrementalAlterConfigsRequest(resources=[resource]))
        expect(altered.responses[0].error_code == ErrorCode.NONE, f"not altered: {altered}")

    async def _kill(self, node_id: int) -> None:
        """Crash a broker, and start it again after the others have noticed."""
        node = self._stage.node(node_id)
        self._lives[node_id] += 1
        node.crash()
        self._result.kills += 1
        await trio.sleep(self._rng.uniform(0.2, 6.0))
        node.start()
        await self._stage.cluster.wait_until(
            self._stage.cluster.all_ready, "all brokers are up again"
        )

    # -- what the group says of itself ------------------------------------------------------------

    async def _settle(self, when: str) -> None:
        """Wait until all that was written has come to its end, and nothing changes any more."""
        end_s = self._stage.world.now_s + SETTLED_WITHIN_S
        settled_s = self._stage.world.now_s
        while self._stage.world.now_s - settled_s < SESSION_S:
            await trio.sleep(0.3)
            why = await self._unsettled()
            if why is not None:
                settled_s = self._stage.world.now_s
                expect(settled_s < end_s, f"not settled {when}: {why}")

    async def _unsettled(self) -> str | None:
        _, group_epoch, members = await self._describe()
        epochs = {member.epoch for member in self._members}
        if epochs != {group_epoch} or len(members) != len(self._members):
            return f"the group is in epoch {group_epoch}, its members are {members}, in {epochs}"
        assigned = {index for member in self._members for index in member.assigned}
        if assigned != set(range(self._partition_count)):
            return f"assigned are {sorted(assigned)}"
        for index, (start_offset, lag) in (await self._offsets()).items():
            if lag:
                return f"partition {index} is at {start_offset}, {lag} before its end"
        return self._model.unsettled()

    async def _ask(self, request: object) -> Any:
        """Ask the coordinator of the group until it answers; return what it says of it."""
        while True:
            try:
                node_id = await self._client.coordinator(GROUP)
                response = await self._client.call_node(node_id, request)
            except Unavailable:
                await self._client.pause()
                continue
            (group,) = response.groups
            if not ErrorCode(group.error_code).retriable:
                expect(group.error_code == ErrorCode.NONE, f"cannot be described: {group}")
                return group
            await self._client.pause()

    async def _offsets(self) -> dict[int, tuple[int, int]]:
        """Where the group is in each partition, and how far that is from the end."""
        while True:
            request = DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
            )
            group = await self._ask(request)
            found = [one for topic in group.topics for one in topic.partitions]
            if all(one.error_code == ErrorCode.NONE for one in found):
                return {one.partition_index: (one.start_offset, one.lag) for one in found}
            await self._client.pause()

    async def _describe(self) -> tuple[str, int, dict[str, tuple[int, list[list[int]]]]]:
        """What the coordinator says of the group: its state, its epoch, and each member's."""
        group = await self._ask(ShareGroupDescribeRequest(group_ids=[GROUP]))
        members = {
            one.member_id: (
                one.member_epoch,
                [sorted(topic.partitions) for topic in one.assignment.topic_partitions],
            )
            for one in group.members
        }
        return group.group_state, group.group_epoch, members
