"""Fetches records ahead of the application: one request per broker at a time, many partitions each.

Owns the Fetch requests of a consumer and their answers. Rules:
1. One task decides (`run`); answers come back through callbacks of the connection and wake it, as
   does everything else that may change what to fetch (`wake`).
2. A broker is asked for all partitions that it leads and that are wanted, once each of them has
   room (`AssignedPartition.has_room`); up to fetch_max_bytes, less what of its answers is still in
   memory.
3. Answers to questions that are out of date, because the position was changed meanwhile, are
   dropped.
4. Errors that a new leader explains make metadata be refreshed, and the partition wait
   retry_backoff_ms; others wait in the partition's queue for the application.
5. With client_rack the broker may name a replica to read from instead of the leader (KIP-392).

Called by: `consumer`. Protocol guide, "Fetch"; KIP-74, KIP-227 (no session is made), KIP-320.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from kraftrio.clients.cluster import Cluster
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.partition import AssignedPartition, BufferedAnswer, Chunk
from kraftrio.clients.consumer.records import split_records
from kraftrio.clients.errors import KafkaClientError, error_for
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.clients.node import BrokerNode
from kraftrio.net.connection import ConnectionLost, Reply
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kraftrio.wire.primitives import ZERO_UUID, TopicPartition

_NAMES_ONLY_VERSION = 12  # the last version that names topics by their names

# A new leader, or newer metadata, will explain these.
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
_REPEATED = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})


class _Asked(NamedTuple):
    """One partition in a request."""

    state: AssignedPartition
    topic_id: bytes
    version: int
    fetch_offset: int


class Fetcher:
    """Keeps `state` filled; `on_records` is called when there may be something to take."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        state: AssignedPartitions,
        on_records: Callable[[], None],
    ) -> None:
        self._on_records = on_records
        self._cluster = cluster
        self._config = config
        self._state = state
        self._wake = trio.Event()
        self._in_flight: set[int] = set()  # ids of the nodes that are being asked
        self._endpoints: dict[int, BrokerAddress] = {}  # named beside errors
        self._served = 0
        cluster.on_change(self.wake)

    def wake(self) -> None:
        """Look again at what to fetch."""
        self._wake.set()

    async def run(self) -> None:
        """Fetch as long as the consumer is open."""
        while True:
            self._wake = trio.Event()
            retry_at = self._fetch_all()
            with trio.move_on_at(math.inf if retry_at is None else retry_at):
                await self._wake.wait()

    # -- requests -------------------------------------------------------------------------------

    def _fetch_all(self) -> float | None:
        """Send what can be sent; return when to look again, if that is not when something happens.

        A node that is connected late, an answer and a taken batch wake the task by themselves.
        """
        now = trio.current_time()
        retry_at = self._state.next_retry_at(now)
        by_node: dict[int, list[AssignedPartition]] = {}
        lacks_leader = False
        for state in self._state:
            leader = self._cluster.metadata.leader(*state.topic_partition)
            if leader is None:
                lacks_leader = True
                continue
            self._state.note_metadata(state, self._cluster.metadata)
            if state.wants_fetch and state.retry_at <= now:
                is_advised = state.preferred_node >= 0 and state.preferred_until > now
                node_id = state.preferred_node if is_advised else leader[0]
                by_node.setdefault(node_id, []).append(state)
        if lacks_leader:
            self._cluster.request_refresh()
            again_at = now + self._config.retry_backoff_ms / 1000
            retry_at = again_at if retry_at is None else min(retry_at, again_at)
        for node_id, states in by_node.items():
            states.sort(key=_last_served)  # brokers fill answers in the order of the question
            ready_at = self._fetch_from(node_id, states)
            if ready_at is not None and ready_at > now:
                retry_at = ready_at if retry_at is None else min(retry_at, ready_at)
        return retry_at

    def _fetch_from(self, node_id: int, states: list[AssignedPartition]) -> float | None:
        """Ask one broker, if it can be asked; return when it can, if it says so."""
        if node_id in self._in_flight or not all(state.has_room for state in states):
            return None
        max_bytes = self._config.fetch_max_bytes - self._state.buffer.buffered_bytes(node_id)
        if max_bytes <= 0:
            return None
        node = self._cluster.node(node_id)
        if node is None:
            self._cluster.request_refresh()
            return None
        if not node.is_ready:
            node.start_connecting()
            return node.ready_at
        self._send(node, states, max_bytes)
        return None

    def _send(self, node: BrokerNode, states: list[AssignedPartition], max_bytes: int) -> None:
        config = self._config
        topics: dict[str, FetchTopic] = {}
        asked: dict[TopicPartition, _Asked] = {}
        known = self._cluster.metadata.topics
        max_version: int | None = None
        for state in states:
            topic, partition = state.topic_partition
            described = topics.get(topic)
            if described is None:
                topic_id = known[topic].topic_id
                if topic_id == ZERO_UUID:
                    max_version = _NAMES_ONLY_VERSION
                described = topics[topic] = FetchTopic(topic=topic, topic_id=topic_id)
            described.partitions.append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=state.current_leader_epoch,
                    fetch_offset=state.fetch_offset,
                    partition_max_bytes=config.max_partition_fetch_bytes,
                )
            )
            asked[state.topic_partition] = _Asked(
                state, described.topic_id, state.version, state.fetch_offset
            )
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(config.is_read_committed),
            topics=list(topics.values()),
            rack_id=config.client_rack,
        )
        names = {topic.topic_id: topic.topic for topic in topics.values()}
        timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000
        try:
            reply = node.send(request, timeout_s, max_version=max_version)
        except KafkaClientError as error:
            self._give_up_asking(asked, error)
            return
        self._in_flight.add(node.node_id)
        reply.then(lambda reply: self._answered(node, asked, names, reply))

    def _give_up_asking(self, asked: dict[TopicPartition, _Asked], error: KafkaClientError) -> None:
        """A node that is gone comes back; one that cannot be talked to does not."""
        if error.may_pass:
            self._cluster.request_refresh()
            self._back_off(asked.values())
            return
        for each in asked.values():
            self._add_failure(each, error)

    def _back_off(self, asked: Iterable[_Asked]) -> None:
        retry_at = trio.current_time() + self._config.retry_backoff_ms / 1000
        for each in asked:
            if each.state.version == each.version:
                each.state.retry_at = retry_at

    # -- answers --------------------------------------------------------------------------------

    def _answered(
        self,
        node: BrokerNode,
        asked: dict[TopicPartition, _Asked],
        names: dict[bytes, str],
        reply: Reply,
    ) -> None:
        self._in_flight.discard(node.node_id)
        self._wake.set()
        try:
            response: FetchResponse = reply.value()
        except ConnectionLost as error:
            self._give_up_asking(asked, node.client_error(error))
            return
        if response.error_code != ErrorCode.NONE:
            self._give_up_asking(asked, error_for(response.error_code))
            return
        for endpoint in response.node_endpoints:
            self._endpoints[endpoint.node_id] = BrokerAddress(
                endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack
            )
        answer = BufferedAnswer(node.node_id, 0)
        reported: list[tuple[_Asked, PartitionData]] = []
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                each = asked.get(TopicPartition(name, data.partition_index))
                if each is None or not self._is_current(each):
                    continue
                reported.append((each, data))
                answer.size_bytes += len(records_view(data.records))
        for each, data in reported:
            self._take_partition(each, data, answer)
        self._on_records()

    def _is_current(self, asked: _Asked) -> bool:
        state = asked.state
        return (
            state.version == asked.version
            and state.fetch_offset == asked.fetch_offset
            and self._state.get(state.topic_partition) is state
        )

    def _take_partition(self, asked: _Asked, data: PartitionData, answer: BufferedAnswer) -> None:
        state = asked.state
        code = data.error_code
        if code != ErrorCode.NONE:
            self._refused(asked, data)
            return
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0:
            self._read_from_replica(state, data.preferred_read_replica)
        buffer = records_view(data.records)
        if not buffer:
            return
        try:
            batches, next_offset, leader_epoch = split_records(
                state.topic_partition,
                buffer,
                asked.fetch_offset,
                data.aborted_transactions,
                read_committed=self._state.read_committed,
                check_crcs=self._config.check_crcs,
            )
        except KafkaError as error:
            self._add_failure(asked, error)
            return
        self._served += 1
        state.served = self._served
        chunk = Chunk(asked.fetch_offset, next_offset, batches, answer, leader_epoch=leader_epoch)
        self._state.buffer.add(state, chunk)

    def _read_from_replica(self, state: AssignedPartition, node_id: int) -> None:
        """Follow the leader's advice until metadata would be refreshed anyway."""
        state.preferred_node = node_id
        state.preferred_until = trio.current_time() + self._config.metadata_max_age_ms / 1000

    def _refused(self, asked: _Asked, data: PartitionData) -> None:
        state, code = asked.state, data.error_code
        if state.preferred_node >= 0:
            # The replica may only be behind: the leader knows.
            state.preferred_node, state.preferred_until = -1, 0.0
            self._back_off([asked])
        elif code in _MOVED:
            leader = data.current_leader
            is_news = leader is not None and self._cluster.leader_hint(
                *state.topic_partition,
                leader.leader_id,
                leader.leader_epoch,
                list(self._endpoints.values()),
                topic_id=asked.topic_id,
            )
            if not is_news:
                self._cluster.request_refresh()
                self._back_off([asked])
        elif code in _REPEATED:
            self._back_off([asked])
        else:
            self._add_failure(asked, error_for(code))

    def _add_failure(self, asked: _Asked, error: KafkaError) -> None:
        if self._is_current(asked):
            offset = asked.fetch_offset
            self._state.buffer.add(asked.state, Chunk(offset, offset, failure=error))
            self._on_records()


def _last_served(state: AssignedPartition) -> int:
    return state.served
