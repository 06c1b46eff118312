"""The values of the metadata log and of the election state, which the core and its ports share.

Owns: `LogBatch`, `OffsetAndEpoch`, `SnapshotId` and `ElectionState`; all of them immutable.
Tested by: tests/unit/kraft_meta/raft/test_raft.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

NO_NODE = -1

_COMMITTED_STEP: Final = 1000  # records that are committed until the election state says so


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

    def must_replace(self, stored: ElectionState | None) -> bool:
        """Return whether this says more than the state on disk.

        That the leader is unknown again need not be remembered: pre-votes do not wait for a disk.
        What is committed is written with what else is to be; alone it is the first time, so that
        from then on a log that is gone is missed, and now and then.
        """
        return (
            stored is None
            or (self.epoch, self.voted_id) != (stored.epoch, stored.voted_id)
            or self.leader_id not in (NO_NODE, stored.leader_id)
            or self.is_proven != stored.is_proven
            or (self.committed_offset > 0 and stored.committed_offset == 0)
            or self.committed_offset - stored.committed_offset >= _COMMITTED_STEP
        )
