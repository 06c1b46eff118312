"""One classic group: its states and what may happen in each (KIP-62, KIP-345).

Owns the five states and the legal moves between them, the generation with its protocol and
subscriptions, and what may be done with offsets. Who is in it is kept by its `roster`; what needs
time or several steps is decided by `groups` and its collaborators. To the shard it is a `Group`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from kraftrio.broker.coordinator.groups.classic.roster import ClassicMember, MemberRoster
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


class ClassicGroup:
    """A group; `members` are those of its roster, to be looked at."""

    group_type: Final = CLASSIC_GROUP_TYPE

    __slots__ = (
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "initial_rebalance_delay_ms",
        "initial_rebalance_remaining_ms",
        "members",
        "new_member_added",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "roster",
        "state",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.current_state_timestamp_ms = now_wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = MemberRoster()
        self.members: Mapping[str, ClassicMember] = self.roster.members
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

    # --- members ---

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    @property
    def member_count(self) -> int:
        return len(self.members)

    # --- protocols ---

    def supports(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """Whether a member with these protocols could be in the group with all the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocol_names)
        if protocol_type != self.protocol_type:
            return False
        return self.roster.votes.has_common(protocol_names, len(self.members))

    def start_generation(self, now_wall_ms: int) -> None:
        """Begin the next generation with the members there are."""
        self.generation_id += 1
        self.roster.pending_sync_members.clear()
        if self.members:
            self.protocol_name = self.roster.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_wall_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, now_wall_ms)

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all subscriptions; None: it has another type, or they cannot be decoded."""
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
            error = self.roster.check_member(member_id, group_instance_id)
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
        """Anybody may fetch."""
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
    def is_unused(self) -> bool:
        """Whether the group has neither members nor pending members."""
        return self.is_in(GroupState.EMPTY) and not self.roster.pending_join_members

    def __repr__(self) -> str:
        return (
            f"<ClassicGroup {self.group_id!r} {self.state.value} generation={self.generation_id}"
            f" members={list(self.members)} pending={list(self.roster.pending_join_members)}>"
        )
