"""What the metadata quorum needs from outside, as protocols (ports) that the node fills in.

Rules:
1. `OSError` from a port propagates: a metadata log that cannot be written ends the node.
2. Only `flush` of the log, the writes of the election state and the snapshot calls may block; the
   quorum service runs them in a worker thread. Everything else is quick and synchronous.

Called by: the Raft core (RaftLogReader), the controller core (ConfigValidator, TopicConfigs) and
the quorum's shell (all).

Tested by: tests/unit/broker/log/test_metadata_log.py, which tests the log
and the state file that fill them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kraftrio.kraft_meta.raft.messages import Message
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch, SnapshotId
from kraftrio.wire.messages.admin import CreatableTopicConfigs


class RaftLogReader(Protocol):
    """The part of the log that the raft core reads."""

    def read(self, start_offset: int, max_offset: int, max_bytes: int) -> list[LogBatch]:
        """Return whole batches from start_offset up to max_offset; the first one in any case."""
        ...


class ReplicatedLog(RaftLogReader, Protocol):
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
        """Return a part of a snapshot's file, and the file's size; None: no such snapshot."""
        ...

    def write_snapshot(
        self, snapshot_id: SnapshotId, values: Iterable[bytes], last_timestamp_ms: int
    ) -> None:
        """Write a snapshot durably under its final name; blocks; any thread."""
        ...

    def clean_before(self, snapshot_id: SnapshotId) -> None:
        """Delete segments and snapshots that this snapshot supersedes; blocks."""
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
        """Return whether a configuration is a list, so that APPEND and SUBTRACT make sense."""
        ...

    def default_value(self, resource_type: int, key: str) -> str | None:
        """Return what a key is when the resource does not set it (what APPEND starts from)."""
        ...


class TopicConfigs(Protocol):
    """Describes the configuration of a topic, for the CreateTopics response (KIP-525)."""

    def describe_topic_configs(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Return every configuration of a topic that sets these itself."""
        ...


class Peers(Protocol):
    """The way to the other nodes of the quorum."""

    def send(self, message: Message) -> None:
        """Send soon, or lose; must not block."""

    def fetch_snapshot(self, source: int, snapshot_id: SnapshotId) -> None:
        """Start or go on to fetch a snapshot.

        Each piece is reported by `MetadataSnapshots.on_progress`, the end by `on_received` or
        `on_failed`.
        """


class NoPeers:
    """The peers of a quorum of one: there are none."""

    def send(self, message: Message) -> None:
        raise AssertionError(f"a quorum of one has nobody to send {message!r} to")

    def fetch_snapshot(self, source: int, snapshot_id: SnapshotId) -> None:
        raise AssertionError("a quorum of one has nobody to fetch from")
