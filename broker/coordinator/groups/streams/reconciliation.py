"""Takes a member towards its part of the target assignment, step by step (KIP-1071).

1. What the member has and is not to have any longer it must give up first; it stays in its epoch
   until its heartbeat names none of it as owned.
2. Then it goes to the target's epoch and gets what is free. An active task is free once no process
   has it, as active, and the member's own process does not keep it in another role; a standby or
   warm-up task once the member's own process has it in no role.
3. While something is not free it asks again with each heartbeat.

Called by a heartbeat; sans-IO, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kraftrio.broker.coordinator.groups.streams.member import StreamsMember, StreamsMemberState
from kraftrio.broker.coordinator.groups.streams.task_owners import TaskOwners
from kraftrio.broker.coordinator.groups.streams.tasks import (
    NO_ASSIGNED_TASKS,
    AssignedTasks,
    Tasks,
    TaskSets,
)
from kraftrio.wire.errors import ErrorCode, KafkaError

_IsTaken = Callable[[tuple[str, int]], bool]


class StreamsTarget(NamedTuple):
    """What a member is to have, as of the epoch of the target assignment."""

    epoch: int
    tasks: Tasks


def reconcile(
    member: StreamsMember, target: StreamsTarget, owned: Tasks | None, owners: TaskOwners
) -> StreamsMember:
    """Return the member as it is after its next step, or as it is if there is none.

    Args:
        owned: what the member says it has; None: it did not say.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH: the member's state is unknown, and it has tasks.
    """
    if member.is_reconciled_to(target.epoch):
        return member
    epoch = member.member_epoch
    match member.state:
        case StreamsMemberState.UNREVOKED_TASKS:
            if owned is None or owned.contains_any(member.pending_revocation):
                return member
            epoch += 1
        case StreamsMemberState.UNKNOWN:
            if owned is None or not owned.is_empty:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. "
                    "The member must abandon all its tasks and rejoin.",
                )
            epoch = target.epoch
        case _:
            pass
    return _next_step(member, epoch, target, owned, owners)


def _next_step(
    member: StreamsMember,
    epoch: int,
    target: StreamsTarget,
    owned: Tasks | None,
    owners: TaskOwners,
) -> StreamsMember:
    process_id, has = member.metadata.process_id, member.assigned
    if _are_those_of(target.tasks, has):  # as for most members of a rebalance
        return _in_state(member, StreamsMemberState.STABLE, target.epoch, has, NO_ASSIGNED_TASKS)
    active = _compare_active(
        has.active, target, lambda task: _is_active_taken(owners, task, process_id)
    )

    def is_taken(task: tuple[str, int]) -> bool:
        return owners.is_active_of(task, process_id) or owners.is_kept_by(task, process_id)

    standby = _compare(has.standby, target.tasks.standby, is_taken)
    warmup = _compare(has.warmup, target.tasks.warmup, is_taken)
    revoked = AssignedTasks(active.revoked, standby.revoked, warmup.revoked)
    kept = AssignedTasks(active.kept, standby.kept, warmup.kept)
    if not revoked.is_empty and (owned is None or owned.contains_any(revoked)):
        return _in_state(member, StreamsMemberState.UNREVOKED_TASKS, epoch, kept, revoked)
    added = AssignedTasks(active.added, standby.added, warmup.added)
    state = StreamsMemberState.STABLE
    if active.has_taken or standby.has_taken or warmup.has_taken:
        state = StreamsMemberState.UNRELEASED_TASKS
    if not added.is_empty:
        kept = kept.merge(added)
    return _in_state(member, state, target.epoch, kept, NO_ASSIGNED_TASKS)


def _are_those_of(tasks: Tasks, assigned: AssignedTasks) -> bool:
    """Whether a member is to have just what it has."""
    return (
        tasks.active.keys() == assigned.active.keys()
        and all(assigned.active[name].keys() == tasks.active[name] for name in tasks.active)
        and (tasks.standby, tasks.warmup) == (assigned.standby, assigned.warmup)
    )


def _in_state(
    member: StreamsMember,
    state: StreamsMemberState,
    epoch: int,
    assigned: AssignedTasks,
    pending_revocation: AssignedTasks,
) -> StreamsMember:
    return StreamsMember(
        member.member_id,
        member.metadata,
        epoch,
        member.member_epoch,
        state,
        assigned,
        pending_revocation,
    )


def _is_active_taken(owners: TaskOwners, task: tuple[str, int], process_id: str) -> bool:
    return owners.has_active(task) or owners.is_kept_by(task, process_id)


class _ActiveDifference(NamedTuple):
    """Active tasks to keep, to give up and to get; and whether others have some of the wanted."""

    kept: dict[str, dict[int, int]]
    revoked: dict[str, dict[int, int]]
    added: dict[str, dict[int, int]]
    has_taken: bool


class _Difference(NamedTuple):
    """The same for tasks of another role."""

    kept: dict[str, frozenset[int]]
    revoked: dict[str, frozenset[int]]
    added: dict[str, frozenset[int]]
    has_taken: bool


_SAME: Final = _Difference({}, {}, {}, has_taken=False)  # nothing to have, and nothing had


def _compare_active(
    has: Mapping[str, Mapping[int, int]], target: StreamsTarget, is_taken: _IsTaken
) -> _ActiveDifference:
    plain = _compare(
        {name: frozenset(epochs) for name, epochs in has.items()}, target.tasks.active, is_taken
    )

    def with_epochs(sets: TaskSets) -> dict[str, dict[int, int]]:
        return {
            name: {partition: has[name][partition] for partition in partitions}
            for name, partitions in sets.items()
        }

    added = {name: dict.fromkeys(each, target.epoch) for name, each in plain.added.items()}
    return _ActiveDifference(
        with_epochs(plain.kept), with_epochs(plain.revoked), added, plain.has_taken
    )


def _compare(has: TaskSets, wanted: TaskSets, is_taken: _IsTaken) -> _Difference:
    if not (has or wanted):
        return _SAME
    kept: dict[str, frozenset[int]] = {}
    revoked: dict[str, frozenset[int]] = {}
    added: dict[str, frozenset[int]] = {}
    has_taken = False
    nothing: frozenset[int] = frozenset()
    for name in dict.fromkeys((*wanted, *has)):
        has_now, to_have = has.get(name, nothing), wanted.get(name, nothing)
        missing = to_have - has_now
        free = frozenset(partition for partition in missing if not is_taken((name, partition)))
        has_taken = has_taken or len(free) < len(missing)
        for parts, partitions in (
            (kept, has_now & to_have),
            (revoked, has_now - to_have),
            (added, free),
        ):
            if partitions:
                parts[name] = partitions
    return _Difference(kept, revoked, added, has_taken)
