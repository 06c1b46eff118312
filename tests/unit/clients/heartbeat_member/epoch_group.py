"""A group to test members in: a small coordinator of KIP-848, and members that follow it.

The coordinator keeps what others must not get before it was given up: it goes by what members own,
as they tell it.
"""

from __future__ import annotations

import random
from typing import Any

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.consumer.members.heartbeats import ConsumerHeartbeatRequests
from kraftrio.clients.heartbeat_member.member import HeartbeatMember, Idle, Lose, Reconcile
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from kraftrio.wire.primitives import TopicPartition

GROUP = "g"
INTERVAL_MS = 1_000
A, B = b"a" * 16, b"b" * 16
NAMES = {A: "a", B: "b"}


def core(
    member_id: str = "m", *, topics: str = "a", names: dict[bytes, str] | None = None, **kwargs: Any
) -> tuple[HeartbeatMember, ConsumerHeartbeatRequests]:
    """Make a member that has subscribed and polled."""
    instance_id = kwargs.pop("instance_id", None)
    heartbeats = ConsumerHeartbeatRequests(
        GROUP, instance_id, None, 300_000, None, frozenset(topics)
    )
    known = NAMES if names is None else names
    member = HeartbeatMember(
        "the group 'g'",
        member_id,
        heartbeats,
        known.get,
        max_poll_interval_ms=kwargs.pop("max_poll_interval_ms", 300_000),
        backoff=ExponentialBackoff(100, 1_000),
        rng=random.Random(1),
    )
    member.polled(0)
    member.subscribe()
    return member, heartbeats


def answer(
    epoch: int = 1, assigned: dict[bytes, list[int]] | None = None, **kwargs: Any
) -> ConsumerGroupHeartbeatResponse:
    """Make an answer; no assignment: it has not changed."""
    assignment = None
    if assigned is not None:
        assignment = ConsumerGroupHeartbeatAssignment(
            topic_partitions=[
                ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in assigned.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=INTERVAL_MS,
        assignment=assignment,
        **kwargs,
    )


def refusal(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


class Coordinator:
    """Shares the partitions of topic a out, evenly."""

    def __init__(self, partitions: int) -> None:
        self.partitions = range(partitions)
        self.epoch = 0
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, set[int]] = {}  # as members sent, or were just assigned
        self.assigned: dict[str, set[int]] = {}

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member, epoch = request.member_id, request.member_epoch
        if epoch < 0:
            self.remove(member)
            return ConsumerGroupHeartbeatResponse(member_epoch=epoch)
        if epoch == 0:
            assert request.topic_partitions == [] and request.subscribed_topic_names == ["a"]
            self.remove(member)
            self.epoch += 1
            self.owned[member] = set()
        elif member not in self.epochs:
            return refusal(ErrorCode.UNKNOWN_MEMBER_ID)
        elif epoch > self.epochs[member]:
            return refusal(ErrorCode.FENCED_MEMBER_EPOCH)
        if epoch and request.topic_partitions is not None:
            self.owned[member] = {
                each for topic in request.topic_partitions for each in topic.partitions
            }
        self.epochs[member] = self.epoch
        allowed = self._allowed(member)
        is_full = None not in (request.subscribed_topic_names, request.topic_partitions)
        is_news = allowed != self.assigned.get(member)
        self.assigned[member] = allowed
        self.owned[member] |= allowed
        return answer(self.epoch, {A: sorted(allowed)} if is_news or is_full else None)

    def remove(self, member: str) -> None:
        """Take a member out: it left, or its session is over."""
        if self.epochs.pop(member, None) is not None:
            self.epoch += 1
        self.owned.pop(member, None)
        self.assigned.pop(member, None)

    def _allowed(self, member: str) -> set[int]:
        """What a member may own now: its share, without what others have not given up."""
        members = sorted(self.owned)
        share = set(self.partitions[members.index(member) :: len(members)])
        others = (owned for each, owned in self.owned.items() if each != member)
        return share.difference(*others)


class Member:
    """A member whose application does everything at once, over a network that may lose answers."""

    def __init__(self, coordinator: Coordinator, member_id: str) -> None:
        self.coordinator = coordinator
        self.core, _ = core(member_id)
        self.now_ms = 0.0
        self.events: list[tuple[str, list[int]]] = []

    @property
    def owned(self) -> set[int]:
        return {partition for _, partition in self.core.owned}

    def step(self) -> bool:
        """Do what is to be done next; False: there is nothing."""
        step = self.core.step(self.now_ms)
        if isinstance(step, Idle):
            return False
        if isinstance(step, Lose):
            self.events.append(("lost", numbers(step.partitions)))
            self.core.lost()
        elif isinstance(step, Reconcile):
            if step.revoked:
                self.events.append(("revoked", numbers(step.revoked)))
            assert self.core.revoked(step)
            self.core.reconciled(step)
            self.events.append(("assigned", numbers(step.added)))
        return True

    def beat(self, *, loses_answer: bool = False) -> None:
        """Let the interval pass and send the heartbeat that is due, if one is."""
        self.now_ms += INTERVAL_MS
        self.core.polled(self.now_ms)
        request = self.core.heartbeat(self.now_ms)
        if request is None:
            return
        answered = self.coordinator.heartbeat(request)
        if loses_answer:
            self.core.heartbeat_failed(request, self.now_ms)
        else:
            self.core.heartbeat_answered(request, answered, self.now_ms)


def numbers(partitions: frozenset[TopicPartition]) -> list[int]:
    return sorted(partition for _, partition in partitions)


def check_owners(*members: Member) -> None:
    """Nobody owns what another one owns; who was thrown out may not know it yet."""
    known = [member for member in members if member.core.member_id in member.coordinator.epochs]
    owned = [each for member in known for each in member.owned]
    assert len(owned) == len(set(owned)), {m.core.member_id: m.owned for m in members}
