"""Deliberate breaches of what share groups (KIP-932) promise: each must be noticed.

Owns: `SHARE_MUTATIONS`, name -> the patches that switch one in. Called by:
`test_share_group_scenarios`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.share_state.shard import ShareStateShard
from kraftrio.broker.coordinator.share_state.state import StoredPartition, Update
from kraftrio.broker.share.led_share_partition import LedSharePartition
from kraftrio.broker.share.state.acknowledgement import AcknowledgeCode
from kraftrio.broker.share.state.acquisition import Acquisition
from kraftrio.broker.share.state.records import RecordState, Run
from kraftrio.broker.share.state.share_partition import ShareLimits, SharePartition
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.messages.group_records.keys import ShareGroupTargetAssignmentMemberKey
from tests.sim.consumer_group_mutations import Patch, without_records


def _give_what_others_have() -> list[Patch]:
    """What one member has is given to the next one, too."""
    original = Acquisition.take_again

    def take_again(self: Acquisition, run: Run, first: int, last: int) -> None:
        if run.state is RecordState.ACQUIRED and run.change is None:
            run.state = RecordState.AVAILABLE
        original(self, run, first, last)

    original_next = SharePartition.next_fetch_offset

    def next_fetch_offset(self: SharePartition) -> int:
        held = [run.first for run in self.in_flight if run.state is RecordState.ACQUIRED]
        return min([original_next(self), *held])

    return [
        (Acquisition, "take_again", take_again),
        (SharePartition, "next_fetch_offset", next_fetch_offset),
    ]


def _locks_end_too_early() -> list[Patch]:
    """A member has records for a fraction of the lock's time."""
    original = LedSharePartition._limits

    def limits(self: LedSharePartition) -> ShareLimits:
        return original(self)._replace(lock_duration_ms=50)

    return [(LedSharePartition, "_limits", limits)]


def _locks_never_end() -> list[Patch]:
    """Who has forgotten what it has keeps it from everybody else."""

    def end_locks(self: SharePartition, now_ms: float) -> bool:
        self._locks.clear()
        return False

    return [(SharePartition, "end_locks", end_locks)]


def _no_limit() -> list[Patch]:
    """A record is delivered until a member accepts it."""
    original = LedSharePartition._limits

    def limits(self: LedSharePartition) -> ShareLimits:
        return original(self)._replace(delivery_count=1000)

    return [(LedSharePartition, "_limits", limits)]


def _released_is_given_up() -> list[Patch]:
    """What a member gives back nobody gets any more."""
    original = SharePartition._change

    def change(self: SharePartition, run: Run, state: RecordState, *arguments: Any) -> None:
        state = RecordState.ARCHIVED if state is RecordState.AVAILABLE else state
        original(self, run, state, *arguments)

    return [(SharePartition, "_change", change)]


def _rejected_is_given_back() -> list[Patch]:
    """What a member rejects others get."""
    original = SharePartition.check

    def check(self: SharePartition, member_id: str, batches: Any) -> Any:
        return [
            (first, last, AcknowledgeCode.RELEASE if kind is AcknowledgeCode.REJECT else kind)
            for first, last, kind in original(self, member_id, batches)
        ]

    return [(SharePartition, "check", check)]


def _answer_before_it_is_kept() -> list[Patch]:
    """What is acknowledged is lost with the leader, if the write has not come through."""
    end, write = LedSharePartition._answer_when_written, LedSharePartition._write

    def answer(self: LedSharePartition, is_changed: bool) -> Deferred[KafkaError | None]:
        return end(self, False)

    def write_later(self: LedSharePartition) -> None:
        if self._services.clock.monotonic_ms() % 2000 < 200:
            write(self)

    return [
        (LedSharePartition, "_answer_when_written", answer),
        (LedSharePartition, "_write", write_later),
    ]


def _updates_are_not_read() -> list[Patch]:
    """A coordinator that loads takes over snapshots only."""
    live: set[int] = set()
    loaded, on_update = ShareStateShard.on_loaded, StoredPartition.on_update
    replay = ShareStateShard.replay

    def on_loaded(self: ShareStateShard, now: Any) -> Any:
        live.add(id(self))
        return loaded(self, now)

    reading: list[ShareStateShard] = []

    def replay_one(self: ShareStateShard, *arguments: Any, **options: Any) -> None:
        reading[:] = [self]
        replay(self, *arguments, **options)

    def update(self: StoredPartition, update: Update) -> None:
        if id(reading[0]) in live:
            on_update(self, update)

    return [
        (ShareStateShard, "on_loaded", on_loaded),
        (ShareStateShard, "replay", replay_one),
        (StoredPartition, "on_update", update),
    ]


def _counts_are_forgotten() -> list[Patch]:
    """A leader that takes over begins to count deliveries again."""
    original = SharePartition.load

    def load(self: SharePartition, start_offset: int, batches: Any) -> None:
        original(self, start_offset, batches)
        for run in self.in_flight:
            run.delivery_count = 0

    return [(SharePartition, "load", load)]


def _what_was_in_flight_is_passed_over() -> list[Patch]:
    """A leader that takes over begins at the end of what was in flight."""
    original = SharePartition.load

    def load(self: SharePartition, start_offset: int, batches: Any) -> None:
        original(self, max([start_offset, *(batch.last_offset + 1 for batch in batches)]), ())

    return [(SharePartition, "load", load)]


def _targets_are_not_read() -> list[Patch]:
    """A coordinator that loads does not take over what members are to have."""
    return without_records(ShareGroupTargetAssignmentMemberKey)


SHARE_MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "give-what-others-have": _give_what_others_have,
    "locks-end-too-early": _locks_end_too_early,
    "locks-never-end": _locks_never_end,
    "no-limit": _no_limit,
    "released-is-given-up": _released_is_given_up,
    "rejected-is-given-back": _rejected_is_given_back,
    "answer-before-it-is-kept": _answer_before_it_is_kept,
    "updates-are-not-read": _updates_are_not_read,
    "counts-are-forgotten": _counts_are_forgotten,
    "what-was-in-flight-is-passed-over": _what_was_in_flight_is_passed_over,
    "targets-are-not-read": _targets_are_not_read,
}
