"""What a member needs of its kind of group: how its heartbeats look, and what their answers hold.

The heartbeats of consumer groups and of share groups differ in their fields, their answers do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kraftrio.wire.errors import ErrorCode

# The partitions of topics by their ids: what an assignment is, and what a member owns.
Assignment = Mapping[bytes, frozenset[int]]


class AnsweredTopic(Protocol):
    """Some partitions of one topic in an answer."""

    topic_id: bytes
    partitions: list[int]


class AnsweredAssignment(Protocol):
    """The assignment in an answer."""

    @property
    def topic_partitions(self) -> Sequence[AnsweredTopic]:
        """Partitions by topic."""


class HeartbeatAnswer(Protocol):
    """What every heartbeat is answered with; no assignment: it stays as it is."""

    error_code: ErrorCode
    error_message: str | None
    member_epoch: int
    heartbeat_interval_ms: int

    @property
    def assignment(self) -> AnsweredAssignment | None:
        """What the member is to own."""


class HeartbeatRequests(Protocol):
    """Makes the heartbeats of a member, with only what the coordinator does not know yet."""

    def make(self, member_id: str, member_epoch: int, owned: Assignment | None) -> Any:
        """Return the next heartbeat; with epoch 0 it has every field.

        Args:
            owned: None: the member was assigned nothing yet.
        """

    def leave(self, member_id: str) -> Any:
        """Return the heartbeat by which the member leaves."""

    def forget(self) -> None:
        """Send everything with the next one: it is unknown what the coordinator has got."""
