"""One member of a consumer group (KIP-848) or a share group (KIP-932) as a state machine.

Owns the member's epoch, what it owns and what it is to own. Rules:
1. The member names itself: its id stays the same for the life of its client. It joins by a
   heartbeat with epoch 0; each answer has its epoch and, where that has changed, its assignment.
2. `step` says what must happen next, and says it again until the caller has done it and reports
   back with the method that the step names: giving up what is lost, or reconciling what is owned
   with the assignment. Heartbeats go on meanwhile; an assignment that comes then is reconciled
   after that. What was reconciled is sent to the coordinator at once: only then others may get what
   was given up.
3. The coordinator names topics by their ids. A topic whose name is not known yet waits for
   metadata; the others are reconciled.
4. A member that is fenced, or that the coordinator does not know any more, has lost its partitions:
   it gives them up (`Lose`) without committing, and joins again with epoch 0. One whose application
   has stayed away from `poll` too long leaves, and joins again with the next poll.
5. A static member (with an instance id) leaves by epoch -2, which keeps its assignment for a while.
6. Answers to earlier heartbeats are ignored.

The states and their moves are `states`' table; `pace` has the times, `ports` what differs between
the kinds of group.

Sans-IO. Called by: the shells of the consumer and the share consumer, which talk to the
coordinator. What the Java client's membership managers do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.errors import AuthorizationError, KafkaClientError, error_for
from kraftrio.clients.heartbeat_member.pace import Pace
from kraftrio.clients.heartbeat_member.ports import Assignment, HeartbeatAnswer, HeartbeatRequests
from kraftrio.clients.heartbeat_member.states import HeartbeatMemberState
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

Partitions = frozenset[TopicPartition]
_NOTHING: Partitions = frozenset()

_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

# What is to be done next


class Idle(NamedTuple):
    """Nothing, until something happens.

    Attributes:
        lacks_names: metadata is needed: topics of the assignment have no name yet.
    """

    lacks_names: bool = False


class Lose(NamedTuple):
    """Give these up, which belong to others already, then report `lost`."""

    partitions: Partitions


class Reconcile(NamedTuple):
    """Give up `revoked` and report `revoked`; then own `assigned`, of which `added` is new, and
    report `reconciled`.
    """

    assigned: Partitions
    added: Partitions
    revoked: Partitions
    topic_ids: Assignment  # the same as `assigned`


Step = Idle | Lose | Reconcile


class HeartbeatMember:
    """One member.

    Args:
        what: what the group is called in messages: "the group 'g'".
        topic_name: returns the name of the topic with an id, as far as it is known.
        backoff: between heartbeats that were not answered.
    """

    def __init__(
        self,
        what: str,
        member_id: str,
        heartbeats: HeartbeatRequests,
        topic_name: Callable[[bytes], str | None],
        *,
        max_poll_interval_ms: int,
        backoff: ExponentialBackoff,
        rng: random.Random,
    ) -> None:
        self.state = HeartbeatMemberState.UNSUBSCRIBED
        self.member_id = member_id
        self.member_epoch = JOIN_EPOCH
        self.last_epoch = JOIN_EPOCH  # while it was in the group the last time
        self.owned: Partitions = _NOTHING
        self.failure: KafkaClientError | None = None
        self.pace = Pace(max_poll_interval_ms, backoff, rng)
        self._what = what
        self._heartbeats = heartbeats
        self._topic_name = topic_name
        self._is_subscribed = False
        self._target: Assignment | None = None  # None: nothing was assigned yet
        self._owned_ids: Assignment | None = None
        self._sent: Any = None  # the heartbeat that is not answered yet
        self._departures = 0
        self._changes = 0
        self._since: dict[TopicPartition, int] = {}

    # -- what others ask ------------------------------------------------------------------------

    @property
    def can_commit(self) -> bool:
        """Whether the coordinator takes commits from the member for what it owns."""
        return self.state.is_in_group

    def tenure(self, partitions: Iterable[TopicPartition]) -> tuple[int, ...]:
        """Return what stays equal while the member is in the group and keeps these partitions."""
        return (self._departures, *(self._since.get(each, 0) for each in sorted(partitions)))

    def step(self, now_ms: float) -> Step:
        """Say what is to be done next.

        Raises:
            KafkaClientError: the member has failed for good.
        """
        if self.failure is not None:
            raise type(self.failure)(self.failure.message, code=self.failure.code)
        if self.state in (HeartbeatMemberState.FENCED, HeartbeatMemberState.STALE) and self.owned:
            return Lose(self.owned)
        self._begin(now_ms)
        if self.state is HeartbeatMemberState.RECONCILING:
            return self._reconcile()
        return Idle()

    def _begin(self, now_ms: float) -> None:
        """Join, if the member is not in the group, and the application subscribes and polls."""
        if self.state.is_out and self._is_subscribed and not self.pace.poll_is_overdue(now_ms):
            self.member_epoch = JOIN_EPOCH
            self._heartbeats.forget()
            self._move(HeartbeatMemberState.JOINING)
            self.pace.make_due()

    def _reconcile(self) -> Step:
        """Return how what is owned becomes what is assigned, as far as names are known."""
        assert self._target is not None
        names = {topic_id: self._topic_name(topic_id) for topic_id in self._target}
        known = {
            topic_id: partitions
            for topic_id, partitions in self._target.items()
            if names[topic_id] is not None
        }
        lacks_names = len(known) < len(self._target)
        if known == self._owned_ids:
            return Idle(lacks_names)
        assigned = frozenset(
            TopicPartition(names[topic_id] or "", partition)
            for topic_id, partitions in known.items()
            for partition in partitions
        )
        if lacks_names and self._owned_ids is None and not assigned:
            return Idle(lacks_names)
        return Reconcile(assigned, assigned - self.owned, self.owned - assigned, known)

    def _move(self, state: HeartbeatMemberState) -> None:
        assert self.state.may_become(state), f"{self.state} does not move to {state}"
        self.state = state

    # -- what the application does --------------------------------------------------------------

    def subscribe(self) -> None:
        """Want to be in the group; what is wanted of it the heartbeats know."""
        self._is_subscribed = True
        self.pace.make_due()

    def polled(self, now_ms: float) -> None:
        """The application polls."""
        self.pace.polled(now_ms)

    def leave(self) -> Any:
        """Want nothing any more; return what is to be sent, if anything.

        The partitions are still owned: they are given up with `forget_owned`.
        """
        request = self._heartbeats.leave(self.member_id) if self.state.sends_heartbeats else None
        self._is_subscribed = False
        if self.state is not HeartbeatMemberState.FAILED:
            self._leave_for(HeartbeatMemberState.UNSUBSCRIBED)
        return request

    def forget_owned(self) -> None:
        """Own nothing, after leaving."""
        self._own(_NOTHING)

    def _leave_for(self, state: HeartbeatMemberState) -> None:
        """Leave the group; what was owned is still to be given up."""
        self._departures += 1
        self.member_epoch = JOIN_EPOCH
        self._target = self._owned_ids = self._sent = None
        self._heartbeats.forget()
        self._move(state)

    # -- steps done -----------------------------------------------------------------------------

    def lost(self) -> None:
        """The partitions of `Lose` are given up."""
        self._own(_NOTHING)

    def revoked(self, step: Reconcile) -> bool:
        """What a `Reconcile` revokes is given up; False: the rest of it does not count any more."""
        self._own(self.owned - step.revoked)
        return self.state is HeartbeatMemberState.RECONCILING

    def reconciled(self, step: Reconcile) -> None:
        """The partitions of `Reconcile` are taken over."""
        assert self.state is HeartbeatMemberState.RECONCILING
        self._own(step.assigned)
        self._owned_ids = step.topic_ids
        self._move(HeartbeatMemberState.ACKNOWLEDGING)
        self.pace.make_due()

    def _own(self, partitions: Partitions) -> None:
        self._changes += 1
        self._since = {each: self._since.get(each, self._changes) for each in partitions}
        self.owned = partitions

    # -- heartbeats -----------------------------------------------------------------------------

    @property
    def next_heartbeat_ms(self) -> float | None:
        """When the next heartbeat is due; None while none is to be sent."""
        if self._sent is not None or not self.state.sends_heartbeats:
            return None
        return min(self.pace.due_ms, self.pace.poll_deadline_ms)

    def heartbeat(self, now_ms: float) -> Any:
        """Return the heartbeat to be sent now, if there is one; by one the member may leave."""
        if self._sent is not None or not self.state.sends_heartbeats:
            return None
        if self.pace.poll_is_overdue(now_ms):
            self._leave_for(HeartbeatMemberState.STALE)
            return self._heartbeats.leave(self.member_id)
        if now_ms < self.pace.due_ms:
            return None
        self.pace.sent(now_ms)
        self._sent = self._heartbeats.make(self.member_id, self.member_epoch, self._owned_ids)
        if self.state is HeartbeatMemberState.ACKNOWLEDGING:
            self._settle()
        return self._sent

    def _settle(self) -> None:
        """What is owned is what was assigned, or the rest comes now."""
        is_done = self._owned_ids == self._target
        self._move(HeartbeatMemberState.STABLE if is_done else HeartbeatMemberState.RECONCILING)

    def heartbeat_failed(self, request: Any, now_ms: float) -> None:
        """No coordinator was found, or the answer was lost: it is unknown what it has got."""
        if request is self._sent:
            self._sent = None
            self._heartbeats.forget()
            self.pace.failed(now_ms)

    def heartbeat_answered(self, request: Any, answer: HeartbeatAnswer, now_ms: float) -> None:
        """Take note of a heartbeat's answer."""
        if request is not self._sent:
            return
        self._sent = None
        code = answer.error_code
        if code != ErrorCode.NONE:
            self._refused(code, answer.error_message, now_ms)
            return
        self.pace.answered(answer.heartbeat_interval_ms)
        self.member_epoch = self.last_epoch = answer.member_epoch
        if answer.assignment is not None:
            self._target = _by_id(answer.assignment.topic_partitions)
            if self.state is not HeartbeatMemberState.ACKNOWLEDGING:
                self._take_target()
        elif self.state is HeartbeatMemberState.JOINING:
            self._move(HeartbeatMemberState.STABLE)

    def _take_target(self) -> None:
        is_done = self._owned_ids == self._target
        if not is_done and self.state is not HeartbeatMemberState.RECONCILING:
            self._move(HeartbeatMemberState.RECONCILING)
        elif is_done and self.state is not HeartbeatMemberState.STABLE:
            self._move(HeartbeatMemberState.STABLE)

    def _refused(self, code: ErrorCode, message: str | None, now_ms: float) -> None:
        self._heartbeats.forget()
        known = error_for(code)
        if code in _FENCED:
            if self.state is HeartbeatMemberState.JOINING:
                self.pace.failed(now_ms)  # it is refused at once, so it must not ask at once
            self._leave_for(HeartbeatMemberState.FENCED)
        elif known.retriable:
            self.pace.failed(now_ms)
        else:
            self.fail(known.code, f"{self._what} refuses the member: {message or known}")

    def fail(self, code: ErrorCode, message: str) -> None:
        """End the membership: only the program can do something about it."""
        if self.state is not HeartbeatMemberState.FAILED:
            self.failure = error_for(code, message)
            self._leave_for(HeartbeatMemberState.FAILED)

    def recover(self) -> bool:
        """Join again after a refusal for want of rights, which may be granted meanwhile.

        Returns:
            whether it does: every other failure stays.
        """
        if not isinstance(self.failure, AuthorizationError):
            return False
        self.failure = None
        self._move(HeartbeatMemberState.FENCED)
        self.pace.make_due()
        return True


def _by_id(reported: Any) -> Assignment:
    found: dict[bytes, frozenset[int]] = {}
    for each in reported:
        if each.partitions:
            found[each.topic_id] = found.get(each.topic_id, frozenset()) | set(each.partitions)
    return found
