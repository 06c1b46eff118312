"""One member of a classic consumer group as a state machine: join, sync, heartbeat, leave.

Owns the member's id, generation and partitions, and what is to be done next. Rules:
1. `step` says what must happen next, and says it again until the caller has done it and reports
   back with the one method that the step names. Whatever happens in between (a failed heartbeat,
   another subscription), the step that comes next is again right.
2. Partitions are given up (`Prepare`) before the member rejoins, and taken over (`Complete`) once
   it has synced; both are the application's business and are done while it looks at no record.
   In an eager group all partitions are given up; in a cooperative one only those that the member
   no longer wants, and after the sync those that the leader gave away, which makes it join again.
3. A member that was removed, or has stayed away from `poll` too long, has lost its partitions:
   it gives them up (`Prepare.lost`) without committing.
4. A static member (group_instance_id) does not leave; if another one takes its place it fails.
5. What an old generation is answered is ignored.

The states and their moves are `member_state`'s table, the steps are in `steps`; `rejoin` has the
topics and why the member joins again, `liveness` the times of heartbeats and polls, `leader` what
the leader does for all.

Called by: `group`, which talks to the coordinator. KIP-62, KIP-345, KIP-394, KIP-429, KIP-792,
KIP-800; what the Java client's ConsumerCoordinator does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.consumer.membership.assignors import (
    Assignor,
    assignment_partitions,
)
from kraftrio.clients.consumer.membership.leader import GroupLeader
from kraftrio.clients.consumer.membership.liveness import Liveness
from kraftrio.clients.consumer.membership.member_state import ClassicMemberState
from kraftrio.clients.consumer.membership.rejoin import Rejoin
from kraftrio.clients.consumer.membership.requests import (
    PROTOCOL_TYPE,
    MembershipConfig,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from kraftrio.clients.consumer.membership.steps import (
    Complete,
    Join,
    Partitions,
    Prepare,
    ShareOut,
    Step,
    Sync,
    WaitUntil,
)
from kraftrio.clients.errors import AuthorizationError, KafkaClientError, error_for
from kraftrio.clients.group_offsets import NO_GENERATION, GroupMetadata
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupResponse,
)

_NOTHING: Partitions = frozenset()


class Membership:
    """One member.

    Args:
        assignors: in order of preference; the first that all members have is used.
    """

    def __init__(
        self, config: MembershipConfig, assignors: Sequence[Assignor], rng: random.Random
    ) -> None:
        assert assignors, "a member needs an assignor"
        self.config = config
        self.state = ClassicMemberState.UNJOINED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.protocol_name: str | None = None
        self.is_leader = False
        self.owned: Partitions = _NOTHING
        # As which member it was given what it owns: it stays that, also if it is removed
        # meanwhile, so that the coordinator refuses what is committed for it in a transaction.
        self.owner: GroupMetadata | None = None
        self.failure: KafkaClientError | None = None
        self.liveness = Liveness(config)
        self.leader = GroupLeader()
        # Members may keep what they own only if every assignor that may be chosen allows it.
        self.is_cooperative = all(assignor.supports_cooperative for assignor in assignors)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._rng = rng
        self._rejoin = Rejoin()
        self._is_lost = False  # the partitions owned belong to others by now
        self._assigned: Partitions = _NOTHING
        self._retry_at_ms = 0.0
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._failures = 0

    # -- what others ask ------------------------------------------------------------------------

    @property
    def metadata(self) -> GroupMetadata:
        """Who the member is, for commits."""
        config = self.config
        return GroupMetadata(
            config.group_id, self.generation_id, self.member_id, config.group_instance_id
        )

    @property
    def can_commit(self) -> bool:
        """Whether the coordinator takes commits from the member for what it owns."""
        return self.state.is_settled and self.generation_id != NO_GENERATION

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member is on its way to another assignment, or ought to be."""
        if self.state is ClassicMemberState.STABLE:
            return self._rejoin.reason is not None
        return self._rejoin.topics is not None

    @property
    def group_topics(self) -> frozenset[str]:
        """The topics whose partitions the leader watches; for other members their own."""
        own = self._rejoin.topics or frozenset()
        return own | self.leader.watched_topics if self.is_leader else own

    def step(self, now_ms: float) -> Step:
        """Say what is to be done next.

        Raises:
            KafkaClientError: the member has failed for good.
        """
        if self.failure is not None:
            raise type(self.failure)(self.failure.message, code=self.failure.code)
        self._begin(now_ms)
        state = self.state
        if state is ClassicMemberState.PREPARING:
            return Prepare(self._to_give_up(), self._is_lost)
        if state is ClassicMemberState.COMPLETING:
            owned, assigned = self.owned, self._assigned
            return Complete(assigned, assigned - owned, owned - assigned)
        if now_ms < self._retry_at_ms:
            return WaitUntil(self._retry_at_ms)
        if state is ClassicMemberState.JOINING:
            topics, reason = self._rejoin.join()
            assignors = self._assignors.values()
            return Join(
                join_request(self.metadata, self.config, assignors, topics, self.owned, reason)
            )
        if state is ClassicMemberState.SHARING:
            return ShareOut(self.leader.members_topics)
        if state is ClassicMemberState.SYNCING:
            return Sync(sync_request(self.metadata, self.protocol_name, self.leader.assignments))
        return WaitUntil(None)

    def _begin(self, now_ms: float) -> None:
        """Leave the two states in which nothing is done, if there is a reason to."""
        if self._rejoin.topics is None:
            return
        if self.state is ClassicMemberState.UNJOINED:
            if self.liveness.poll_is_overdue(now_ms):
                return  # the application would not look at what it is assigned
            self._rejoin.request("the member is not in the group")
            self._move(ClassicMemberState.PREPARING)
        elif self.state is ClassicMemberState.STABLE:
            if self.is_leader and self.leader.is_outdated:
                self._rejoin.request("cached metadata has changed")
            if self._rejoin.reason is not None:
                self._move(ClassicMemberState.PREPARING)

    def _to_give_up(self) -> Partitions:
        topics = self._rejoin.topics
        if self._is_lost or not self.is_cooperative or topics is None:
            return self.owned
        return frozenset(partition for partition in self.owned if partition.topic not in topics)

    def _move(self, state: ClassicMemberState) -> None:
        assert self.state.may_become(state), f"{self.state} does not move to {state}"
        self.state = state

    # -- what the application does --------------------------------------------------------------

    def subscribe(self, topics: frozenset[str]) -> None:
        """Want these topics; another choice than before makes the member join again."""
        self._rejoin.subscribe(topics)

    def leave(self) -> LeaveGroupRequest | None:
        """Want nothing any more; return what is to be sent, if anything.

        The partitions are still owned: they are given up with `forget_owned`.
        """
        request: LeaveGroupRequest | None = None
        if self.state not in {ClassicMemberState.UNJOINED, ClassicMemberState.FAILED}:
            request = leave_request(self.metadata, "the consumer is being closed")
        self._rejoin.unsubscribe()
        if self.state is not ClassicMemberState.FAILED:
            self._reset(forget_member_id=True)
            self._is_lost = False
        return request

    def forget_owned(self) -> None:
        """Own nothing, after leaving."""
        self.owned = _NOTHING
        self._is_lost = False

    # -- steps done -----------------------------------------------------------------------------

    def prepared(self) -> None:
        """The partitions of `Prepare` are given up."""
        if self.state is not ClassicMemberState.PREPARING:
            return  # the member left, or was removed meanwhile
        self.owned -= self._to_give_up()
        self._is_lost = False
        self.is_leader = False
        self._move(ClassicMemberState.JOINING)

    def joined(self, response: JoinGroupResponse, now_ms: float) -> None:
        """JoinGroup was answered."""
        if self.state is not ClassicMemberState.JOINING:
            return
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._throw_out(forget_member_id=True, reason="the coordinator forgot the member")
        elif code != ErrorCode.NONE:
            self._refused("join", code, now_ms)
        elif response.protocol_type not in (None, PROTOCOL_TYPE):
            self.fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is not one of consumers")
        elif response.protocol_name not in self._assignors:
            self.fail(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the coordinator chose the assignor {response.protocol_name!r},"
                " which was not offered",
            )
        else:
            self._take_place(response, now_ms)

    def _take_place(self, response: JoinGroupResponse, now_ms: float) -> None:
        self._failures = 0
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        self.protocol_name = response.protocol_name
        self.is_leader = response.leader == response.member_id
        self.leader.drop_assignments()
        self.liveness.joined(now_ms)
        if not self.is_leader:
            self.leader.step_down()
            self._move(ClassicMemberState.SYNCING)
            return
        try:
            self.leader.begin(response)
        except RemoteProtocolError as error:
            self.fail(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"a member's subscription cannot be read: {error}",
            )
            return
        self._move(ClassicMemberState.SHARING)

    def shared(self, partition_counts: Mapping[str, int]) -> None:
        """The leader knows the partitions: share them out."""
        if self.state is not ClassicMemberState.SHARING:
            return
        assert self.protocol_name is not None
        self.leader.share(partition_counts, self._assignors[self.protocol_name])
        self._move(ClassicMemberState.SYNCING)

    def synced(self, response: SyncGroupResponse, now_ms: float) -> None:
        """SyncGroup was answered."""
        if self.state is not ClassicMemberState.SYNCING:
            return
        code = response.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._move(ClassicMemberState.JOINING)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._throw_out(
                forget_member_id=code == ErrorCode.UNKNOWN_MEMBER_ID,
                reason=f"sync failed: {code.text}",
            )
        elif code != ErrorCode.NONE:
            self._refused("sync", code, now_ms)
        elif response.protocol_type not in (None, PROTOCOL_TYPE) or response.protocol_name not in (
            None,
            self.protocol_name,
        ):
            self.fail(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's protocol changed while syncing"
            )
        else:
            self._take_assignment(response.assignment, now_ms)

    def _take_assignment(self, data: bytes, now_ms: float) -> None:
        try:
            assigned = assignment_partitions(data)
        except RemoteProtocolError as error:
            self.fail(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the assignment cannot be read: {error}"
            )
            return
        self._failures = 0
        self.liveness.joined(now_ms)
        self._assigned = frozenset(assigned)
        self._rejoin.done()
        topics = self._rejoin.topics or frozenset()
        if any(partition.topic not in topics for partition in assigned):
            # The subscription has changed since the member joined: what it owns stays as it is.
            self._assigned = self.owned
            self._rejoin.request("received assignment does not match the current subscription")
        else:
            assert self.protocol_name is not None
            self._assignors[self.protocol_name].on_assignment(assigned, self.generation_id)
            self._rejoin.check_topics()
        self._move(ClassicMemberState.COMPLETING)
        self.owner = self.metadata

    def completed(self) -> None:
        """The partitions of `Complete` are taken over."""
        if self.state is not ClassicMemberState.COMPLETING:
            return
        if self.owned - self._assigned and self.is_cooperative:
            self._rejoin.request("need to revoke partitions and re-join")
        self.owned = self._assigned
        self._move(ClassicMemberState.STABLE)

    def request_failed(self, now_ms: float) -> None:
        """JoinGroup or SyncGroup was not answered, or no coordinator is known: try again later."""
        if self.state is ClassicMemberState.SYNCING:
            # A coordinator that is new may know nothing of the generation.
            self._move(ClassicMemberState.JOINING)
        self._retry_at_ms = now_ms + self._backoff.jittered(self._failures, self._rng)
        self._failures += 1

    def fail(self, code: ErrorCode, message: str) -> None:
        """End the membership: only the program can do something about it."""
        if self.state is ClassicMemberState.FAILED:
            return
        self.failure = error_for(code, message)
        self._is_lost = bool(self.owned)
        self.generation_id = NO_GENERATION
        self._move(ClassicMemberState.FAILED)

    def recover(self) -> bool:
        """Join again after a refusal for want of rights, which may be granted meanwhile.

        Returns:
            whether it does: every other failure stays.
        """
        if not isinstance(self.failure, AuthorizationError):
            return False
        self.failure = None
        self._move(ClassicMemberState.UNJOINED)
        return True

    def _refused(self, what: str, code: ErrorCode, now_ms: float) -> None:
        """Back off where the coordinator has to settle first; everything else is final."""
        known = error_for(code)
        if known.retriable or code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_failed(now_ms)
        else:
            self.fail(known.code, f"cannot {what} the group {self.config.group_id!r}: {known}")

    # -- heartbeats -----------------------------------------------------------------------------

    @property
    def next_heartbeat_ms(self) -> float | None:
        """When the next heartbeat is due; None while none is sent."""
        if self.generation_id == NO_GENERATION or not self.state.sends_heartbeats:
            return None
        return self.liveness.next_heartbeat_ms

    def heartbeat(self, now_ms: float) -> HeartbeatRequest | LeaveGroupRequest | None:
        """Return what is to be sent now: a heartbeat, or LeaveGroup if no poll came in time."""
        due_ms = self.next_heartbeat_ms
        if due_ms is None:
            return None
        if self.liveness.poll_is_overdue(now_ms):
            leaving = leave_request(self.metadata, "consumer poll timeout has expired")
            self._throw_out(forget_member_id=True, reason="consumer poll timeout has expired")
            return leaving
        if now_ms < due_ms:
            return None
        self.liveness.heartbeat_sent(now_ms)
        return heartbeat_request(self.metadata)

    def heartbeat_answered(self, request: HeartbeatRequest, code: ErrorCode, now_ms: float) -> bool:
        """Take note of a heartbeat's answer; False: another coordinator must be found."""
        if code == ErrorCode.NONE:
            self.liveness.coordinator_seen(now_ms)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.liveness.coordinator_seen(now_ms)
            if self.state is ClassicMemberState.STABLE:
                self._rejoin.request("group is already rebalancing")
        elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            self.liveness.heartbeat_failed(now_ms)
            return False
        elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.liveness.heartbeat_failed(now_ms)
        elif (request.generation_id, request.member_id) == (self.generation_id, self.member_id):
            self.refused(code)
        return True

    def session_is_over(self, now_ms: float) -> bool:
        """Whether the coordinator has been silent for so long that it must be another one."""
        return self.next_heartbeat_ms is not None and self.liveness.session_is_over(now_ms)

    # -- losing one's place ---------------------------------------------------------------------

    def refused(self, code: ErrorCode) -> None:
        """A request of the present generation was refused because of who sent it."""
        if self.state is ClassicMemberState.FAILED:
            return
        known = error_for(code)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._throw_out(forget_member_id=code == ErrorCode.UNKNOWN_MEMBER_ID, reason=str(known))
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is ClassicMemberState.STABLE:
                self._rejoin.request("group is already rebalancing")
        else:
            self.fail(known.code, f"the group {self.config.group_id!r} refuses the member: {known}")

    def _throw_out(self, *, forget_member_id: bool, reason: str) -> None:
        self._is_lost = bool(self.owned)
        self._reset(forget_member_id=forget_member_id)
        self._rejoin.request(reason)

    def _reset(self, *, forget_member_id: bool) -> None:
        self.generation_id = NO_GENERATION
        self.protocol_name = None
        self.is_leader = False
        if forget_member_id:
            self.member_id = ""
        self.leader.drop_assignments()
        self._move(ClassicMemberState.UNJOINED)
