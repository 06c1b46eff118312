"""The producer of asyncio programs: `async with Producer("localhost:9092") as producer`.

`send` puts a record into the open batch of its partition at once, in the program's own thread: only
the first record of each batch, and what has to be looked at, goes through the clients' thread. So
the change of threads is paid once per batch. Tasks that await deliveries of one batch are woken by
one call. Everything else is as in `clients.producer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Self

from kraftrio.base.clock import wall_ms
from kraftrio.clients.aio.bridge import client_of_asyncio, opened, runs_in_thread
from kraftrio.clients.aio.host import ClientHost, notify
from kraftrio.clients.arguments.times import Moment
from kraftrio.clients.arguments.values import HeadersLike
from kraftrio.clients.producer import producer as _trio
from kraftrio.clients.producer.batch import Batch, RecordMetadata
from kraftrio.clients.producer.transactions import transaction as _trio_transaction
from kraftrio.clients.producer.transactions.manager import TransactionManager
from kraftrio.clients.serialization import K, V


class BatchEnds:
    """Wakes all tasks that wait for the end of a batch by one call from the other thread."""

    def __init__(self, host: ClientHost) -> None:
        self._host = host
        self._waiters: dict[Batch, list[asyncio.Future[None]]] = {}

    async def wait(self, batch: Batch) -> None:
        """Wait until a batch has ended; its parts may not have."""
        host = self._host
        with host.thread.lock:
            if batch.is_done:
                return
            if batch not in self._waiters:
                self._waiters[batch] = []
                batch.callbacks.append(partial(notify, host.loop, partial(self._wake, batch)))
        waiter = host.loop.create_future()
        self._waiters[batch].append(waiter)
        await waiter

    def _wake(self, batch: Batch) -> None:
        for waiter in self._waiters.pop(batch):
            if not waiter.done():
                waiter.set_result(None)


class Delivery(_trio.Delivery):
    """What becomes of one record: `await delivery` waits until the broker has it.

    Waiting may be cancelled and repeated; the record is sent all the same.
    """

    __slots__ = ("_ends",)

    def __init__(self, batch: Batch, index: int, ends: BatchEnds) -> None:
        super().__init__(batch, index)
        self._ends = ends

    async def wait(self) -> RecordMetadata:
        """Wait until the broker has the record and return where it was written.

        Raises:
            KafkaClientError: it was given up: timed out, refused, or the producer was closed.
        """
        while not (batch := self._batch.locate(self._index)[0]).is_done:
            await self._ends.wait(batch)
        return self.result()


@runs_in_thread
class Transaction(_trio_transaction.Transaction):
    """Made by `Producer.transaction`; to be entered with `async with`, once."""

    def __init__(self, manager: TransactionManager, host: ClientHost) -> None:
        super().__init__(manager)
        self._host = host

    async def __aenter__(self) -> Self:
        await self._host.call(super().__aenter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._host.call(partial(super().__aexit__, kind, error, traceback))


@client_of_asyncio
class Producer(_trio.Producer[K, V]):
    """Sends records; to be entered with `async with`. As `kraftrio.Producer`, for asyncio.

    A partitioner is called in the clients' thread, a serializer in any.
    """

    _host: ClientHost | None = None
    _ends: BatchEnds

    def _on_host(self, host: ClientHost) -> None:
        self._ends = BatchEnds(host)

    async def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp_ms: Moment | None = None,
    ) -> Delivery:
        """Accept a record to be sent, and return what will say where it was written.

        As `kraftrio.Producer.send`; but one that is cancelled while it waits may have accepted it.
        """
        host = opened(self)
        if partition is None and timestamp_ms is None and not headers:
            accepted = self._append(host, topic, value, key)
            if accepted is not None:
                return self._delivery(accepted)
        sending: partial[Coroutine[Any, Any, _trio.Delivery]] = partial(
            super().send,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return self._delivery(await host.call(sending))

    def _append(
        self, host: ClientHost, topic: str, value: V | None, key: K | None
    ) -> _trio.Delivery | None:
        """Put a record into the open batch of its partition, if that is all there is to do."""
        plain: object = value
        if value is not None and self._value_serializer is not None:
            plain = self._value_serializer(value)
        plain_key: object = key
        if key is not None and self._key_serializer is not None:
            plain_key = self._key_serializer(key)
        if type(plain) is not bytes or not (plain_key is None or type(plain_key) is bytes):
            return None
        with host.thread.lock:
            known = self._topics.get(topic)
            if (
                known is None
                or not self._is_open
                or self._partitioner is not None
                or self._transactions is not None
                or self._schedule.wants_sender
            ):
                return None
            now_ms = wall_ms()
            accepted = self._core.append(known, None, plain_key, plain, (), now_ms)
        return accepted if isinstance(accepted, _trio.Delivery) else None

    send_and_wait = _trio.Producer.send_and_wait  # it awaits `send` and its delivery, nothing else

    def _delivery(self, accepted: _trio.Delivery) -> Delivery:
        return Delivery(accepted._batch, accepted._index, self._ends)

    def transaction(self) -> Transaction:
        """Return a transaction to be entered with `async with`; see `Transaction`.

        Raises:
            TransactionStateError: the producer has no transactional_id.
            ClosedError: the producer is not open.
        """
        host = opened(self)
        host.call_sync(super().transaction)
        assert self._transactions is not None
        return Transaction(self._transactions, host)
