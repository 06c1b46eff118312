"""Finds out where partitions begin and whether leaders' logs still are the ones that were read.

Owns the task that takes partitions from INITIALIZING, RESETTING and VALIDATING to FETCHING (see
`assigned_partitions`). Rules:
1. A partition begins at the group's committed offset; without one, as auto_offset_reset says.
2. After a change of leaders the new one is asked where, in its log, the epoch of the last record
   read ends. If that is before the position, the log was truncated: with a reset policy the
   position goes back to there, without one it is a LogTruncationError (KIP-320).
   The same where the topic was re-created: there is nothing left of what was read.
3. An answer to a question that is out of date is dropped: the partition's `version` shows it.
4. What cannot be repaired is an error of the application's next poll; meanwhile the partition
   backs off and is tried again.

Called by: `consumer`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import trio

from kraftrio.base.background import run_aside
from kraftrio.base.clock import wall_ms
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.config import ConsumerConfig, OffsetReset, ResetTo
from kraftrio.clients.consumer.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEnd,
    OffsetAndTimestamp,
    OffsetClient,
)
from kraftrio.clients.consumer.partition import AssignedPartition, FetchStatus, Position
from kraftrio.clients.errors import (
    KafkaClientError,
    LogTruncationError,
    NoOffsetForPartitionError,
    UnsupportedVersionError,
)

logger = logging.getLogger(__name__)


class Positions:
    """Keeps every partition at a position.

    Args:
        fail: called with what the application must know.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        state: AssignedPartitions,
        offsets: OffsetClient,
        fail: Callable[[KafkaClientError], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._state = state
        self._offsets = offsets
        self._fail = fail
        self._reset = config.offset_reset
        self._wake = trio.Event()
        self._changed = trio.Event()

    def wake(self) -> None:
        """Look again which partitions need something."""
        self._wake.set()

    async def wait_change(self) -> None:
        """Wait until some partition has got a position, or the consumer is closed."""
        await self._changed.wait()

    async def run(self) -> None:
        """Work as long as the consumer is open."""
        try:
            await self._keep_looking()
        finally:
            self._changed.set()

    async def _keep_looking(self) -> None:
        while True:
            self._wake = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_aside, self._initialize)
                nursery.start_soon(run_aside, self._look_up)
                nursery.start_soon(run_aside, self._validate)
            self._changed.set()
            self._changed = trio.Event()
            # What still needs something is looked at again when its pause is over, also if that was
            # while others were asked; at once if it has changed since it was asked about.
            retry_at = self._next_look_at()
            with trio.move_on_at(math.inf if retry_at is None else retry_at):
                await self._wake.wait()

    def _next_look_at(self) -> float | None:
        """When the next partition that has no position may be asked about; None: all have one."""
        lacking = [
            state
            for status in (FetchStatus.INITIALIZING, FetchStatus.RESETTING, FetchStatus.VALIDATING)
            for state in self._state.in_status(status, math.inf)
        ]
        return min((state.retry_at for state in lacking), default=None)

    def _take(self, status: FetchStatus) -> dict[AssignedPartition, int]:
        """Return the partitions in a status, with their versions."""
        states = self._state.in_status(status, trio.current_time())
        return {state: state.version for state in states}

    def _is_current(self, state: AssignedPartition, version: int, status: FetchStatus) -> bool:
        return (
            state.version == version
            and state.status is status
            and self._state.get(state.topic_partition) is state
        )

    def _back_off(self, state: AssignedPartition) -> None:
        state.retry_at = trio.current_time() + self._config.retry_backoff_ms / 1000

    # -- where to begin -------------------------------------------------------------------------

    async def _initialize(self) -> None:
        states = self._take(FetchStatus.INITIALIZING)
        if not states:
            return
        if self._config.group_id is None:
            for state in states:
                self._begin_without_commit(state)
            return
        try:
            committed = await self._offsets.committed(s.topic_partition for s in states)
        except KafkaClientError as error:
            for state in states:
                self._back_off(state)
            if not error.retriable:
                self._fail(error)
            return
        for state, version in states.items():
            if not self._is_current(state, version, FetchStatus.INITIALIZING):
                continue
            found = committed[state.topic_partition]
            if found is None:
                self._begin_without_commit(state)
            else:
                position = Position(found.offset, found.leader_epoch)
                self._state.seek(state, position, validate=True)

    def _begin_without_commit(self, state: AssignedPartition) -> None:
        """Begin where the policy says; at the end, if the application has asked for that."""
        if self._reset.to is not ResetTo.NONE:
            self._state.request_reset(state, self._reset)
            return
        self._back_off(state)
        topic, partition = state.topic_partition
        self._fail(
            NoOffsetForPartitionError(
                f"no offset is committed for {topic}-{partition}, and auto_offset_reset is none"
            )
        )

    async def _look_up(self) -> None:
        states = self._take(FetchStatus.RESETTING)
        if not states:
            return
        resets = {state: _timestamp(state.reset) for state in states}
        found = await self._offsets.list_offsets(
            {state.topic_partition: timestamp for state, timestamp in resets.items()}
        )
        for state, version in states.items():
            if not self._is_current(state, version, FetchStatus.RESETTING):
                continue
            reported = found[state.topic_partition]
            if isinstance(reported, OffsetAndTimestamp):
                self._state.seek(
                    state, Position(reported.offset, reported.leader_epoch), validate=True
                )
            elif reported is None:
                # Nothing is as new as that: what comes from now on is.
                self._state.request_reset(state, OffsetReset(ResetTo.LATEST))
            else:
                self._back_off(state)
                if not reported.retriable:
                    self._fail(reported)

    # -- the leader's log -----------------------------------------------------------------------

    async def _validate(self) -> None:
        states = self._take(FetchStatus.VALIDATING)
        asked: dict[AssignedPartition, tuple[int, int]] = {}
        for state, version in states.items():
            leader = self._cluster.metadata.leader(*state.topic_partition)
            if leader is None:
                self._cluster.request_refresh()
                self._back_off(state)
                continue
            self._state.note_metadata(state, self._cluster.metadata)
            if state.is_log_new:
                self._leave_lost_position(state)
            elif state.version == version:
                asked[state] = (version, leader[1])
        if not asked:
            return
        found = await self._offsets.epoch_ends(
            {s.topic_partition: s.position.leader_epoch for s in asked if s.position is not None}
        )
        for state, (version, leader_epoch) in asked.items():
            if not self._is_current(state, version, FetchStatus.VALIDATING):
                continue
            if state.current_leader_epoch != leader_epoch:
                continue  # there is a newer leader already
            self._check_epoch_end(state, found[state.topic_partition])

    def _check_epoch_end(
        self, state: AssignedPartition, reported: EpochEnd | KafkaClientError
    ) -> None:
        if isinstance(reported, UnsupportedVersionError):
            self._state.validated(state)  # the broker is too old to know
            return
        if isinstance(reported, KafkaClientError):
            self._back_off(state)
            if not reported.retriable:
                self._fail(reported)
            return
        position = state.position
        assert position is not None
        is_known = reported.end_offset >= 0 and reported.leader_epoch >= 0
        if is_known and reported.end_offset >= position.offset:
            self._state.validated(state)
        elif is_known and self._reset.to is not ResetTo.NONE:
            divergence = Position(reported.end_offset, reported.leader_epoch)
            self._state.seek(state, divergence, validate=False)
        else:
            self._leave_lost_position(state, reported.end_offset if is_known else None)

    def _leave_lost_position(
        self, state: AssignedPartition, divergent_offset: int | None = None
    ) -> None:
        """Go where the policy says; without one the application decides, and may seek."""
        if self._reset.to is ResetTo.NONE:
            self._back_off(state)
            self._fail(self._truncation(state, divergent_offset))
        else:
            logger.info("%s: reset", self._truncation(state, divergent_offset))
            self._state.request_reset(state, self._reset)

    def _truncation(
        self, state: AssignedPartition, divergent_offset: int | None
    ) -> LogTruncationError:
        topic, partition = state.topic_partition
        position = state.position
        assert position is not None, "only a partition with a position is compared"
        where = "" if divergent_offset is None else f" from offset {divergent_offset} on"
        what = "was re-created" if state.is_log_new else "was truncated"
        return LogTruncationError(
            f"{topic}-{partition} {what}: the leader's log differs from what was consumed"
            f" up to offset {position.offset}{where}",
            topic_partition=state.topic_partition,
            offset=position.offset,
            divergent_offset=divergent_offset,
        )


def _timestamp(reset: OffsetReset | None) -> int:
    assert reset is not None
    if reset.to is ResetTo.EARLIEST:
        return EARLIEST_TIMESTAMP
    if reset.to is ResetTo.LATEST:
        return LATEST_TIMESTAMP
    return max(wall_ms() - reset.ago_ms, 0)
