"""What the metadata quorum asks of the outside, and the values that cross those borders.

Owns: the protocols (ports) that node.py fills in, and the values of the log: `LogBatch`,
`SnapshotId`, `ElectionState`. Rules:
1. `OSError` from a port propagates: a metadata log that cannot be written ends the node.
2. Only `flush` of the log, the writes of the election state and the snapshot calls may block; the
   quorum service runs them in a worker thread. Everything else is quick and synchronous.

Called by: raft.py (values, LogReader), controller.py (ConfigValidator, TopicConfigs),
quorum/service.py (all).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kraftrio.wire.messages.admin import CreatableTopicConfigs

if TYPE_CHECKING:
    from kraftrio.kraft_meta.raft.messages import Message

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One record batch of the metadata log.

    A control batch has a key per value (KIP-595: LeaderChange); others have no keys. `encoded` is
    the batch as bytes, where they are known already.
    """

    base_offset: int
    epoch: int
    timestamp_ms: int
    values: tuple[bytes, ...]
    control_keys: tuple[bytes, ...] = ()
    encoded: bytes | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        assert self.values, "a batch holds at least one record"
        assert not self.control_keys or len(self.control_keys) == len(self.values)

    @property
    def is_control(self) -> bool:
        return bool(self.control_keys)

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + len(self.values)


class OffsetAndEpoch(NamedTuple):
    """A point of the log: the offset that would come next and the epoch of the record before."""

    offset: int
    epoch: int


class SnapshotId(NamedTuple):
    """A snapshot holds everything below `end_offset`; `epoch` is that of the last record in it."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What a voter must remember over a restart (Kafka's quorum-state file).

    `is_proven` says whether the voter may be believed (voter_memory.py); None: it was written
    before there was such a mark. What is below `committed_offset` is committed: the log reaches it.
    """

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    is_proven: bool | None = None
    committed_offset: int = 0


class LogReader(Protocol):
    """The part of the log that the raft core reads."""

    def read(self, start_offset: int, max_offset: int, max_bytes: int) -> list[LogBatch]:
        """Return whole batches from start_offset up to max_offset; the first one in any case."""
        ...


class ReplicatedLog(LogReader, Protocol):
    """The metadata log on disk, with its snapshots."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def epoch_starts(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) of every epoch in the log, oldest first."""
        ...

    def append(self, batches: Sequence[LogBatch]) -> int:
        """Append batches at the end (their offsets are checked); return their bytes."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Drop everything from offset on; blocks."""
        ...

    def flush(self) -> None:
        """Make everything appended before this call durable; blocks; any thread."""
        ...

    def latest_snapshot_id(self) -> SnapshotId | None:
        """Return the newest complete snapshot."""
        ...

    def read_snapshot(self, snapshot_id: SnapshotId) -> list[bytes]:
        """Return the record values of a snapshot; blocks."""
        ...

    def read_snapshot_chunk(
        self, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int] | None:
        """Return bytes of a snapshot's file from a position on, and its size; None: none such."""
        ...

    def write_snapshot(
        self, snapshot_id: SnapshotId, values: Iterable[bytes], last_timestamp_ms: int
    ) -> None:
        """Write a snapshot durably under its final name; blocks; any thread."""
        ...

    def clean_before(self, snapshot_id: SnapshotId) -> None:
        """Delete segments and snapshots that this snapshot makes needless; blocks."""
        ...

    def reset_to(self, snapshot_id: SnapshotId) -> None:
        """Empty the log so that it starts at the end of a snapshot just received; blocks."""
        ...

    def close(self) -> None: ...


class ElectionStateStore(Protocol):
    """Where the election state is kept; `write` is durable when it returns, and blocks."""

    def read(self) -> ElectionState | None: ...

    def write(self, state: ElectionState, voter_ids: Sequence[int]) -> None: ...


class ConfigValidator(Protocol):
    """Knows the configuration names of each resource type."""

    def validate(self, resource_type: int, name: str, configs: Mapping[str, str]) -> None:
        """Check all configurations of a resource as they would be; raise KafkaError."""
        ...

    def is_list(self, resource_type: int, key: str) -> bool:
        """Tell whether a configuration is a list, so that APPEND and SUBTRACT make sense."""
        ...

    def default_value(self, resource_type: int, key: str) -> str | None:
        """Return what a key is when the resource does not set it (what APPEND starts from)."""
        ...


class TopicConfigs(Protocol):
    """Tells what the configuration of a topic is, for the CreateTopics response (KIP-525)."""

    def describe_topic_configs(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Return every configuration of a topic that sets these itself."""
        ...


class ServiceClock(Protocol):
    """The clocks of the shell; monotonic_ms is Trio's."""

    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...


class Peers(Protocol):
    """The way to the other nodes of the quorum."""

    def send(self, message: Message) -> None:
        """Send soon, or lose; must not block."""

    def fetch_snapshot(self, source: int, snapshot_id: SnapshotId) -> None:
        """Start or go on to fetch a snapshot.

        Each piece is told to `QuorumService.snapshot_progress`, the end to `snapshot_received` or
        `snapshot_failed`.
        """


class NoPeers:
    """The peers of a quorum of one: there is nobody to talk to."""

    def send(self, message: Message) -> None:
        raise AssertionError(f"a quorum of one has nobody to send {message!r} to")

    def fetch_snapshot(self, source: int, snapshot_id: SnapshotId) -> None:
        raise AssertionError("a quorum of one has nobody to fetch from")
