"""How a leader announces the beginning and the end of its epoch: `EpochAnnouncements`.

Rules: BeginQuorumEpoch goes to the voters that have not answered or fetched yet, EndQuorumEpoch to
those that have not confirmed it; both again after half a request timeout.

Called by: raft.py, role_transitions.py. Protocol: KIP-595.
Tested by: tests/unit/kraft_meta/raft/test_raft.py, by whole cores.
"""

from __future__ import annotations

from kraftrio.kraft_meta.raft.core_state import CoreState
from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
)
from kraftrio.kraft_meta.raft.quorum_state import Leader, Resigned


class EpochAnnouncements:
    """See the module."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._retry_ms = state.config.request_timeout_ms / 2

    def announce_begin(self, role: Leader, now_ms: float) -> None:
        """Announce to the voters who leads, if it is time to."""
        if now_ms < role.begin_epoch_retry_ms:
            return
        role.begin_epoch_retry_ms = now_ms + self._retry_ms
        state = self._state
        for voter in state.quorum.other_voters:
            if voter not in role.acknowledged:
                state.outbox.send(BeginQuorumEpoch(state.node_id, voter, state.epoch))

    def announce_end(self, role: Resigned, now_ms: float) -> None:
        """Announce, if it is time to, that this node has resigned and who should try first."""
        if not role.unconfirmed or now_ms < role.end_epoch_retry_ms:
            return
        role.end_epoch_retry_ms = now_ms + self._retry_ms
        state = self._state
        for voter in sorted(role.unconfirmed):
            state.outbox.send(
                EndQuorumEpoch(state.node_id, voter, state.epoch, role.preferred_successors)
            )

    def on_begin_response(self, response: BeginQuorumEpochReply) -> None:
        """Note that a voter knows who leads."""
        role = self._state.quorum.role
        if (
            isinstance(role, Leader)
            and response.epoch == self._state.epoch
            and response.source in role.progress
        ):
            role.acknowledged[response.source] = True

    def on_end_response(self, response: EndQuorumEpochReply) -> None:
        """Note that a voter knows that this node has resigned."""
        role = self._state.quorum.role
        if isinstance(role, Resigned) and response.epoch == self._state.epoch:
            role.unconfirmed.discard(response.source)
