"""The internal topics of Kafka Streams applications, made by the broker that coordinates them.

A streams group that lacks repartition and changelog topics names them with each heartbeat of its
members (KIP-1071). A topic that could not be made is left alone for a while, in which the members
get the reason. Called by `api/groups/streams_groups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kraftrio.base.clock import Clock
from kraftrio.broker.metadata.auto_topics import AutoTopicCreator
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic

_MAX_FAILURES = 1000  # Kafka's; the oldest go first


class _CreationFailure(NamedTuple):
    message: str
    until_ms: float


class InternalTopics:
    """See the module."""

    def __init__(self, creator: AutoTopicCreator, clock: Clock) -> None:
        self._creator = creator
        self._clock = clock
        self._failures: dict[str, _CreationFailure] = {}

    def create(self, topics: Sequence[CreatableTopic], retry_ms: int) -> dict[str, str]:
        """Begin to make topics that do not exist.

        Args:
            retry_ms: how long a topic is left alone that could not be made.

        Returns:
            Why some of them could not be made a moment ago, by name.
        """
        now_ms = self._clock.monotonic_ms()
        recent = {
            topic.name: self._failures[topic.name].message
            for topic in topics
            if topic.name in self._failures and self._failures[topic.name].until_ms > now_ms
        }
        self._creator.create_as_given(
            [topic for topic in topics if topic.name not in recent],
            partial(self._on_done, retry_ms),
        )
        return recent

    def _on_done(self, retry_ms: int, name: str, code: ErrorCode, message: str) -> None:
        self._failures.pop(name, None)
        if code is not ErrorCode.NONE:
            self._failures[name] = _CreationFailure(message, self._clock.monotonic_ms() + retry_ms)
            while len(self._failures) > _MAX_FAILURES:
                del self._failures[next(iter(self._failures))]
