"""Brokers of a share group in a test's own process: logs whose records are handed out one by one.

`ShareBrokers` answers the requests of share consumers over a `FakeCluster`: every member is
assigned all partitions of topic t. It checks the epochs of sessions, and releases what a session
that ended had in hand. A test reads what became of each offset, and may script refusals.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from kraftrio.clients.share.consumer import ShareConsumer
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_fetch import (
    AcquiredRecords,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareLeaderIdAndEpoch,
    SharePartitionData,
)
from kraftrio.wire.messages.share_groups import (
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.records.batch import Record, build_batch, parse_header, retain_records
from tests.unit.clients.fake_cluster import FakeCluster, FakeNode, fake_cluster

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


def batch_bytes(
    base_offset: int, count: int, *, holes: tuple[int, ...] = (), control: bool = False
) -> bytes:
    """Return a batch, of whose offsets some have no record any more."""
    records = [Record(0, 1_000, b"k", b"%d" % (base_offset + n), ()) for n in range(count)]
    built = build_batch(records, base_offset=base_offset, leader_epoch=3, control=control)
    if holes:
        kept = retain_records(built, parse_header(built), lambda offset, _: offset not in holes)
        assert kept is not None
        built = kept
    return bytes(built)


@dataclass
class Log:
    """One partition: batches, the offsets that are to be had, and what became of the others."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    available: set[int] = field(default_factory=set)
    owner: dict[int, tuple[int, str]] = field(default_factory=dict)  # offset -> its session
    counts: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, list[int]] = field(default_factory=dict)  # offset -> its types

    def append(self, count: int, *, holes: tuple[int, ...] = ()) -> None:
        """Write a batch, of whose offsets some have no record any more."""
        self.batches.append((self.end, batch_bytes(self.end, count, holes=holes)))
        self.available |= set(range(self.end, self.end + count))
        self.end += count

    def acquire(self, session: tuple[int, str], most: int) -> tuple[bytes, list[AcquiredRecords]]:
        chosen = sorted(self.available)[:most]
        if not chosen:
            return b"", []
        runs: list[AcquiredRecords] = []
        for offset in chosen:
            self.available.discard(offset)
            self.owner[offset] = session
            count = self.counts[offset] = self.counts.get(offset, 0) + 1
            last = runs[-1] if runs else None
            if last and last.last_offset == offset - 1 and last.delivery_count == count:
                last.last_offset = offset
            else:
                runs.append(
                    AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=count)
                )
        first = max(base for base, _ in self.batches if base <= chosen[0])
        data = b"".join(batch for base, batch in self.batches if first <= base <= chosen[-1])
        return data, runs

    def acknowledge(self, session: tuple[int, str], batches: list[Any]) -> ErrorCode:
        for batch in batches:
            offsets = range(batch.first_offset, batch.last_offset + 1)
            kinds = batch.acknowledge_types
            assert len(kinds) in (1, len(offsets))
            if any(self.owner.get(offset) != session for offset in offsets):
                return ErrorCode.INVALID_RECORD_STATE
            for place, offset in enumerate(offsets):
                kind = kinds[place] if len(kinds) > 1 else kinds[0]
                self.acknowledged.setdefault(offset, []).append(kind)
                if kind != RENEW:
                    del self.owner[offset]
                if kind == RELEASE:
                    self.available.add(offset)
        return ErrorCode.NONE

    def release(self, session: tuple[int, str]) -> None:
        mine = [offset for offset, owner in self.owner.items() if owner == session]
        for offset in mine:
            del self.owner[offset]
            self.available.add(offset)


