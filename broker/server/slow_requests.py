"""Requests that take longer than `slow.request.ms`: a line each, with where the time went and why.

Owns: `SlowRequests`. Rules
1. Time that a request was asked to wait (a long poll, a member that waits for others) is not slow,
   nor is what one sent behind another waits for that: whichever was slow itself is reported.
2. What waits for long is asked now and then what it waits for, so that the line names it, though by
   then it has come.
3. The line is written when the answer has left; what never gets one is reported by its time-out.

    slow request api=Produce version=9 client_id=app client=10.0.0.7:51112 total_ms=1530 queue_ms=0
        local_ms=1 remote_ms=1529 send_ms=0 request_bytes=180 why="replication of orders-0 to 3"

Called by: `response_queue` (`report`); `run` is a task of the node.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final

import trio

from kraftrio.base.logging_setup import log_event
from kraftrio.broker.log.sync_times import SYNC_TIMES, SyncTimes
from kraftrio.broker.server.resources import ServerResources
from kraftrio.broker.server.usage.request_figures import RequestTimes
from kraftrio.wire.protocol.api import APIS, ApiKey

_log = logging.getLogger("kraftrio.server")

_NS_PER_MS: Final = 1_000_000
_LEAST_INTERVAL_S = 0.05
_OFF_INTERVAL_S = 5.0

_CONTROLLER = "the controller, and the commit of its decision"
_GROUP = "the commit of a record in __consumer_offsets"
_TRANSACTION = "the commit of a record in __transaction_state"

# What requests of an API wait for that do not say it themselves.
_USUAL_WAITS: Mapping[ApiKey, str] = {
    ApiKey.CREATE_TOPICS: _CONTROLLER,
    ApiKey.DELETE_TOPICS: _CONTROLLER,
    ApiKey.CREATE_PARTITIONS: _CONTROLLER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CONTROLLER,
    ApiKey.ALTER_CONFIGS: _CONTROLLER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CONTROLLER,
    ApiKey.ELECT_LEADERS: _CONTROLLER,
    ApiKey.ALTER_PARTITION: _CONTROLLER,
    ApiKey.BROKER_REGISTRATION: _CONTROLLER,
    ApiKey.METADATA: _CONTROLLER,  # of a topic that is made by it
    ApiKey.DELETE_RECORDS: "all replicas",
    ApiKey.OFFSET_COMMIT: _GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _GROUP,
    ApiKey.SHARE_GROUP_HEARTBEAT: _GROUP,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _GROUP,
    ApiKey.LEAVE_GROUP: _GROUP,
    ApiKey.DELETE_GROUPS: _GROUP,
    ApiKey.TXN_OFFSET_COMMIT: _GROUP,
    ApiKey.INIT_PRODUCER_ID: _TRANSACTION,
    ApiKey.ADD_PARTITIONS_TO_TXN: _TRANSACTION,
    ApiKey.ADD_OFFSETS_TO_TXN: _TRANSACTION,
    ApiKey.END_TXN: _TRANSACTION,
    ApiKey.WRITE_TXN_MARKERS: "the commit of the markers",
}


class SlowRequests:
    """See the module.

    Args:
        limit_ms: `slow.request.ms`, as it is now; 0: nothing is slow.
    """

    def __init__(
        self,
        resources: ServerResources,
        limit_ms: Callable[[], int],
        syncs: SyncTimes = SYNC_TIMES,
    ) -> None:
        self._resources = resources
        self._limit_ms = limit_ms
        self._syncs = syncs
        resources.slow_requests.report = self.report
        self._take_limit()

    def _take_limit(self) -> float:
        limit = self._limit_ms() * _NS_PER_MS or math.inf
        self._resources.slow_requests.nanoseconds = limit
        return limit

    async def run(self) -> None:
        """Ask what waits what it waits for, until cancelled."""
        while True:
            limit = self._take_limit()
            if limit == math.inf:
                await trio.sleep(_OFF_INTERVAL_S)
                continue
            await trio.sleep(max(limit / 4 / _NS_PER_MS / 1000, _LEAST_INTERVAL_S))
            self.look(limit)

    def look(self, limit: float) -> None:
        """Ask those that may become slow (rule 2)."""
        resources = self._resources
        now = resources.ticks_ns()
        for times in resources.requests.parked:
            if now - times.received < limit / 2:
                return  # as are all that came after it
            if times.explain is not None and not times.asked_wait:
                times.why = times.explain() or times.why

    def report(self, times: RequestTimes, sent: int) -> None:
        """A request took long."""
        start, client = times.start, times.client
        log_event(
            _log,
            logging.WARNING,
            "slow request",
            api=APIS[ApiKey(start.api_key)].name,
            version=start.api_version,
            client_id=start.client_id or "",
            client=f"{client.host}:{client.port}",
            total_ms=(sent - times.received) // _NS_PER_MS,
            queue_ms=(times.began - times.received) // _NS_PER_MS,
            local_ms=(times.handled - times.began) // _NS_PER_MS,
            remote_ms=(times.completed - times.handled) // _NS_PER_MS,
            send_ms=(sent - times.completed) // _NS_PER_MS,
            request_bytes=times.request_bytes,
            response_bytes=times.response_bytes,
            why=self._why(times, sent),
        )

    def _why(self, times: RequestTimes, sent: int) -> str:
        """What took most of the time."""
        local = times.handled - times.began
        remote = 0 if times.asked_wait else times.completed - times.handled
        send, queue = sent - (times.turn or times.completed), times.began - times.received
        most = max(local, remote, send, queue)
        if most == remote:
            api_key = ApiKey(times.start.api_key)
            return times.why or _USUAL_WAITS.get(api_key, "its answer was not there yet")
        if most == send:
            return f"its client takes {times.response_bytes} bytes slowly"
        syncs = self._syncs.during(times.received, times.handled)
        if syncs:
            longest = max(syncs, key=lambda one: one.ended - one.began)
            return (
                f"fsync of {longest.path} took {(longest.ended - longest.began) // _NS_PER_MS} ms"
            )
        if most == queue:
            return "the event loop was busy with other requests"
        return "its own work"
