"""How an application is notified of its partitions: its listener, and how that is called.

Listeners may be sync or async. What one raises comes out of the application's next poll, and the
rebalance goes on.

Called by: `classic_member`, `epoch_member`; programs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable

from kraftrio.wire.primitives import TopicPartition

Partitions = list[TopicPartition]


class RebalanceListener:
    """What an application wants to know of its partitions; any method may also be async."""

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are new, also when there are none: a rebalance has ended. Seek here."""
        return None

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are given up next: the last chance to commit."""
        return None

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """These belong to others already, so nothing can be committed."""
        return self.on_partitions_revoked(partitions)


class ListenerCalls:
    """Calls the listener that there is at the moment, if there is one.

    Args:
        fail: called with what a listener raises.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self.listener: RebalanceListener | None = None
        self._fail = fail

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Call the listener with what is new, also if that is nothing."""
        if self.listener is not None:
            await self._call(self.listener.on_partitions_assigned, partitions)

    async def given_up(self, partitions: Iterable[TopicPartition], *, is_lost: bool) -> None:
        """Call the listener with what is given up, or is lost already."""
        listener = self.listener
        if listener is not None:
            method = listener.on_partitions_lost if is_lost else listener.on_partitions_revoked
            await self._call(method, partitions)

    async def _call(
        self,
        method: Callable[[Partitions], Awaitable[None] | None],
        partitions: Iterable[TopicPartition],
    ) -> None:
        try:
            waits = method(sorted(partitions))
            if inspect.isawaitable(waits):
                await waits
        except Exception as error:  # the application's own, which its poll raises
            self._fail(error)
