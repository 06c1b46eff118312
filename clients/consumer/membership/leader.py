"""What the leader of a classic group does for all: it shares out partitions, and watches topics.

Sans-IO. Called by: `membership`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.clients.consumer.membership.assignors import (
    Assignor,
    MemberSubscription,
    assignment_bytes,
)
from kraftrio.wire.messages.groups import JoinGroupResponse, SyncGroupRequestAssignment


class GroupLeader:
    """The members of a generation and what was shared out; empty while another member leads."""

    def __init__(self) -> None:
        self.assignments: list[SyncGroupRequestAssignment] = []
        self._members: dict[str, MemberSubscription] = {}
        self._skip_assignment = False
        self._shared_counts: dict[str, int] = {}  # partitions of topics, as shared out
        self._seen_counts: dict[str, int] = {}  # as of the latest metadata

    def begin(self, response: JoinGroupResponse) -> None:
        """Take the members of a new generation that this one leads.

        Raises:
            RemoteProtocolError: a member's subscription cannot be read.
        """
        self._members = {
            member.member_id: MemberSubscription.decode(member.metadata, member.group_instance_id)
            for member in response.members
        }
        self._skip_assignment = response.skip_assignment

    @property
    def members_topics(self) -> frozenset[str]:
        """The topics that the members want, until they are shared out."""
        return frozenset(topic for each in self._members.values() for topic in each.topics)

    @property
    def watched_topics(self) -> frozenset[str]:
        """The topics that were shared out."""
        return frozenset(self._shared_counts)

    def share(self, partition_counts: Mapping[str, int], assignor: Assignor) -> None:
        """Make up the assignments, unless the coordinator wants none (KIP-814)."""
        topics = self.members_topics
        self._shared_counts = {topic: partition_counts.get(topic, 0) for topic in topics}
        self._seen_counts = dict(self._shared_counts)
        if not self._skip_assignment:
            assigned = assignor.assign(self._shared_counts, self._members)
            self.assignments = [
                SyncGroupRequestAssignment(
                    member_id=member, assignment=assignment_bytes(assigned.get(member, ()))
                )
                for member in self._members
            ]
        self._members = {}

    def metadata_changed(self, partition_counts: Mapping[str, int]) -> None:
        """Note how many partitions the topics have now."""
        self._seen_counts = {topic: partition_counts.get(topic, 0) for topic in self._shared_counts}

    @property
    def is_outdated(self) -> bool:
        """Whether partitions came or went since they were shared out."""
        return self._seen_counts != self._shared_counts

    def drop_assignments(self) -> None:
        """Another generation begins; what is watched stays until it is shared out."""
        self.assignments = []
        self._members = {}

    def step_down(self) -> None:
        """Another member leads."""
        self._shared_counts = {}