class ShareBrokers:
    """See the module."""

    def __init__(self, cluster: FakeCluster, leaders: list[int]) -> None:
        self.cluster = cluster
        self.lock_timeout_ms = 30_000
        self.logs = [Log() for _ in leaders]
        self.epochs: dict[tuple[int, str], int] = {}  # of sessions: the next one
        self.fetched: dict[tuple[int, str], set[int]] = {}
        self.heartbeats: list[ShareGroupHeartbeatRequest] = []
        self.fetches: list[ShareFetchRequest] = []
        self.acknowledges: list[ShareAcknowledgeRequest] = []
        self.refusals: list[Any] = []  # of fetches that are to come
        self.acknowledge_refusals: list[Any] = []
        self.heartbeat_refusals: list[ErrorCode] = []
        cluster.add_topic("t", leaders)
        cluster.on(ApiKey.SHARE_GROUP_HEARTBEAT, self._heartbeat)
        cluster.on(ApiKey.SHARE_FETCH, self._fetch)
        cluster.on(ApiKey.SHARE_ACKNOWLEDGE, self._acknowledge)

    @property
    def topic_id(self) -> bytes:
        return self.cluster.topics["t"].topic_id

    def acknowledged(self, partition: int = 0) -> dict[int, list[int]]:
        return self.logs[partition].acknowledged

    def _heartbeat(self, node: FakeNode, request: ShareGroupHeartbeatRequest) -> Any:
        self.heartbeats.append(request)
        if self.heartbeat_refusals:
            return ShareGroupHeartbeatResponse(error_code=self.heartbeat_refusals.pop(0))
        if request.member_epoch < 0:
            return ShareGroupHeartbeatResponse(member_epoch=-1)
        partitions = list(range(len(self.logs)))
        assignment = ShareGroupHeartbeatAssignment(
            topic_partitions=[
                ShareGroupHeartbeatTopicPartitions(topic_id=self.topic_id, partitions=partitions)
            ]
        )
        return ShareGroupHeartbeatResponse(
            member_epoch=1,
            heartbeat_interval_ms=20,
            assignment=assignment if request.subscribed_topic_names is not None else None,
        )

    # -- sessions -------------------------------------------------------------------------------

    def _check_epoch(self, session: tuple[int, str], epoch: int) -> ErrorCode:
        known = self.epochs.get(session)
        if epoch == 0:
            self.end_session(session)
            self.epochs[session] = 1
            return ErrorCode.NONE
        if known is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == -1:
            return ErrorCode.NONE
        if epoch != known:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        self.epochs[session] = known + 1
        return ErrorCode.NONE

    def end_session(self, session: tuple[int, str]) -> None:
        """Forget a session; what it had in hand others may get."""
        self.epochs.pop(session, None)
        self.fetched.pop(session, None)
        for log in self.logs:
            log.release(session)

    def _fetch(self, node: FakeNode, request: ShareFetchRequest) -> Any:
        self.fetches.append(request)
        assert request.member_id and not request.is_renew_ack
        if self.refusals:
            refused = self.refusals.pop(0)
            if isinstance(refused, ErrorCode):
                return ShareFetchResponse(error_code=refused)
            return refused
        session = (node.node_id, request.member_id)
        code = self._check_epoch(session, request.share_session_epoch)
        if code:
            return ShareFetchResponse(error_code=code)
        fetched = self.fetched.setdefault(session, set())
        answers: dict[int, SharePartitionData] = {}
        for topic in request.topics:
            assert topic.topic_id == self.topic_id
            for each in topic.partitions:
                fetched.add(each.partition_index)
                if each.acknowledgement_batches:
                    answer = answers[each.partition_index] = SharePartitionData(
                        partition_index=each.partition_index, records=b""
                    )
                    log = self.logs[each.partition_index]
                    answer.acknowledge_error_code = log.acknowledge(
                        session, each.acknowledgement_batches
                    )
        for left in request.forgotten_topics_data:
            fetched.difference_update(left.partitions)
        for index in sorted(fetched):
            self._read(node, session, index, request.max_records, answers)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self.lock_timeout_ms,
            responses=[
                ShareFetchableTopicResponse(
                    topic_id=self.topic_id, partitions=list(answers.values())
                )
            ],
        )

    def _read(
        self,
        node: FakeNode,
        session: tuple[int, str],
        index: int,
        most: int,
        answers: dict[int, SharePartitionData],
    ) -> None:
        leader, epoch = self.cluster.topics["t"].leaders[index]
        answer = answers.get(index) or SharePartitionData(partition_index=index)
        if leader != node.node_id:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            answer.records = b""
            answer.current_leader = ShareLeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            answers[index] = answer
            return
        answer.records, answer.acquired_records = self.logs[index].acquire(session, most)
        if answer.acquired_records:
            answers[index] = answer

    def _acknowledge(self, node: FakeNode, request: ShareAcknowledgeRequest) -> Any:
        self.acknowledges.append(request)
        if self.acknowledge_refusals:
            return self.acknowledge_refusals.pop(0)
        assert request.member_id
        session = (node.node_id, request.member_id)
        code = self._check_epoch(session, request.share_session_epoch)
        if code:
            return ShareAcknowledgeResponse(error_code=code)
        partitions = [
            ShareAcknowledgePartitionData(
                partition_index=each.partition_index,
                error_code=self.logs[each.partition_index].acknowledge(
                    session, each.acknowledgement_batches
                ),
            )
            for topic in request.topics
            for each in topic.partitions
        ]
        if request.share_session_epoch == -1:
            self.end_session(session)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.lock_timeout_ms,
            responses=[
                ShareAcknowledgeTopicResponse(topic_id=self.topic_id, partitions=partitions)
            ],
        )


@asynccontextmanager
async def share_brokers(*leaders: int, nodes: int = 1) -> AsyncIterator[ShareBrokers]:
    async with fake_cluster(nodes) as cluster:
        yield ShareBrokers(cluster, list(leaders) or [1])


@asynccontextmanager
async def consuming(brokers: ShareBrokers, **settings: Any) -> AsyncIterator[ShareConsumer]:
    """A consumer that has subscribed to t."""
    chosen = {"group_id": "g", "retry_backoff_ms": 5, **settings}
    bootstrap = brokers.cluster.bootstrap
    async with ShareConsumer(bootstrap, rng=random.Random(1), **chosen) as consumer:
        await consumer.subscribe("t")
        with trio.fail_after(10):
            yield consumer
