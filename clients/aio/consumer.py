"""The consumer of asyncio programs: `async with Consumer("localhost:9092") as consumer`.

Records of a run that the clients' thread has opened are taken one by one in the program's own
thread; only a new run, or something to be looked after before, needs a change of threads. A call
for records that is cancelled gives back what it has got. Everything else is as in
`clients.consumer`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from functools import partial
from typing import Any, Generic

from kraftrio.clients.aio.bridge import client_of_asyncio, opened, part_of_client
from kraftrio.clients.aio.host import CalledIterator, ClientHost, notify
from kraftrio.clients.arguments.times import Duration
from kraftrio.clients.consumer import consumer as _trio
from kraftrio.clients.consumer.commits import CommitCallback
from kraftrio.clients.consumer.committed import CommittedRecords
from kraftrio.clients.consumer.listener import RebalanceListener
from kraftrio.clients.consumer.partition_offsets import PartitionOffsets
from kraftrio.clients.consumer.records import ConsumerBatch, ConsumerRecord, ConsumerRecords
from kraftrio.clients.consumer.subscription import Topics
from kraftrio.clients.group_offsets import OffsetLike
from kraftrio.clients.serialization import K, V
from kraftrio.wire.primitives import TopicPartition


class _LoopListener(RebalanceListener):
    """Has the program's listener called in its event loop."""

    def __init__(self, host: ClientHost, listener: RebalanceListener) -> None:
        self._host = host
        self._listener = listener

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None]:
        call = partial(self._listener.on_partitions_assigned, partitions)
        return self._host.call_back(call)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None]:
        call = partial(self._listener.on_partitions_revoked, partitions)
        return self._host.call_back(call)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Awaitable[None]:
        call = partial(self._listener.on_partitions_lost, partitions)
        return self._host.call_back(call)


class _Committed(CommittedRecords[K, V], Generic[K, V]):
    """What `Consumer.committed` returns; iterate over it once."""

    def __init__(self, consumer: Consumer[K, V], of_trio: CommittedRecords[K, V]) -> None:
        self._consumer = consumer
        self._of_trio = of_trio
        self._has_begun = False

    async def __anext__(self) -> ConsumerRecord[K, V]:
        host, after_body = opened(self._consumer), self._consumer._after_body
        if self._has_begun:
            with host.thread.lock:
                # While a commit is under way, the end of a body is noted for the next one.
                if after_body.is_committing and (record := self._consumer._next_of_run()):
                    after_body.came_back()
                    after_body.handed_over()
                    return record
        take = self._of_trio.__anext__
        record = await host.call(take, lambda _value: after_body.give_back())
        self._has_begun = True
        return record

    def batches(self) -> AsyncIterator[ConsumerBatch[K, V]]:
        """Iterate over batches instead, and commit after each."""
        batches, after_body = self._of_trio.batches(), self._consumer._after_body
        return CalledIterator(
            opened(self._consumer), batches, lambda _value: after_body.give_back()
        )


@client_of_asyncio
class Consumer(_trio.Consumer[K, V]):
    """Reads records; to be entered with `async with`. As `kraftrio.Consumer`, for asyncio.

    Listeners and callbacks are called in the event loop of the program.
    """

    _host: ClientHost | None = None

    def _on_host(self, host: ClientHost) -> None:
        self.positions = partial(host.call_sync, self.positions)
        self.offsets = part_of_client(PartitionOffsets, host, self.config, self._calls)

    # -- taking records -------------------------------------------------------------------------

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """Return the next record, waiting for it."""
        host = opened(self)
        with host.thread.lock:
            if (record := self._next_of_run()) is not None:
                return record
        return await host.call(super().__anext__, lambda _value: self._handover.give_back())

    def _next_of_run(self) -> ConsumerRecord[K, V] | None:
        """Return the next record of the open run; None: there is none, or something to do first."""
        if not self._calls.is_interrupted:
            for record in self._handover.records:
                self._handover.handed = record
                return record
        return None

    def batches(self) -> AsyncIterator[ConsumerBatch[K, V]]:
        """Iterate over batches, each decoded only if its records are looked at."""
        return CalledIterator(
            opened(self), super().batches(), lambda _value: self._handover.give_back()
        )

    def committed(self) -> CommittedRecords[K, V]:
        """Iterate over records, and commit each after the body; see `kraftrio.Consumer.committed`.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
        """
        opened(self)
        self._calls.check_open()
        self._offset_client.check_group()
        take = partial(_trio.Consumer.__anext__, self)
        return _Committed(self, CommittedRecords(take, self._polling.next_batch, self._after_body))

    async def poll(
        self, timeout_ms: Duration | None = None, *, max_records: int | None = None
    ) -> ConsumerRecords[K, V]:
        """Return what there is, waiting for something to be there; see `kraftrio.Consumer.poll`."""
        polling = partial(super().poll, timeout_ms, max_records=max_records)
        return await opened(self).call(polling, lambda _value: self._handover.give_back())

    # -- what the program is called back for ----------------------------------------------------

    async def subscribe(self, topics: Topics, *, listener: RebalanceListener | None = None) -> None:
        """Read these topics as a member of the group; see `kraftrio.Consumer.subscribe`."""
        host = opened(self)
        on_loop = None if listener is None else _LoopListener(host, listener)
        await host.call(partial(super().subscribe, topics, listener=on_loop))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetLike] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Have offsets committed without waiting; see `kraftrio.Consumer.commit_async`."""
        host = opened(self)

        def notify_loop(*result: Any) -> None:
            assert callback is not None
            notify(host.loop, partial(callback, *result))

        on_loop = None if callback is None else notify_loop
        host.call_sync(partial(super().commit_async, offsets, on_loop))
