"""Has the states of share partitions initialized, and tells their groups (KIP-932).

A group's shard notes which states it wants, and hands them over once that is stored. Each of them
is asked of its share coordinator, which may be another broker; when all answers are there the group
hears which states there are, and which are not. What gets lost in between, with a coordinator, is
asked for again by a later heartbeat of the group.

Called by the shards of the group coordinator, and by the handler of AlterShareGroupOffsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import log_event
from kraftrio.broker.coordinator.groups.share.ports import StatesToInitialize
from kraftrio.broker.share_state import SharePartitionKey
from kraftrio.wire.errors import ErrorCode

_log = logging.getLogger("kraftrio.groups")


class StateCoordinators(Protocol):
    """The share coordinators of the cluster (`peers/share_state_client`)."""

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Deferred[ErrorCode]: ...


Codes = Mapping[tuple[bytes, int], ErrorCode]
"""How it went, by topic id and partition."""


class ShareStateInitializer:
    """See the module."""

    def __init__(self, coordinators: StateCoordinators) -> None:
        self._coordinators = coordinators
        self._tell: Callable[[StatesToInitialize, Codes], object] = _nobody

    def when_initialized(self, callback: Callable[[StatesToInitialize, Codes], object]) -> None:
        """Name who is told how it went."""
        self._tell = callback

    def initialize(self, states: StatesToInitialize) -> None:
        """Ask for states, and tell the group how that went."""
        self.ask(states).then(partial(self._on_answers, states))

    def _on_answers(self, states: StatesToInitialize, codes: Codes) -> None:
        failed = next((code for code in codes.values() if code is not ErrorCode.NONE), None)
        if failed is not None:
            log_event(
                _log,
                logging.WARNING,
                "share partitions not initialized",
                group=states.group_id,
                error=failed.name,
            )
        self._tell(states, codes)

    def ask(self, states: StatesToInitialize) -> Deferred[Codes]:
        """Ask for states."""
        codes: dict[tuple[bytes, int], ErrorCode] = {}
        answered: Deferred[Codes] = Deferred()
        wanted = [
            (SharePartitionKey(states.group_id, topic_id, index), offset)
            for topic_id, offsets in states.start_offsets.items()
            for index, offset in offsets.items()
        ]
        if not wanted:
            answered.complete(codes)

        def on_answer(key: SharePartitionKey, code: ErrorCode) -> None:
            codes[key.topic_id, key.partition] = code
            if len(codes) == len(wanted):
                answered.complete(codes)

        for key, offset in wanted:
            asked = self._coordinators.initialize(key, states.state_epoch, offset)
            asked.then(partial(on_answer, key))
        return answered


def _nobody(_states: StatesToInitialize, _codes: Codes) -> None:
    """Nobody is told before the group coordinator is there."""
