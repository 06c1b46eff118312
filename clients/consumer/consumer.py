"""The consumer: `async with Consumer("localhost:9092", group_id="g") as consumer`.

Owns what programs call; `polling` is the course of a call for records, `subscription` what is read,
`handover` what the program has got. Rules:
1. Records are taken one by one (`async for record in consumer`), in batches that are decoded when
   somebody looks (`batches`), or several at once (`poll`); by one task at a time.
2. A record, or batch, is consumed when it is returned, and the position moves then. Every wait is
   cancellable, and nothing is taken before the last of them: what a cancelled call would have
   returned the next one returns.
3. A program that asks for more has finished with what it got before. So automatic commits and
   rebalances happen within these calls, and an automatic commit never covers what is still being
   worked on: if the body of `async with` raises, the record in its hands is not committed.
4. Errors are raised by these calls too; what failed is then tried again by the next one.
5. Everything that runs in the background ends with `async with`: what was finished with is
   committed, and the group is left. A program that is cancelled waits one second for that at most.

What only changes the consumer's mind (`seek`, `pause`) is not async, and raises at once for a
partition that is not assigned. What asks brokers is async and has `timeout_ms`, which is
default_api_timeout_ms unless given. Offsets are positions: the next record to read. A TypeError or
ValueError is raised at once for an argument that cannot be sent (see `arguments`). Offsets that are
only looked up are those of `partition_offsets`.

Names and defaults of the settings are those of the Java consumer in snake_case. Kafka
documentation, "Consumer API".
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import (
    AsyncIterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Generic, Self, Unpack

import trio

from kraftrio.base.background import run_aside
from kraftrio.base.clock import wall_ms
from kraftrio.clients import surroundings
from kraftrio.clients.arguments.several import Partitions, all_partitions
from kraftrio.clients.arguments.times import (
    Duration,
    PastMoment,
    past_moment_ms,
    timeout_or_default,
)
from kraftrio.clients.arguments.values import check_function, text, whole_number
from kraftrio.clients.calls import Calls
from kraftrio.clients.cluster import open_shielded_cluster
from kraftrio.clients.config import describe_client, make_config
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.auto_commit import AutoCommit, log_failure
from kraftrio.clients.consumer.commits import CommitCallback, Commits
from kraftrio.clients.consumer.committed import AfterBody, CommittedRecords
from kraftrio.clients.consumer.config import (
    ConsumerConfig,
    ConsumerSettings,
    OffsetReset,
    ResetTo,
    check_protocol_settings,
)
from kraftrio.clients.consumer.fetcher import Fetcher
from kraftrio.clients.consumer.handover import Handover
from kraftrio.clients.consumer.listener import RebalanceListener
from kraftrio.clients.consumer.members.classic_member import ClassicMember
from kraftrio.clients.consumer.members.epoch_member import EpochMember
from kraftrio.clients.consumer.offsets import OffsetAndTimestamp, OffsetClient
from kraftrio.clients.consumer.partition import Position
from kraftrio.clients.consumer.partition_offsets import PartitionOffsets
from kraftrio.clients.consumer.polling import Polling
from kraftrio.clients.consumer.positions import Positions
from kraftrio.clients.consumer.records import ConsumerBatch, ConsumerRecord, ConsumerRecords
from kraftrio.clients.consumer.subscription import (
    Subscription,
    SubscriptionPattern,
    Topics,
)
from kraftrio.clients.diagnostics.open_clients import noted_as_open
from kraftrio.clients.diagnostics.statistics import ConsumerStatistics
from kraftrio.clients.errors import RecordDeserializationError, TimedOutError
from kraftrio.clients.group_coordinator import GroupCoordinator
from kraftrio.clients.group_offsets import (
    NO_GENERATION,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetLike,
    as_offset,
    as_offsets,
)
from kraftrio.clients.metadata import PartitionMetadata, TopicMetadata
from kraftrio.clients.serialization import Deserializer, Deserializers, K, V
from kraftrio.net.transport import Network
from kraftrio.wire.primitives import TopicPartition

__all__ = [
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "ConsumerRecords",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceListener",
    "SubscriptionPattern",
]

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 30.0
_CANCELLED_CLOSE_TIMEOUT_S = 1.0  # to leave the group when the program is cancelled


class Consumer(Generic[K, V]):
    """Reads records; to be entered with `async with`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such.
        key_deserializer: what makes of bytes a key; None: it stays bytes. See `serialization`.
        value_deserializer: the same for values.
        network: where sockets come from, instead of the system's.
        rng: chance, for tests that need it repeatable.
        settings: see `ConsumerConfig`.

    Attributes:
        offsets: where partitions begin and end, and what the group has committed.
        positions: a call that returns where each partition goes on, as far as that is known: what
            `commit` would commit. Everything that was handed over counts as consumed.

    Raises:
        ConfigError: a setting is wrong.
        TypeError: a deserializer is not a function.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        network: Network | None = None,
        rng: random.Random | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        if not settings.get("client_id"):
            group_id = settings.get("group_id") or ""
            settings["client_id"] = f"consumer-{group_id}-{next(surroundings.numbers.get())}"
        self.config = make_config(ConsumerConfig, bootstrap_servers, settings)
        check_protocol_settings(settings)
        self._network = network or surroundings.network.get()()
        self._rng = rng or surroundings.chance.get()()
        self._stack = AsyncExitStack()
        self._partitions = AssignedPartitions(
            check_crcs=self.config.check_crcs, read_committed=self.config.is_read_committed
        )
        self._handover = Handover(
            self._partitions,
            self.config.offset_reset,
            Deserializers(key_deserializer, value_deserializer),
        )
        self.positions = self._handover.consumed
        self._calls = Calls()
        self.offsets = PartitionOffsets(self.config, self._calls)
        self._is_entered = False

    def __repr__(self) -> str:
        return describe_client(self, self.config, is_open=self._calls.is_open)

    async def __aenter__(self) -> Self:
        assert not self._is_entered, "a consumer is entered once"
        self._is_entered = True
        config, rng = self.config, self._rng
        partitions, handover, calls = self._partitions, self._handover, self._calls
        cluster = self._cluster = await self._stack.enter_async_context(
            open_shielded_cluster(config=config, network=self._network, rng=rng)
        )
        self._stack.enter_context(noted_as_open(self))
        cluster.on_refusal(calls.fail)
        coordinator = GroupCoordinator(cluster, config, rng, config.group_id)
        offsets = self._offset_client = self.offsets.client = OffsetClient(
            cluster, config, coordinator, rng
        )
        positions = self._positions = Positions(cluster, config, partitions, offsets, calls.fail)
        self._commits = Commits(
            offsets,
            config,
            on_thrown_out=lambda: self._subscription.wake_group(),
            fail=calls.fail,
        )
        offsets.reader = self._commits.reader
        self._auto_commit = AutoCommit(self._commits, handover, config, calls.interrupt)
        make_group = partial(
            EpochMember if config.has_consumer_protocol else ClassicMember,
            cluster,
            config,
            partitions,
            coordinator,
            calls,
            handover,
            self._auto_commit,
            rng,
        )
        self._after_body = AfterBody(self._commits, handover, self._auto_commit, calls)
        self._subscription = Subscription(
            cluster, config, partitions, coordinator, self._commits, calls, make_group
        )
        self._polling = Polling(calls, handover, self._subscription, self._auto_commit)
        fetcher = Fetcher(cluster, config, partitions, on_records=calls.arrive)

        def on_interrupt() -> None:
            calls.interrupt()
            positions.wake()

        partitions.interrupt = on_interrupt
        partitions.buffer.on_room = fetcher.wake
        cluster.nursery.start_soon(run_aside, fetcher.run)
        cluster.nursery.start_soon(run_aside, positions.run)
        if config.group_id is not None:
            cluster.nursery.start_soon(run_aside, self._commits.run)
            if config.enable_auto_commit:
                cluster.nursery.start_soon(run_aside, self._auto_commit.run)
        calls.is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._calls.close()
        self._calls.is_closing = True
        is_cancelled = error is not None and not isinstance(error, Exception)
        timeout_s = _CANCELLED_CLOSE_TIMEOUT_S if is_cancelled else CLOSE_TIMEOUT_S
        try:
            self._handover.settle()
            self._after_body.give_back()
            if error is not None:
                self._handover.take_back()
            with trio.move_on_after(timeout_s, shield=is_cancelled):
                if self.config.group_id is not None:
                    if not await self._subscription.leave_group():
                        await self._auto_commit.commit()
                    await self._commits.wait_idle()
            for failure in self._calls.failures:
                logger.warning("not raised before the consumer was closed: %r", failure)
        finally:
            self._calls.is_closing = False
            await self._stack.__aexit__(kind, error, traceback)

    # -- taking records -------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """Return the next record, waiting for it.

        Raises:
            RecordDeserializationError: it cannot be read, and comes again: see `skip`.
            KafkaClientError: what the program must know; the next call tries again.
        """
        handover = self._handover
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            handover.finish()  # asking for more means having finished with this
            raise
        if not self._calls.is_interrupted:
            for record in handover.records:
                handover.handed = record
                return record
        self._calls.check_open()
        return await self._polling.next_record()

    def batches(self) -> AsyncIterator[ConsumerBatch[K, V]]:
        """Iterate over batches, each decoded only if its records are looked at."""
        return _Batches(self)

    def committed(self) -> CommittedRecords[K, V]:
        """Iterate over records, and commit each after the body: `async for r in c.committed()`.

        What a body has not finished, because it raised, comes again: in the next loop, after a
        restart, or to another member of the group. A `break` does not finish the body either,
        unless `commit` follows. `committed().batches()` does the same with batches. It does not
        matter whether enable_auto_commit is set. See `offsets.committed` for what is committed.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
            KafkaClientError: of the loop, as of any call for records.
        """
        self._calls.check_open()
        self._offset_client.check_group()
        return CommittedRecords(self.__anext__, self._polling.next_batch, self._after_body)

    async def poll(
        self, timeout_ms: Duration | None = None, *, max_records: int | None = None
    ) -> ConsumerRecords[K, V]:
        """Return what there is, waiting for something to be there.

        Args:
            timeout_ms: return nothing after that time; None: wait as long as it takes.
            max_records: None is max_poll_records.

        Raises:
            TypeError, ValueError: these are no such time or number.
        """
        self._calls.check_open()
        timeout_s = timeout_or_default("timeout_ms", timeout_ms, math.inf) / 1000
        limit = self.config.max_poll_records
        if max_records is not None:
            limit = whole_number("max_records", max_records, 1)
        return ConsumerRecords(await self._polling.poll(timeout_s, limit))

    # -- what to read ---------------------------------------------------------------------------

    async def subscribe(self, topics: Topics, *, listener: RebalanceListener | None = None) -> None:
        """Read these topics as a member of the group; replaces an earlier subscription.

        Args:
            topics: one, several, or a pattern that whole names must match: a compiled one of
                Python, or with `group_protocol="consumer"` a `SubscriptionPattern`, which the
                broker resolves.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
            TypeError: topics are given in another form.
            ValueError: partitions were assigned by hand, no topic can have such a name, or the
                group's protocol has no such patterns.
        """
        self._calls.check_open()
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise TypeError(f"listener must be a RebalanceListener, not {listener!r}")
        await self._subscription.subscribe(topics, listener)

    def assign(self, partitions: Partitions) -> None:
        """Read these partitions, and no others, without a group sharing them out.

        Raises:
            TypeError: these are no partitions.
            ValueError: the consumer has subscribed, or there can be no such partition.
        """
        self._calls.check_open()
        self._subscription.assign(partitions)

    async def unsubscribe(self) -> None:
        """Leave the group, or drop what was assigned by hand.

        Nothing is committed but what the loops of `committed` have finished.
        """
        self._calls.check_open()
        self._handover.settle()
        await self._after_body.close()
        await self._subscription.unsubscribe()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return self._partitions.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; with a pattern, those that match it."""
        return self._subscription.topics if self._is_entered else frozenset()

    def group_metadata(self) -> GroupMetadata:
        """Return as which member of its group the consumer was given what it reads.

        A coordinator takes commits of that member only as long as it is the one.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
        """
        return self._subscription.group_metadata()

    # -- where to read --------------------------------------------------------------------------

    def seek(self, topic_partition: TopicPartition, offset: OffsetLike) -> None:
        """Continue a partition at an offset.

        Raises:
            TypeError: the offset is not a whole number.
            ValueError: the partition is not assigned, or the offset is out of range.
        """
        self._calls.check_open()
        state = self._partitions.assigned(topic_partition)
        wanted = as_offset(offset)
        position = Position(wanted.offset, wanted.leader_epoch)
        self._partitions.seek(state, position, validate=True)

    def skip(self, error: RecordDeserializationError) -> None:
        """Continue after the record that could not be read.

        Raises:
            TypeError: it is no such error.
            ValueError: the partition is not assigned any more.
        """
        self._calls.check_open()
        if not isinstance(error, RecordDeserializationError):
            raise TypeError(f"error must be a RecordDeserializationError, not {error!r}")
        state = self._partitions.assigned(error.topic_partition)
        self._handover.settle()
        if state.position is not None and state.position.offset <= error.offset:
            position = Position(error.offset + 1, state.position.leader_epoch)
            self._partitions.seek(state, position, validate=False)

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Continue at the first records there are; without arguments in all partitions."""
        self._calls.check_open()
        for state in self._partitions.chosen(partitions):
            self._partitions.request_reset(state, OffsetReset(ResetTo.EARLIEST))

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Continue with what comes from now on; without arguments in all partitions."""
        self._calls.check_open()
        for state in self._partitions.chosen(partitions):
            self._partitions.request_reset(state, OffsetReset(ResetTo.LATEST))

    async def seek_to_time(
        self, timestamp_ms: PastMoment, *partitions: Partitions, timeout_ms: Duration | None = None
    ) -> None:
        """Continue with the first records that are not older; at the end where all are.

        Args:
            timestamp_ms: milliseconds since 1970, a datetime with a time zone, or a timedelta: that
                long ago.
            partitions: none means all that are assigned.

        Raises:
            TypeError, ValueError: that is no time, or a partition is not assigned.
            TimedOutError, KafkaClientError: it could not be found out.
        """
        self._calls.check_open()
        moment_ms = past_moment_ms("timestamp_ms", timestamp_ms, wall_ms())
        states = self._partitions.chosen(partitions)
        wanted = dict.fromkeys((state.topic_partition for state in states), moment_ms)
        found = await self.offsets.for_times(wanted, timeout_ms=timeout_ms)
        for state in states:
            reported = found[state.topic_partition]
            if self._partitions.get(state.topic_partition) is not state:
                continue  # given up meanwhile
            if reported is None:
                self._partitions.request_reset(state, OffsetReset(ResetTo.LATEST))
            else:
                position = Position(reported.offset, reported.leader_epoch)
                self._partitions.seek(state, position, validate=True)

    def pause(self, *partitions: Partitions) -> None:
        """Hand over nothing of these partitions until `resume`; they stay assigned."""
        self._calls.check_open()
        for state in [
            self._partitions.assigned(each) for each in all_partitions("partitions", partitions)
        ]:
            self._partitions.pause(state, True)

    def resume(self, *partitions: Partitions) -> None:
        """Hand over records of these partitions again."""
        self._calls.check_open()
        for state in [
            self._partitions.assigned(each) for each in all_partitions("partitions", partitions)
        ]:
            self._partitions.pause(state, False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.topic_partition for state in self._partitions if state.is_paused)

    async def position(
        self, topic_partition: TopicPartition, *, timeout_ms: Duration | None = None
    ) -> int:
        """Return the offset of the next record to be handed over.

        Raises:
            TimedOutError: where to begin was not found out in that time.
            NoOffsetForPartitionError: nothing is committed, and auto_offset_reset is "none".
            ValueError: the partition is not assigned.
        """
        timeout_s = self.config.call_timeout_s(timeout_ms)
        with trio.move_on_after(timeout_s):
            while True:
                self._calls.check_open()
                state = self._partitions.assigned(topic_partition)
                self._handover.settle()
                if state.position is not None:
                    await trio.lowlevel.checkpoint()
                    return state.position.offset
                self._calls.raise_failure()
                await self._positions.wait_change()
        topic, partition = topic_partition
        raise TimedOutError(f"no position of {topic}-{partition} within {timeout_s:g} s")

    def current_lag(self, topic_partition: TopicPartition) -> int | None:
        """Return how many offsets are behind the position, as of the last fetch; None: unknown."""
        self._calls.check_open()
        state = self._partitions.assigned(topic_partition)
        self._handover.settle()
        end = state.last_stable_offset if self.config.is_read_committed else state.high_watermark
        if state.position is None or end < 0:
            return None
        return max(end - state.position.offset, 0)

    def statistics(self) -> ConsumerStatistics:
        """Return figures of this moment.

        Raises:
            ClosedError: the consumer is not open.
        """
        self._calls.check_open()
        buffer = self._partitions.buffer
        member = None if self.config.group_id is None else self.group_metadata()
        return ConsumerStatistics(
            cluster=self._cluster.statistics(),
            lag={each: self.current_lag(each) for each in sorted(self.assignment)},
            paused=self.paused,
            buffered_bytes=buffer.all_buffered_bytes,
            fetched_records=buffer.fetched_records,
            member_id="" if member is None else member.member_id,
            generation_id=NO_GENERATION if member is None else member.generation_id,
        )

    # -- commits --------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetLike] | None = None,
        *,
        timeout_ms: Duration | None = None,
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
        self._calls.check_open()
        self._offset_client.check_group()
        chosen = self._after_body.finish() if offsets is None else as_offsets(offsets)
        await self._commits.commit(chosen, self.config.call_timeout_s(timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetLike] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Have offsets committed without waiting, after those asked for before.

        Args:
            callback: called, synchronously, with what was committed, and why it was not. What it
                raises, the next call for records raises.
        """
        self._calls.check_open()
        self._offset_client.check_group()
        check_function("callback", callback)
        chosen = self._after_body.finish() if offsets is None else as_offsets(offsets)
        self._commits.submit(chosen, callback or log_failure)

    # -- topics -----------------------------------------------------------------------------------

    async def partitions_for(
        self, topic: str, *, timeout_ms: Duration | None = None
    ) -> list[PartitionMetadata]:
        """Describe a topic's partitions.

        Raises:
            UnknownTopicOrPartitionError, TimedOutError, KafkaClientError: it is not there in time.
        """
        self._calls.check_open()
        topic = text("topic", topic)
        found = await self._cluster.topic(topic, timeout_s=self.config.call_timeout_s(timeout_ms))
        return list(found.partitions.values())

    async def list_topics(self, *, timeout_ms: Duration | None = None) -> dict[str, TopicMetadata]:
        """Describe all topics.

        Raises:
            TimedOutError: no broker answered in time.
        """
        self._calls.check_open()
        return await self._cluster.all_topics(timeout_s=self.config.call_timeout_s(timeout_ms))


class _Batches(Generic[K, V]):
    """What `Consumer.batches` returns."""

    def __init__(self, consumer: Consumer[K, V]) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerBatch[K, V]:
        self._consumer._calls.check_open()
        return await self._consumer._polling.next_batch()
