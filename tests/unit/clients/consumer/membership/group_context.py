"""A group to test members in: a small coordinator, and members that do what their core says."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from kraftrio.clients.consumer.membership.assignors import (
    CooperativeStickyAssignor,
    RangeAssignor,
    StickyAssignor,
)
from kraftrio.clients.consumer.membership.membership import Membership
from kraftrio.clients.consumer.membership.requests import MembershipConfig
from kraftrio.clients.consumer.membership.steps import (
    Complete,
    Join,
    Prepare,
    ShareOut,
    Step,
    Sync,
    WaitUntil,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kraftrio.wire.primitives import TopicPartition

GROUP = "g"
ASSIGNORS: dict[str, Callable[[], list[Any]]] = {
    "default": lambda: [RangeAssignor(), CooperativeStickyAssignor()],
    "sticky": lambda: [StickyAssignor()],
    "cooperative": lambda: [CooperativeStickyAssignor()],
}


class Coordinator:
    """The classic protocol, without timers: a member that misses a rebalance is removed by hand."""

    def __init__(self) -> None:
        self.generation = 0
        self.state = "Empty"
        self.members: dict[str, JoinGroupRequest] = {}  # as they joined last
        self.assignments: dict[str, bytes] = {}
        self.leader = ""
        self._next_id = 0
        self._pending: set[str] = set()  # ids that were handed out
        self._joining: dict[str, Callable[[JoinGroupResponse], None]] = {}
        self._syncing: dict[str, Callable[[SyncGroupResponse], None]] = {}

    def join(self, request: JoinGroupRequest, reply: Callable[[JoinGroupResponse], None]) -> None:
        member_id = request.member_id
        if not member_id:
            self._next_id += 1
            member_id = f"m{self._next_id}"
            self._pending.add(member_id)
            reply(
                JoinGroupResponse(
                    error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=""
                )
            )
            return
        if member_id not in self.members and member_id not in self._pending:
            reply(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=""))
            return
        self._pending.discard(member_id)
        self.members[member_id] = request
        self._joining[member_id] = reply
        self._rebalance()
        self._maybe_complete()

    def _rebalance(self) -> None:
        if self.state != "Preparing":
            self.state = "Preparing"
            syncing, self._syncing = self._syncing, {}
            for reply in syncing.values():
                reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def _maybe_complete(self) -> None:
        if self.state != "Preparing" or set(self._joining) != set(self.members):
            return
        if not self.members:
            self.state = "Empty"
            return
        self.generation += 1
        self.state = "Completing"
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        names = [
            {protocol.name: protocol.metadata for protocol in request.protocols}
            for request in self.members.values()
        ]
        chosen = next(name for name in names[0] if all(name in each for each in names))
        listed = [
            JoinGroupResponseMember(
                member_id=member,
                group_instance_id=request.group_instance_id,
                metadata=next(p.metadata for p in request.protocols if p.name == chosen),
            )
            for member, request in self.members.items()
        ]
        joining, self._joining = self._joining, {}
        for member, reply in joining.items():
            reply(
                JoinGroupResponse(
                    generation_id=self.generation,
                    protocol_type="consumer",
                    protocol_name=chosen,
                    leader=self.leader,
                    member_id=member,
                    members=listed if member == self.leader else [],
                )
            )

    def sync(self, request: SyncGroupRequest, reply: Callable[[SyncGroupResponse], None]) -> None:
        code = self._check(request.member_id, request.generation_id)
        if code:
            reply(SyncGroupResponse(error_code=code))
            return
        if self.state == "Preparing":
            reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            return
        self._syncing[request.member_id] = reply
        if request.assignments:
            assert request.member_id == self.leader
            self.assignments = {each.member_id: each.assignment for each in request.assignments}
            self.state = "Stable"
        if self.state == "Stable":
            syncing, self._syncing = self._syncing, {}
            for member, answer in syncing.items():
                answer(SyncGroupResponse(assignment=self.assignments.get(member, b"")))

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        code = self._check(request.member_id, request.generation_id)
        if not code and self.state == "Preparing":
            return ErrorCode.REBALANCE_IN_PROGRESS
        return code

    def _check(self, member_id: str, generation: int) -> ErrorCode:
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def leave(self, request: LeaveGroupRequest) -> None:
        for member in request.members:
            self.throw_out(member.member_id)

    def throw_out(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self._joining.pop(member_id, None)
            self._syncing.pop(member_id, None)
            self._rebalance()
            self._maybe_complete()


class Member:
    """A member whose application does everything at once."""

    def __init__(
        self,
        coordinator: Coordinator,
        counts: dict[str, int],
        topics: Sequence[str],
        assignors: str = "default",
        **config: Any,
    ) -> None:
        self.coordinator = coordinator
        self.counts = counts
        self.now_ms = 1_000.0
        self.core = Membership(
            MembershipConfig(group_id=GROUP, **config), ASSIGNORS[assignors](), random.Random(1)
        )
        self.core.liveness.polled(self.now_ms)
        self.core.subscribe(frozenset(topics))
        self.owned: frozenset[TopicPartition] = frozenset()
        self.log: list[tuple[str, list[TopicPartition]]] = []
        self.is_waiting = False  # for an answer

    def step(self) -> Step:
        """Do what is to be done next, once."""
        if self.is_waiting:
            return WaitUntil(None)
        step = self.core.step(self.now_ms)
        if isinstance(step, Prepare):
            if step.revoked:
                self.log.append(("lost" if step.lost else "revoked", sorted(step.revoked)))
            self.owned -= step.revoked
            self.core.prepared()
        elif isinstance(step, Join):
            self.is_waiting = True
            self.coordinator.join(step.request, self._joined)
        elif isinstance(step, ShareOut):
            self.core.shared(self.counts)
        elif isinstance(step, Sync):
            self.is_waiting = True
            self.coordinator.sync(step.request, self._synced)
        elif isinstance(step, Complete):
            if step.revoked:
                self.log.append(("revoked", sorted(step.revoked)))
            self.owned = step.assigned
            self.core.completed()
            self.log.append(("assigned", sorted(step.added)))
        return step

    def _joined(self, response: JoinGroupResponse) -> None:
        self.is_waiting = False
        self.core.joined(response, self.now_ms)

    def _synced(self, response: SyncGroupResponse) -> None:
        self.is_waiting = False
        self.core.synced(response, self.now_ms)

    def beat(self) -> None:
        """Send a heartbeat, if the member has one to send."""
        self.now_ms += self.core.config.heartbeat_interval_ms
        self.core.liveness.polled(self.now_ms)
        request = self.core.heartbeat(self.now_ms)
        if isinstance(request, HeartbeatRequest):
            code = self.coordinator.heartbeat(request)
            self.core.heartbeat_answered(request, code, self.now_ms)

    def leave(self) -> None:
        """Leave in good order."""
        self.owned = frozenset()
        request = self.core.leave()
        self.core.forget_owned()
        if request is not None:
            self.coordinator.leave(request)


def settle(*members: Member) -> None:
    """Let the members go on until none has anything to do, heartbeats included."""
    quiet = 0
    for _ in range(1000):
        steps = [member.step() for member in members]
        if all(isinstance(step, WaitUntil) for step in steps):
            quiet += 1
            for member in members:
                member.beat()
            if quiet == 3:
                return
        else:
            quiet = 0
    raise AssertionError(f"the group does not settle: {[m.core.state for m in members]}")


def check_owners(*members: Member) -> None:
    """Nobody owns what another one owns; who was thrown out may not know it yet."""
    known = [member for member in members if member.core.member_id in member.coordinator.members]
    owned = [partition for member in known for partition in member.owned]
    assert len(owned) == len(set(owned)), [sorted(member.owned) for member in members]
