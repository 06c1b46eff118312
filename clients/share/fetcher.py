"""Fetches records for a share consumer, and sends its acknowledgements to brokers.

Owns the share sessions with brokers and their requests. Rules:
1. One task decides (`run`); answers come back through callbacks of the connection and wake it. A
   broker gets one request at a time: the epochs of a session follow each other.
2. Records are fetched when the program wants some (`is_wanted`) and none are there: the locks of
   records that wait here would run out. With share_acquire_mode "record_limit" one broker is asked
   at a time.
3. Acknowledgements go to the broker that delivered the records: with the next fetch, or by
   themselves if somebody waits for them (`flush`), if a lock is to be renewed, and at the latest
   after a tenth of a lock's time.
4. When a session's request is lost or refused, its acknowledgements have failed: the broker
   delivers the records again. Failures go to the call that waits, and to the callback.
5. Closing a session releases what was not acknowledged.

Called by: `share/consumer`. KIP-932, KIP-1206, KIP-1222; protocol guide, "ShareFetch".
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import trio

from kraftrio.base.background import run_aside
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.errors import (
    KafkaClientError,
    RecordDeserializationError,
    RetriableError,
    ShareSessionNotFoundError,
    TimedOutError,
    error_for,
    unreadable,
)
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.clients.node import BrokerNode
from kraftrio.clients.serialization import Deserializers
from kraftrio.clients.share.acknowledgements import (
    GAP,
    Acknowledgements,
    AcknowledgeType,
    TopicIdPartition,
    is_renewing,
)
from kraftrio.clients.share.config import ShareConsumerConfig
from kraftrio.clients.share.in_hand import InHand
from kraftrio.clients.share.records import Found, ShareBatch, read_acquired
from kraftrio.clients.share.results import AcknowledgementResults
from kraftrio.clients.share.session import CLOSING_EPOCH, ShareSession, acknowledge_topics
from kraftrio.net.connection import ConnectionLost, Reply
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_fetch import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)

logger = logging.getLogger(__name__)

_LONGEST_DELAY_S = 3.0  # of an acknowledgement that is not waited for

# The partition has another leader, which newer metadata will name.
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class _BrokerState:
    """The session with one broker, and the state of its requests.

    Attributes:
        served: the serial number of the last request: the broker that waited longest comes first.
    """

    __slots__ = ("is_busy", "is_fetching", "node_id", "retry_at", "served", "session")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session = ShareSession()
        self.is_busy = False
        self.is_fetching = False
        self.retry_at = 0.0
        self.served = 0


class ShareFetcher:
    """See the module.

    Args:
        on_records: called when there may be records to take.
        fail: called with errors that the program's next call is to raise.

    Attributes:
        lock_timeout_ms: how long records are locked for this member; None before the first.
        is_wanted: the program has asked for records, and has got none since.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ShareConsumerConfig,
        member_id: str,
        in_hand: InHand,
        results: AcknowledgementResults,
        deserializers: Deserializers,
        on_records: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self.lock_timeout_ms: int | None = None
        self.is_wanted = False
        self._cluster = cluster
        self._config = config
        self._member_id = member_id
        self._in_hand = in_hand
        self._results = results
        self._deserializers = deserializers
        self._on_records = on_records
        self._fail = fail
        self._assigned: frozenset[TopicIdPartition] = frozenset()
        self._brokers: dict[int, _BrokerState] = {}
        self._wake = trio.Event()
        self._idle = trio.Event()  # replaced; set when a request has ended
        self._pending_since: float | None = None
        self._is_flushing = False
        self._served = 0
        cluster.on_change(self.wake)

    # -- what is wanted -------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Fetch records of these partitions, and of no others."""
        self._assigned = frozenset(partitions)
        self.wake()

    def wake(self) -> None:
        """Have `run` check again what is to be sent."""
        self._wake.set()

    async def run(self) -> None:
        """Work as long as the consumer is open."""
        while True:
            self._wake = trio.Event()
            until = self._send_all()
            with trio.move_on_at(until):
                await self._wake.wait()

    async def flush(self, timeout_s: float) -> None:
        """Send all pending acknowledgements, and wait for the answers.

        Raises:
            TimedOutError: they did not come in time.
        """
        with trio.move_on_after(timeout_s) as scope:
            while self._in_hand.pending or self._results.in_flight:
                self.begin_flush()
                await self._idle.wait()
        if scope.cancelled_caught:
            raise TimedOutError(f"acknowledgements were not answered within {timeout_s:g} s")

    def begin_flush(self) -> None:
        """Send all pending acknowledgements."""
        self._is_flushing = True
        self.wake()

    # -- what is sent ---------------------------------------------------------------------------

    def _send_all(self) -> float:
        """Send what can be sent; return when to check again, unless something happens before."""
        now = trio.current_time()
        pending = self._in_hand.pending
        flush_at = self._flush_at(now)
        by_node = self._partitions_by_leader() if self._needs_records() else {}
        again_at = flush_at if pending else math.inf
        brokers = [self._broker(node_id) for node_id in {*by_node, *pending.node_ids}]
        for broker in sorted(brokers, key=lambda broker: broker.served):
            if broker.is_busy:
                continue
            if broker.retry_at > now:
                again_at = min(again_at, broker.retry_at)
                continue
            node = self._cluster.node(broker.node_id)
            if node is None or not node.is_ready:
                again_at = min(again_at, self._connect(broker, node, now))
                continue
            self._send_to(broker, node, by_node.get(broker.node_id, []), flush_at <= now)
        if not pending:
            self._is_flushing = False
        return again_at

    def _flush_at(self, now: float) -> float:
        """When pending acknowledgements have to be sent without a fetch."""
        if not self._in_hand.pending:
            self._pending_since = None
            return math.inf
        if self._pending_since is None:
            self._pending_since = now
        if self._is_flushing:
            return now
        lock_s = (self.lock_timeout_ms or 10_000) / 1000
        return self._pending_since + min(lock_s / 10, _LONGEST_DELAY_S)

    def _needs_records(self) -> bool:
        return self.is_wanted and self._in_hand.is_empty

    def _partitions_by_leader(self) -> dict[int, list[TopicIdPartition]]:
        by_node: dict[int, list[TopicIdPartition]] = {}
        for partition in self._assigned:
            leader = self._cluster.metadata.leader(*partition.topic_partition)
            if leader is None:
                self._cluster.request_refresh()
            else:
                by_node.setdefault(leader[0], []).append(partition)
        return by_node

    def _broker(self, node_id: int) -> _BrokerState:
        broker = self._brokers.get(node_id)
        if broker is None:
            broker = self._brokers[node_id] = _BrokerState(node_id)
        return broker

    def _connect(self, broker: _BrokerState, node: BrokerNode | None, now: float) -> float:
        """Connect to a broker: acknowledgements for the lost connection's records have failed.

        Returns:
            when to check again.
        """
        if broker.session.is_open:
            broker.session.reset()
        lost = self._in_hand.pending.take(broker.node_id)
        if lost:
            self._results.failed(lost, ShareSessionNotFoundError("the connection was lost"))
            self._wake_waiters()
        if node is None:
            self._cluster.request_refresh()
            return now + self._config.retry_backoff_ms / 1000
        node.start_connecting()
        return max(node.ready_at, now + self._config.retry_backoff_ms / 1000)

    def _send_to(
        self, broker: _BrokerState, node: BrokerNode, wanted: list[TopicIdPartition], is_due: bool
    ) -> None:
        pending = self._in_hand.pending
        if not broker.session.is_open and broker.node_id in pending.node_ids:
            lost = pending.take(broker.node_id)
            self._results.failed(lost, error_for(ErrorCode.SHARE_SESSION_NOT_FOUND))
            self._wake_waiters()
        may_fetch = bool(wanted) and self._may_fetch()
        if may_fetch and pending.fits_fetch(broker.node_id, wanted):
            self._fetch(broker, node, wanted)
        elif broker.node_id in pending.node_ids and (is_due or may_fetch):
            self._acknowledge(broker, node)

    def _may_fetch(self) -> bool:
        limited = self._config.share_acquire_mode == "record_limit"
        return not (limited and any(broker.is_fetching for broker in self._brokers.values()))

    def _fetch(
        self, broker: _BrokerState, node: BrokerNode, wanted: list[TopicIdPartition]
    ) -> None:
        config = self._config
        sent = self._in_hand.pending.take(broker.node_id)
        epoch = broker.session.epoch
        named = broker.session.fetch(wanted, sent)
        request = ShareFetchRequest(
            group_id=config.group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_records=config.max_poll_records,
            batch_size=config.max_poll_records,
            share_acquire_mode=config.acquire_mode,
            topics=named.topics,
            forgotten_topics_data=named.forgotten,
        )
        names = {(each.topic_id, each.topic_partition.partition): each for each in (*wanted, *sent)}
        broker.is_fetching = True
        timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000
        self._send(
            broker,
            node,
            request,
            sent,
            timeout_s,
            lambda response: self._fetched(broker, names, sent, response),
        )

    def _acknowledge(self, broker: _BrokerState, node: BrokerNode) -> None:
        sent = self._in_hand.pending.take(broker.node_id)
        request = self._acknowledgement(broker.session.epoch, sent)
        names = {(each.topic_id, each.topic_partition.partition): each for each in sent}
        self._send(
            broker,
            node,
            request,
            sent,
            self._config.request_timeout_ms / 1000,
            lambda response: self._acknowledged(names, sent, response),
        )

    def _acknowledgement(self, epoch: int, sent: Acknowledgements) -> ShareAcknowledgeRequest:
        return ShareAcknowledgeRequest(
            group_id=self._config.group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=is_renewing(sent),
            topics=acknowledge_topics(sent),
        )

    def _send(
        self,
        broker: _BrokerState,
        node: BrokerNode,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        sent: Acknowledgements,
        timeout_s: float,
        read: Callable[[Any], None],
    ) -> None:
        """Send a request of a session; `read` gets its answer, unless that is an error."""
        self._served += 1
        broker.served = self._served
        try:
            reply = node.send(request, timeout_s)
        except KafkaClientError as error:
            self._session_failed(broker, sent, error)
            return
        broker.is_busy = True
        self._results.sent(sent)
        reply.then(lambda reply: self._answered(broker, node, sent, read, reply))

    # -- answers -----------------------------------------------------------------------

    def _answered(
        self,
        broker: _BrokerState,
        node: BrokerNode,
        sent: Acknowledgements,
        read: Callable[[Any], None],
        reply: Reply,
    ) -> None:
        broker.is_busy = broker.is_fetching = False
        self._results.ended(sent)
        try:
            response: ShareFetchResponse | ShareAcknowledgeResponse = reply.value()
        except ConnectionLost as error:
            self._session_failed(broker, sent, node.client_error(error))
            return
        if response.error_code != ErrorCode.NONE:
            self._session_failed(
                broker, sent, error_for(response.error_code, response.error_message)
            )
            return
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        broker.session.answered()
        read(response)
        self._wake_waiters()

    def _session_failed(
        self, broker: _BrokerState, sent: Acknowledgements, error: KafkaClientError
    ) -> None:
        """A session's request failed: open another one, or report what repeating cannot help."""
        broker.is_fetching = False
        broker.session.reset()
        broker.retry_at = trio.current_time() + self._config.retry_backoff_ms / 1000
        if isinstance(error, RetriableError):
            self._cluster.request_refresh()
            logger.debug("the share session with broker %s is lost: %s", broker.node_id, error)
        else:
            self._fail(error)
        if sent:
            self._results.failed(sent, error)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Wake the task that waits for answers."""
        self._idle.set()
        self._idle = trio.Event()
        self.wake()

    def _acknowledged(
        self,
        names: Mapping[tuple[bytes, int], TopicIdPartition],
        sent: Acknowledgements,
        response: ShareAcknowledgeResponse,
    ) -> None:
        answered: dict[TopicIdPartition, KafkaClientError | None] = {}
        for topic in response.responses:
            for data in topic.partitions:
                partition = names.get((topic.topic_id, data.partition_index))
                if partition is not None and data.error_code:
                    answered[partition] = error_for(data.error_code, data.error_message)
                    self._note_leader(partition, data, response)
        self._results.answered(sent, answered)

    def _fetched(
        self,
        broker: _BrokerState,
        names: Mapping[tuple[bytes, int], TopicIdPartition],
        sent: Acknowledgements,
        response: ShareFetchResponse,
    ) -> None:
        answered: dict[TopicIdPartition, KafkaClientError | None] = {}
        has_failed = has_records = False
        for topic in response.responses:
            for data in topic.partitions:
                partition = names.get((topic.topic_id, data.partition_index))
                if partition is None:
                    continue
                code = data.acknowledge_error_code
                if code:
                    answered[partition] = error_for(code, data.acknowledge_error_message)
                if data.error_code:
                    has_failed = True
                    self._refused(partition, data, response)
                elif data.acquired_records:
                    has_records = True
                    self._take(broker, partition, data)
        if has_failed and not has_records:
            broker.retry_at = trio.current_time() + self._config.retry_backoff_ms / 1000
        self._results.answered(sent, answered)
        if has_records:
            self._on_records()

    def _take(
        self, broker: _BrokerState, partition: TopicIdPartition, data: SharePartitionData
    ) -> None:
        """Take in the records of a partition that a broker has acquired for this member."""
        buffer = records_view(data.records)
        acquired = read_acquired(buffer, data.acquired_records, check_crcs=self._config.check_crcs)
        locked_until_s = trio.current_time() + (self.lock_timeout_ms or 30_000) / 1000
        in_hand = self._in_hand
        in_hand.acknowledge_undelivered(broker.node_id, partition, acquired.gaps, GAP)
        in_hand.acknowledge_undelivered(
            broker.node_id, partition, acquired.rejected, AcknowledgeType.REJECT
        )
        if acquired.failure is not None:
            topic, index = partition.topic_partition
            self._fail(
                unreadable(
                    acquired.failure,
                    f"records of {topic}-{index} cannot be read, and are rejected:"
                    f" {acquired.failure}",
                )
            )
        found = self._read(broker, partition, acquired.found)
        in_hand.add(
            ShareBatch(partition, broker.node_id, found, locked_until_s, in_hand.acknowledge)
        )

    def _read(
        self, broker: _BrokerState, partition: TopicIdPartition, found: list[Found]
    ) -> list[Found]:
        """Return the records whose keys and values can be read; the others are released."""
        if not self._deserializers:
            return found
        read = []
        released = []
        for each in found:
            row = each.row
            try:
                key, value = self._deserializers.read(
                    partition.topic_partition, row.offset, row.key, row.value, row.headers
                )
            except RecordDeserializationError as error:
                released.append(row.offset)
                self._fail(error)
            else:
                read.append(each._replace(row=row._replace(key=key, value=value)))
        self._in_hand.acknowledge_undelivered(
            broker.node_id, partition, released, AcknowledgeType.RELEASE
        )
        return read

    def _refused(
        self, partition: TopicIdPartition, data: SharePartitionData, response: ShareFetchResponse
    ) -> None:
        code = data.error_code
        error = error_for(code, data.error_message)
        if code in _MOVED:
            self._note_leader(partition, data, response)
        elif not error.retriable:
            topic, index = partition.topic_partition
            self._fail(type(error)(f"{topic}-{index}: {error}", code=error.code))

    def _note_leader(self, partition: TopicIdPartition, data: Any, response: Any) -> None:
        """Use the new leader that an error names, or have metadata fetched."""
        endpoints = [
            BrokerAddress(each.node_id, each.host, each.port, each.rack)
            for each in response.node_endpoints
        ]
        leader = data.current_leader
        is_news = self._cluster.leader_hint(
            *partition.topic_partition,
            leader.leader_id,
            leader.leader_epoch,
            endpoints,
            topic_id=partition.topic_id,
        )
        if not is_news:
            self._cluster.request_refresh()

    # -- the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send what is pending, and close the sessions, which releases the rest.

        Errors go to the callback.
        """
        self._assigned = frozenset()
        async with trio.open_nursery() as nursery:
            for broker in list(self._brokers.values()):
                nursery.start_soon(run_aside, self._close_session, broker)

    async def _close_session(self, broker: _BrokerState) -> None:
        while broker.is_busy:
            await self._idle.wait()
        sent = self._in_hand.pending.take(broker.node_id)
        node = self._cluster.node(broker.node_id)
        if not broker.session.is_open or node is None or not node.is_connected:
            if sent:
                self._results.failed(sent, error_for(ErrorCode.SHARE_SESSION_NOT_FOUND))
            return
        names = {(each.topic_id, each.topic_partition.partition): each for each in sent}
        request = self._acknowledgement(CLOSING_EPOCH, sent)
        broker.session.reset()
        try:
            response = await node.request(request, self._config.request_timeout_ms / 1000)
            if response.error_code != ErrorCode.NONE:
                raise error_for(response.error_code, response.error_message)
        except KafkaClientError as error:
            logger.info("closing the share session with broker %s: %s", broker.node_id, error)
            if sent:
                self._results.failed(sent, error)
            return
        self._acknowledged(names, sent, response)
