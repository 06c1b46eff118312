"""What all connections of a node share: memory, threads that load files, how many they may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.statistics import Statistics
from kraftrio.base.threads import RunInThread, run_in_worker_thread
from kraftrio.broker.server.admission.connection_quotas import ConnectionQuotas
from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.broker.server.usage.request_figures import RequestFigures, SlowRequestLimit

_STALL_CHECK_INTERVAL_S = 5.0
_MAX_LOADS = 8  # at a time, by all connections


@dataclass(slots=True)
class ServerResources:
    """See the module.

    Attributes:
        request_memory: of requests that have not arrived whole, or are not handled.
        response_memory: of encoded responses that sockets have not taken.
        loads: how many threads load files at a time.
        connections: how many there may be, and how fast they may come.
        requests: what requests have cost.
        ticks_ns: the clock of their times.
        slow_requests: is notified of each that took longer than its limit.
    """

    request_memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(0))
    response_memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(0))
    run_in_thread: RunInThread = run_in_worker_thread
    loads: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(_MAX_LOADS))
    connections: ConnectionQuotas = field(default_factory=ConnectionQuotas)
    requests: RequestFigures = field(default_factory=RequestFigures)
    ticks_ns: Callable[[], int] = Clock.ticks_ns
    slow_requests: SlowRequestLimit = field(default_factory=SlowRequestLimit)

    async def run(self) -> None:
        """Close connections that hold memory which others wait for and stand still, until
        cancelled.
        """
        while True:
            await trio.sleep(_STALL_CHECK_INTERVAL_S)
            self.request_memory.close_stalled()
            self.response_memory.close_stalled()

    def statistics(self) -> Statistics:
        """Memory in use, and connections that wait for some."""
        return {
            "request_bytes": self.request_memory.used_bytes,
            "requests_waiting_for_memory": self.request_memory.waiting_count,
            "response_bytes": self.response_memory.used_bytes,
            "responses_waiting_for_memory": self.response_memory.waiting_count,
        }
