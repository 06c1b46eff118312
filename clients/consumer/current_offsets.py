"""The part of the consumer that is about offsets: positions, commits, pauses and lookups.

Owns those methods of `Consumer`; the records and the group are in `consumer`. Rules:
1. What only changes the consumer's mind (`seek`, `pause`) is not async, and tells at once of a
   partition that is not assigned. What asks brokers is async and has `timeout_ms`, which is
   default_api_timeout_ms unless given.
2. Offsets are positions: the next record to read.
3. A TypeError or ValueError tells at once of an argument that cannot be sent (see `arguments`).

Called by: programs, through `Consumer`. Kafka documentation, "Consumer API".
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import trio

from kraftrio.clients.arguments import MAX_INT32, text, topic_partitions, whole_number
from kraftrio.clients.arguments import topic_partition as as_partition
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.commits import Commits
from kraftrio.clients.consumer.config import ConsumerConfig, OffsetReset, ResetTo
from kraftrio.clients.consumer.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetClient,
)
from kraftrio.clients.consumer.partition import AssignedPartition, Position
from kraftrio.clients.consumer.positions import Positions
from kraftrio.clients.errors import ClosedError, KafkaClientError, RetriableError, TimedOutError
from kraftrio.clients.metadata import PartitionMetadata, TopicMetadata
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)

OffsetLike = int | OffsetAndMetadata
CommitCallback = Callable[
    [Mapping[TopicPartition, OffsetAndMetadata], KafkaClientError | None], None
]


class ConsumerOffsets:
    """What `Consumer` offers about offsets."""

    config: ConsumerConfig
    _cluster: Cluster
    _state: AssignedPartitions
    _offsets: OffsetClient
    _commits: Commits
    _positions: Positions
    _is_open: bool

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError("the consumer is not open")

    def _settle(self) -> None:
        """Tell the state what was handed over one by one."""

    def _raise_failure(self) -> None:
        """Raise what the program must know, if there is such a thing."""

    def _assigned(self, topic_partition: TopicPartition) -> AssignedPartition:
        self._check_open()
        topic, partition = wanted = as_partition(topic_partition)
        state = self._state.get(wanted)
        if state is None:
            raise ValueError(f"{topic}-{partition} is not assigned to this consumer")
        return state

    # -- where to read --------------------------------------------------------------------------

    def seek(self, topic_partition: TopicPartition, offset: OffsetLike) -> None:
        """Continue a partition at an offset.

        Raises:
            TypeError: the offset is no whole number.
            ValueError: the partition is not assigned, or the offset is out of range.
        """
        state = self._assigned(topic_partition)
        wanted = _as_offset(offset)
        position = Position(wanted.offset, wanted.leader_epoch)
        self._state.seek(state, position, validate=True)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first records there are; without arguments in all partitions."""
        self._reset(partitions, OffsetReset(ResetTo.EARLIEST))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue with what comes from now on; without arguments in all partitions."""
        self._reset(partitions, OffsetReset(ResetTo.LATEST))

    def _reset(self, partitions: Iterable[TopicPartition], reset: OffsetReset) -> None:
        self._check_open()
        for topic_partition in list(partitions) or sorted(self._state.assignment):
            self._state.request_reset(self._assigned(topic_partition), reset)

    async def seek_to_time(
        self, timestamp_ms: int, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> None:
        """Continue with the first records that are not older; at the end where all are.

        Args:
            partitions: none means all that are assigned.
        """
        chosen = list(partitions) or sorted(self._state.assignment)
        states = {each: self._assigned(each) for each in chosen}
        found = await self.offsets_for_times(
            dict.fromkeys(chosen, timestamp_ms), timeout_ms=timeout_ms
        )
        for topic_partition, state in states.items():
            told = found[topic_partition]
            if self._state.get(topic_partition) is not state:
                continue  # given up meanwhile
            if told is None:
                self._state.request_reset(state, OffsetReset(ResetTo.LATEST))
            else:
                position = Position(told.offset, told.leader_epoch)
                self._state.seek(state, position, validate=True)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand over nothing of these partitions until `resume`; they stay assigned."""
        for state in [self._assigned(each) for each in partitions]:
            self._state.pause(state, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand over records of these partitions again."""
        for state in [self._assigned(each) for each in partitions]:
            self._state.pause(state, False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.topic_partition for state in self._state if state.is_paused)

    async def position(
        self, topic_partition: TopicPartition, *, timeout_ms: float | None = None
    ) -> int:
        """Return the offset of the next record to be handed over.

        Raises:
            TimedOutError: where to begin was not found out in that time.
            NoOffsetForPartitionError: nothing is committed, and auto_offset_reset is "none".
            ValueError: the partition is not assigned.
        """
        timeout_s = self._timeout_s(timeout_ms)
        with trio.move_on_after(timeout_s):
            while True:
                state = self._assigned(topic_partition)
                self._settle()
                if state.position is not None:
                    await trio.lowlevel.checkpoint()
                    return state.position.offset
                self._raise_failure()
                await self._positions.wait_change()
        topic, partition = topic_partition
        raise TimedOutError(f"no position of {topic}-{partition} within {timeout_s:g} s")

    def current_lag(self, topic_partition: TopicPartition) -> int | None:
        """Return how many offsets are behind the position, as of the last fetch; None: unknown."""
        state = self._assigned(topic_partition)
        self._settle()
        end = state.last_stable_offset if self.config.is_read_committed else state.high_watermark
        if state.position is None or end < 0:
            return None
        return max(end - state.position.offset, 0)

    # -- commits --------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetLike] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets and wait for it.

        Args:
            offsets: None: the positions, that is everything handed over so far.

        Raises:
            CommitFailedError: the partitions belong to others by now.
            RebalanceInProgressError: the group is rebalancing; poll, then commit what is left.
            InvalidGroupIdError: the consumer has no group_id.
            TimedOutError, KafkaClientError: it could not be done.
        """
        chosen = self._to_commit(offsets)
        await self._commits.commit(chosen, self._timeout_s(timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetLike] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Have offsets committed without waiting, after those asked for before.

        Args:
            callback: told, synchronously, what was committed or why it was not.
        """
        self._commits.submit(self._to_commit(offsets), callback or _log_commit)

    def _to_commit(
        self, offsets: Mapping[TopicPartition, OffsetLike] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._check_open()
        assert self._offsets.group_id
        if offsets is None:
            return self._consumed(self._state.assignment)
        return {as_partition(each): _as_offset(value) for each, value in offsets.items()}

    def _consumed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._settle()
        states = (self._state.get(topic_partition) for topic_partition in sorted(partitions))
        return {
            state.topic_partition: OffsetAndMetadata(
                state.position.offset, state.position.leader_epoch
            )
            for state in states
            if state is not None and state.position is not None
        }

    async def _commit_automatically(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit what was consumed of some partitions, if that is automatic; never raises."""
        if not self.config.enable_auto_commit:
            return
        offsets = self._consumed(partitions)
        try:
            await self._commits.commit(offsets, is_automatic=True)
        except KafkaClientError as error:
            _log_commit(offsets, error)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed; None where nothing is.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
            TimedOutError, KafkaClientError: it could not be found out.
        """
        self._check_open()
        wanted = topic_partitions("partitions", partitions)
        return await self._offsets.repeat(
            lambda: self._offsets.committed(wanted), self._timeout_s(timeout_ms)
        )

    # -- lookups --------------------------------------------------------------------------------

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset of each partition that is not older; None where all are.

        Raises:
            ValueError: a timestamp is negative.
            TimedOutError, KafkaClientError: it could not be found out.
        """
        wanted = {
            each: whole_number("a timestamp", timestamp)
            for each, timestamp in timestamps_ms.items()
        }
        return await self._look_up(wanted, timeout_ms)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return where the partitions' logs begin.

        Raises:
            TimedOutError, KafkaClientError: it could not be found out.
        """
        wanted = topic_partitions("partitions", partitions)
        found = await self._look_up(dict.fromkeys(wanted, EARLIEST_TIMESTAMP), timeout_ms)
        return {each: told.offset for each, told in found.items() if told is not None}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return where the partitions' logs end: the high watermark, or for read_committed the
        last stable offset.

        Raises:
            TimedOutError, KafkaClientError: it could not be found out.
        """
        wanted = topic_partitions("partitions", partitions)
        found = await self._look_up(dict.fromkeys(wanted, LATEST_TIMESTAMP), timeout_ms)
        return {each: told.offset for each, told in found.items() if told is not None}

    async def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self._check_open()
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        wanted = {as_partition(each): timestamp for each, timestamp in timestamps.items()}

        async def attempt() -> None:
            left = {each: value for each, value in wanted.items() if each not in found}
            failure: RetriableError | None = None
            for each, told in (await self._offsets.list_offsets(left)).items():
                if isinstance(told, RetriableError):
                    failure = told
                elif isinstance(told, KafkaClientError):
                    raise told
                else:
                    found[each] = told
            if failure is not None:
                raise failure

        await self._offsets.repeat(attempt, self._timeout_s(timeout_ms))
        return {each: found[each] for each in wanted}

    async def partitions_for(
        self, topic: str, *, timeout_ms: float | None = None
    ) -> list[PartitionMetadata]:
        """Describe a topic's partitions.

        Raises:
            UnknownTopicOrPartitionError, TimedOutError, KafkaClientError: it is not there in time.
        """
        self._check_open()
        topic = text("topic", topic)
        found = await self._cluster.topic(topic, timeout_s=self._timeout_s(timeout_ms))
        return list(found.partitions.values())

    async def list_topics(self, *, timeout_ms: float | None = None) -> dict[str, TopicMetadata]:
        """Describe all topics.

        Raises:
            TimedOutError: no broker answered in time.
        """
        self._check_open()
        before = self._cluster.want_all_topics
        self._cluster.want_all_topics = True
        try:
            metadata = await self._cluster.refresh(timeout_s=self._timeout_s(timeout_ms))
        finally:
            self._cluster.want_all_topics = before
        return dict(metadata.topics)

    def _timeout_s(self, timeout_ms: float | None) -> float:
        if timeout_ms is None:
            timeout_ms = self.config.default_api_timeout_ms
        return math.inf if timeout_ms == math.inf else timeout_ms / 1000


def _as_offset(value: Any) -> OffsetAndMetadata:
    given = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
    return OffsetAndMetadata(
        whole_number("an offset", given.offset),
        whole_number("a leader epoch", given.leader_epoch, -1, MAX_INT32),
        text("the metadata of a commit", given.metadata),
    )


def _log_commit(offsets: object, error: KafkaClientError | None) -> None:
    if error is not None:
        logger.warning("offsets were not committed: %s", error)
