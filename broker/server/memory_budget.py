"""Memory that all connections of a node share: which may take some, which wait, in which order.

Owns: `MemoryBudget` and the `MemoryShare` of each connection, sans-IO. Rules:
1. A little (`FREE_BYTES`) is granted at any time: small requests and responses never wait.
2. More is granted while less than the limit is in use and no connection waits. The grant may be
   larger than what was left: a limit below the size of one request must not block it for ever.
3. A connection that gets none waits. When there is room, the nodes of the cluster continue first,
   then the connection that has waited longest.
4. When there is no room, the first that waits continues beyond the limit, alone, until it holds
   little again. So a large request always gets through, and there is no deadlock among those
   that wait.
5. Rule 4 depends on progress of those that hold memory. A connection that makes none while others
   wait is closed: `close_stalled`. Not so one that has to wait because of its quota.

`client_connection` takes shares; `resources` closes those that stall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

FREE_BYTES = 64 << 10

# What a connection that holds more must move between two checks, while others wait.
_LEAST_PROGRESS_BYTES = 32 << 10


def _no_owner() -> None:
    """The connection has ended."""


class MemoryShare:
    """What one connection holds of a budget.

    Attributes:
        on_room: called after `take` granted none, when it may be tried again.
        give_up: called when others wait for what is held here, and nothing moves.
        is_peer: of a broker or controller of the cluster.
        is_resting: it has to wait, and is not expected to make progress.
        moved_bytes: received or sent so far, counted by the owner: its progress.
    """

    __slots__ = (
        "_budget",
        "_checked_bytes",
        "give_up",
        "held_bytes",
        "is_peer",
        "is_resting",
        "moved_bytes",
        "on_room",
    )

    def __init__(
        self, budget: MemoryBudget, on_room: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        self._budget = budget
        self.on_room = on_room
        self.give_up = give_up
        self._checked_bytes = -1
        self.held_bytes = 0
        self.is_peer = False
        self.is_resting = False
        self.moved_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Take so much more, or none and wait for `on_room`."""
        return self._budget.take(self, size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Set how much is held now, granted or not."""
        self._budget.hold(self, size_bytes)

    def close(self) -> None:
        """Hold nothing, and wait for nothing."""
        self._budget.forget(self)

    def has_stalled(self) -> bool:
        """Whether too little has moved since the last check."""
        seen, self._checked_bytes = self._checked_bytes, self.moved_bytes
        return seen >= 0 and self.moved_bytes - seen < _LEAST_PROGRESS_BYTES

    def reset_progress(self) -> None:
        """Make the next check the first one."""
        self._checked_bytes = -1


_Queue: TypeAlias = dict[MemoryShare, None]


class MemoryBudget:
    """See the module.

    Attributes:
        limit_bytes: 0 or less: there is none.
        used_bytes: of all shares.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes if limit_bytes > 0 else 1 << 62
        self.used_bytes = 0
        self._large: dict[MemoryShare, None] = {}  # those that hold more than is free
        self._waiting: tuple[_Queue, _Queue] = ({}, {})  # peers, clients
        self._beyond: MemoryShare | None = None

    def share(self, on_room: Callable[[], None], give_up: Callable[[], None]) -> MemoryShare:
        """A connection's share (see `MemoryShare`)."""
        return MemoryShare(self, on_room, give_up)

    @property
    def has_room(self) -> bool:
        return self.used_bytes < self.limit_bytes

    @property
    def is_plentiful(self) -> bool:
        """There is room and no connection waits: memory for a moment may be used without asking."""
        peers, clients = self._waiting
        return self.used_bytes < self.limit_bytes and not peers and not clients

    @property
    def waiting_count(self) -> int:
        return len(self._waiting[0]) + len(self._waiting[1])

    def take(self, share: MemoryShare, size_bytes: int) -> bool:
        if self._may_take(share, size_bytes):
            self._stop_waiting(share)
            self.hold(share, share.held_bytes + size_bytes)
            self._wake_first()
            return True
        self._waiting[0 if share.is_peer else 1][share] = None
        return False

    def _may_take(self, share: MemoryShare, size_bytes: int) -> bool:
        if share is self._beyond or share.held_bytes + size_bytes <= FREE_BYTES:
            return True
        first = next(self._in_order(), share)
        if share is not first and (share.is_peer, first.is_peer) != (True, False):
            return False
        if self.has_room:
            return True
        if self._beyond is None:
            self._beyond = share
            return True
        return False

    def _in_order(self) -> Iterator[MemoryShare]:
        for queue in self._waiting:
            yield from queue

    def _stop_waiting(self, share: MemoryShare) -> None:
        for queue in self._waiting:
            queue.pop(share, None)

    def hold(self, share: MemoryShare, size_bytes: int) -> None:
        self.used_bytes += size_bytes - share.held_bytes
        share.held_bytes = size_bytes
        if size_bytes > FREE_BYTES:
            self._large[share] = None
            return
        self._large.pop(share, None)
        share.reset_progress()
        if share is self._beyond:
            self._beyond = None
        self._wake_first()

    def _wake_first(self) -> None:
        """Let the first that waits try again, if it will be granted something."""
        if self.has_room or self._beyond is None:
            first = next(self._in_order(), None)
            if first is not None:
                first.on_room()

    def forget(self, share: MemoryShare) -> None:
        self._stop_waiting(share)
        share.on_room = share.give_up = _no_owner  # frees the connection at once, without a cycle
        self.hold(share, 0)

    def close_stalled(self) -> None:
        """Close connections that hold memory others wait for and moved little since the last call.

        To be called every few seconds.
        """
        peers, clients = self._waiting
        stalled: list[MemoryShare] = []
        for share in self._large:
            if not self.waiting_count or share.is_resting or share in peers or share in clients:
                share.reset_progress()
            elif share.has_stalled():
                stalled.append(share)
        for share in stalled:
            share.give_up()
