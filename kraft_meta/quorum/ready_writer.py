"""Makes durable what a Ready of the Raft core asks for: `ReadyWriter`.

Rules:
1. Election state, then truncation, then appends, then the fsync; all but the appends in a worker
   thread. Voters sync what they append before they send anything; observers leave that to
   the operating system.
2. Lack of room is waited out (room.py): neither an append nor the election state fails for it, and
   what they come before, a vote or an answer, waits with them. Only a node that has met no leader
   since its start ends, so that who starts it learns why. Every other OSError propagates, and ends
   the node.

Called by: quorum/service.py. The order is the one that raft/raft.py asks for.
Tested by: tests/unit/kraft_meta/quorum/test_service.py.
"""

from __future__ import annotations

import logging
from functools import partial

from kraftrio.base.threads import RunInThread
from kraftrio.kraft_meta.quorum.room import once_there_is_room
from kraftrio.kraft_meta.raft.ports import ElectionStateStore, ReplicatedLog
from kraftrio.kraft_meta.raft.quorum_state import QuorumState
from kraftrio.kraft_meta.raft.ready import Ready
from kraftrio.kraft_meta.raft.values import LogBatch

_log = logging.getLogger("kraftrio.metadata")


class ReadyWriter:
    """See the module.

    Attributes:
        appended_bytes_total: what was appended since the start.
        appended_records_total: as records.
    """

    def __init__(
        self, log: ReplicatedLog, election_store: ElectionStateStore, run_in_thread: RunInThread
    ) -> None:
        self._log = log
        self._election_store = election_store
        self._run_in_thread = run_in_thread
        self._is_started = False  # a leader was known with the last Ready
        self.appended_bytes_total = 0
        self.appended_records_total = 0

    async def write(self, ready: Ready, quorum: QuorumState, *, has_been_led: bool) -> int:
        """Make everything durable; return the bytes that the log has grown by."""
        await self._prepare(ready, quorum)
        size_bytes = 0
        for batch in ready.batches:
            size_bytes += await self._append(batch)
            self.appended_records_total += len(batch.values)
        self.appended_bytes_total += size_bytes
        if ready.batches and quorum.is_voter:
            await self._run_in_thread(self._log.flush)
        self._is_started = has_been_led
        return size_bytes

    async def _prepare(self, ready: Ready, quorum: QuorumState) -> None:
        state, truncate_to = ready.election_state, ready.truncate_to
        if state is not None:
            write = partial(self._election_store.write, state, quorum.voters.ids)
            if self._is_started:
                await once_there_is_room(partial(self._run_in_thread, write))
            else:
                await self._run_in_thread(write)
        if truncate_to is not None:
            await self._run_in_thread(partial(self._log.truncate_to, truncate_to))
            _log.info(
                "metadata log truncated to=%d leader=%d epoch=%d",
                truncate_to,
                quorum.leader_id,
                quorum.epoch,
            )

    async def _append(self, batch: LogBatch) -> int:
        async def append() -> int:
            return self._log.append([batch])

        return await once_there_is_room(append)
