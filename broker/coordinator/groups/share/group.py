"""One share group: its members, what they subscribe to, and its assignment (KIP-932).

A group is Empty without members, and Stable with some: there is nothing to wait for when partitions
move. It holds no committed offsets, so that requests about those do not find it. Empty groups stay
until they are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from kraftrio.broker.coordinator.groups.modern.kept_names import KeptNames
from kraftrio.broker.coordinator.groups.modern.member_state import LEAVE_EPOCH
from kraftrio.broker.coordinator.groups.modern.metadata_refresh import MetadataRefresh
from kraftrio.broker.coordinator.groups.modern.target_assignment import NOTHING, TargetAssignment
from kraftrio.broker.coordinator.groups.share.member import ShareMember
from kraftrio.broker.coordinator.groups.share.state_progress import StateProgress
from kraftrio.wire.errors import ErrorCode, KafkaError

SHARE_GROUP_TYPE: Final = "share"
EMPTY, STABLE = "Empty", "Stable"

_FIRST_EPOCH = 1  # of a group that nobody has joined yet


class ShareGroup:
    """See the module. Records change it (`groups`), and nothing else.

    Attributes:
        epoch: goes up with each change that asks for a new assignment.
        metadata_hash: of the topics, as of that epoch.
        states: of share partitions; None: none was ever requested.
        refresh: when to look at the topics again.
    """

    group_type = SHARE_GROUP_TYPE
    protocol_type = SHARE_GROUP_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ShareMember] = {}
        self.target = TargetAssignment(NOTHING)
        self.refresh = MetadataRefresh()
        self._states: StateProgress | None = None
        self._subscriptions: Counter[str] = Counter()  # members, by the topic they subscribe to
        self._kept_names = KeptNames()
        self._lacks_initialized: bool | None = None  # None: to be computed
        self._complete_states: StateProgress | None = None  # those that lacked nothing

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_unused(self) -> bool:
        return False

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def member(self, member_id: str) -> ShareMember:
        """Return a member; UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def topics(self) -> Collection[str]:
        """The names of the topics that members subscribe to."""
        return self._subscriptions.keys()

    def topics_with(self, former: ShareMember, member: ShareMember | None) -> Counter[str]:
        """How many members subscribe to each topic, once one is changed (None: gone)."""
        counts = self._subscriptions.copy()
        if self.has_member(former.member_id):
            counts.subtract(former.subscribed_topic_names)
        if member is not None:
            counts.update(member.subscribed_topic_names)
        return +counts

    @property
    def states(self) -> StateProgress | None:
        return self._states

    @property
    def lacks_initialized(self) -> bool:
        """Whether the target lacks a partition whose state is initialized, or has others."""
        if self._lacks_initialized is None:
            self._lacks_initialized = self._compare_with_initialized()
        return self._lacks_initialized

    def _compare_with_initialized(self) -> bool:
        if self._states is None or not self.members:
            return False
        assigned: dict[bytes, set[int]] = {}
        for assignment in self.target.members.values():
            for topic_id, partitions in assignment.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topic.name in self._subscriptions and assigned.get(topic_id, set()) ^ topic.partitions
            for topic_id, topic in self._states.initialized.items()
        )

    @property
    def has_all_states(self) -> bool:
        """Whether the last look at the topics missed no state, and the states are as they were."""
        return self._states is not None and self._states is self._complete_states

    def note_complete_states(self) -> None:
        """Each partition of the subscribed topics was found to have an initialized state."""
        self._complete_states = self._states

    # --- changes by records ---

    def put(self, member: ShareMember) -> None:
        """Add a member, or replace it."""
        names = self._kept_names.of(member.subscribed_topic_names)
        if names is not member.subscribed_topic_names:
            member = member._replace(subscribed_topic_names=names)
        former = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._count(former, member)

    def remove(self, member_id: str) -> None:
        """Drop a member, if there is one."""
        self._count(self.members.pop(member_id, None), None)

    def reset(self, member_id: str) -> None:
        """Take away a member's partitions and epoch, since the record of them was deleted."""
        member = self.members.get(member_id)
        if member is not None:
            self.members[member_id] = member._replace(
                member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned={}
            )

    def _count(self, former: ShareMember | None, member: ShareMember | None) -> None:
        before = frozenset() if former is None else former.subscribed_topic_names
        after = frozenset() if member is None else member.subscribed_topic_names
        if before != after:
            self._subscriptions.update(after - before)
            for name in before - after:
                self._subscriptions[name] -= 1
                if not self._subscriptions[name]:
                    del self._subscriptions[name]
        self.on_changed()

    def set_states(self, states: StateProgress | None) -> None:
        """Note which share partitions have a state."""
        self._states = states
        self.on_changed()

    def on_changed(self) -> None:
        """Members, the target or the states have changed."""
        self._lacks_initialized = None

    # --- what offsets and administration ask ---

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
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """A share group has no offsets: fetches are answered as for a group that does not exist."""
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Only a group without members may be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic."""
        return topic in self._subscriptions

    def may_expire_offsets(self, topic: str) -> bool:
        return False

    def retention_start_ms(self, commit_timestamp_ms: int) -> int:
        return commit_timestamp_ms

    def __repr__(self) -> str:
        return (
            f"<ShareGroup {self.group_id!r} {self.state_name} epoch={self.epoch}"
            f" assignment_epoch={self.target.epoch} members={list(self.members)}>"
        )
