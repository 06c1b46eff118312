"""Requests parked on partitions: acknowledgements, long polls, deletions of records; and the
followers whose sessions watch partitions.

A waiter is called back once: when what it waits for has come, when its partition is served here no
more, or when its time is up.

`replica/manager`, `fetch/fetch` and `long_fetch` make them, `partition` wakes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from kraftrio.base.timers import Timer, Timers
from kraftrio.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kraftrio.broker.replica.fetch_session import FetchKey, FetchSession
    from kraftrio.broker.replica.partition import Partition
    from kraftrio.broker.replica.partition_state import Progress

CommitCallback: TypeAlias = Callable[[ErrorCode], None]


class OffsetWaiter:
    """Waits until a watermark of one partition reaches an offset.

    `callback` is given NONE, or why that will not happen here.
    """

    __slots__ = ("callback", "offset", "timer")

    def __init__(self, offset: int, callback: CommitCallback) -> None:
        self.offset = offset
        self.callback = callback
        self.timer: Timer | None = None


def answer(waiters: Iterable[OffsetWaiter], code: ErrorCode) -> None:
    """Call these back; they have been taken off their partition."""
    for waiter in waiters:
        if waiter.timer is not None:
            waiter.timer.cancel()
        waiter.callback(code)


class Confirmation:
    """Waits until the followers show that they still follow this leader.

    Attributes:
        needs: how many more fetches of each follower that takes.
        callback: is given NONE, or NOT_LEADER_OR_FOLLOWER when they do not.
    """

    __slots__ = ("callback", "needs", "timer")

    def __init__(self, needs: dict[int, int], callback: CommitCallback) -> None:
        self.needs = needs
        self.callback = callback
        self.timer: Timer | None = None

    def finish(self, code: ErrorCode) -> None:
        """Call back; it has been taken off its partition."""
        if self.timer is not None:
            self.timer.cancel()
        self.callback(code)


class FetchWaiter:
    """A parked long poll over some partitions.

    `wake` is called when `missing_bytes` more can be read from the partitions, when one of them
    stops being served here, or when the time is up.  A consumer can read what is committed, a
    follower what is in the log.
    """

    __slots__ = ("_is_done", "_is_follower", "_partitions", "_timer", "missing_bytes", "wake")

    def __init__(
        self, missing_bytes: int, wake: Callable[[], None], *, is_follower: bool = False
    ) -> None:
        self.missing_bytes = missing_bytes
        self.wake = wake
        self._is_follower = is_follower
        self._is_done = False
        self._partitions: list[Partition] = []
        self._timer: Timer | None = None

    def park(self, partitions: list[Partition], timers: Timers, max_wait_ms: float) -> None:
        """Start to wait, on these partitions and those that were watched before."""
        self.watch(partitions)
        self._timer = timers.schedule(max_wait_ms, self.finish)

    def watch(self, partitions: list[Partition]) -> None:
        """Count what comes to these partitions, too."""
        self._partitions += partitions
        for partition in partitions:
            if self._is_follower:
                partition.follower_waiters[self] = None
            else:
                partition.fetch_waiters[self] = None

    @property
    def is_parked(self) -> bool:
        return not self._is_done

    def count(self, size_bytes: int) -> None:
        """So much more can be read."""
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.finish()

    def finish(self) -> None:
        """Stop waiting and wake the request, once."""
        if not self._is_done:
            self.drop()
            self.wake()

    def drop(self) -> None:
        """Stop waiting and wake nobody: who asked is gone."""
        self._is_done = True
        for partition in self._partitions:
            if self._is_follower:
                partition.follower_waiters.pop(self, None)
            else:
                partition.fetch_waiters.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()


class FollowerWatch:
    """A follower's fetch session, told what changes in the partitions that it follows.

    A partition that is not due in the session was fetched from its end by each fetch since, though
    the fetch did not name it.
    """

    __slots__ = ("broker_epoch", "fetched_ms", "replica_id", "session", "waiter")

    def __init__(self, session: FetchSession, replica_id: int, broker_epoch: int) -> None:
        self.session = session
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.fetched_ms = 0.0
        self.waiter: FetchWaiter | None = None

    def on_fetch(self, broker_epoch: int, now_ms: float) -> None:
        """The follower fetches; if it has been registered anew, all its partitions hear so."""
        self.fetched_ms = now_ms
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.session.make_all_due()

    def on_change(self, key: FetchKey, progress: Progress | None, size_bytes: int) -> None:
        """A partition has news, and `size_bytes` more to read."""
        if self.session.make_due(key) and progress is not None:
            progress.on_quiet_fetch(self.fetched_ms)
        if size_bytes and self.waiter is not None:
            self.waiter.count(size_bytes)
