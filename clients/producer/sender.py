"""Sends the batches that the producer's core gives it, and reports the answers to the core.

Owns the Produce requests in flight and the way to a producer id. Rules:
1. A broker has at most max_in_flight_requests_per_connection Produce requests unanswered.
2. Answers are processed synchronously when they arrive; a request without an answer fails each of
   its batches with NETWORK_EXCEPTION, and the core decides.
3. With acks=0 a batch counts as delivered once the socket has taken its request; if the connection
   is lost before, it is sent again like any other. Later losses go unnoticed.
4. `pump` is called synchronously by whatever has changed something: a full batch, an answer. The
   task is for what depends on time and for what must be awaited; it sleeps until a node or metadata
   changes, or until a time that the core has named.

Called by: `producer`. Protocol guide, "Produce"; KIP-360, KIP-467, KIP-516, KIP-951.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Final

import trio

from kraftrio.base.background import run_aside
from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.errors import KafkaClientError, RetriableError, error_for
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.clients.node import BrokerNode
from kraftrio.clients.producer.accumulator import Accumulator
from kraftrio.clients.producer.batch import Batch
from kraftrio.clients.producer.sequences import Sequences
from kraftrio.net.connection import ConnectionLost, Reply
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftrio.wire.primitives import ZERO_UUID

# What shows that metadata is old, besides a lost connection.
_STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_LAST_VERSION_WITH_NAMES: Final = 12
_LAST_VERSION_THAT_ADDS_NOTHING: Final = 11  # later ones add partitions to transactions (KIP-890)


class Sender:
    """See the module; the producer runs `run` in its nursery.

    Args:
        on_progress: called when memory may have become free or batches have ended.
    """

    def __init__(
        self,
        cluster: Cluster,
        core: Accumulator,
        config: ProducerConfig,
        nursery: trio.Nursery,
        on_progress: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._outcomes = core.outcomes
        self._config = config
        self._nursery = nursery
        self._on_progress = on_progress
        self._acks = config.required_acks
        self._in_flight: dict[int, int] = {}
        self._wake = trio.Event()
        self._sleeps_until = -inf
        self._asks_producer_id = False
        self._is_pumping = False
        self._is_awake = False  # the task is about to sleep until `_sleeps_until`
        self._blocked: dict[int, float] = {}  # brokers that take nothing, since when
        self._metadata = cluster.metadata
        cluster.on_change(self._on_cluster_change)

    # -- waking ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let the task look at everything again."""
        self._wake.set()

    def on_new_batch(self, now_ms: float) -> None:
        """A batch was opened: have the task wake up in time for it."""
        config = self._config
        due_ms = now_ms + (config.linger_ms or config.delivery_timeout_ms)
        if due_ms < self._sleeps_until:
            self._wake.set()

    def _on_cluster_change(self) -> None:
        metadata = self._cluster.metadata
        if metadata is not self._metadata:
            self._metadata = metadata
            self._core.update(metadata)
        self._wake.set()

    # -- the task -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._wake = trio.Event()
            self._sleeps_until = self._core.poll(trio.current_time() * 1000)
            self._on_progress()
            if self._core.wants_metadata:
                self._cluster.request_refresh()
            sequences = self._core.sequences
            if (
                sequences is not None
                and self._core.transactions is None
                and sequences.needs_producer_id
                and self._core.incomplete
                and not self._asks_producer_id
            ):
                self._asks_producer_id = True
                self._nursery.start_soon(run_aside, self._ask_producer_id, sequences)
            self._is_awake = True
            self.pump()
            self._is_awake = False
            with trio.move_on_at(self._sleeps_until / 1000):
                await self._wake.wait()

    def pump(self) -> bool:
        """Send as much as may be sent to each broker now; return whether something is left."""
        core = self._core
        if self._is_pumping:
            self._wake.set()  # a send has failed and called back: pump later, not from within
            return True
        nodes = core.schedule.nodes()
        sequences = core.sequences
        if sequences is not None:
            if not sequences.is_settled:
                sequences.settle()
            if sequences.needs_producer_id:
                if not self._asks_producer_id and core.incomplete:
                    self._wake.set()  # so that the task asks for one
                return True
        self._is_pumping = True
        try:
            has_more = False
            for node_id in nodes:
                has_more = self._send_to(node_id) or has_more
        finally:
            self._is_pumping = False
        if core.has_dropped:
            core.has_dropped = False
            self._wake.set()  # no answer will come, but memory is free and sequences have a gap
        self._wake_by(core.schedule.next_due_ms)
        return has_more

    def _wake_by(self, due_ms: float) -> None:
        """Have the task wake up at that time at the latest."""
        if due_ms < self._sleeps_until:
            self._sleeps_until = due_ms
            if not self._is_awake:
                self._wake.set()

    def _send_to(self, node_id: int) -> bool:
        max_in_flight = self._config.max_in_flight_requests_per_connection
        now_ms = trio.current_time() * 1000
        if self._in_flight.get(node_id, 0) >= max_in_flight:
            self._note_blocked(node_id, now_ms)
            return True  # an answer pumps again
        node = self._cluster.node(node_id)
        if node is None:
            self._cluster.request_refresh()
            return True
        if not node.is_connected:
            self._note_blocked(node_id, now_ms)
            node.start_connecting()
        while node.is_ready:
            if self._in_flight.get(node_id, 0) >= max_in_flight:
                return True
            batches = self._core.drain(node_id, now_ms)
            if not batches:
                if self._core.schedule.queues(node_id):
                    self._note_blocked(node_id, now_ms)
                return False
            if self._blocked:
                self._blocked.pop(node_id, None)
                self._core.sticky.slow_nodes.discard(node_id)
            self._send(node, batches)
        if not node.is_connecting:
            self._wake_by(node.ready_at * 1000)
        return True

    def _note_blocked(self, node_id: int, now_ms: float) -> None:
        """A broker cannot be sent what waits for it: let records without a key avoid it."""
        timeout_ms = self._config.partitioner_availability_timeout_ms
        if timeout_ms and self._config.partitioner_adaptive_partitioning_enable:
            since_ms = self._blocked.setdefault(node_id, now_ms)
            if now_ms - since_ms >= timeout_ms:
                self._core.sticky.slow_nodes.add(node_id)

    def _send(self, node: BrokerNode, batches: list[Batch]) -> None:
        """Send one request; a failure to do so is reported like a refusal."""
        request = self._request(batches)
        # The ids as sent: a topic may be re-created before the answer comes.
        topic_ids = {topic.name: topic.topic_id for topic in request.topic_data}
        max_version = _LAST_VERSION_WITH_NAMES if ZERO_UUID in topic_ids.values() else None
        transactions = self._core.transactions
        if transactions is not None and not transactions.has_epoch_of_its_own:
            max_version = _LAST_VERSION_THAT_ADDS_NOTHING
        self._in_flight[node.node_id] = self._in_flight.get(node.node_id, 0) + 1
        try:
            if self._acks == 0:
                node.send_oneway(
                    request,
                    partial(self._on_sent, node.node_id, batches),
                    max_version=max_version,
                )
            else:
                reply = node.send(
                    request,
                    self._config.request_timeout_ms / 1000,
                    max_version=max_version,
                    at_once=True,
                )
                reply.then(partial(self._on_reply, node, batches, topic_ids))
        except KafkaClientError as error:
            self._in_flight[node.node_id] -= 1
            self._fail(batches, error.code, str(error))

    def _request(self, batches: list[Batch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic = topics.get(batch.topic)
            if topic is None:
                topic = topics[batch.topic] = TopicProduceData(
                    name=batch.topic, topic_id=self._core.topics[batch.topic].topic_id
                )
            topic.partition_data.append(
                PartitionProduceData(index=batch.partition, records=memoryview(batch.data))
            )
        transactions = self._core.transactions
        return ProduceRequest(
            transactional_id=None if transactions is None else transactions.transactional_id,
            acks=self._acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    # -- answers --------------------------------------------------------------------------------

    def _on_sent(self, node_id: int, batches: list[Batch], error: RetriableError | None) -> None:
        """A request without an answer (acks=0) was sent, or the connection was lost before."""
        self._in_flight[node_id] -= 1
        if error is not None:
            self._fail(batches, error.code, str(error))
        else:
            for batch in batches:
                self._outcomes.on_delivered(batch, -1, -1)
        self._on_progress()
        self.pump()

    def _on_reply(
        self, node: BrokerNode, batches: list[Batch], topic_ids: dict[str, bytes], reply: Reply
    ) -> None:
        self._in_flight[node.node_id] -= 1
        try:
            response: ProduceResponse = reply.value()
        except ConnectionLost as lost:
            error = node.client_error(lost)
            self._fail(batches, error.code, str(error))
        else:
            node.throttle(response.throttle_time_ms)
            self._on_response(batches, topic_ids, response)
        self._on_progress()
        self.pump()

    def _fail(self, batches: Iterable[Batch], code: ErrorCode, message: str) -> None:
        now_ms = trio.current_time() * 1000
        for batch in batches:
            self._outcomes.on_error(batch, code, message, now_ms)
        self._wake.set()  # for the backoff
        if code in _STALE_METADATA:
            self._cluster.request_refresh()

    def _on_response(
        self, batches: list[Batch], topic_ids: dict[str, bytes], response: ProduceResponse
    ) -> None:
        reported = response.responses
        if len(batches) == len(reported) == len(reported[0].partition_responses) == 1:
            only = reported[0].partition_responses[0]
            if only.error_code == ErrorCode.NONE:
                # Almost every answer is like this: there is no need to match entries.
                self._outcomes.on_delivered(batches[0], only.base_offset, only.log_append_time_ms)
                return
        answers = {
            (topic.name or topic.topic_id, answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        endpoints = [
            BrokerAddress(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            for endpoint in response.node_endpoints
        ]
        for batch in batches:
            topic_id = topic_ids[batch.topic]
            answer = answers.get((batch.topic, batch.partition)) or answers.get(
                (topic_id, batch.partition)
            )
            if answer is None:
                self._fail(
                    [batch], ErrorCode.NETWORK_EXCEPTION, "the answer leaves the partition out"
                )
            elif answer.error_code == ErrorCode.NONE:
                self._outcomes.on_delivered(batch, answer.base_offset, answer.log_append_time_ms)
            else:
                self._on_refusal(batch, topic_id, answer, endpoints)

    def _on_refusal(
        self,
        batch: Batch,
        topic_id: bytes,
        answer: PartitionProduceResponse,
        endpoints: list[BrokerAddress],
    ) -> None:
        code = error_for(answer.error_code).code
        message = answer.error_message
        reasons = [
            f"record {item.batch_index}: {item.batch_index_error_message}"
            for item in answer.record_errors
            if item.batch_index_error_message
        ]
        if reasons:
            message = "; ".join([message or code.text, *reasons])
        leader = answer.current_leader
        reported = leader is not None and self._cluster.leader_hint(
            batch.topic,
            batch.partition,
            leader.leader_id,
            leader.leader_epoch,
            endpoints,
            topic_id=topic_id,
        )
        now_ms = trio.current_time() * 1000
        self._outcomes.on_error(
            batch, code, message, now_ms, log_start_offset=answer.log_start_offset
        )
        self._wake.set()  # for the backoff
        if code in _STALE_METADATA and not reported:
            self._cluster.request_refresh()

    # -- the producer id ------------------------------------------------------------------------

    async def _ask_producer_id(self, sequences: Sequences) -> None:
        """Get an id, however long it takes; an error that is not retriable fails all batches."""
        config = self._config
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFF_FFFF)
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        for failures in itertools.count():
            try:
                response: InitProducerIdResponse = await self._cluster.request_any(request)
                if response.error_code != ErrorCode.NONE:
                    raise error_for(response.error_code)
            except RetriableError:
                await trio.sleep(backoff.after(failures) / 1000)
            except KafkaClientError as error:
                self._outcomes.abort(error)
                break
            else:
                sequences.set_producer_id(response.producer_id, response.producer_epoch)
                break
        self._asks_producer_id = False
        self._on_progress()
        self._wake.set()
