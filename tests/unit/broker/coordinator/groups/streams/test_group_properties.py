"""Random streams groups: whatever members do and appends come to, a task has one owner.

Members follow the protocol as clients do, lose responses, fall silent, come back; processes share
members; topics grow; appends fail. After each step:

1. No active task is with two members, given or still to be given up.
2. No active task is at work in two members of the group, whatever they have heard of it.
3. A process has a task in one role at most.
4. What replay makes of the log is what the live group is.

In the end everybody heartbeats for a while, and all tasks are assigned, as the target says.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroup, StreamsGroupState
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatRequestTopicInfo,
    StreamsGroupHeartbeatRequestTopology,
)
from tests.unit.broker.coordinator.groups.streams.streams_context import (
    SENDER,
    StreamsContext,
)

GROUP = "group"
SESSION_MS, HEARTBEAT_MS = 45_000, 5_000
STEPS = 120

_Tasks = dict[str, set[int]]


def topology() -> StreamsGroupHeartbeatRequestTopology:
    """One subtopology without state, one with."""
    changelog = StreamsGroupHeartbeatRequestTopicInfo(name="store")
    return StreamsGroupHeartbeatRequestTopology(
        subtopologies=[
            StreamsGroupHeartbeatRequestSubtopology(subtopology_id="0", source_topics=["in"]),
            StreamsGroupHeartbeatRequestSubtopology(
                subtopology_id="1", source_topics=["other"], state_changelog_topics=[changelog]
            ),
        ]
    )


@dataclass
class Client:
    """A member as Kafka Streams is one."""

    member_id: str
    process_id: str
    epoch: int = 0
    active: _Tasks = field(default_factory=dict)
    standby: _Tasks = field(default_factory=dict)

    def request(self) -> StreamsGroupHeartbeatRequest:
        """The next heartbeat, with all that the member has."""
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            active_tasks=_ids(self.active),
            standby_tasks=_ids(self.standby),
            warmup_tasks=[],
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms = 30_000
            request.topology = topology()
            request.process_id = self.process_id
        return request

    def take(self, response: Any) -> None:
        """Act on a response: give up what is not assigned any longer, begin what is new."""
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.active, self.standby = 0, {}, {}
            return
        assert response.error_code is ErrorCode.NONE, response
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            self.active, self.standby = _sets(response.active_tasks), _sets(response.standby_tasks)


class Run:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.context = StreamsContext()
        self.context.settings.values["streams.num.standby.replicas"] = self.rng.randrange(3)
        self.context.settings.values["streams.assignment.interval.ms"] = self.rng.choice((0, 1000))
        self.context.make_topic("in", self.rng.randint(1, 6))
        self.context.make_topic("other", self.rng.randint(1, 6))
        self.clients: list[Client] = []
        self._numbers = 0

    def step(self) -> None:
        """Do something."""
        rng = self.rng
        what = rng.random()
        if what < 0.1 and len(self.clients) < 8:
            self._numbers += 1
            process = f"p{rng.randrange(4)}"
            self.clients.append(Client(f"m{self._numbers}", process))
        elif what < 0.13 and self.clients:
            self._leave(self.clients.pop(rng.randrange(len(self.clients))))
        elif what < 0.15 and self.clients:
            self.clients.pop(rng.randrange(len(self.clients)))  # killed: its session ends later
        elif what < 0.17:
            self.context.advance(rng.choice((HEARTBEAT_MS, SESSION_MS)))
        elif what < 0.18:
            name = rng.choice(("in", "other"))
            topic = self.context.metadata.topic(name)
            assert topic is not None
            if name == "in" or self.context.metadata.topic("store") is None:
                self.context.make_topic(name, topic.partition_count + 1)
        elif what < 0.2:
            self.context.load()
        elif self.clients:
            self.context.advance(rng.randrange(500))
            self._beat(rng.choice(self.clients))

    def _leave(self, client: Client) -> None:
        request = client.request()
        request.member_epoch, request.topology, request.active_tasks = -1, None, None
        self.context.heartbeat(request)

    def _beat(self, client: Client) -> None:
        if self.rng.random() < 0.1:
            self.context.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        answer = self.context.carry_out(
            self.context.groups.heartbeat(client.request(), SENDER, self.context.now)
        )
        self.context.append_error = ErrorCode.NONE
        if answer is None or self.rng.random() < 0.1:
            return  # the append failed, or the response was lost
        self._finish(client, answer)

    def _finish(self, client: Client, answer: Any) -> None:
        for missing in answer.missing_topics:
            self.context.make_topic(missing.name, missing.partition_count)
        client.take(answer.response)

    def settle(self) -> None:
        """Let everybody heartbeat for a while."""
        self.context.advance(SESSION_MS)
        for _ in range(60):
            self.context.advance(1000)
            for client in self.clients:
                self._finish(client, self.context.heartbeat(client.request()))

    def group(self) -> StreamsGroup | None:
        return self.context.registry.find(GROUP, StreamsGroup)


def check_owners(group: StreamsGroup) -> None:
    """Rules 1 and 3."""
    active: Counter[tuple[str, int]] = Counter()
    by_process: Counter[tuple[str, str, int]] = Counter()
    for member in group.members.values():
        roles: set[tuple[str, int]] = set()
        for tasks in (member.assigned, member.pending_revocation):
            of_member = {(name, one) for name, ones in tasks.active.items() for one in ones}
            active.update(of_member)
            roles |= of_member
            roles |= {(name, one) for name, ones in tasks.standby.items() for one in ones}
        by_process.update((member.metadata.process_id, *task) for task in roles)
    assert all(count == 1 for count in active.values()), active
    assert all(count == 1 for count in by_process.values()), by_process


def check_work(group: StreamsGroup, clients: list[Client]) -> None:
    """Rule 2; who is not in the group any longer will find out."""
    at_work = Counter(
        (name, index)
        for client in clients
        if client.member_id in group.members
        for name, indexes in client.active.items()
        for index in indexes
    )
    assert all(count == 1 for count in at_work.values()), at_work


def durable(group: StreamsGroup | None) -> object:
    """All of a group that its records hold."""
    if group is None:
        return None
    return (
        group.epoch,
        group.metadata_hash,
        group.validated_topology_epoch,
        group.assignment_configs,
        group.target.epoch,
        group.target.timestamp_ms,
        group.target.members,
        group.topology,
        dict(group.members),
        group.owners.snapshot(),
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_histories(seed: int) -> None:
    """See the module."""
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
        group = run.group()
        if group is not None:
            check_owners(group)
            check_work(group, run.clients)
    live = durable(run.group())
    run.context.load()
    assert durable(run.group()) == live
    run.clients.append(Client("last", "p9"))
    run.settle()
    group = run.group()
    assert group is not None
    assert set(group.members) == {client.member_id for client in run.clients}
    check_owners(group)
    if group.state is StreamsGroupState.NOT_READY:
        assert group.configured is not None
        assert group.configured.problem is not None
        return
    assert group.state is StreamsGroupState.STABLE
    wanted = {
        (name, index): 1
        for name, one in group.configured.subtopologies.items()  # type: ignore[union-attr]
        for index in range(one.task_count)
    }
    has = Counter(
        (name, index)
        for client in run.clients
        for name, indexes in client.active.items()
        for index in indexes
    )
    assert has == wanted


def _ids(tasks: _Tasks) -> list[StreamsGroupHeartbeatRequestTaskIds]:
    return [
        StreamsGroupHeartbeatRequestTaskIds(subtopology_id=name, partitions=sorted(partitions))
        for name, partitions in tasks.items()
    ]


def _sets(ids: list[Any]) -> _Tasks:
    return {one.subtopology_id: set(one.partitions) for one in ids}
