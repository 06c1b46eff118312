"""What `metrics.listener` serves: /metrics for monitoring, /health and /ready for supervisors.

- /metrics: every figure of this node (`families`), in the text format of Prometheus or OpenMetrics,
  by the Accept header.
- /health: 200 as long as the event loop turns; the body says what is wrong, if anything is. A
  supervisor restarts a node that does not answer here, and no other: what is wrong with a disk or
  with the quorum, a restart does not mend.
- /ready: 200 while clients are served, 503 before and after (a node that stops takes no new ones).

Called by: `node/watch/observation`, which loads this module only where the setting is made.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

import trio

from kraftrio.base.threads import RunInThread
from kraftrio.broker.metrics.exposition import exposed
from kraftrio.broker.metrics.http_server import Page, Request
from kraftrio.broker.metrics.registry import Gathered, MetricsRegistry
from kraftrio.broker.metrics.telemetry.client_metrics import PushedFamily

Status: TypeAlias = Callable[[], Mapping[str, object]]
"""What a node says of itself: `is_ready`, `problems`, and what else a person wants to know."""

_INDEX = b"kraftrio: see /metrics, /health and /ready\n"


class MetricsEndpoint:
    """See the module.

    Args:
        prepare: brings figures up to date that have to be asked of others, in bounded time.
        pushed: what clients have pushed.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        status: Status,
        prepare: Callable[[], Awaitable[None]],
        pushed: Callable[[], Iterable[PushedFamily]],
        run_in_thread: RunInThread,
    ) -> None:
        self._registry = registry
        self._status = status
        self._prepare = prepare
        self._pushed = pushed
        self._run_in_thread = run_in_thread

    async def page(self, request: Request) -> Page:
        """Answer a request."""
        if request.path == "/metrics":
            return await self._metrics(request.accept)
        if request.path == "/health":
            return _json(200, self._status())
        if request.path == "/ready":
            status = self._status()
            return _json(200 if status["is_ready"] else 503, status)
        return Page(200 if request.path == "/" else 404, _INDEX)

    async def _metrics(self, accept: str) -> Page:
        await self._prepare()
        gathered: Gathered = {}
        for _ in self._registry.gather(gathered):
            await trio.lowlevel.checkpoint()
        pushed, pages = list(self._pushed()), []

        def write() -> None:
            text, content_type = exposed(gathered, pushed, accept)
            pages.append(Page(200, text, content_type))

        await self._run_in_thread(write)
        return pages[0]


def _json(status: int, content: Mapping[str, object]) -> Page:
    return Page(status, json.dumps(content).encode() + b"\n", "application/json")
