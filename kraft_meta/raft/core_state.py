"""What the parts of the Raft core share: `CoreState`, the values that say where this node stands,
and `Outbox`, the messages that it wants to send.

Rules: each value changes by its own methods only; no part keeps a copy of what is said here.

Called by: the parts of the Raft core, which raft.py joins.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftrio.kraft_meta.raft.messages import Message
from kraftrio.kraft_meta.raft.quorum_state import Leader, QuorumState, Resigned
from kraftrio.kraft_meta.raft.raft_log import RaftLog
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.values import NO_NODE
from kraftrio.kraft_meta.raft.voter_memory import VoterMemory


class Outbox:
    """Messages in the order in which they were made."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: list[Message] = []

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def send(self, message: Message) -> None:
        """Let a message leave with the next Ready."""
        self._messages.append(message)

    def withdraw(self, message: Message) -> bool:
        """Take a message back; False: it has left already."""
        count = len(self._messages)
        self._messages = [waiting for waiting in self._messages if waiting is not message]
        return len(self._messages) < count

    def take(self) -> tuple[Message, ...]:
        """Return what waits, and keep nothing of it."""
        messages, self._messages = tuple(self._messages), []
        return messages


@dataclass(frozen=True, slots=True)
class CoreState:
    """Role, epoch and vote; what this voter remembers; its log; what waits to be sent."""

    config: RaftConfig
    quorum: QuorumState
    memory: VoterMemory
    log: RaftLog
    outbox: Outbox

    @property
    def node_id(self) -> int:
        return self.quorum.node_id

    @property
    def epoch(self) -> int:
        return self.quorum.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch as far as known, else -1. A resigned leader does not count."""
        if isinstance(self.quorum.role, Resigned):
            return NO_NODE
        return self.quorum.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.quorum.role, Leader)

    @property
    def may_stand(self) -> bool:
        """This node may ask for votes; one that may not looks for the leader as observers do."""
        return self.quorum.is_voter and self.memory.may_stand(has_nothing=self.log.has_nothing)
