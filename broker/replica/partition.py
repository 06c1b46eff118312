"""One replica hosted here: its log, its replication state, and the requests that wait for it.

Rules: the state decides, the log stores, and `Partition` passes what changed from one to the other
and to the requests that wait. Only the state decides the high watermark; the log is given each new
value.

Called by what else is in `replica/`; handlers look at `log` and `state`.
"""

from __future__ import annotations

from collections import deque

from kraftrio.base.timers import Timers
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.replica.state.followers import KnownBrokers
from kraftrio.broker.replica.state.partition_state import PartitionState
from kraftrio.broker.replica.traffic import TopicTraffic
from kraftrio.broker.replica.waiting.offset_waiters import OffsetWaiters
from kraftrio.broker.replica.waiting.waiters import (
    CommitCallback,
    Confirmation,
    FetchWaiters,
    FollowerWatch,
    StableWaiters,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

_MAX_UNCOMMITTED = 1000
_ENOUGH_BYTES = 2**31  # for every fetch


class Partition:
    """See the module."""

    __slots__ = (
        "_uncommitted",
        "_unread_bytes",
        "commit_waiters",
        "confirmations",
        "fetch_waiters",
        "follower_waiters",
        "log",
        "low_watermark_waiters",
        "stable_waiters",
        "state",
        "topic_id",
        "topic_partition",
        "traffic",
        "watches",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        log: PartitionLog,
        broker_id: int,
        brokers: KnownBrokers,
        lag_time_max_ms: float,
        traffic: TopicTraffic,
    ) -> None:
        self.topic_partition = topic_partition
        self.traffic = traffic
        self.topic_id = topic_id
        self.log = log
        self.state = PartitionState(
            broker_id,
            log.high_watermark,
            brokers,
            min_insync_replicas=log.config.min_insync_replicas,
            lag_time_max_ms=lag_time_max_ms,
        )
        self.commit_waiters = OffsetWaiters()  # for the high watermark
        self.low_watermark_waiters = OffsetWaiters()
        self.confirmations: list[Confirmation] = []
        self.fetch_waiters: FetchWaiters = {}
        self.stable_waiters = StableWaiters()
        self.follower_waiters: FetchWaiters = {}
        self.watches: dict[int, FollowerWatch] = {}  # by the follower's id
        # (end offset, bytes) of appends; made with the first one: most partitions are idle.
        self._uncommitted: deque[tuple[int, int]] | None = None
        self._unread_bytes = 0  # appended as follower since the high watermark last advanced

    def __repr__(self) -> str:
        return f"<Partition {self.state.role.value} epoch={self.state.leader_epoch} {self.log}>"

    @property
    def is_in_sync(self) -> bool:
        """Is this replica in the ISR, as far as is known here?"""
        return self.state.broker_id in self.state.isr.committed

    @property
    def is_only_isr_member(self) -> bool:
        """Is there no other member in the maximal ISR?"""
        return self.state.isr.maximal == {self.state.broker_id}

    # -- as a leader ---------------------------------------------------------------------------

    def note_uncommitted(self, end_offset: int, size_bytes: int) -> None:
        """Remember the size of an append until it is committed."""
        uncommitted = self._uncommitted
        if uncommitted is None:
            uncommitted = self._uncommitted = deque()
        if len(uncommitted) >= _MAX_UNCOMMITTED:  # exact sizes do not matter that far behind
            size_bytes += uncommitted.pop()[1]
        uncommitted.append((end_offset, size_bytes))

    def publish_high_watermark(self, committed_bytes: int = 0) -> None:
        """Pass a leader's new high watermark to the log and to the requests that wait for it.

        Args:
            committed_bytes: of newly committed batches that `note_uncommitted` did not get.
        """
        high_watermark = self.state.high_watermark
        self.log.update_high_watermark(high_watermark)
        if self._uncommitted:
            committed_bytes += _take_committed(self._uncommitted, high_watermark)
        if self.commit_waiters.waiting and self.commit_waiters.has_reached(high_watermark):
            self.commit_waiters.answer_reached(high_watermark, self.state.check_committed())
        if self.fetch_waiters or self.stable_waiters.waiting:
            self._count_readable(committed_bytes)
        if self.watches:
            self.notify_followers(0)

    def _count_readable(self, size_bytes: int) -> None:
        for waiter in list(self.fetch_waiters):
            waiter.count(size_bytes)
        if self.stable_waiters.waiting:
            self.stable_waiters.count(size_bytes, self.log.last_stable_offset)

    def notify_followers(self, appended_bytes: int) -> None:
        """Something changed for followers: so many bytes more, or (0) what can wait a little."""
        if appended_bytes:
            for waiter in list(self.follower_waiters):
                waiter.count(appended_bytes)
        for replica_id, watch in list(self.watches.items()):
            watch.on_change(self.state.followers.get(replica_id), appended_bytes)

    def wake_followers(self) -> None:
        """Answer the fetches of followers that wait, whatever there is."""
        self.notify_followers(_ENOUGH_BYTES)

    def check_low_watermark(self) -> None:
        """Answer the deletions that all live replicas have carried out."""
        if self.low_watermark_waiters.waiting:
            self.low_watermark_waiters.answer_reached(self.low_watermark(), ErrorCode.NONE)

    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas."""
        return self.state.followers.low_watermark(self.log.log_start_offset)

    # -- confirmations that it still leads ------------------------------------------------------

    def confirm(self, callback: CommitCallback, timers: Timers, timeout_ms: float) -> None:
        """Call back once every member of the ISR has shown that it still follows this leader.

        A member that has been made leader follows nobody, so it acknowledges only after its last
        fetch here. The fetch that counts must have been sent after this call: of a follower that is
        not waiting here it is the second to come, as the first may be on its way already.
        """
        confirmation = Confirmation({}, callback)

        def give_up() -> None:
            self.confirmations.remove(confirmation)
            confirmation.callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        confirmation.timer = timers.schedule(timeout_ms, give_up)
        for replica_id in self.state.isr.maximal - {self.state.broker_id}:
            watch = self.watches.get(replica_id)
            is_parked = watch is not None and watch.is_parked
            confirmation.needs[replica_id] = 1 if is_parked else 2
        self.confirmations.append(confirmation)
        self.wake_followers()
        self.check_confirmations()

    def on_follower_fetch(self, replica_id: int) -> None:
        """A follower fetches in our leader epoch."""
        for confirmation in self.confirmations:
            needs = confirmation.needs
            if replica_id in needs:
                needs[replica_id] -= 1
                if not needs[replica_id]:
                    del needs[replica_id]
        self.check_confirmations()

    def must_show(self, replica_id: int) -> bool:
        """Does a confirmation need another fetch of this follower?"""
        return any(replica_id in confirmation.needs for confirmation in self.confirmations)

    def check_confirmations(self) -> None:
        """Answer the confirmations for which every member of the ISR has fetched."""
        if not self.confirmations:
            return
        isr = self.state.isr.maximal
        finished = [c for c in self.confirmations if isr.isdisjoint(c.needs)]
        for confirmation in finished:
            self.confirmations.remove(confirmation)
            confirmation.finish(ErrorCode.NONE)

    # -- as a follower --------------------------------------------------------------------------

    def on_leader_answer(self, leader_high_watermark: int, appended_bytes: int) -> None:
        """The log has appended what the leader answered; follow the leader's high watermark.

        Args:
            appended_bytes: the size of that; consumers may read about as much once it is committed.
        """
        self._unread_bytes += appended_bytes
        log, state = self.log, self.state
        advanced = state.on_leader_answer(
            leader_high_watermark, log.log_start_offset, log.log_end_offset
        )
        log.update_high_watermark(state.high_watermark)
        if advanced:
            size_bytes, self._unread_bytes = max(self._unread_bytes, 1), 0
            self._count_readable(size_bytes)

    def on_truncation(self) -> None:
        """The log was truncated, or began again elsewhere."""
        log, state = self.log, self.state
        state.on_truncation(log.log_start_offset, log.log_end_offset)
        log.update_high_watermark(state.high_watermark)

    # -- changes of role ------------------------------------------------------------------------

    def serve_from(self, log: PartitionLog) -> None:
        """Another log, equal to the one so far, takes its place."""
        self.log = log
        log.update_high_watermark(self.state.high_watermark)

    def start_to_lead(self) -> None:
        """A leader epoch begins here.

        The sizes of the batches above the high watermark are not known. If the metadata brought
        several changes at once, another replica may have led in between, so earlier fetches confirm
        nothing. Requests that wait for a commit go on waiting: they are about what this log holds.
        """
        self._fail_confirmations(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._uncommitted = None
        if self.log.log_end_offset > self.state.high_watermark:
            self.note_uncommitted(self.log.log_end_offset, _ENOUGH_BYTES)
        self.wake_fetches()

    def wake_fetches(self) -> None:
        """Answer every parked fetch: the leader or its epoch has changed."""
        for waiter in [*self.fetch_waiters, *self.stable_waiters.waiting]:
            waiter.finish()
        self.wake_followers()

    def drop_watches(self) -> None:
        """Drop the watches of brokers that are not replicas any more."""
        for replica_id in set(self.watches).difference(self.state.replicas):
            del self.watches[replica_id]

    def abandon(self, code: ErrorCode) -> None:
        """This replica no longer leads: nothing that waits on it can succeed."""
        self._uncommitted = None
        self.commit_waiters.answer_all(code)
        self.low_watermark_waiters.answer_all(code)
        self._fail_confirmations(code)
        self.wake_fetches()

    def _fail_confirmations(self, code: ErrorCode) -> None:
        confirmations, self.confirmations = self.confirmations, []
        for confirmation in confirmations:
            confirmation.finish(code)


def _take_committed(uncommitted: deque[tuple[int, int]], high_watermark: int) -> int:
    """Remove the appends that are committed; return their bytes."""
    total = 0
    while uncommitted and uncommitted[0][0] <= high_watermark:
        total += uncommitted.popleft()[1]
    return total
