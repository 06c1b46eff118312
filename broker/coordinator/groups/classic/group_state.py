"""One classic group: its states, members and what may happen to them (KIP-62, KIP-345).

Owns the five states and the legal moves between them, the members with their parked requests, the
pending members (KIP-394) and the leader. What needs time or several steps is decided by `groups`
and its collaborators. To the shard it is a `Group`.

Invariants:
1. `awaiting_join_count` is the number of members with a `join_ticket`.
2. `votes` counts the protocols of exactly the members.
3. `static_members[instance_id]` is the id of the member with that instance id, and every such
   member is in `members`.
4. A pending member is not in `members`.
5. `leader_id` names a member or is None; it is None when there is no member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftrio.broker.coordinator.groups.classic.protocol_votes import Protocols, ProtocolVotes
from kraftrio.broker.coordinator.outcome import Ticket
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.group_records.classic import decode_subscription_topics

CLASSIC_GROUP_TYPE = "classic"
CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """The states of a classic group; values are the names clients see.

    EMPTY: no members; may hold offsets. Moves to PREPARING_REBALANCE when a member joins.
    PREPARING_REBALANCE: members must join (again). Heartbeats ask them to, joins are parked. Moves
        to COMPLETING_REBALANCE when all have joined or time is up; to EMPTY if none has.
    COMPLETING_REBALANCE: waiting for the leader's assignment; syncs are parked. Moves to STABLE
        with the assignment, back to PREPARING_REBALANCE on a join, leave or failure.
    STABLE: everyone knows their assignment.
    DEAD: this broker is no longer the group's coordinator, or the group was removed.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_MOVES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member. `join_ticket` and `sync_ticket` are its parked requests."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_ticket: Ticket = None
    sync_ticket: Ticket = None
    is_new: bool = False
    """Joined for the first time: its session runs although its join is parked."""

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_ticket is not None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A parked request shows that the member lives, except for a new one, which may be gone."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for a protocol that it supports."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol_name}")


class ClassicGroup:
    """A group and its members."""

    group_type: Final = CLASSIC_GROUP_TYPE

    __slots__ = (
        "awaiting_join_count",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "initial_rebalance_delay_ms",
        "initial_rebalance_remaining_ms",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join_members",
        "pending_sync_members",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "subscribed_topics",
        "votes",
    )

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.current_state_timestamp_ms = now_wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join_members: dict[str, None] = {}
        self.pending_sync_members: dict[str, None] = {}
        self.awaiting_join_count = 0
        self.votes = ProtocolVotes()
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.initial_rebalance_delay_ms = 0
        self.initial_rebalance_remaining_ms: int | None = None

    # --- state ---

    def transition_to(self, state: GroupState, now_wall_ms: int) -> None:
        """Move to another state; an illegal move is our bug."""
        assert state in LEGAL_MOVES[self.state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp_ms = now_wall_ms

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def state_name(self) -> str:
        """The state as clients see it."""
        return self.state.value

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- members ---

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join_members

    def add(self, member: ClassicMember) -> None:
        """Take in a member; the first one sets the protocol type's votes and leads."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.votes.add(member.protocols)
        self.pending_join_members.pop(member.member_id, None)
        if member.is_awaiting_join:
            self.awaiting_join_count += 1

    def remove(self, member_id: str) -> None:
        """Drop a member or pending member; a leader that goes is replaced by another member.

        A member's tickets must be answered first.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.join_ticket is None and member.sync_ticket is None
            self.votes.remove(member.protocols)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.pop(member_id, None)

    def replace_static(
        self, group_instance_id: str, old_member_id: str, new_member_id: str
    ) -> ClassicMember:
        """Give a static member another member id, in place. Its tickets must be answered first."""
        member = self.members.pop(old_member_id)
        assert member.join_ticket is None and member.sync_ticket is None
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync_members:
            del self.pending_sync_members[old_member_id]
            self.pending_sync_members[new_member_id] = None
        return member

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self.votes.remove(member.protocols)
        member.protocols = protocols
        self.votes.add(member.protocols)

    def park_join(self, member: ClassicMember, ticket: Ticket) -> None:
        """Keep a join request until the rebalance completes."""
        assert member.join_ticket is None
        member.join_ticket = ticket
        self.awaiting_join_count += 1

    def take_join_ticket(self, member: ClassicMember) -> Ticket:
        """Remove and return a member's parked join; None if there is none."""
        ticket, member.join_ticket = member.join_ticket, None
        if ticket is not None:
            self.awaiting_join_count -= 1
        return ticket

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether a request may speak for a member (KIP-345: a replaced id is fenced)."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def elect_joined_leader(self) -> bool:
        """Make sure the leader is among those who joined; False if that is impossible.

        A static leader may stay in the group without having rejoined.
        """
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    # --- protocols ---

    def supports(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """Whether a member with these protocols could be in the group with all the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocol_names)
        if protocol_type != self.protocol_type:
            return False
        return self.votes.has_common(protocol_names, len(self.members))

    def select_protocol(self) -> str:
        """The protocol that all support and most prefer; the earliest vote wins a tie."""
        return self.votes.winner([member.protocols for member in self.members.values()])

    def start_generation(self, now_wall_ms: int) -> None:
        """Begin the next generation with the members there are."""
        self.generation_id += 1
        self.pending_sync_members.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_wall_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, now_wall_ms)

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all subscriptions; None if the group has another type or odd bytes."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(decode_subscription_topics(member.metadata(self.protocol_name)))
        except RemoteProtocolError:
            return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic; unknown subscriptions count as yes."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    # --- offsets ---

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        transactional: bool = False,
        api_version: int = 0,
        partitions: Iterable[tuple[bytes, int]] = (),
    ) -> ErrorCode:
        """Whether a commit may be made: by a member of the generation, or by hand.

        A commit without member and generation is allowed while the group has no members.
        """
        if generation_id < 0 and self.is_in(GroupState.EMPTY):
            return ErrorCode.NONE
        if generation_id >= 0 or member_id or group_instance_id is not None:
            error = self.check_member(member_id, group_instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation_id != self.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.is_in(GroupState.COMPLETING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whoever asks may fetch."""
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Only a group without members may be deleted."""
        return ErrorCode.NONE if self.is_in(GroupState.EMPTY) else ErrorCode.NON_EMPTY_GROUP

    def check_offset_delete(self) -> ErrorCode:
        """While there are members it must be known which topics they read."""
        if self.is_in(GroupState.EMPTY) or self.uses_consumer_protocol:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def may_expire_offsets(self, topic: str) -> bool:
        """Without members all offsets expire; with members those that none of them reads."""
        if self.is_subscribed_to(topic):
            return False
        if self.protocol_type is None or self.is_in(GroupState.EMPTY):
            return True
        return self.subscribed_topics is not None and self.is_in(GroupState.STABLE)

    def retention_start_ms(self, commit_timestamp_ms: int) -> int:
        """When the group became empty; without that moment, when the offset was committed."""
        if (
            self.protocol_type is not None
            and self.is_in(GroupState.EMPTY)
            and self.current_state_timestamp_ms != -1
        ):
            return self.current_state_timestamp_ms
        return commit_timestamp_ms

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_unused(self) -> bool:
        """Whether the group has neither members nor pending members."""
        return self.is_in(GroupState.EMPTY) and not self.pending_join_members

    def __repr__(self) -> str:
        return (
            f"<ClassicGroup {self.group_id!r} {self.state.value} generation={self.generation_id}"
            f" members={list(self.members)} pending={list(self.pending_join_members)}>"
        )
