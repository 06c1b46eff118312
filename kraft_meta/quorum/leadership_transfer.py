"""The end of leading the quorum in good order: this node resigns, and waits for a successor.

Owns: `LeadershipTransfer`. The first step of a graceful stop, so that the cluster has an active
controller all the time.

Called by: the node; `service`, which says when the core has taken something in. KIP-595,
"EndQuorumEpoch".
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftrio.base.clock import Clock
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.values import NO_NODE


class LeadershipTransfer:
    """See the module.

    Args:
        on_input: called once the core has been given something to act on.
    """

    def __init__(self, clock: Clock, on_input: Callable[[], None]) -> None:
        self._clock = clock
        self._on_input = on_input
        self._core: RaftCore | None = None
        self._progress = trio.Event()

    def start(self, core: RaftCore) -> None:
        """The log is loaded: this node may lead from now on."""
        self._core = core

    def notice(self) -> None:
        """The core has taken something in: there may be a successor."""
        self._progress.set()

    async def hand_over(self, timeout_ms: float) -> bool:
        """Resign and wait until another voter leads; False: none does in time, or can.

        A node that does not lead has nothing to hand over.
        """
        core = self._core
        if core is None or not core.is_leader or not core.quorum.other_voters:
            return False
        core.resign(self._clock.monotonic_ms())
        self._on_input()
        with trio.move_on_after(timeout_ms / 1000):
            while core.may_be_succeeded():
                self._progress = trio.Event()
                await self._progress.wait()
        return core.leader_id not in (NO_NODE, core.node_id)
