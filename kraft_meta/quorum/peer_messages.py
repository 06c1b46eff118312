"""What this node's Raft core and the other nodes of the quorum say to each other: `PeerMessages`.

Owns: the requests of other nodes that wait for their answer. Rules:
1. An answer leaves with a Ready, so what it says is durable by then.
2. Until the log is loaded messages are dropped; requests come after that only (see `is_loaded` of
   the quorum service).

Called by: api/quorum.py (`ask`), quorum_peers.py (`step`, `peer_unreachable`), quorum/service.py
(`send`). Protocol: KIP-595.
Tested by: tests/unit/broker/controller/test_quorum_peers.py, by whole nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.kraft_meta.raft.messages import Message, Request, Response
from kraftrio.kraft_meta.raft.ports import Peers
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.raft_log import CommittedRecordsError
from kraftrio.kraft_meta.raft.values import NO_NODE


class PeerMessages:
    """See the module.

    Args:
        on_input: called after the core has taken something in.
        fail: ends the node with an error.
    """

    def __init__(
        self,
        node_id: int,
        peers: Peers,
        clock: Clock,
        on_input: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._node_id = node_id
        self._peers = peers
        self._clock = clock
        self._on_input = on_input
        self._fail = fail
        self._core: RaftCore | None = None
        self._asked: dict[int, Deferred[Response]] = {}
        self._next_request_id = 1

    def start(self, core: RaftCore) -> None:
        """Take messages for a core from now on."""
        self._core = core

    @property
    def replica_id(self) -> int:
        """Who this node is to a leader that it fetches from; -1: a voter that is not counted."""
        core = self._core
        return self._node_id if core is None or core.memory.is_proven else NO_NODE

    def step(self, message: Message) -> None:
        """Take a message from another node of the quorum."""
        if self._core is not None:
            try:
                self._core.step(message, self._clock.monotonic_ms())
            except (OSError, CommittedRecordsError) as error:
                self._fail(error)  # whoever sent the message
                return
            self._on_input()

    def ask(self, message: Request) -> Deferred[Response]:
        """Take a request from another node; what must be durable before the answer is so then."""
        assert self._core is not None, "the log is loaded"
        deferred: Deferred[Response] = Deferred()
        request_id, self._next_request_id = self._next_request_id, self._next_request_id + 1
        self._asked[request_id] = deferred
        self.step(replace(message, request_id=request_id))
        return deferred

    def send(self, message: Message) -> None:
        """Send a message of the core: an answer to its sender, a request to its voter."""
        deferred = self._asked.pop(message.request_id, None)
        if deferred is not None:
            assert not isinstance(message, Request)
            deferred.complete(message)
        else:
            self._peers.send(message)

    def peer_unreachable(self, node_id: int, *, refused: bool = True) -> None:
        """Learn that what was sent to a node is lost; refused: nothing listens there."""
        if self._core is not None:
            self._core.peer_unreachable(node_id, self._clock.monotonic_ms(), refused=refused)
            self._on_input()
