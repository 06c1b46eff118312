"""One replica hosted here: its log, its replication state, and who waits for it.

Rules: the state decides, the log keeps, and `Partition` carries the news from one to the other and
to those who wait.  The high watermark is the state's alone; the log is told whenever it changes.

Called by what else is in `replica/`; handlers look at `log` and `state`.
"""

from __future__ import annotations

from collections import deque

from kraftrio.base.timers import Timers
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.replica.state.followers import Brokers
from kraftrio.broker.replica.state.partition_state import PartitionState
from kraftrio.broker.replica.waiters import (
    CommitCallback,
    Confirmation,
    FetchWaiters,
    FollowerWatch,
    OffsetWaiter,
    answer,
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
        "state",
        "topic_id",
        "topic_partition",
        "watches",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        log: PartitionLog,
        broker_id: int,
        brokers: Brokers,
        lag_time_max_ms: float,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.state = PartitionState(
            broker_id,
            log.high_watermark,
            brokers,
            min_insync_replicas=log.config.min_insync_replicas,
            lag_time_max_ms=lag_time_max_ms,
        )
        self.commit_waiters: list[OffsetWaiter] = []
        self.low_watermark_waiters: list[OffsetWaiter] = []
        self.confirmations: list[Confirmation] = []
        self.fetch_waiters: FetchWaiters = {}
        self.follower_waiters: FetchWaiters = {}
        self.watches: dict[int, FollowerWatch] = {}  # by the follower's id
        self._uncommitted: deque[tuple[int, int]] = deque()  # (end offset, bytes) of appends
        self._unread_bytes = 0  # appended as follower since the high watermark last advanced

    def __repr__(self) -> str:
        return f"<Partition {self.state.role.value} epoch={self.state.leader_epoch} {self.log}>"

    @property
    def is_in_sync(self) -> bool:
        """Is this replica in the ISR, as far as is known here?"""
        return self.state.broker_id in self.state.isr

    @property
    def is_only_isr_member(self) -> bool:
        """Is nobody else in the ISR, nor about to be?"""
        return self.state.maximal_isr == {self.state.broker_id}

    # -- a leader's news ------------------------------------------------------------------------

    def note_uncommitted(self, end_offset: int, size_bytes: int) -> None:
        """Remember the size of an append until it is committed."""
        uncommitted = self._uncommitted
        if len(uncommitted) >= _MAX_UNCOMMITTED:  # nobody counts exactly so far behind
            size_bytes += uncommitted.pop()[1]
        uncommitted.append((end_offset, size_bytes))

    def publish_high_watermark(self, committed_bytes: int = 0) -> None:
        """Let the log and everybody who waits know that a leader's high watermark advanced.

        Args:
            committed_bytes: by how much, beside what `note_uncommitted` was told.
        """
        high_watermark = self.state.high_watermark
        self.log.update_high_watermark(high_watermark)
        if self._uncommitted:
            committed_bytes += self._take_committed(high_watermark)
        if self.commit_waiters:
            reached = [w for w in self.commit_waiters if w.offset <= high_watermark]
            if reached:
                self.commit_waiters = [w for w in self.commit_waiters if w.offset > high_watermark]
                answer(reached, self.state.check_committed())
        if self.fetch_waiters:
            self._count_readable(committed_bytes)
        if self.watches:
            self.tell_followers(0)

    def _count_readable(self, size_bytes: int) -> None:
        for waiter in list(self.fetch_waiters):
            waiter.count(size_bytes)

    def _take_committed(self, high_watermark: int) -> int:
        uncommitted, total = self._uncommitted, 0
        while uncommitted and uncommitted[0][0] <= high_watermark:
            total += uncommitted.popleft()[1]
        return total

    def tell_followers(self, appended_bytes: int) -> None:
        """There is news for followers: so much more in the log, or (0) what can wait a little."""
        if appended_bytes:
            for waiter in list(self.follower_waiters):
                waiter.count(appended_bytes)
        for replica_id, watch in list(self.watches.items()):
            watch.on_change(self.state.progress(replica_id), appended_bytes)

    def wake_followers(self) -> None:
        """Let followers that wait look again."""
        self.tell_followers(_ENOUGH_BYTES)

    def check_low_watermark(self) -> None:
        """Answer the deletions that every live replica has carried out."""
        if not self.low_watermark_waiters:
            return
        low_watermark = self.low_watermark()
        reached = [w for w in self.low_watermark_waiters if w.offset <= low_watermark]
        if reached:
            self.low_watermark_waiters = [
                w for w in self.low_watermark_waiters if w.offset > low_watermark
            ]
            answer(reached, ErrorCode.NONE)

    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas."""
        return self.state.followers.low_watermark(self.log.log_start_offset)

    # -- who waits for a watermark --------------------------------------------------------------

    def when_committed(
        self,
        end_offset: int,
        callback: CommitCallback,
        timers: Timers,
        timeout_ms: float | None,
    ) -> None:
        """Call back once the high watermark reaches `end_offset`, or cannot, or the time is up."""
        waiter = OffsetWaiter(end_offset, callback)
        self.commit_waiters.append(waiter)

        def give_up() -> None:
            self.commit_waiters.remove(waiter)
            callback(ErrorCode.REQUEST_TIMED_OUT)

        if timeout_ms is not None:
            waiter.timer = timers.schedule(timeout_ms, give_up)

    def when_deleted(
        self, offset: int, callback: CommitCallback, timers: Timers, timeout_ms: float
    ) -> None:
        """Call back once every live replica's log starts at `offset`, or the time is up."""
        waiter = OffsetWaiter(offset, callback)
        self.low_watermark_waiters.append(waiter)

        def give_up() -> None:
            self.low_watermark_waiters.remove(waiter)
            callback(ErrorCode.REQUEST_TIMED_OUT)

        waiter.timer = timers.schedule(timeout_ms, give_up)

    # -- does anybody follow? -------------------------------------------------------------------

    def confirm(self, callback: CommitCallback, timers: Timers, timeout_ms: float) -> None:
        """Let every member of the ISR show that it follows us now.

        A member that has been made leader follows nobody, so what it acknowledged it did after its
        last fetch here.  But that fetch must have been sent from now on: the one after an answer of
        now.
        """
        confirmation = Confirmation({}, callback)

        def give_up() -> None:
            self.confirmations.remove(confirmation)
            confirmation.callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        confirmation.timer = timers.schedule(timeout_ms, give_up)
        for replica_id in self.state.maximal_isr - {self.state.broker_id}:
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
        """Does anybody wait for a further fetch of this follower?"""
        return any(replica_id in confirmation.needs for confirmation in self.confirmations)

    def check_confirmations(self) -> None:
        """Answer those for whom all members of the ISR have shown that they follow."""
        if not self.confirmations:
            return
        isr = self.state.maximal_isr
        finished = [c for c in self.confirmations if isr.isdisjoint(c.needs)]
        for confirmation in finished:
            self.confirmations.remove(confirmation)
            confirmation.finish(ErrorCode.NONE)

    # -- a follower's news ----------------------------------------------------------------------

    def on_leader_answer(self, leader_high_watermark: int, appended_bytes: int) -> None:
        """The log has taken what the leader answered, and has the leader's high watermark to know.

        Args:
            appended_bytes: what came with it; about so much more may consumers read in the end.
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
        """The log was cut, or began again elsewhere."""
        log, state = self.log, self.state
        state.on_truncation(log.log_start_offset, log.log_end_offset)
        log.update_high_watermark(state.high_watermark)

    # -- changes of role ------------------------------------------------------------------------

    def serve_from(self, log: PartitionLog) -> None:
        """Another log, equal to the one so far, takes its place."""
        self.log = log
        log.update_high_watermark(self.state.high_watermark)

    def start_to_lead(self) -> None:
        """A leader epoch begins: what lies above the high watermark has sizes nobody counted.

        Another replica may have led since the epoch before, if the metadata tells of both changes
        at once, so that nobody's fetches show any more what they were to confirm. Whoever waits for
        a commit goes on: what this log holds at its offset is what it is told of.
        """
        self._deny_confirmations(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._uncommitted.clear()
        if self.log.log_end_offset > self.state.high_watermark:
            self._uncommitted.append((self.log.log_end_offset, _ENOUGH_BYTES))
        self.wake_fetches()

    def wake_fetches(self) -> None:
        """Let every parked fetch look again: who leads, or since when, is another."""
        for waiter in list(self.fetch_waiters):
            waiter.finish()
        self.wake_followers()

    def forget_watches(self) -> None:
        """Tell no more news to those who were taken off the replicas."""
        for replica_id in set(self.watches).difference(self.state.replicas):
            del self.watches[replica_id]

    def abandon(self, code: ErrorCode) -> None:
        """This replica no longer leads: nobody's wait can succeed here."""
        waiters = self.commit_waiters + self.low_watermark_waiters
        self.commit_waiters, self.low_watermark_waiters = [], []
        self._uncommitted.clear()
        answer(waiters, code)
        self._deny_confirmations(code)
        self.wake_fetches()

    def _deny_confirmations(self, code: ErrorCode) -> None:
        confirmations, self.confirmations = self.confirmations, []
        for confirmation in confirmations:
            confirmation.finish(code)
