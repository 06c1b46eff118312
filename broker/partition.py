"""One replica hosted here: its log, its replication state, and who waits for it.

Rules: the state decides, the log keeps, and `Partition` carries the news from one to the other and
to those who wait.  The high watermark is the state's while this broker leads and the log's while it
follows.

Called by `replica_manager`; handlers look at `log` and `state`.
"""

from __future__ import annotations

from collections import deque

from kraftrio.broker.fetch_session import FetchKey
from kraftrio.broker.log.partition_log import PartitionLog
from kraftrio.broker.partition_state import Brokers, PartitionState
from kraftrio.broker.waiters import FetchWaiter, FollowerWatch, OffsetWaiter, answer
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

_MAX_UNCOMMITTED = 1000
_ENOUGH_BYTES = 2**31  # for every fetch


class Partition:
    """See the module."""

    __slots__ = (
        "_uncommitted",
        "commit_waiters",
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
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self.follower_waiters: dict[FetchWaiter, None] = {}
        self.watches: dict[int, tuple[FollowerWatch, FetchKey]] = {}  # by the follower's id
        self._uncommitted: deque[tuple[int, int]] = deque()  # (end offset, bytes) of appends

    def __repr__(self) -> str:
        return f"<Partition {self.state.role.value} epoch={self.state.leader_epoch} {self.log}>"

    # -- a leader's news ------------------------------------------------------------------------

    def note_uncommitted(self, end_offset: int, size_bytes: int) -> None:
        """Remember the size of an append until it is committed."""
        uncommitted = self._uncommitted
        if len(uncommitted) >= _MAX_UNCOMMITTED:  # nobody counts exactly so far behind
            size_bytes += uncommitted.pop()[1]
        uncommitted.append((end_offset, size_bytes))

    def publish_high_watermark(self, committed_bytes: int = 0) -> None:
        """Tell the log and everybody who waits that the high watermark advanced.

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
            for waiter in list(self.fetch_waiters):
                waiter.count(committed_bytes)
        if self.watches:
            self.tell_followers(0)

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
        for replica_id, (watch, key) in list(self.watches.items()):
            watch.on_change(key, self.state.progress(replica_id), appended_bytes)

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
        return self.state.low_watermark(self.log.log_start_offset)

    # -- changes of role ------------------------------------------------------------------------

    def take_high_watermark(self) -> None:
        """The log's high watermark counts: this broker follows, or has just stopped to."""
        self.state.high_watermark = self.log.high_watermark

    def start_to_lead(self) -> None:
        """A leader epoch begins: what lies above the high watermark has sizes nobody counted."""
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
        self.wake_fetches()
