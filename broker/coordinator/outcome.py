"""What the shard of a coordinator answers with: records to append, replies to send.

The contract between a shard (`shard`) and the runtime (`outcome_runner`):
1. `records`, or `batch` where they are encoded already, are appended to the shard's partition as
   one batch. If that fails nothing of them exists. If only their flush fails they do: they count
   as if their commit had timed out.
2. Right after the append, before anything else is asked of the shard, it gets what changes by them:
   `change`, if the outcome has one, goes to `apply`; if `replay` is set each record goes to
   `replay`. Records without either describe what the shard's soft state already is.
3. `replies` are sent at once; `events` are for the log, once the records are appended.
4. `response` is sent once everything this outcome appended is committed, or is replaced by the
   error if it is not. Where nothing is appended it is sent at once, but if `stable` is set it waits
   for what the shard appended before (it reveals that), and one that `needs_confirmation` until it
   is certain that no other broker leads the partition.
5. `follow_up` is handed to `on_append_done` with the fate of the records; that gives another
   outcome.
6. With a `producer` the records belong to its transaction: they are appended as its transactional
   batch, and replayed or applied under its id, to count once its marker says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.builder import BatchBuilder

Ticket: TypeAlias = Any
"""Stands for a request that waits for its reply. The runtime chooses what it is; cores only keep it
and give it back."""


class Now(NamedTuple):
    """A moment, on both clocks: deadlines go by the monotonic one, records by the wall."""

    monotonic_ms: float
    wall_ms: int


class RecordMessages(NamedTuple):
    """The key of a record, and its value or what the shard makes of that; they do not change."""

    key: Any
    value: Any


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic; a null value is a tombstone."""

    key: bytes
    value: bytes | None

    @property
    def messages(self) -> RecordMessages | None:
        """What key and value were encoded from, for a shard that need not decode them again."""
        return None


class RecordWithMessages(CoordinatorRecord):
    """A record that stays with what it was encoded from."""

    messages: RecordMessages | None = None


class ProducerOfBatch(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    producer_epoch: int


class TicketReply(NamedTuple):
    ticket: Ticket
    response: Any


class CoordinatorEvent(NamedTuple):
    """Something that happened to what a shard keeps, for the log: what, and to whom."""

    message: str
    fields: Mapping[str, object]


class FollowUp:
    """What a shard gets back once its records are committed, or have failed."""

    __slots__ = ()


class Change:
    """What appended records change, where the shard knows it without reading them again."""

    __slots__ = ()


@dataclass(slots=True)
class Outcome:
    """See the rules at the top of the module."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[TicketReply] = field(default_factory=list)
    events: list[CoordinatorEvent] = field(default_factory=list)
    response: Any = None
    follow_up: FollowUp | None = None
    batch: BatchBuilder | None = None
    change: Change | None = None
    producer: ProducerOfBatch | None = None
    replay: bool = False
    stable: bool = False
    needs_confirmation: bool = False
    """The response would be wrong if another broker had appended what is not known here."""
    splittable: bool = False
    """The records need not be one atomic batch (expiry, deleted topics)."""

    def reply(self, ticket: Ticket, response: Any) -> None:
        """Answer a waiting request at once."""
        self.replies.append(TicketReply(ticket, response))

    def note(self, message: str, /, **fields: object) -> None:
        """Add an event."""
        self.events.append(CoordinatorEvent(message, fields))

    def __bool__(self) -> bool:
        return bool(self.records or self.batch or self.replies or self.response is not None)


COMMITTED = frozenset({ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""The fates of an append that say the high watermark has passed its records: those stay, however
few replicas are in sync by now and whatever a producer would be told."""

_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Of asking another broker: the same coordinator is to be asked again.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
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
    """Translate the failure of an append, or of what goes before it, into one of a coordinator.

    Clients of a coordinator look for it again when it moved or is not available; on an error of
    producing they would give up.
    """
    return _APPEND_ERRORS.get(error, error)
