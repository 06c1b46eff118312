"""Deliberate breaches of what consumer groups (KIP-848) promise: each must be noticed.

Owns: `GROUP_MUTATIONS`, name -> the patches that switch one in. Called by: `test_consumer_groups`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftrio.broker.coordinator.groups.consumer.groups import ConsumerGroups
from kraftrio.broker.coordinator.groups.consumer.member_timers import MemberTimers
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.broker.coordinator.groups.consumer.state.partition_epochs import PartitionEpochs
from kraftrio.broker.coordinator.groups.shard.group_shard import GroupShard
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import (
    ConsumerGroupTargetAssignmentMemberKey,
    GroupRecordKey,
    decode_key,
)
from kraftrio.wire.primitives import Buffer

Patch = tuple[Any, str, Any]


def _give_what_others_have() -> list[Patch]:
    """A partition goes to its next owner before the former one has let it go."""
    return [(PartitionEpochs, "is_owned", lambda self, topic_id, partition: False)]


def _fence_too_early() -> list[Patch]:
    """A member is taken for dead after a fraction of its session."""
    original = MemberTimers.prolong_session

    def prolong_session(
        self: MemberTimers, group_id: str, member_id: str, now: Any, timeout_ms: int | None = None
    ) -> None:
        original(self, group_id, member_id, now, 400)

    return [(MemberTimers, "prolong_session", prolong_session)]


def _commit_in_any_epoch() -> list[Patch]:
    """A former member may commit, a zombie, too."""

    def check_commit(self: ConsumerGroup, *arguments: Any, **options: Any) -> ErrorCode:
        return ErrorCode.NONE

    return [(ConsumerGroup, "check_commit", check_commit)]


def _no_sessions_after_loading() -> list[Patch]:
    """Members that were read from the log live for ever."""
    return [(MemberTimers, "start", lambda self, group, now: None)]


def _targets_are_not_read() -> list[Patch]:
    """A coordinator that loads does not take over what members are to have."""
    return without_records(ConsumerGroupTargetAssignmentMemberKey)


def without_records(key_type: type[GroupRecordKey]) -> list[Patch]:
    """A coordinator that loads passes over the records of one type."""
    original, loaded = GroupShard.replay, GroupShard.on_loaded
    live: set[int] = set()

    def on_loaded(self: GroupShard, now: Any) -> Any:
        live.add(id(self))
        return loaded(self, now)

    def replay(
        self: GroupShard, record_offset: int, key: Buffer, *arguments: Any, **options: Any
    ) -> None:
        if id(self) in live or not isinstance(decode_key(key), key_type):
            original(self, record_offset, key, *arguments, **options)

    return [(GroupShard, "on_loaded", on_loaded), (GroupShard, "replay", replay)]


def _epochs_are_not_read() -> list[Patch]:
    """A coordinator that loads misses the last record of a group's epoch."""
    loaded = ConsumerGroups.on_loaded

    def on_loaded(self: ConsumerGroups, now: Any) -> Any:
        for group in self._parts.registry.all_of(ConsumerGroup):
            group.epoch = max(group.epoch - 1, 1)
        return loaded(self, now)

    return [(ConsumerGroups, "on_loaded", on_loaded)]


GROUP_MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "give-what-others-have": _give_what_others_have,
    "fence-too-early": _fence_too_early,
    "commit-in-any-epoch": _commit_in_any_epoch,
    "no-sessions-after-loading": _no_sessions_after_loading,
    "targets-are-not-read": _targets_are_not_read,
    "epochs-are-not-read": _epochs_are_not_read,
}
