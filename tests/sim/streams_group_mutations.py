"""Deliberate breaches of what streams groups (KIP-1071) promise: each must be noticed.

Owns: `STREAMS_MUTATIONS`, name -> the patches that switch one in. Called by:
`test_consumer_group_scenarios`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraftrio.broker.coordinator.groups.streams.assignors.process_load import ProcessLoad
from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroup
from kraftrio.broker.coordinator.groups.streams.groups import StreamsGroups
from kraftrio.broker.coordinator.groups.streams.heartbeats import StreamsHeartbeats
from kraftrio.broker.coordinator.groups.streams.member_deadlines import (
    SESSION_DEADLINE,
    MemberDeadlines,
)
from kraftrio.broker.coordinator.groups.streams.task_owners import TaskOwners
from kraftrio.broker.coordinator.groups.streams.tasks import Tasks
from kraftrio.broker.coordinator.outcome import Outcome
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import StreamsGroupTargetAssignmentMemberKey
from kraftrio.wire.messages.streams_groups import StreamsGroupHeartbeatResponse
from tests.sim.consumer_group_mutations import Patch, without_records


def _give_what_others_have() -> list[Patch]:
    """A task goes to its next owner before the former one has given it up."""
    return [(TaskOwners, "has_active", lambda self, task: False)]


def _do_not_await_what_is_given_up() -> list[Patch]:
    """A member counts as having given up what it was asked for, whatever it says that it has."""
    return [(Tasks, "contains_any", lambda self, others: False)]


def _fence_too_early() -> list[Patch]:
    """A member is taken for dead after a fraction of its session."""

    def prolong_session(self: MemberDeadlines, group_id: str, member_id: str, now: Any) -> None:
        self._deadlines.schedule((SESSION_DEADLINE, group_id, member_id), now.monotonic_ms + 400)

    return [(MemberDeadlines, "prolong_session", prolong_session)]


def _commit_in_any_epoch() -> list[Patch]:
    """A member that has lost a task may still commit for it."""

    def check_commit(self: StreamsGroup, *arguments: Any, **options: Any) -> ErrorCode:
        return ErrorCode.NONE

    return [(StreamsGroup, "check_commit", check_commit)]


def _no_sessions_after_loading() -> list[Patch]:
    """Members that were read from the log live for ever."""
    return [(StreamsGroups, "on_loaded", lambda self, now: Outcome())]


def _targets_are_not_read() -> list[Patch]:
    """A coordinator that loads does not take over what members are to have."""
    return without_records(StreamsGroupTargetAssignmentMemberKey)


def _epochs_are_not_read() -> list[Patch]:
    """A coordinator that loads misses the last record of a group's epoch."""
    loaded = StreamsGroups.on_loaded

    def on_loaded(self: StreamsGroups, now: Any) -> Any:
        for group in self._registry.all_of(StreamsGroup):
            group.epoch = max(group.epoch - 1, 1)
        return loaded(self, now)

    return [(StreamsGroups, "on_loaded", on_loaded)]


def _nothing_ever_changes() -> list[Patch]:
    """A member is answered that nothing has changed as long as it is in the epoch that it names."""

    def unchanged(self: StreamsHeartbeats, request: Any, sender: Any, now: Any) -> Any:
        group = self._registry.find(request.group_id, StreamsGroup)
        member = None if group is None else group.members.get(request.member_id)
        if member is None or member.member_epoch != request.member_epoch:
            return None
        self._deadlines.prolong_session(request.group_id, request.member_id, now)
        return StreamsGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=500,
            status=[],
        )

    return [(StreamsHeartbeats, "unchanged", unchanged)]


def _copy_beside_the_original() -> list[Patch]:
    """A process is given a copy of the state of what it runs itself."""
    return [(ProcessLoad, "has_task", lambda self, task: False)]


def _one_copy_too_few() -> list[Patch]:
    """A copy of each state is left out."""
    counted = StreamsHeartbeats.assignment_configs

    def assignment_configs(self: StreamsHeartbeats, group_id: str) -> Mapping[str, str]:
        configs = counted(self, group_id)
        return {name: str(max(int(value) - 1, 0)) for name, value in configs.items()}

    return [(StreamsHeartbeats, "assignment_configs", assignment_configs)]


def _copies_are_not_read() -> list[Patch]:
    """A coordinator that loads does not take over who is to keep copies."""
    loaded = StreamsGroups.on_loaded

    def on_loaded(self: StreamsGroups, now: Any) -> Any:
        for group in self._registry.all_of(StreamsGroup):
            members = group.target.members
            members.update({name: one._replace(standby={}) for name, one in members.items()})
        return loaded(self, now)

    return [(StreamsGroups, "on_loaded", on_loaded)]


STREAMS_MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "give-what-others-have": _give_what_others_have,
    "do-not-await-what-is-given-up": _do_not_await_what_is_given_up,
    "fence-too-early": _fence_too_early,
    "commit-in-any-epoch": _commit_in_any_epoch,
    "no-sessions-after-loading": _no_sessions_after_loading,
    "targets-are-not-read": _targets_are_not_read,
    "epochs-are-not-read": _epochs_are_not_read,
    "nothing-ever-changes": _nothing_ever_changes,
    "copy-beside-the-original": _copy_beside_the_original,
    "one-copy-too-few": _one_copy_too_few,
    "copies-are-not-read": _copies_are_not_read,
}
