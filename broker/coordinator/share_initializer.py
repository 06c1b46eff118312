"""Has the states of share partitions initialized, and notifies their groups (KIP-932).

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
from itertools import islice
from typing import Protocol

from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import log_event
from kraftrio.broker.coordinator.groups.share.ports import StatesToInitialize
from kraftrio.broker.share_state import SharePartitionKey
from kraftrio.wire.errors import ErrorCode

_log = logging.getLogger("kraftrio.groups")

_AT_ONCE = 500  # states that are asked for in one turn; the next ones once these are answered


class StateCoordinators(Protocol):
    """The share coordinators of the cluster (`peers/share_state_client`)."""

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Deferred[ErrorCode]: ...


Codes = Mapping[tuple[bytes, int], ErrorCode]
"""The results, by topic id and partition."""


class ShareStateInitializer:
    """See the module."""

    def __init__(self, coordinators: StateCoordinators) -> None:
        self._coordinators = coordinators
        self._on_initialized: Callable[[StatesToInitialize, Codes], object] = _ignore_result

    def when_initialized(self, callback: Callable[[StatesToInitialize, Codes], object]) -> None:
        """Set what is called with the result."""
        self._on_initialized = callback

    def initialize(self, states: StatesToInitialize) -> None:
        """Ask for states, and notify the group of the result."""
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
        self._on_initialized(states, codes)

    def ask(self, states: StatesToInitialize) -> Deferred[Codes]:
        """Ask for states, for some of them at a time."""
        asking = _Initialization(self._coordinators, states)
        asking.go_on()
        return asking.answered


class _Initialization:
    """States that are asked for, some at a time: a topic may have many thousands."""

    def __init__(self, coordinators: StateCoordinators, states: StatesToInitialize) -> None:
        self._coordinators = coordinators
        self._state_epoch = states.state_epoch
        self._wanted = (
            (SharePartitionKey(states.group_id, topic_id, index), offset)
            for topic_id, offsets in states.start_offsets.items()
            for index, offset in offsets.items()
        )
        self._codes: dict[tuple[bytes, int], ErrorCode] = {}
        self._missing_count = 0
        self.answered: Deferred[Codes] = Deferred()

    def go_on(self) -> None:
        """Ask for the next ones; all are answered if there are none."""
        asked = list(islice(self._wanted, _AT_ONCE))
        if not asked:
            self.answered.complete(self._codes)
            return
        self._missing_count = len(asked)
        for key, offset in asked:
            answer = self._coordinators.initialize(key, self._state_epoch, offset)
            answer.then(partial(self._on_answer, key))

    def _on_answer(self, key: SharePartitionKey, code: ErrorCode) -> None:
        self._codes[key.topic_id, key.partition] = code
        self._missing_count -= 1
        if not self._missing_count:
            self.go_on()


def _ignore_result(_states: StatesToInitialize, _codes: Codes) -> None:
    """Before there is a group coordinator to notify."""
