"""Gathers what concerns single partitions into requests to the controller, one at a time.

Owns: `GatheredRequests`: what waits to be sent, and what the request under way contains. Whatever
comes within a short time, or while a request is under way, goes into the next one: a broker that
dies changes thousands of partitions at once.

Called by `isr_proposals` and `directory_assignments`, which build the requests and read their
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from kraftrio.broker.ports import SchedulerPort

PartitionKey: TypeAlias = tuple[bytes, int]
"""Topic id and partition index."""

T = TypeVar("T")


class GatheredRequests(Generic[T]):
    """See the module.

    Args:
        send: sends what waits: moves it, or a part of it, from `waiting` to `under_way`, and calls
            `take_answered` when the answer is there.

    Attributes:
        waiting: to be sent, by partition; the owner may change it at any time.
        under_way: what the request that is not answered yet contains; empty if there is none.
    """

    def __init__(self, scheduler: SchedulerPort, send: Callable[[], None]) -> None:
        self.waiting: dict[PartitionKey, T] = {}
        self.under_way: dict[PartitionKey, T] = {}
        self._scheduler = scheduler
        self._send = send
        self._is_scheduled = False

    def send_after(self, delay_ms: float) -> None:
        """Send what waits after a pause, if there is any and no request is under way."""
        if self.waiting and not self.under_way and not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.schedule(delay_ms, self._on_time)

    def take_answered(self) -> dict[PartitionKey, T]:
        """The request under way is answered: return what it contained."""
        answered, self.under_way = self.under_way, {}
        return answered

    def _on_time(self) -> None:
        self._is_scheduled = False
        assert not self.under_way, "one request at a time"
        self._send()
