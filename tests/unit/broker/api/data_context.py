"""The data handlers of one broker for tests, and short words for requests to them."""

from __future__ import annotations

import random
from typing import Any, cast

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.api.fetch.fetch import FetchHandlers
from kraftrio.broker.api.fetch.reads import FetchSettings
from kraftrio.broker.api.fetch.session import FetchSessions
from kraftrio.broker.api.offsets import OffsetHandlers
from kraftrio.broker.api.produce.produce import ProduceHandlers
from kraftrio.broker.security.quotas.client_quotas import ClientQuotas
from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.broker.server.usage.throttling import Throttle
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionData,
    PartitionProduceData,
    ProduceRequest,
    ReplicaState,
    TopicProduceData,
)
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch, records_of
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.replica.replica_context import TOPIC_ID, Broker

SIZE = len(batch(b"x"))


class Handlers:
    """The data handlers of broker 1."""

    def __init__(self, broker: Broker, *, selects_by_rack: bool = False) -> None:
        self.broker = broker
        self.quota = Quota()
        self.answers_memory = MemoryBudget(1 << 20)
        self.throttle = Throttle(ClientQuotas(RateWindows()), broker.clock)
        self.sessions = FetchSessions(10, random.Random(1))
        self.fetches = FetchHandlers(
            broker.replicas,
            broker.metadata,
            self.sessions,
            broker.timers,
            broker.clock,
            FetchSettings(
                55_000_000,
                self.quota,
                self.answers_memory,
                selects_by_rack=selects_by_rack,
                throttle=self.throttle,
            ),
        )
        self.offsets = OffsetHandlers(broker.replicas)
        self.produces = ProduceHandlers(
            broker.replicas,
            broker.metadata,
            broker.clock,
        )

    def fetch(
        self,
        offset: int,
        replica_id: int = -1,
        *,
        broker_epoch: int | None = None,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = 0,
        max_wait_ms: int = 500,
        session: tuple[int, int] = (0, -1),
        topic_ids: tuple[bytes, ...] = (TOPIC_ID,),
        isolation_level: int = 0,
        min_bytes: int = 1,
        asked: RequestContext | None = None,
    ) -> FetchResponse | Deferred[FetchResponse]:
        """Fetch partition 0 of topics, as a consumer or as a follower."""
        epoch = 10 * replica_id if broker_epoch is None else broker_epoch
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=replica_id, replica_epoch=epoch if replica_id >= 0 else -1
            ),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=last_fetched_epoch,
                            log_start_offset=log_start_offset,
                            partition_max_bytes=1_000_000,
                        )
                    ],
                )
                for topic_id in topic_ids
            ],
        )
        response: Any = self.fetches.fetch(request, asked or context(17))
        run_waiting()
        return cast("FetchResponse | Deferred[FetchResponse]", response)

    def produce(
        self, *topics: str, acks: int = -1, timeout_ms: int = 1000
    ) -> Deferred[list[tuple[ErrorCode, int]]]:
        """Produce one record to partition 0 of each topic; the errors and offsets."""
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name,
                    partition_data=[PartitionProduceData(index=0, records=memoryview(batch(b"x")))],
                )
                for name in topics
            ],
        )
        answers: Deferred[list[tuple[ErrorCode, int]]] = Deferred()
        response: Any = self.produces.produce(request, context(12))
        assert response is not None
        if not isinstance(response, Deferred):
            response = Deferred.completed(response)
        response.then(
            lambda value: answers.complete(
                [
                    (part.error_code, part.base_offset)
                    for topic in value.responses
                    for part in topic.partition_responses
                ]
            )
        )
        run_waiting()
        return answers

    def list_offsets(
        self,
        timestamp: int,
        *,
        version: int = 9,
        leader_epoch: int = -1,
        replica_id: int = -1,
        isolation_level: int = 0,
    ) -> ListOffsetsPartitionResponse:
        """Look for an offset of t-0."""
        request = ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=0,
                            current_leader_epoch=leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        return finish(self.offsets.list_offsets(request, context(version))).topics[0].partitions[0]


class Quota:
    """A throttle of every partition, used up or not."""

    def __init__(self) -> None:
        self.throttles = False
        self.used_up = False
        self.recorded = 0

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return self.throttles

    def exceeded(self) -> bool:
        return self.used_up

    def record(self, size_bytes: int) -> None:
        self.recorded += size_bytes


def part(response: FetchResponse | Deferred[FetchResponse], index: int = 0) -> PartitionData:
    """The answer about one topic's partition; it must be there."""
    if isinstance(response, Deferred):
        run_waiting()
        assert response.done, "still parked"
        response = response.value
    assert response.error_code == ErrorCode.NONE
    return response.responses[index].partitions[0]


def part_response(response: FetchResponse | Deferred[FetchResponse]) -> FetchResponse:
    """An answer that must be there."""
    if isinstance(response, Deferred):
        run_waiting()
        assert response.done, "still parked"
        return response.value
    return response


class Follower:
    """Broker 2 with a session over t-0, fetching again and again from where it is."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.offset = 0
        first = handlers.fetch(0, 2, session=(0, 0), max_wait_ms=0)
        assert isinstance(first, FetchResponse)
        self.session_id, self.epoch = first.session_id, 0
        self.take(first)

    def take(self, response: FetchResponse) -> int:
        """Count what an answer brings; return how many partitions are in it."""
        for topic in response.responses:
            self.offset += len(records_of(records_view(topic.partitions[0].records)))
        return len(response.responses)

    def fetch(self, *, named: bool, **how: int) -> FetchResponse | Deferred[FetchResponse]:
        self.epoch += 1
        return self.handlers.fetch(
            self.offset,
            2,
            session=(self.session_id, self.epoch),
            topic_ids=(TOPIC_ID,) if named else (),
            **how,  # type: ignore[arg-type]
        )

    async def idle(self, seconds: int) -> None:
        """Fetch with nothing to name, two times a second."""
        for _ in range(2 * seconds):
            response = self.fetch(named=False)
            assert isinstance(response, Deferred)
            self.take(await response.wait())
