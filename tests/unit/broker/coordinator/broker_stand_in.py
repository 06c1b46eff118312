"""What the coordinator's runtime needs of a broker, in memory: a log per partition, time, metadata.

The log is real bytes: batches as they were appended, stamped with offsets. `committed` says how far
each partition is committed; with `auto_commit` every append is committed at once, as on a single
replica.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import GeneratorType
from typing import Any

import trio
import trio.testing
from immutables import Map

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.groups.consumer_groups import ConsumerGroupHandlers
from kraftrio.broker.api.groups.find_coordinator import GROUP_KEY, FindCoordinatorHandler
from kraftrio.broker.api.groups.groups import GroupHandlers
from kraftrio.broker.api.groups.streams_groups import StreamsGroupHandlers
from kraftrio.broker.api.groups.transactional_offsets import TransactionalOffsetHandlers
from kraftrio.broker.coordinator.group_coordinator import group_coordinator
from kraftrio.broker.coordinator.share_initializer import ShareStateInitializer
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import UnflushedError, VerificationResult
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.slices.sliced_work import do_at_once
from kraftrio.broker.share_state import SharePartitionKey
from kraftrio.kraft_meta.metadata.image import (
    BrokerImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import CreatableTopic
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.records.batch import assign_offsets, parse_header
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.unit.broker.coordinator.groups.group_context import START_WALL_MS, Properties, Settings


@dataclass
class FakeLog:
    topic_partition: TopicPartition
    batches: list[bytes] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    waiters: list[tuple[int, Callable[[ErrorCode], None]]] = field(default_factory=list)


@dataclass(frozen=True)
class Appended:
    base_offset: int
    last_offset: int


@dataclass(frozen=True)
class ReadResult:
    records: bytes


class FakeReplicas:
    """Partition logs of one broker."""

    def __init__(self, timers: ManualTimers) -> None:
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.auto_commit = True
        self.append_error: ErrorCode | None = None
        self.flush_fails = False
        self.confirms: ErrorCode | None = ErrorCode.NONE  # that it leads; None: not yet
        self.unconfirmed: list[Callable[[ErrorCode], None]] = []
        self.guards: list[VerificationGuard | None] = []  # of each append
        self._timers = timers

    def lead(self, partition: int, topic: str = CONSUMER_OFFSETS) -> FakeLog:
        topic_partition = TopicPartition(topic, partition)
        return self.logs.setdefault(topic_partition, FakeLog(topic_partition))

    def log(self, topic_partition: TopicPartition) -> FakeLog:
        if topic_partition not in self.logs:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.logs[topic_partition]

    def is_empty(self, topic_partition: TopicPartition) -> bool:
        log = self.log(topic_partition)
        return log.log_start_offset == log.log_end_offset

    def append_to_leader(
        self,
        topic_partition: TopicPartition,
        records: memoryview | bytearray,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        assert origin is AppendOrigin.COORDINATOR
        self.guards.append(guard)
        if self.append_error is not None:
            raise KafkaError(self.append_error)
        log = self.log(topic_partition)
        header = parse_header(records)
        base_offset = log.log_end_offset
        assign_offsets(records, header, base_offset, 0)
        log.batches.append(bytes(records))
        log.log_end_offset += header.record_count
        if self.auto_commit:
            self.commit(topic_partition)
        if self.flush_fails:
            raise UnflushedError(base_offset, "the disk is full")
        return Appended(base_offset, log.log_end_offset - 1)

    def commit(
        self,
        topic_partition: TopicPartition,
        offset: int | None = None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        """Advance the high watermark, by default to the end; `error`: what waiters get."""
        log = self.logs[topic_partition]
        log.high_watermark = log.log_end_offset if offset is None else offset
        self._answer(log, lambda end: end <= log.high_watermark, error)

    def lose(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        """Stop leading: nobody's wait succeeds."""
        self._answer(self.logs[topic_partition], lambda _: True, error)

    def _answer(self, log: FakeLog, ready: Callable[[int], bool], error: ErrorCode) -> None:
        ready_callbacks = [callback for end, callback in log.waiters if ready(end)]
        log.waiters = [(end, callback) for end, callback in log.waiters if not ready(end)]
        for callback in ready_callbacks:
            callback(error)

    def when_committed(
        self,
        topic_partition: TopicPartition,
        end_offset: int,
        deadline_ms: float | None,
        callback: Callable[[ErrorCode], None],
    ) -> None:
        log = self.log(topic_partition)
        if log.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
            return
        entry = (end_offset, callback)
        log.waiters.append(entry)
        if deadline_ms is not None:

            def time_out() -> None:
                if entry in log.waiters:
                    log.waiters.remove(entry)
                    callback(ErrorCode.REQUEST_TIMED_OUT)

            self._timers.schedule(deadline_ms - self._timers.now_ms, time_out)

    def when_confirmed(
        self,
        topic_partition: TopicPartition,
        timeout_ms: float,
        callback: Callable[[ErrorCode], None],
    ) -> None:
        if self.confirms is None:
            self.unconfirmed.append(callback)
        else:
            callback(self.confirms)

    def read_log(
        self, topic_partition: TopicPartition, start_offset: int, max_bytes: int
    ) -> ReadResult:
        log = self.log(topic_partition)
        found = bytearray()
        for batch in log.batches:
            header = parse_header(batch)
            if header.last_offset < start_offset or header.last_offset >= log.high_watermark:
                continue
            if found and len(found) + len(batch) > max_bytes:
                break
            found += batch
        return ReadResult(bytes(found))


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualTimers(Clock):
    """Both clocks, and timers that fire in `advance`."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._heap: list[tuple[float, int, ManualTimer]] = []
        self._count = itertools.count()

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._heap, (self.now_ms + delay_ms, next(self._count), timer))
        return timer

    def advance(self, delay_ms: float) -> None:
        end_ms = self.now_ms + delay_ms
        while self._heap and self._heap[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._heap)
            self.now_ms = max(self.now_ms, due_ms)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self.now_ms = end_ms

    def wall_ms(self) -> int:
        return START_WALL_MS + int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms


class ClusterMetadata(MetadataCache):
    """The metadata of a cluster, to which topics and listeners of its brokers are added by hand."""

    __slots__ = ()

    def add_topic(
        self, name: str, topic_id: bytes, partition_count: int = 1, leader: int = 1
    ) -> None:
        partition = PartitionImage((1,), (1,), leader, 0, 0)
        partitions = Map(dict.fromkeys(range(partition_count), partition))
        topic = TopicImage(name, topic_id, partitions)
        self.image = replace(
            self.image,
            topics_by_name=self.image.topics_by_name.set(name, topic),
            topics_by_id=self.image.topics_by_id.set(topic_id, topic),
        )

    def remove_topic(self, name: str) -> None:
        topic = self.image.topics_by_name[name]
        self.image = replace(
            self.image,
            topics_by_name=self.image.topics_by_name.delete(name),
            topics_by_id=self.image.topics_by_id.delete(topic.topic_id),
        )

    def set_feature(self, name: str, level: int) -> None:
        self.image = replace(self.image, features=self.image.features.set(name, level))

    def add_broker(self, broker_id: int, *endpoints: Endpoint) -> None:
        broker = BrokerImage(broker_id, 1, b"i" * 16, endpoints, None, False, False)
        self.image = replace(self.image, brokers=self.image.brokers.set(broker_id, broker))


class FakeVerifier:
    """Verifies transactions: with `result`, at once or, while that is None, when it is told.

    Attributes:
        asked: what it was asked, each with what it answers with.
    """

    def __init__(self) -> None:
        self.result: VerificationResult | None = VerificationResult(ErrorCode.NONE)
        self.asked: list[tuple[dict[str, Any], Deferred[VerificationResult]]] = []

    def verify(
        self,
        topic_partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        adds_partition: bool,
        knows_abortable: bool,
    ) -> Deferred[VerificationResult]:
        asked = {
            "topic_partition": topic_partition,
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "adds_partition": adds_partition,
            "knows_abortable": knows_abortable,
        }
        answer: Deferred[VerificationResult] = Deferred()
        if self.result is not None:
            answer.complete(self.result)
        self.asked.append((asked, answer))
        return answer


class NoShareCoordinators:
    """Share coordinators, none of which is available."""

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Deferred[ErrorCode]:
        return Deferred.completed(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class FakeInternalTopics:
    """Remembers which topics it was asked to make, and says of some why they were not."""

    def __init__(self) -> None:
        self.asked: list[CreatableTopic] = []
        self.failures: dict[str, str] = {}

    def create(self, topics: Sequence[CreatableTopic], retry_ms: int) -> dict[str, str]:
        self.asked += topics
        return self.failures


class BrokerStandIn:
    """A coordinator and its handlers over the stand-ins; leads every partition by default."""

    def __init__(self, *, partition_count: int = 4, lead: bool = True) -> None:
        self.properties = Properties(offsets_topic_num_partitions=partition_count)
        self.timers = ManualTimers()
        self.replicas = FakeReplicas(self.timers)
        self.metadata = ClusterMetadata()
        self.verifier = FakeVerifier()
        self.created_topics: list[str] = []
        self.share_states = self.share_coordinators()
        self.settings = Settings()
        self.internal_topics = FakeInternalTopics()
        self._uuids = itertools.count(1)
        self.start()
        if lead:
            self.metadata.add_topic(CONSUMER_OFFSETS, b"_" * 16, partition_count)
            for partition in range(partition_count):
                self.replicas.lead(partition)
                self.coordinator.elect(partition, 0)

    def share_coordinators(self) -> Any:
        """The way to the share coordinators of the cluster."""
        return NoShareCoordinators()

    def start(self) -> None:
        """Make the coordinator and its handlers (again: as after a restart)."""
        self.coordinator = group_coordinator(
            self.properties,
            self.settings,
            lambda: f"uuid{next(self._uuids)}",
            lambda: f"id{next(self._uuids)}",
            ShareStateInitializer(self.share_states),
            replicas=self.replicas,
            timers=self.timers,
            clock=self.timers,
            metadata=self.metadata,
        )
        self.handlers = {
            **FindCoordinatorHandler(
                {GROUP_KEY: self.coordinator}, self.metadata, self.created_topics.append
            ).table(),
            **GroupHandlers(
                self.coordinator, self.metadata, self.properties, self.share_states
            ).table(),
            **TransactionalOffsetHandlers(self.coordinator, self.metadata, self.verifier).table(),
            **ConsumerGroupHandlers(self.coordinator, self.metadata, self.properties).table(),
            **StreamsGroupHandlers(
                self.coordinator, self.metadata, self.properties, self.internal_topics
            ).table(),
        }

    def call(
        self,
        request: object,
        api_version: int,
        *,
        client_id: str | None = "client",
        listener_name: str = "PLAINTEXT",
        authorizer: Authorizer = ALLOW_ALL,
    ) -> object:
        """Give a request to its handler; returns the response or a Deferred of it."""
        response = self.start_call(
            request,
            api_version,
            client_id=client_id,
            listener_name=listener_name,
            authorizer=authorizer,
        )
        if isinstance(response, GeneratorType):
            return do_at_once(response).value
        return response

    def start_call(
        self,
        request: object,
        api_version: int,
        *,
        client_id: str | None = "client",
        listener_name: str = "PLAINTEXT",
        authorizer: Authorizer = ALLOW_ALL,
    ) -> object:
        """Like `call`, but what is done in slices is left to the caller."""
        name = type(request).__name__.removesuffix("Request")
        key = next(k for k in self.handlers if k.name.replace("_", "") == name.upper())
        client = ClientInfo("127.0.0.1", 5555, listener_name)
        context = RequestContext(int(ApiKey(key)), api_version, 1, client_id, client, authorizer)
        return self.handlers[key](request, context)

    async def load(self) -> None:
        """Load the partitions that were elected."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.coordinator.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


def ask(broker: BrokerStandIn, request: Any, version: int, **kwargs: Any) -> Any:
    """Send a request over the wire's bytes and read the response's, in that version."""
    name = type(request).__name__.removesuffix("Request")
    api = next(a for a in APIS.values() if a.request is type(request))
    assert api.min_version <= version <= api.max_version, name
    received, _ = decode(type(request), version, encode(request, version))
    response: Any = broker.call(received, version, **kwargs)
    if isinstance(response, Deferred):
        broker.timers.advance(0)
        response = response.value
    return decode(type(response), version, encode(response, version))[0]
