"""The kinds of group that a simulation plays: how their members speak, and how they are described.

A member is the same for all of them (`consumer_member`): it is given partitions, gives them up, and
commits offsets. In a streams group they are the active tasks of one subtopology that reads a topic;
of their state other members keep copies, as standby tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatRequestTopicInfo,
    StreamsGroupHeartbeatRequestTopology,
)
from tests.sim.consumer_group_model import Given

_LEAVES, _LEAVES_AS_STATIC = -1, -2
_REBALANCE_TIMEOUT_MS = 60_000
_SUBTOPOLOGY = "0"


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of a member."""

    group: str
    topic: str
    member_id: str
    instance_id: str | None


class MemberProtocol(Protocol):
    """How one process of a member speaks to the coordinator."""

    def heartbeat(self, epoch: int, has: Given | None, *, is_full: bool) -> Any:
        """Make a heartbeat.

        Args:
            has: what it has; None: that has not changed.
            is_full: whether it carries all fields, also those that have not changed.
        """

    def given(self, response: Any) -> Given | None:
        """What an answer gives it; None: nothing new."""

    def leave(self) -> Any:
        """Make the heartbeat of a member that leaves."""


class ConsumerProtocol:
    """Of KIP-848."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._topic_id = b""

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        one = self._identity
        return ConsumerGroupHeartbeatRequest(
            group_id=one.group, member_id=one.member_id, member_epoch=epoch
        )

    def heartbeat(self, epoch: int, has: Given | None, *, is_full: bool) -> Any:
        request = self._request(epoch)
        if is_full:
            request.instance_id = self._identity.instance_id
            request.rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [self._identity.topic]
        if has is not None:
            request.topic_partitions = [
                ConsumerGroupHeartbeatTopicPartitions(
                    topic_id=self._topic_id, partitions=sorted(has.owned)
                )
                for _ in range(bool(has.owned))
            ]
        return request

    def given(self, response: Any) -> Given | None:
        if response.assignment is None:
            return None
        found: set[int] = set()
        for one in response.assignment.topic_partitions:
            self._topic_id = one.topic_id
            found |= set(one.partitions)
        return Given(found, set())

    def leave(self) -> Any:
        is_static = self._identity.instance_id is not None
        request = self._request(_LEAVES_AS_STATIC if is_static else _LEAVES)
        request.instance_id = self._identity.instance_id
        return request


class StreamsProtocol:
    """Of KIP-1071; each member is a process with one thread."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def _request(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        one = self._identity
        return StreamsGroupHeartbeatRequest(
            group_id=one.group, member_id=one.member_id, member_epoch=epoch
        )

    def heartbeat(self, epoch: int, has: Given | None, *, is_full: bool) -> Any:
        request = self._request(epoch)
        if is_full:
            request.rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
            request.process_id = self._identity.member_id
        if epoch == 0:
            request.topology = StreamsGroupHeartbeatRequestTopology(
                subtopologies=[
                    StreamsGroupHeartbeatRequestSubtopology(
                        subtopology_id=_SUBTOPOLOGY,
                        source_topics=[self._identity.topic],
                        state_changelog_topics=[
                            StreamsGroupHeartbeatRequestTopicInfo(
                                name=f"{self._identity.group}-store-changelog"
                            )
                        ],
                    )
                ]
            )
        if has is not None:
            request.active_tasks, request.standby_tasks = map(_task_ids, has)
            request.warmup_tasks = []
        return request

    def given(self, response: Any) -> Given | None:
        if response.active_tasks is None:
            return None
        if response.warmup_tasks:  # as in Kafka 4.3, whose assignor knows none
            raise SimulationFailure(f"{self._identity.member_id} is to warm up: {response}")
        return Given(_partitions(response.active_tasks), _partitions(response.standby_tasks))

    def leave(self) -> Any:
        return self._request(_LEAVES)


def _task_ids(partitions: set[int]) -> list[StreamsGroupHeartbeatRequestTaskIds]:
    return [
        StreamsGroupHeartbeatRequestTaskIds(
            subtopology_id=_SUBTOPOLOGY, partitions=sorted(partitions)
        )
        for _ in range(bool(partitions))
    ]


def _partitions(entries: Any) -> set[int]:
    """Of topics, or of subtopologies."""
    return {partition for one in entries for partition in one.partitions}


@dataclass(frozen=True, slots=True)
class GroupKind:
    """One kind of group.

    Attributes:
        name: as in the names of its settings.
        heartbeat_version: of the requests that its members send.
        may_be_static: whether it has static members.
        copies: its setting for how many copies of a state there are to be, if it has any.
        more: settings of a run beside the times of heartbeats.
        describe: makes the request for a description.
        described: what a description's assignment gives a member.
    """

    name: str
    protocol: Callable[[Identity], MemberProtocol]
    heartbeat_version: int
    may_be_static: bool
    copies: str | None
    more: Callable[[Random], dict[str, str]]
    describe: Callable[[str], Any]
    describe_version: int
    described: Callable[[Any], Given]

    def properties(self, rng: Random, session_s: float) -> dict[str, str]:
        """The brokers' settings for a run."""
        session_ms = str(int(session_s * 1000))
        start = f"group.{self.name}"
        return {
            "offsets.topic.num.partitions": "3",
            f"{start}.min.session.timeout.ms": session_ms,
            f"{start}.session.timeout.ms": session_ms,
            f"{start}.min.heartbeat.interval.ms": "500",
            f"{start}.heartbeat.interval.ms": "500",
            f"{start}.assignment.interval.ms": str(rng.choice((0, 300, 1000))),
            **({} if self.copies is None else {self.copies: str(rng.randrange(3))}),
            **self.more(rng),
        }


CONSUMER = GroupKind(
    name="consumer",
    protocol=ConsumerProtocol,
    heartbeat_version=1,
    may_be_static=True,
    copies=None,
    more=lambda rng: {"group.consumer.assignors": rng.choice(("uniform,range", "range"))},
    describe=lambda group: ConsumerGroupDescribeRequest(group_ids=[group]),
    describe_version=1,
    described=lambda assignment: Given(_partitions(assignment.topic_partitions), set()),
)

STREAMS = GroupKind(
    name="streams",
    protocol=StreamsProtocol,
    heartbeat_version=0,
    may_be_static=False,
    copies="group.streams.num.standby.replicas",
    more=lambda rng: {"group.streams.initial.rebalance.delay.ms": str(rng.choice((0, 500, 2000)))},
    describe=lambda group: StreamsGroupDescribeRequest(group_ids=[group]),
    describe_version=0,
    described=lambda assignment: Given(
        _partitions(assignment.active_tasks), _partitions(assignment.standby_tasks)
    ),
)
