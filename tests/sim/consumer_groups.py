"""A group of members that come and go, while its coordinators die: one run by its seed.

Owns: `run_group`, for groups whose partitions the broker gives to one member each (`group_kinds`).
Brokers are killed in turns, the coordinator more often than others; members leave, crash and pause.
Then there is peace: everybody comes to what it is to have (`ConsumerGroupModel.unsettled`). At last
the coordinator dies once more, and nothing may change by that: what the next one reads in the log
is the state that the last one had.

Called by: the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import trio

from kraftrio.testing.simulation.world import SimulationFailure, describe
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from tests.sim.client import Unavailable
from tests.sim.consumer_group_model import ConsumerGroupModel
from tests.sim.consumer_member import ConsumerMember
from tests.sim.group_kinds import CONSUMER, GroupKind
from tests.sim.stage import Stage, expect, play

GROUP, TOPIC = "group", "work"
SESSION_S = 3.0
SETTLED_WITHIN_S = 40.0


@dataclass(slots=True)
class Result:
    """What came of one run."""

    failure: str | None = None
    commits: int = 0
    take_overs: int = 0
    kills: int = 0
    digest: str = ""


def run_group(seed: int, kind: GroupKind = CONSUMER) -> Result:
    """Play one seed; a broken promise is in the result."""
    rng = Random(f"{kind.name} group {seed}")
    result = Result()
    properties = kind.properties(rng, SESSION_S)
    copy_count = 0 if kind.copies is None else int(properties[kind.copies])

    async def script(stage: Stage) -> None:
        await _Run(kind, stage, rng, result, copy_count).play()

    try:
        world = play(script, seed=f"{kind.name} group {seed}", properties=properties)
    except SimulationFailure as failure:
        result.failure = str(failure)
    except BaseExceptionGroup as group:
        result.failure = describe(group)
    else:
        result.digest = world.trace.digest()
    return result


class _Run:
    def __init__(
        self, kind: GroupKind, stage: Stage, rng: Random, result: Result, copy_count: int
    ) -> None:
        self._kind = kind
        self._stage = stage
        self._rng = rng
        self._result = result
        self._partition_count = rng.randint(1, 9)
        self._model = ConsumerGroupModel(self._partition_count, SESSION_S, copy_count)
        self._client = stage.client("observer")
        self._members: list[ConsumerMember] = []

    async def play(self) -> None:
        """Work under faults, peace, and the last death of the coordinator."""
        await self._create_topic()
        for number in range(self._rng.randint(2, 5)):
            is_static = self._rng.random() < 0.3 and self._kind.may_be_static
            member = ConsumerMember(
                f"m{number}",
                self._kind,
                GROUP,
                TOPIC,
                self._model,
                self._stage.client,
                Random(self._rng.random()),
                SESSION_S,
                f"i{number}" if is_static else None,
            )
            self._members.append(member)
            self._stage.start(member.run)
        for _ in range(self._rng.randint(2, 5)):
            await trio.sleep(self._rng.uniform(1.0, 9.0))
            await self._kill_one()
        for member in self._members:
            member.is_calm = True
        await self._settle("in peace")
        before = self._model.state()
        described = await self._describe()
        await self._kill(await self._coordinator())
        await trio.sleep(2 * SESSION_S)
        await self._settle("with another coordinator")
        after = self._model.state()
        expect(after == before, f"reading brought members news: {before}, {after}")
        now = await self._describe()
        expect(now == described, f"the group was {described}, and is {now} after it was read")
        self._result.commits = self._model.commit_count
        self._result.take_overs = self._model.take_over_count

    async def _create_topic(self) -> None:
        topic = CreatableTopic(
            name=TOPIC, num_partitions=self._partition_count, replication_factor=1
        )
        response = await self._client.call_any(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        expect(response.topics[0].error_code == ErrorCode.NONE, f"no topic: {response}")

    async def _coordinator(self) -> int:
        while True:
            try:
                return await self._client.coordinator(GROUP)
            except Unavailable:
                await self._client.pause()

    async def _kill_one(self) -> None:
        node_id = self._rng.choice((1, 2, 3))
        if self._rng.random() < 0.7:
            node_id = await self._coordinator()
        await self._kill(node_id)

    async def _kill(self, node_id: int) -> None:
        """Crash a broker, and start it again after the others have noticed."""
        node = self._stage.node(node_id)
        node.crash()
        self._result.kills += 1
        await trio.sleep(self._rng.uniform(0.2, 6.0))
        node.start()
        await self._stage.cluster.wait_until(
            self._stage.cluster.all_ready, "all brokers are up again"
        )

    async def _settle(self, when: str) -> None:
        """Wait until everybody has what it is to have, for as long as a session."""
        end_s = self._stage.world.now_s + SETTLED_WITHIN_S
        settled_s = self._stage.world.now_s
        while self._stage.world.now_s - settled_s < SESSION_S:
            await trio.sleep(0.1)
            now_s = self._stage.world.now_s
            why = self._model.unsettled()
            if len(self._model.views) < len(self._members):
                why = "not all members are there"
            if why is not None:
                settled_s = now_s
                expect(now_s < end_s, f"not settled {when}: {why}")

    async def _describe(self) -> object:
        """What the coordinator says of the group; each member has its target."""
        while True:
            try:
                node_id = await self._client.coordinator(GROUP)
                response = await self._client.call_node(
                    node_id, self._kind.describe(GROUP), self._kind.describe_version
                )
                (group,) = response.groups
            except Unavailable:
                await self._client.pause()
                continue
            if ErrorCode(group.error_code).retriable:
                await self._client.pause()
                continue
            break
        expect(group.error_code == ErrorCode.NONE, f"cannot be described: {group}")
        expect(group.group_state == "Stable", f"the group is {group.group_state}")
        for member in group.members:
            expect(member.assignment == member.target_assignment, f"not its target: {member}")
        expect(len(group.members) == len(self._members), f"there are others: {group.members}")
        members = {
            one.member_id: (
                one.instance_id,
                one.member_epoch,
                self._kind.described(one.assignment),
            )
            for one in group.members
        }
        return group.group_epoch, group.assignment_epoch, members
