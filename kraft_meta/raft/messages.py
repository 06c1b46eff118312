"""The messages of the quorum as the core sees them, without the wire's topics and partitions.

Owns: one frozen value per message of KIP-595 (and the pre-vote flag of KIP-996). Rules: every
response carries the epoch and leader that its sender knows; `source` and `destination` are node
ids. A response repeats the `request_id` of its request, by which the receiving node's edge knows
whom to answer; it does not travel. raft_wire.py translates from and to the protocol's requests and
responses.

Called by: raft.py (step, Ready.messages), quorum/service.py, raft_wire.py and the network's edges.
Tested by: tests/unit/kraft_meta/raft/test_raft.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftrio.kraft_meta.raft.values import NO_NODE, LogBatch, OffsetAndEpoch, SnapshotId
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ZERO_UUID

NO_FETCH_ID = 0


@dataclass(frozen=True, slots=True)
class Vote:
    """Asks for a vote or, with pre_vote, whether one would be granted."""

    source: int
    destination: int
    epoch: int
    last_offset_and_epoch: OffsetAndEpoch
    pre_vote: bool
    request_id: int = 0

    @property
    def candidate_is_empty(self) -> bool:
        """The candidate has no record at all: it wants to form a new cluster."""
        return self.last_offset_and_epoch.offset == 0


@dataclass(frozen=True, slots=True)
class VoteReply:
    source: int
    destination: int
    epoch: int
    leader_id: int
    vote_granted: bool
    pre_vote: bool
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class BeginQuorumEpoch:
    """The leader announces itself to voters that have not fetched from it yet."""

    source: int
    destination: int
    epoch: int
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochReply:
    source: int
    destination: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class EndQuorumEpoch:
    """The leader resigns; the voter first in preferred_successors should try at once."""

    source: int
    destination: int
    epoch: int
    preferred_successors: tuple[int, ...]
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class EndQuorumEpochReply:
    source: int
    destination: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class Fetch:
    """A replica asks for what follows its log; `fetch_offset` is its log end offset.

    `high_watermark` is what it knows, so that the leader answers at once when it has moved.
    `fetch_id` is the sender's own: it distinguishes the answer to this fetch from one to an earlier
    fetch. `is_counted` is False for a voter that may not be believed yet (voter_memory.py): on the
    wire it does not name itself. `directory_id` is the log directory in which the replica lies.
    """

    source: int
    destination: int
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int = 0x7FFF_FFFF
    request_id: int = 0
    fetch_id: int = NO_FETCH_ID
    is_counted: bool = True
    directory_id: bytes = ZERO_UUID

    @property
    def replica_id(self) -> int:
        """The replica that is counted as having the log up to here; NO_NODE: none."""
        return self.source if self.is_counted else NO_NODE


@dataclass(frozen=True, slots=True)
class FetchReply:
    """Batches, or why there are none.

    `fetch_offset` and `last_fetched_epoch` repeat the question. At most one of diverging (the end
    of the asked epoch in the leader's log) and snapshot_id (the leader's log starts later) is set.
    """

    source: int
    destination: int
    epoch: int
    leader_id: int
    fetch_offset: int
    last_fetched_epoch: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    batches: tuple[LogBatch, ...] = ()
    diverging: OffsetAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    log_start_offset: int = -1
    request_id: int = 0
    fetch_id: int = NO_FETCH_ID

    @property
    def has_only_batches(self) -> bool:
        """True when the log may go on as it is."""
        return self.diverging is None and self.snapshot_id is None


Request: TypeAlias = Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch
Response: TypeAlias = VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply | FetchReply
Message: TypeAlias = Request | Response
