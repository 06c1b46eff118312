"""What surrounds the consensus core: timeouts, its output `Ready`, and the LeaderChange record.

Called by: raft.py and quorum/service.py. The order of Ready's fields is the order of work; raft.py
says why. Protocol: KIP-595.
Tested by: tests/unit/kraft_meta/raft/test_raft.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftrio.kraft_meta.raft.messages import Message
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch, SnapshotId
from kraftrio.wire.codec.message import encode
from kraftrio.wire.messages.quorum import LeaderChangeMessage, LeaderChangeVoter
from kraftrio.wire.records.control import ControlRecordType, control_key


class NotLeaderError(Exception):
    """A proposal came to a node that does not lead."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timeouts of the quorum, by Kafka's controller.quorum.* names and defaults."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 20
    request_timeout_ms: int = 2000
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1024 * 1024
    snapshot_chunk_bytes: int = 1024 * 1024
    batch_max_records: int = 20_000

    @property
    def longest_wait_ms(self) -> int:
        """How long a fetch may wait: well within the time in which it must be answered."""
        return min(self.fetch_max_wait_ms, self.request_timeout_ms // 2, self.fetch_timeout_ms // 2)

    @property
    def check_quorum_timeout_ms(self) -> float:
        return self.fetch_timeout_ms * 1.5


@dataclass(frozen=True, slots=True)
class Ready:
    """What the shell does next, in the order of the fields."""

    election_state: ElectionState | None
    install_snapshot: tuple[int, SnapshotId] | None
    truncate_to: int | None
    batches: tuple[LogBatch, ...]
    messages: tuple[Message, ...]
    high_watermark: int | None


def leader_change_record(
    leader_id: int, voters: Sequence[int], granting_voters: Sequence[int]
) -> tuple[bytes, bytes]:
    """Return key and value of the LeaderChange control record that opens a leader's epoch."""
    message = LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=voter) for voter in granting_voters],
    )
    return control_key(ControlRecordType.LEADER_CHANGE), encode(message, 0)
