"""Keeps the keys of identity providers: those that tokens of OAUTHBEARER are checked with.

Behaviour (Kafka's RefreshingHttpsJwks): they are read at the start, again after
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and earlier when a token names a key that is not among
them, though not more often than every `UNKNOWN_REST_S`. What cannot be read leaves those there are,
and is tried again; that is logged.

Called by: `node`, as one task; what is read is read in a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.base.threads import RunInThread
from kraftrio.broker.security.sasl.settings import KeySource
from kraftrio.net.http_fetch import FetchError, fetch

_log = logging.getLogger("kraftrio.node")

UNKNOWN_REST_S: Final = 10.0
_TIMEOUT_S = 10.0


def read_keys(source: KeySource) -> None:
    """Read the keys once, in the thread that calls.

    Raises:
        FetchError: they cannot be had.
        ValueError: it is not a set of keys.
    """
    source.keys.replace(fetch(source.url, timeout_s=_TIMEOUT_S))


class ProviderKeys:
    """See the module."""

    def __init__(self, sources: Sequence[KeySource], run_in_thread: RunInThread) -> None:
        self._sources = sources
        self._run_in_thread = run_in_thread

    async def run(self) -> None:
        """Keep the keys up to date until cancelled."""
        async with trio.open_nursery() as nursery:
            for source in self._sources:
                nursery.start_soon(self._keep, source)

    async def _keep(self, source: KeySource) -> None:
        failures = 0
        backoff = ExponentialBackoff(source.retry_ms, source.max_retry_ms)
        unknown = trio.Event()
        source.keys.on_unknown = lambda: unknown.set()
        while True:
            try:
                await self._run_in_thread(lambda: read_keys(source))
            except (FetchError, ValueError) as error:
                _log.warning("keys of tokens not read url=%s reason=%s", source.url, error)
                await trio.sleep(backoff.after(failures) / 1000)
                failures += 1
                continue
            failures = 0
            unknown = trio.Event()
            read_at = trio.current_time()
            with trio.move_on_after(source.refresh_ms / 1000):
                await unknown.wait()
                await trio.sleep_until(read_at + UNKNOWN_REST_S)
