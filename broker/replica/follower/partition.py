"""Where the replication of one followed partition stands, and what there is to do to its log.

Values and ports of `follower/fetch`: the states with their legal moves, what is read of a log and
of the throttle, and the effects that `follower/leader_fetcher` carries out.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, TypeAlias

from kraftrio.broker.replica.follower.session import SessionKey
from kraftrio.broker.replica.ports import ReplicationThrottle
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import Buffer, TopicPartition

NEVER_SENT: Final = 2**62


class FetchState(Enum):
    """Where the replication of one partition stands.

    FETCHING: part of the session.
    TRUNCATING: the shell is to truncate the log and has not reported yet.
    RESETTING: out of the leader's range: it is asked for its first and last offset.
    DELAYED: after an error, until a time.
    FAILED: until metadata brings a new leader epoch.
    """

    FETCHING = auto()
    TRUNCATING = auto()
    RESETTING = auto()
    DELAYED = auto()
    FAILED = auto()


MOVES: Final[dict[FetchState, frozenset[FetchState]]] = {
    FetchState.FETCHING: frozenset(
        {
            FetchState.TRUNCATING,
            FetchState.RESETTING,
            FetchState.DELAYED,
            FetchState.FAILED,
        }
    ),
    FetchState.TRUNCATING: frozenset({FetchState.FETCHING, FetchState.DELAYED, FetchState.FAILED}),
    FetchState.RESETTING: frozenset(
        {
            FetchState.TRUNCATING,
            FetchState.DELAYED,
            FetchState.FAILED,
            FetchState.FETCHING,
        }
    ),
    FetchState.DELAYED: frozenset({FetchState.FETCHING}),
    FetchState.FAILED: frozenset(),
}
"""The legal moves; a new leader epoch starts over."""


class ReplicaLog(Protocol):
    """What is read of a follower's log; `PartitionLog` is one."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int

    @property
    def latest_epoch(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int, /) -> tuple[int, int]:
        """(largest epoch <= `epoch` here, its end offset); (-1, -1) when unknown."""


class FollowerQuota(ReplicationThrottle, Protocol):
    """How fast throttled replicas may be fetched; `ReplicationQuota` is one."""

    @property
    def is_active(self) -> bool:
        """Is any replica throttled at all?"""


class FollowerFetchSettings(NamedTuple):
    """The broker's settings that a fetch carries."""

    broker_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff_ms: int
    names_changes_at_once: bool = False


class FollowedPartition:
    """One partition in one leader epoch."""

    __slots__ = (
        "delay_ms",
        "due_ms",
        "failure_count",
        "first_sent",
        "is_held",
        "key",
        "lag",
        "last_sent",
        "leader_epoch",
        "log",
        "sent_epoch",
        "sent_offset",
        "sent_start_offset",
        "state",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        leader_epoch: int,
        log: ReplicaLog,
    ) -> None:
        self.topic_partition = topic_partition
        self.key = SessionKey(topic_id, topic_partition.partition)
        self.leader_epoch = leader_epoch
        self.log = log
        self.state = FetchState.FETCHING
        self.lag: int | None = None  # how far behind the high watermark; None: no answer yet
        self.is_held = False  # by the quota
        self.due_ms = 0.0
        self.delay_ms = 0  # the last one; 0 once something went well
        self.failure_count = 0
        self.first_sent = NEVER_SENT  # number of the request that named it first, and last
        self.last_sent = NEVER_SENT
        self.sent_offset = -1  # what that one said: the end, latest epoch and start of the log
        self.sent_epoch = -1
        self.sent_start_offset = -1

    def __repr__(self) -> str:
        return f"FollowedPartition({self.topic_partition}, {self.leader_epoch}, {self.state.name})"

    def move(self, state: FetchState) -> None:
        assert state in MOVES[self.state], f"{self} cannot become {state.name}"
        self.state = state


class Append(NamedTuple):
    """Append what the leader gave (perhaps nothing), then follow its watermarks."""

    partition: FollowedPartition
    records: Buffer
    high_watermark: int
    log_start_offset: int


class TruncateTo(NamedTuple):
    """Truncate the log."""

    partition: FollowedPartition
    offset: int
    reason: str


class StartAt(NamedTuple):
    """Drop the log and start over at an offset."""

    partition: FollowedPartition
    offset: int


class Warn(NamedTuple):
    """Nothing to do, but worth a line in the log: the partition cannot be fetched now."""

    partition: FollowedPartition
    code: ErrorCode
    gives_up: bool  # until metadata brings a new leader epoch


Effect: TypeAlias = Append | TruncateTo | StartAt | Warn
