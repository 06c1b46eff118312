"""One member of a streams group, as its records have it. Immutable: a change replaces it.

What a member says of itself (`StreamsMemberMetadata`) lies in one record, what the group has given
it in another.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.streams.tasks import NO_ASSIGNED_TASKS, AssignedTasks


class StreamsMemberState(IntEnum):
    """The states of a member; values are those of the records.

    STABLE: has its part of the target assignment. Leaves this state with a new target.
    UNREVOKED_TASKS: has to give up tasks first, within its rebalance timeout, and stays in its
        epoch until then.
    UNRELEASED_TASKS: waits for tasks that others, or its own process, have not given up yet.
    UNKNOWN: was written by a newer version.
    """

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def from_record(cls, value: int) -> StreamsMemberState:
        """The state with a record's value; UNKNOWN for values of newer versions."""
        return cls(value) if value in _VALUES else cls.UNKNOWN


_VALUES = frozenset(StreamsMemberState)


class UserEndpoint(NamedTuple):
    """Where a process answers queries of its state."""

    host: str
    port: int


class StreamsMemberMetadata(NamedTuple):
    """What a member says of itself.

    Attributes:
        process_id: of the application's instance; each of its threads is a member.
        client_tags: (key, value), sorted by key.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


class StreamsMember(NamedTuple):
    """See the module.

    Attributes:
        member_epoch: the epoch of the target assignment that the member works on.
        previous_member_epoch: the one before, in case the member has not got the newer one.
        assigned: what the member has, or gets with its next heartbeat.
        pending_revocation: what it has to give up first.
    """

    member_id: str
    metadata: StreamsMemberMetadata = StreamsMemberMetadata()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: AssignedTasks = NO_ASSIGNED_TASKS
    pending_revocation: AssignedTasks = NO_ASSIGNED_TASKS

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol: none of this kind does."""
        return False

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has what a target assignment gives it."""
        return self.state is StreamsMemberState.STABLE and self.member_epoch == assignment_epoch
