"""The share handlers of a broker for tests, and members of a share group that call them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.api.share.ongoing_share_fetch import ShareFetchServices
from kraftrio.broker.api.share.share_acknowledge import ShareAcknowledgeHandler
from kraftrio.broker.api.share.share_fetch import ShareFetchHandler
from kraftrio.broker.security.quotas.client_quotas import ClientQuotas
from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.broker.server.slices.sliced_work import SlicedWork
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.broker.share.led_share_partition import LedSharePartition, ShareServices
from kraftrio.broker.share.sessions import SessionPartition, ShareSessions
from kraftrio.broker.share.share_partitions import SharePartitions
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    ShareForgottenTopic,
    SharePartitionData,
)
from tests.support.logs import batch, records_of
from tests.unit.broker.replica.replica_context import TOPIC_ID, TP, Broker, topic
from tests.unit.broker.share.kept_states import KeptStates, Settings

NAMED = SessionPartition(TOPIC_ID, 0)


class ShareBroker:
    """Broker 1 with its share handlers, over files in memory."""

    def __init__(self, broker: Broker | None = None, *, sessions: int = 10) -> None:
        self.broker = broker or Broker()
        self.kept = KeptStates()
        self.settings = Settings()
        replicas = self.broker.replicas
        self.partitions = SharePartitions(
            replicas.hosted,
            self.broker.metadata,
            ShareServices(
                self.kept,
                self.settings,
                replicas.reads,
                replicas.disk_errors,
                self.broker.timers,
                self.broker.clock,
            ),
            ShareSessions(sessions),
        )
        self.is_enabled = True
        self.memory = MemoryBudget(1 << 20)
        self.throttle = Throttle(ClientQuotas(RateWindows()), self.broker.clock)
        self.fetches = ShareFetchHandler(
            self.partitions,
            self.broker.metadata,
            self.settings,
            ShareFetchServices(
                self.broker.timers, self.broker.clock, 55_000_000, self.memory, self.throttle
            ),
            lambda: self.is_enabled,
        )
        self.acknowledges = ShareAcknowledgeHandler(
            self.partitions, self.broker.metadata, self.settings, lambda: self.is_enabled
        )
        self.sliced = SlicedWork(self.broker.clock.monotonic_ms)

    @asynccontextmanager
    async def running(self, partitions: int = 1) -> AsyncIterator[None]:
        """Lead some partitions of t."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.broker.timers.run)
            nursery.start_soon(self.sliced.run)
            self.broker.publish(*topic(partitions))
            yield
            nursery.cancel_scope.cancel()

    def append(self, *counts: int) -> None:
        """Append batches of so many records to t-0."""
        for count in counts:
            self.broker.replicas.led.append_to_leader(TP, batch(*[b"x"] * count))
        run_waiting()

    @property
    def led(self) -> LedSharePartition:
        """t-0 as g sees it."""
        return self.partitions.find("g", NAMED)


class Member:
    """A member of group g, over a connection of its own."""

    def __init__(self, broker: ShareBroker, member_id: str = "m1") -> None:
        self.broker = broker
        self.member_id = member_id
        self.client = ClientInfo("127.0.0.1", 5, "PLAINTEXT")
        self.epoch = 0

    def context(self, version: int) -> RequestContext:
        return RequestContext(78, version, 1, "client", self.client)

    def _take_epoch(self, epoch: int | None) -> int:
        if epoch is not None:
            return epoch
        self.epoch += 1
        return self.epoch - 1

    def start_fetch(
        self,
        *acknowledged: tuple[int, int, Sequence[int]],
        epoch: int | None = None,
        partitions: Sequence[int] | None = None,
        forget: Sequence[int] = (),
        topic_id: bytes = TOPIC_ID,
        version: int = 2,
        max_wait_ms: int = 500,
        **fields: Any,
    ) -> Deferred[ShareFetchResponse]:
        """Send a fetch; the first one names t-0."""
        epoch = self._take_epoch(epoch)
        if partitions is None:
            partitions = [0] if epoch == 0 or acknowledged else []
        asked = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        request = ShareFetchRequest(
            group_id="g",
            member_id=self.member_id,
            share_session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            topics=[
                ShareFetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        ShareFetchPartition(
                            partition_index=index,
                            acknowledgement_batches=batches_of(acknowledged if not index else ()),
                        )
                        for index in partitions
                    ],
                )
            ]
            if partitions
            else [],
            forgotten_topics_data=[ShareForgottenTopic(topic_id=TOPIC_ID, partitions=list(forget))]
            if forget
            else [],
            **{**asked, **fields},
        )
        return self._start(self.broker.fetches.fetch(request, self.context(version)))

    async def send(self, request: Any, version: int) -> Any:
        """Send a request; its response."""
        is_fetch = isinstance(request, ShareFetchRequest)
        handler: Any = (
            self.broker.fetches.fetch if is_fetch else self.broker.acknowledges.acknowledge
        )
        return await self._start(handler(request, self.context(version))).wait()

    def _start(self, work: Any) -> Deferred[Any]:
        response = self.broker.sliced.start(self.client, work)
        run_waiting()
        return response

    async def fetch(
        self, *acknowledged: tuple[int, int, Sequence[int]], **how: Any
    ) -> ShareFetchResponse:
        return await self.start_fetch(*acknowledged, **how).wait()

    async def acquire(self, **how: Any) -> list[tuple[int, int, int]]:
        """Fetch, and return what was acquired of t-0."""
        return acquired(await self.fetch(**how))

    async def acknowledge(
        self,
        *acknowledged: tuple[int, int, Sequence[int]],
        epoch: int | None = None,
        version: int = 2,
        topic_id: bytes = TOPIC_ID,
        partition: int = 0,
        renews: bool = False,
    ) -> ShareAcknowledgeResponse:
        """Acknowledge records of t-0."""
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=self.member_id,
            share_session_epoch=self._take_epoch(epoch),
            is_renew_ack=renews,
            topics=[
                ShareAcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        ShareAcknowledgePartition(
                            partition_index=partition,
                            acknowledgement_batches=batches_of(acknowledged),
                        )
                    ],
                )
            ],
        )
        work = self.broker.acknowledges.acknowledge(request, self.context(version))
        response: ShareAcknowledgeResponse = await self._start(work).wait()
        return response

    def close(self) -> None:
        """The connection ends."""
        self.client.closed()
        run_waiting()


def batches_of(
    acknowledged: Sequence[tuple[int, int, Sequence[int]]],
) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in acknowledged
    ]


def parts(response: ShareFetchResponse) -> list[SharePartitionData]:
    """What is answered for partitions of one topic."""
    assert response.error_code is ErrorCode.NONE, response
    return [part for topic in response.responses for part in topic.partitions]


def acquired(response: ShareFetchResponse) -> list[tuple[int, int, int]]:
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for part in parts(response)
        for one in part.acquired_records
    ]


def offsets(part: SharePartitionData) -> list[int]:
    """The offsets of the records that were sent."""
    return [record.offset for record in records_of(records_view(part.records))]
