"""The share consumer of asyncio programs.

`async with ShareConsumer("localhost:9092", group_id="workers") as consumer`. What a program says of
a record is noted in its own thread at once; each call for records goes through the clients' thread.
A call that is cancelled puts back what it has got. Everything else is as in `clients.share`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from kraftrio.clients.aio.bridge import client_of_asyncio, opened
from kraftrio.clients.aio.host import CalledIterator, ClientHost, notify
from kraftrio.clients.arguments.times import Duration
from kraftrio.clients.serialization import K, V
from kraftrio.clients.share import consumer as _trio
from kraftrio.clients.share.acknowledgements import AcknowledgeType
from kraftrio.clients.share.in_hand import InHand
from kraftrio.clients.share.records import ShareBatch, ShareRecord, ShareRecords
from kraftrio.clients.share.results import AcknowledgementCallback


class _SharedInHand(InHand):
    """What is in hand, as two threads may speak of it."""

    def __init__(
        self, host: ClientHost, *, is_explicit: bool, on_first: Callable[[], None]
    ) -> None:
        super().__init__(is_explicit=is_explicit, on_first=partial(host.soon, on_first))
        self._host = host

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType) -> None:
        """Say what became of a record; see `InHand.acknowledge`."""
        if self._host.is_here:
            super().acknowledge(record, kind)
        else:
            with self._host.thread.lock:
                super().acknowledge(record, kind)


@client_of_asyncio
class ShareConsumer(_trio.ShareConsumer[K, V]):
    """Works on records of a share group. As `kraftrio.ShareConsumer`, for asyncio.

    `acknowledgement_callback` is called in the event loop of the program.
    """

    _host: ClientHost | None = None
    _callback: AcknowledgementCallback | None = None

    def _on_host(self, host: ClientHost) -> None:
        self._in_hand = _SharedInHand(
            host, is_explicit=self.config.is_explicit, on_first=lambda: self._fetcher.wake()
        )
        self._results.callback = self._notify_callback

    def _notify_callback(self, *result: Any) -> None:
        if self._callback is not None and self._host is not None:
            notify(self._host.loop, partial(self._callback, *result))

    @property
    def acknowledgement_callback(self) -> AcknowledgementCallback | None:
        """See `kraftrio.ShareConsumer`."""
        return self._callback

    @acknowledgement_callback.setter
    def acknowledgement_callback(self, callback: AcknowledgementCallback | None) -> None:
        self._callback = callback

    async def __anext__(self) -> ShareRecord[K, V]:
        """Return the next record, waiting for it; see `kraftrio.ShareConsumer`."""
        return await opened(self).call(super().__anext__, self._in_hand.put_back_record)

    def batches(self) -> AsyncIterator[ShareBatch[K, V]]:
        """Iterate over batches: records of one partition each."""
        return CalledIterator(
            opened(self), super().batches(), lambda batch: self._in_hand.put_back([batch])
        )

    async def poll(self, timeout_ms: Duration | None = None) -> ShareRecords[K, V]:
        """Return what there is, waiting for something to be there; see `kraftrio.ShareConsumer`."""
        return await opened(self).call(
            partial(super().poll, timeout_ms), lambda found: self._in_hand.put_back(found.batches)
        )
