"""Who is in a classic group: its members, those who are to join, its leader.

Invariants:
1. `awaiting_join_count` is the number of members with a `join_ticket`.
2. `votes` counts the protocols of exactly the members.
3. `static_members[instance_id]` is the id of the member with that instance id, and every such
   member is in `members`.
4. A pending member (KIP-394) is not in `members`.
5. `leader_id` names a member or is None; it is None when there is no member.

Called by: `group_state`, `groups` and its collaborators. KIP-345, KIP-394.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftrio.broker.coordinator.groups.classic.protocol_votes import Protocols, ProtocolVotes
from kraftrio.broker.coordinator.outcome import Ticket
from kraftrio.wire.errors import ErrorCode


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


class MemberRoster:
    """The members of one group."""

    __slots__ = (
        "awaiting_join_count",
        "leader_id",
        "members",
        "pending_join_members",
        "pending_sync_members",
        "static_members",
        "votes",
    )

    def __init__(self) -> None:
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join_members: dict[str, None] = {}
        self.pending_sync_members: dict[str, None] = {}
        self.awaiting_join_count = 0
        self.votes = ProtocolVotes()

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join_members

    def add(self, member: ClassicMember) -> None:
        """Take in a member; the first one leads."""
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

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

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

    def select_protocol(self) -> str:
        """The protocol that all support and most prefer; the earliest vote wins a tie."""
        return self.votes.winner([member.protocols for member in self.members.values()])
