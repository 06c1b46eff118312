"""Offsets and transactions in a real, compacted log: its reader knows what its writer knew.

Plain commits, transactions of several producers, deletions and markers come in any order; in
between the log is compacted, old tombstones and markers go, and the coordinator starts again.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kraftrio.broker.coordinator.groups.offset_table import OffsetKey
from kraftrio.broker.coordinator.outcome import ProducerOfBatch
from kraftrio.broker.log.partition.partition_log import AppendInfo, LogRead, PartitionLog
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    DeleteGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kraftrio.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import NO_PRODUCER_ID
from kraftrio.wire.records.control import EndTransactionMarker
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.support.cleaning import clean
from tests.support.logs import LogContext
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, FakeReplicas, ask
from tests.unit.broker.coordinator.groups.offset_model import (
    GROUPS,
    KEYS,
    PARTITIONS,
    PRODUCERS,
    TOPICS,
    UNSTABLE,
    Entry,
    Model,
    random_entry,
)

DAY_MS = 86_400_000


class OneLog(FakeReplicas):
    """The one partition of the coordinator's topic is a real log; what is appended is committed."""

    context: LogContext

    def log(self, topic_partition: TopicPartition) -> PartitionLog:  # type: ignore[override]
        return self.context.log

    def append_to_leader(  # type: ignore[override]
        self,
        topic_partition: TopicPartition,
        records: memoryview | bytearray,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        info = self.context.log.append_as_leader(
            records,
            self.context.leader_epoch,
            self.context.now_ms,
            origin=origin,
            transaction_version=transaction_version,
        )
        self.context.commit()
        return info

    def when_committed(
        self,
        topic_partition: TopicPartition,
        end_offset: int,
        deadline_ms: float | None,
        callback: Callable[[ErrorCode], None],
    ) -> None:
        assert self.context.log.high_watermark >= end_offset
        callback(ErrorCode.NONE)

    def read_log(  # type: ignore[override]
        self, topic_partition: TopicPartition, start_offset: int, max_bytes: int
    ) -> LogRead:
        log = self.context.log
        return log.read(start_offset, max_bytes, max_offset=log.high_watermark, min_one_batch=True)


class Coordinator:
    """A group coordinator over one compacted log, and the model of what it holds."""

    def __init__(self) -> None:
        self.context = LogContext(cleanup_policy="compact", segment_bytes=4_096)
        self.model = Model()
        self._epochs = dict.fromkeys(PRODUCERS, 0)
        self._broker = BrokerStandIn(partition_count=1, lead=False)
        replicas = self._broker.replicas = OneLog(self._broker.timers)
        replicas.context = self.context
        self._broker.metadata.add_topic(CONSUMER_OFFSETS, b"_" * 16)
        for topic in TOPICS:
            self._broker.metadata.add_topic(topic, topic.encode() * 16, len(PARTITIONS))

    async def start(self) -> None:
        """Lead in the next epoch, by what the log holds."""
        self.context.leader_epoch += 1
        self._broker.start()
        self._broker.coordinator.elect(0, self.context.leader_epoch)
        await self._broker.load()

    def do(self, entry: Entry) -> None:
        """Have one entry of the model appended to the log."""
        self.model.entries.append(entry)
        if entry.commit is not None:
            self._end(entry.producer_id, entry.commit)
        elif entry.value is None:
            (key,) = entry.keys
            self._delete_offset(key)
        else:
            self._commit(entry, entry.value)

    def _end(self, producer_id: int, commit: bool) -> None:
        self._epochs[producer_id] += 1  # as from transaction.version 2 on
        ended = self._broker.coordinator.end_transaction(
            0,
            ProducerOfBatch(producer_id, self._epochs[producer_id]),
            EndTransactionMarker(commit, 1),
            transaction_version=2,
        )
        assert ended.value is ErrorCode.NONE

    def _delete_offset(self, key: OffsetKey) -> None:
        partitions = [OffsetDeleteRequestPartition(partition_index=key.partition)]
        topics = [OffsetDeleteRequestTopic(name=key.topic, partitions=partitions)]
        ask(self._broker, OffsetDeleteRequest(group_id=key.group_id, topics=topics), 0)

    def _commit(self, entry: Entry, offset: int) -> None:
        group_id = entry.keys[0].group_id
        by_topic = {key.topic: [k.partition for k in entry.keys if k.topic == key.topic]
                    for key in entry.keys}  # fmt: skip
        request: OffsetCommitRequest | TxnOffsetCommitRequest
        if entry.producer_id == NO_PRODUCER_ID:
            request = OffsetCommitRequest(
                group_id=group_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetCommitRequestPartition(partition_index=p, committed_offset=offset)
                            for p in partitions
                        ],
                    )
                    for topic, partitions in by_topic.items()
                ],
            )
        else:
            request = TxnOffsetCommitRequest(
                transactional_id="id",
                group_id=group_id,
                producer_id=entry.producer_id,
                producer_epoch=self._epochs[entry.producer_id],
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=p, committed_offset=offset
                            )
                            for p in partitions
                        ],
                    )
                    for topic, partitions in by_topic.items()
                ],
            )
        response = ask(self._broker, request, 5)
        assert not any(p.error_code for topic in response.topics for p in topic.partitions)

    def delete_group(self, group_id: str) -> None:
        """Delete a group with all its offsets."""
        self.model.entries += [Entry((key,)) for key in KEYS if key.group_id == group_id]
        ask(self._broker, DeleteGroupsRequest(groups_names=[group_id]), 2)

    def compact(self) -> None:
        """Compact all that may be; tombstones and markers of a day ago go."""
        clean(self.context)
        self.context.now_ms += DAY_MS

    def shown(self, *, require_stable: bool) -> dict[OffsetKey, int]:
        """Each offset as clients get it."""
        found: dict[OffsetKey, int] = {}
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=list(PARTITIONS))
            for topic in TOPICS
        ]
        asked = [OffsetFetchRequestGroup(group_id=g, topics=topics) for g in GROUPS]
        request = OffsetFetchRequest(groups=asked, require_stable=require_stable)
        for group in ask(self._broker, request, 8).groups:
            for topic in group.topics:
                for partition in topic.partitions:
                    is_unstable = partition.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                    key = OffsetKey(group.group_id, topic.name, partition.partition_index)
                    found[key] = UNSTABLE if is_unstable else partition.committed_offset
        return found

    def check(self) -> None:
        """What clients get is what the model says."""
        end_offset = len(self.model.entries)
        for require_stable in (False, True):
            assert self.shown(require_stable=require_stable) == {
                key: self.model.shown(key, end_offset, require_stable=require_stable)
                for key in KEYS
            }


@pytest.mark.parametrize("seed", range(12))
async def test_a_load_finds_what_was_written(seed: int) -> None:
    """With open, committed and aborted transactions, before and after compaction."""
    rng = random.Random(seed)
    coordinator = Coordinator()
    await coordinator.start()
    for _ in range(90):
        action = rng.random()
        if action < 0.85:
            coordinator.do(random_entry(rng))
        elif action < 0.89:
            coordinator.delete_group(rng.choice(GROUPS))
        elif action < 0.94:
            coordinator.compact()
        else:
            coordinator.check()
            await coordinator.start()
        coordinator.check()
    coordinator.compact()
    await coordinator.start()
    coordinator.check()
