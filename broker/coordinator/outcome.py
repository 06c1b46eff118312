"""What a coordinator core answers with: records to append, replies to send, and what to be told.

The contract between the cores (`classic/groups`, `offset_state`, `groups/shard`) and their shell
(`runtime`):
1. `records` are appended to the shard's partition as one batch. If that fails nothing of them
   exists.
2. When `replay` is set, each record is given to `GroupShard.replay` right after the append, before
   anything else is asked of the shard. Records of classic groups are not replayed: they write down
   what the group's soft state already is.
3. `replies` are sent at once.
4. `response` is sent once everything this outcome appended is committed, or is replaced by the
   error if it is not.
5. `follow_up` is handed to `GroupShard.on_append_done` with the fate of the records; that gives
   another outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from kraftrio.wire.errors import ErrorCode

Ticket: TypeAlias = Any
"""Stands for a request that waits for its reply. The shell chooses what it is; cores only keep it
and give it back."""


class Now(NamedTuple):
    """A moment, on both clocks: deadlines go by the monotonic one, records by the wall."""

    monotonic_ms: float
    wall_ms: int


class CoordinatorRecord(NamedTuple):
    """A record of `__consumer_offsets`; a null value is a tombstone."""

    key: bytes
    value: bytes | None


class Reply(NamedTuple):
    ticket: Ticket
    response: Any


class FollowUp:
    """What a core wants to be reminded of when the fate of its records is known."""

    __slots__ = ()


@dataclass(slots=True)
class Outcome:
    """See the rules at the top of the module."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    response: Any = None
    follow_up: FollowUp | None = None
    replay: bool = False
    splittable: bool = False
    """The records need not be one atomic batch (expiry, deleted topics)."""

    def reply(self, ticket: Ticket, response: Any) -> None:
        """Answer a waiting request at once."""
        self.replies.append(Reply(ticket, response))

    def __bool__(self) -> bool:
        return bool(self.records or self.replies or self.response is not None)


_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error_to_response(error: ErrorCode) -> ErrorCode:
    """Translate the failure of an append into what a group member may be told.

    A member understands that the coordinator moved or is not available; it would give up on
    errors that belong to producing.
    """
    return _APPEND_ERRORS.get(error, error)
