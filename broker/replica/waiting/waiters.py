"""Who waits for a partition: long polls, confirmations of a leader, and the followers whose fetch
sessions it is in.

A waiter is called back once: when what it waits for has come, when its partition is no longer
served here, or when its time is up. Its callback runs in the caller that brought that about, so it
only notes it; what a client waits for is a `Deferred` that it completes.

The fetch handlers and `partition` make waiters, `partition` wakes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.base.timers import Timer, Timers
from kraftrio.broker.replica.state.followers import FollowerProgress
from kraftrio.wire.errors import ErrorCode

CommitCallback: TypeAlias = Callable[[ErrorCode], None]


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

    `woken` is completed when `missing_bytes` more can be read from the partitions, when one of them
    stops being served here, or when the time is up.  A consumer waits for what is committed
    (`Partition.fetch_waiters`), or also decided if it reads nothing else (`stable_waiters`), a
    follower for what is in the log (`follower_waiters`).
    """

    __slots__ = ("_is_done", "_timer", "_watched", "missing_bytes", "woken")

    def __init__(self, missing_bytes: int) -> None:
        self.missing_bytes = missing_bytes
        self.woken: Deferred[None] = Deferred()
        self._is_done = False
        self._watched: list[FetchWaiters] = []
        self._timer: Timer | None = None

    def park(self, watched: Iterable[FetchWaiters], timers: Timers, max_wait_ms: float) -> None:
        """Start to wait, among these waiters of partitions and those watched before."""
        self.watch(watched)
        self._timer = timers.schedule(max_wait_ms, self.finish)

    def watch(self, watched: Iterable[FetchWaiters]) -> None:
        """Count what comes to the partitions of these waiters, too."""
        for waiters in watched:
            waiters[self] = None
            self._watched.append(waiters)

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
            self.woken.complete(None)

    def drop(self) -> None:
        """Stop waiting, without a callback: the client is gone."""
        self._is_done = True
        for waiters in self._watched:
            waiters.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()


FetchWaiters: TypeAlias = dict[FetchWaiter, None]
"""The parked long polls of one partition, in the order in which they came."""


class StableWaiters:
    """The long polls of one partition that read nothing of open transactions (read_committed).

    What is committed to the log counts for them once the last stable offset has moved.
    """

    __slots__ = ("_seen_offset", "_size_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: FetchWaiters = {}
        self._seen_offset = -1
        self._size_bytes = 0  # committed since the stable offset moved last

    def from_offset(self, stable_offset: int) -> FetchWaiters:
        """Where to wait for a stable offset above this one, which is the present one."""
        if not self.waiting:
            self._seen_offset, self._size_bytes = stable_offset, 0
        return self.waiting

    def count(self, size_bytes: int, stable_offset: int) -> None:
        """So much more is committed, and the stable offset is here now."""
        self._size_bytes += size_bytes
        if stable_offset > self._seen_offset:
            size_bytes, self._size_bytes = max(self._size_bytes, 1), 0
            for waiter in list(self.waiting):
                waiter.count(size_bytes)
        self._seen_offset = stable_offset  # it may have moved back, with a truncation


class FollowerWatch(Protocol):
    """A follower's fetch session, as one of the partitions in it sees it."""

    @property
    def is_parked(self) -> bool:
        """Whether the follower's latest fetch waits for changes."""
        ...

    def on_change(self, progress: FollowerProgress | None, appended_bytes: int) -> None:
        """The partition has changed, and has `appended_bytes` more in its log."""
        ...
