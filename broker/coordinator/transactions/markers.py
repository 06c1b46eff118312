"""The markers of decided transactions that are still to be written: which, and to which broker.

Owns: `PendingMarkers`, a core without input or output. Rules
1. A marker belongs on each partition of its transaction. It goes to the leader of the partition in
   the newest image, as it is when the request is made; all that go to one broker share a request.
2. A marker is written once its partition's leader says so. Until then it is sent again: after a
   back-off where it failed, at once where another broker leads the partition by now, even if the
   broker that was asked has not answered. Writing the same marker again changes nothing.
3. A partition that does not exist any more, or belongs to another topic of the same name since the
   transaction ended, has no marker to wait for.
4. A partition that refuses the epoch of the producer or of this coordinator has got its marker from
   a later coordinator: the transaction is dropped here, as in Kafka, since that one finishes it.
5. `pop_finished` gives every transaction whose markers are all written, once. What is dropped
   (`drop`: this broker does not lead the coordinator's partition any more) is never given, whatever
   answers are still to come.

Called by: `marker_sender`. KIP-98; Kafka's counterpart: TransactionMarkerChannelManager.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.broker.coordinator.transactions.ports import TransactionEnd
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftrio.wire.primitives import TopicPartition, indexes_by_topic

BACKOFF: Final = ExponentialBackoff(20, 1000)

_NO_LEADER: Final = -1
_MAX_PARTITIONS: Final = 2000  # in a request, and looked at in one step

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class PartitionLeader(NamedTuple):
    """The leader of a partition, -1: none now; and of which topic it is."""

    leader: int
    topic_id: bytes


class PartitionLeaders(Protocol):
    """Who leads what, by the newest image."""

    def __call__(self, topic_partition: TopicPartition, /) -> PartitionLeader | None:
        """None: there is no such partition."""


@dataclass(slots=True, eq=False)
class _Ending:
    """A transaction with the partitions whose markers are not known to be written.

    Attributes:
        topic_ids: of those partitions when the transaction ended.
        failures: how often in a row one of its markers was not written.
    """

    end: TransactionEnd
    topic_ids: dict[TopicPartition, bytes] = field(default_factory=dict)
    failures: int = 0
    is_dropped: bool = False


class SentMarkers(NamedTuple):
    """A request under way, and what it is to write."""

    broker_id: int
    request: WriteTxnMarkersRequest
    partitions: dict[_Ending, set[TopicPartition]]


class _MarkerRetry(NamedTuple):
    due_ms: float
    order: int
    pending: _Ending
    topic_partition: TopicPartition
    broker_id: int


class PendingMarkers:
    """See the module.

    Args:
        leader_of: asked before each request.
    """

    def __init__(self, leader_of: PartitionLeaders) -> None:
        self._leader_of = leader_of
        self._by_shard: dict[int, dict[str, _Ending]] = {}
        self._new: deque[tuple[_Ending, Iterator[TopicPartition]]] = deque()
        self._queues: dict[int, dict[_Ending, list[TopicPartition]]] = {}
        self._in_flight: list[SentMarkers] = []
        self._retries: list[_MarkerRetry] = []
        self._order = itertools.count()
        self._finished: list[TransactionEnd] = []
        self._fenced: list[TransactionEnd] = []
        self.written_total = self.retried_total = self.skipped_total = self.fenced_total = 0

    # -- transactions ---------------------------------------------------------------------------

    def add(self, end: TransactionEnd) -> None:
        """A transaction is decided, and its decision is committed: write its markers."""
        pending = _Ending(end)
        shard = self._by_shard.setdefault(end.coordinator_partition, {})
        former = shard.get(end.transactional_id)
        if former is not None:
            former.is_dropped = True
        shard[end.transactional_id] = pending
        self._new.append((pending, iter(sorted(end.partitions))))

    def drop(self, coordinator_partition: int) -> list[TransactionEnd]:
        """Forget all transactions of a coordinator's partition; give them."""
        dropped = list(self._by_shard.pop(coordinator_partition, {}).values())
        for pending in dropped:
            pending.is_dropped = True
        return [pending.end for pending in dropped]

    def pop_finished(self) -> list[TransactionEnd]:
        """Give the transactions that were finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def pop_fenced(self) -> list[TransactionEnd]:
        """Give the transactions that were left to a later coordinator since the last call."""
        fenced, self._fenced = self._fenced, []
        return fenced

    # -- requests -------------------------------------------------------------------------------

    def assign(self, now_ms: float) -> bool:
        """Find the leaders of what was added, and of what is due again.

        Returns:
            Whether there is more to look at; call again then.
        """
        budget = _MAX_PARTITIONS
        while self._new and budget > 0:
            budget -= self._assign_new(budget, now_ms)
        while self._retries and self._retries[0].due_ms <= now_ms and budget > 0:
            retry = heapq.heappop(self._retries)
            self._queue(retry.pending, retry.topic_partition, now_ms)
            budget -= 1
        return budget <= 0

    def _assign_new(self, budget: int, now_ms: float) -> int:
        """Queue some partitions of the oldest new transaction; return how many, at least one."""
        pending, partitions = self._new[0]
        if pending.is_dropped:
            self._new.popleft()
            return 1
        chosen = list(itertools.islice(partitions, budget))
        for topic_partition in chosen:
            found = self._leader_of(topic_partition)
            pending.topic_ids[topic_partition] = b"" if found is None else found.topic_id
        for topic_partition in chosen:
            self._queue(pending, topic_partition, now_ms)
        if len(chosen) < budget:
            self._new.popleft()
            self._finish_if_done(pending)
        return max(len(chosen), 1)

    def _queue(self, pending: _Ending, topic_partition: TopicPartition, now_ms: float) -> None:
        """Put a marker where its leader's are, unless there is nothing to write to."""
        topic_id = pending.topic_ids.get(topic_partition)
        if pending.is_dropped or topic_id is None:
            return
        found = self._leader_of(topic_partition)
        if found is None or found.topic_id != topic_id:
            self.skipped_total += 1
            self._settle(pending, topic_partition)
        elif found.leader == _NO_LEADER:
            self._retry(pending, topic_partition, _NO_LEADER, now_ms)
        else:
            queue = self._queues.setdefault(found.leader, {})
            queue.setdefault(pending, []).append(topic_partition)

    def brokers(self) -> list[int]:
        """The brokers that have something to write."""
        return list(self._queues)

    def take(self, broker_id: int, now_ms: float) -> SentMarkers | None:
        """Make the next request to a broker; None: there is nothing for it, after all."""
        queue = self._queues.pop(broker_id, {})
        partitions: dict[_Ending, set[TopicPartition]] = {}
        budget = _MAX_PARTITIONS
        for pending, queued in queue.items():
            if pending.is_dropped:
                continue
            for topic_partition in queued:
                found = self._leader_of(topic_partition)
                is_here = found == (broker_id, pending.topic_ids.get(topic_partition))
                if is_here and budget > 0:
                    partitions.setdefault(pending, set()).add(topic_partition)
                    budget -= 1
                else:
                    self._queue(pending, topic_partition, now_ms)
        if not partitions:
            return None
        sent = SentMarkers(broker_id, _request_of(partitions), partitions)
        self._in_flight.append(sent)
        return sent

    # -- answers --------------------------------------------------------------------------------

    def on_response(
        self, sent: SentMarkers, response: WriteTxnMarkersResponse, now_ms: float
    ) -> None:
        """A broker has answered."""
        self._in_flight.remove(sent)
        results = _results_of(response)
        for pending, partitions in sent.partitions.items():
            codes = results.get(pending.end.producer_id, {})
            if not pending.is_dropped:
                self._take_codes(pending, partitions, codes, sent.broker_id, now_ms)

    def _take_codes(
        self,
        pending: _Ending,
        partitions: set[TopicPartition],
        codes: dict[TopicPartition, ErrorCode],
        broker_id: int,
        now_ms: float,
    ) -> None:
        failed = []
        for topic_partition in sorted(partitions):
            code = codes.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _FENCED:
                self.fenced_total += 1
                self._fenced.append(pending.end)
                self._forget(pending)
                return
            if code in _WRITTEN:
                self.written_total += 1
                self._settle(pending, topic_partition)
            else:
                failed.append(topic_partition)
        if not failed:
            pending.failures = 0
            return
        for topic_partition in failed:
            self._retry(pending, topic_partition, broker_id, now_ms)
        pending.failures += 1

    def on_failed(self, sent: SentMarkers, now_ms: float) -> None:
        """A broker will not answer; it is unknown what it has written."""
        self._in_flight.remove(sent)
        for pending, partitions in sent.partitions.items():
            for topic_partition in sorted(partitions):
                self._retry(pending, topic_partition, sent.broker_id, now_ms)
            pending.failures += 1

    def on_metadata(self, now_ms: float) -> None:
        """A new image is published: send to the new leaders at once (rule 2)."""
        waiting, self._retries = self._retries, []
        for retry in waiting:
            if self._is_led_by(retry.topic_partition, retry.broker_id):
                heapq.heappush(self._retries, retry)
            else:
                self._queue(retry.pending, retry.topic_partition, now_ms)
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for pending, queued in queue.items():
                for topic_partition in queued:
                    self._queue(pending, topic_partition, now_ms)
        for sent in self._in_flight:
            for pending, partitions in sent.partitions.items():
                moved = [one for one in partitions if not self._is_led_by(one, sent.broker_id)]
                partitions.difference_update(moved)
                for topic_partition in sorted(moved):
                    self._queue(pending, topic_partition, now_ms)

    def _is_led_by(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        found = self._leader_of(topic_partition)
        return found is not None and found.leader == broker_id

    def next_retry_ms(self) -> float | None:
        """When `assign` is to be called again; None: not before something else happens."""
        return self._retries[0].due_ms if self._retries else None

    def _retry(
        self, pending: _Ending, topic_partition: TopicPartition, broker_id: int, now_ms: float
    ) -> None:
        if pending.is_dropped:
            return
        self.retried_total += 1
        due_ms = now_ms + BACKOFF.after(pending.failures)
        retry = _MarkerRetry(due_ms, next(self._order), pending, topic_partition, broker_id)
        heapq.heappush(self._retries, retry)

    # -- the end --------------------------------------------------------------------------------

    def _settle(self, pending: _Ending, topic_partition: TopicPartition) -> None:
        """A partition needs no marker of this transaction any more."""
        pending.topic_ids.pop(topic_partition, None)
        self._finish_if_done(pending)

    def _finish_if_done(self, pending: _Ending) -> None:
        if pending.is_dropped or pending.topic_ids:
            return
        if any(new is pending for new, _ in itertools.islice(self._new, 1)):
            return  # it has more partitions, which were not looked at yet
        self._forget(pending)
        self._finished.append(pending.end)

    def _forget(self, pending: _Ending) -> None:
        pending.is_dropped = True
        shard = self._by_shard.get(pending.end.coordinator_partition, {})
        if shard.get(pending.end.transactional_id) is pending:
            del shard[pending.end.transactional_id]

    def pending(self) -> Iterable[TransactionEnd]:
        """The transactions whose markers are not all written."""
        return (one.end for shard in self._by_shard.values() for one in shard.values())

    @property
    def pending_count(self) -> int:
        """How many they are."""
        return sum(map(len, self._by_shard.values()))


def _request_of(partitions: dict[_Ending, set[TopicPartition]]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=pending.end.producer_id,
                producer_epoch=pending.end.producer_epoch,
                transaction_result=pending.end.commit,
                topics=_topics_of(chosen),
                coordinator_epoch=pending.end.coordinator_epoch,
                transaction_version=pending.end.transaction_version,
            )
            for pending, chosen in partitions.items()
        ]
    )


def _topics_of(partitions: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    return [
        WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
        for topic, indexes in indexes_by_topic(sorted(partitions)).items()
    ]


def _results_of(
    response: WriteTxnMarkersResponse,
) -> dict[int, dict[TopicPartition, ErrorCode]]:
    results: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        codes = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                codes[TopicPartition(topic.name, partition.partition_index)] = partition.error_code
    return results
