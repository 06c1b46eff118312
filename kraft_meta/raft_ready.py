"""What surrounds the consensus core: timeouts, its output `Ready`, and the LeaderChange record.

Called by: raft.py and quorum_service.py. The order of Ready's fields is the order of work; raft.py
says why. Protocol: KIP-595.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftrio.kraft_meta.ports import ElectionState, LogBatch, SnapshotId
from kraftrio.kraft_meta.raft_messages import Message


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
    fetch_max_bytes: int = 8 * 1024 * 1024
    batch_max_records: int = 20_000

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
    """Return key and value of the LeaderChange control record (version 0, type 2)."""
    key = (0).to_bytes(2, "big") + (2).to_bytes(2, "big")

    def compact(ids: Sequence[int]) -> bytes:
        assert len(ids) < 127
        return bytes([len(ids) + 1]) + b"".join(
            voter.to_bytes(4, "big", signed=True) + b"\0" for voter in ids
        )

    value = (0).to_bytes(2, "big") + leader_id.to_bytes(4, "big", signed=True)
    return key, value + compact(voters) + compact(granting_voters) + b"\0"
