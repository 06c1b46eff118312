"""The consumer: `async with Consumer("localhost:9092", group_id="g") as consumer`.

Owns what programs call, and the order in which things happen to a program. Rules:
1. Records are taken one by one (`async for record in consumer`), in batches that are decoded when
   somebody looks (`batches`), or several at once (`poll`); by one task at a time.
2. A record, or batch, is consumed when it is returned, and the position moves then. Every wait is
   cancellable, and nothing is taken before the last of them: what a cancelled call would have
   returned the next one returns.
3. Whoever asks for more has finished with what he got before. So automatic commits and rebalances
   happen within these calls, and an automatic commit never covers what is still being worked on:
   if the body of `async with` raises, the record in its hands is not committed.
4. Errors are raised by these calls too; what failed is then tried again by the next one.
5. Everything that runs beside the program ends with `async with`: what was finished with is
   committed, and the group is left. A program that is cancelled waits a second for that, no more.

Names and defaults of the settings are those of the Java consumer in snake_case. Kafka
documentation, "Consumer API".
"""

from __future__ import annotations

import itertools
import logging
import math
import random
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar, Unpack

import trio

from kraftrio.clients.arguments import pattern_or_topics, topic_partitions
from kraftrio.clients.cluster import Cluster, open_cluster
from kraftrio.clients.config import make_config
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.commits import Commits
from kraftrio.clients.consumer.config import ConsumerConfig, ConsumerSettings, ResetTo
from kraftrio.clients.consumer.current_offsets import ConsumerOffsets, _log_commit
from kraftrio.clients.consumer.fetcher import Fetcher
from kraftrio.clients.consumer.group import Group, RebalanceListener, Turnstile
from kraftrio.clients.consumer.membership import GroupMetadata
from kraftrio.clients.consumer.offsets import OffsetAndMetadata, OffsetAndTimestamp, OffsetClient
from kraftrio.clients.consumer.partition import AssignedPartition, FetchFailure, Position
from kraftrio.clients.consumer.positions import Positions
from kraftrio.clients.consumer.records import ConsumerBatch, ConsumerRecord, ConsumerRecords
from kraftrio.clients.errors import ClosedError, OffsetOutOfRangeError, error_for
from kraftrio.net.transport import Network, SystemNetwork
from kraftrio.wire.errors import CorruptRecordError, ErrorCode, KafkaError
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
]

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 30.0
_HASTY_CLOSE_TIMEOUT_S = 1.0  # to say farewell when the program is cancelled

_RECORDS_PER_TURN = 350
_FATAL_TOPIC_ERRORS = frozenset(
    {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
_numbers = itertools.count(1)
_NO_RECORDS: Sequence[ConsumerRecord] = ()

T = TypeVar("T")

Topics = str | re.Pattern[str] | Collection[str]


class Consumer(ConsumerOffsets):
    """Reads records; to be entered with `async with`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such.
        network: where sockets come from, instead of the system's.
        rng: chance, for tests that need it repeatable.
        settings: see `ConsumerConfig`.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        network: Network | None = None,
        rng: random.Random | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        if not settings.get("client_id"):
            group_id = settings.get("group_id") or ""
            settings["client_id"] = f"consumer-{group_id}-{next(_numbers)}"
        self.config = make_config(ConsumerConfig, bootstrap_servers, settings)
        self._network = network or SystemNetwork()
        self._rng = rng or random.Random()
        self._stack = AsyncExitStack()
        self._is_open = False
        self._state = AssignedPartitions(
            check_crcs=self.config.check_crcs, read_committed=self.config.is_read_committed
        )
        self._state.settle = self._settle
        # What is being handed over one by one
        self._records: Iterator[ConsumerRecord] = iter(_NO_RECORDS)
        self._run: list[ConsumerBatch] = []  # where they come from
        self._run_version = 0
        self._handed: ConsumerRecord | None = None  # not yet told to the state
        self._in_hand: dict[TopicPartition, int] = {}  # where what was returned last begins
        self._seen: object = None
        # What the next call has to look after first
        self._attention = True
        self._credit = 0  # how many records batches may have before other tasks run
        self._failures: list[Exception] = []
        self._commit_is_due = False
        self._turnstile = Turnstile(self._interrupt)
        self._arrived = trio.Event()
        self._is_waiting = False
        self._is_busy = False
        self._pattern: re.Pattern[str] | None = None
        self._subscription: frozenset[str] = frozenset()
        self._group: Group | None = None
        self._group_scope = trio.CancelScope()

    async def __aenter__(self) -> Self:
        assert not hasattr(self, "_cluster"), "a consumer is entered once"
        cluster = await self._stack.enter_async_context(
            _shielded_cluster(self.config, self._network, self._rng)
        )
        state, config = self._state, self.config
        self._cluster: Cluster = cluster
        self._offsets = OffsetClient(cluster, config, self._network, self._rng)
        self._commits = Commits(self._offsets, config, self._wake_group)
        self._fetcher = Fetcher(cluster, config, state, self._arrive)
        self._positions = Positions(cluster, config, state, self._offsets, self._fail)
        state.interrupt = self._state_changed
        state.buffer.on_room = self._fetcher.wake
        cluster.on_change(self._metadata_changed)
        cluster.nursery.start_soon(self._fetcher.run)
        cluster.nursery.start_soon(self._positions.run)
        if config.group_id is not None:
            cluster.nursery.start_soon(self._commits.run)
            if config.enable_auto_commit:
                cluster.nursery.start_soon(self._remind_of_commits)
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_open = False
        is_hasty = error is not None and not isinstance(error, Exception)
        timeout_s = _HASTY_CLOSE_TIMEOUT_S if is_hasty else CLOSE_TIMEOUT_S
        try:
            self._settle()
            if error is not None:
                self._take_back_in_hand()
            with trio.move_on_after(timeout_s, shield=is_hasty):
                await self._leave()
            for failure in self._failures:
                logger.warning("not told before the consumer was closed: %r", failure)
        finally:
            await self._stack.__aexit__(kind, error, traceback)

    async def _leave(self) -> None:
        """Commit, if that is automatic, and leave the group."""
        if self._group is not None:
            self._group_scope.cancel()
            await self._commits.wait_idle()  # they are the member's, which there is not after that
            await self._group.leave(commit=self.config.enable_auto_commit)
        elif self.config.group_id is not None:
            await self._commit_automatically(self._state.assignment)
        if self.config.group_id is not None:
            await self._commits.wait_idle()

    # -- taking records -------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record, waiting for it."""
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            self._finish_hand()  # who asks for more has finished with what he has
            raise
        if not self._attention:
            for record in self._records:
                self._handed = record
                return record
        return await self._next_record()

    async def _next_record(self) -> ConsumerRecord:
        self._begin_call()
        try:
            while True:
                await self._attend()
                record = self._current_record()
                if record is not None:
                    self._handed = record
                    return record
                run = self._take(lambda: self._state.take_run(_RECORDS_PER_TURN))
                if not run:
                    await self._wait_arrival()
                    continue
                self._open_run(run)
                for first in self._records:
                    self._handed = first
                    return first
        finally:
            self._is_busy = False

    def _open_run(self, run: list[ConsumerBatch]) -> None:
        """Begin to hand over some batches one by one."""
        records: list[ConsumerRecord] = []
        for index, batch in enumerate(run):
            try:
                records += batch.records()
            except KafkaError as error:
                if index:
                    self._state.put_back(*run[index:])  # it is told when its turn comes
                    del run[index:]
                    break
                self._state.fetch_again(batch.topic_partition)
                raise _located(error, batch.topic_partition, batch.first_offset) from None
        self._records = iter(records)
        self._run = run
        self._run_version = self._state.buffer.taken_version

    def _current_record(self) -> ConsumerRecord | None:
        """Return the next record of what is handed over one by one, if it still may be."""
        state = self._run_state()
        if state is None:
            self._drop_run()
        elif not state.is_deliverable:
            self._stop_records()
        else:
            for record in self._records:
                return record
            last = self._run[-1]
            position = Position(last.next_offset, last.leader_epoch)
            self._state.handed_over(last.topic_partition, position)
            self._drop_run()
        return None

    def _run_state(self) -> AssignedPartition | None:
        """Return the partition of what is handed over one by one, if that is still wanted."""
        if not self._run:
            return None
        state = self._state.get(self._run[0].topic_partition)
        return state if state is not None and state.version == self._run_version else None

    def _stop_records(self) -> None:
        """Give what is left of records taken one by one back, to be taken in another way."""
        state = self._run_state()
        if state is not None and state.position is not None:
            offset = state.position.offset
            left = [batch.starting_at(offset) for batch in self._run if batch.next_offset > offset]
            if left:
                self._state.put_back(*left)
        self._drop_run()

    def _drop_run(self) -> None:
        self._run = []
        self._records = iter(_NO_RECORDS)

    def batches(self) -> AsyncIterator[ConsumerBatch]:
        """Iterate over batches, each decoded only if its records are looked at."""
        return _Batches(self._next_batch)

    async def _next_batch(self) -> ConsumerBatch:
        self._begin_call()
        try:
            while True:
                if self._attention or self._credit <= 0:
                    await self._attend()
                else:
                    await trio.lowlevel.checkpoint_if_cancelled()
                    self._finish_hand()
                self._stop_records()
                batch = self._take(self._state.take)
                if batch is not None:
                    self._credit -= batch.record_count
                    self._hand_over(batch)
                    return batch
                await self._wait_arrival()
        finally:
            self._is_busy = False

    async def poll(
        self, timeout_ms: float | None = None, *, max_records: int | None = None
    ) -> ConsumerRecords:
        """Return what there is, waiting for something to be there.

        Args:
            timeout_ms: return nothing after that time; None: wait as long as it takes.
            max_records: None is max_poll_records.
        """
        timeout_s = math.inf if timeout_ms is None else timeout_ms / 1000
        deadline = trio.current_time() + timeout_s
        limit = self.config.max_poll_records if max_records is None else max_records
        self._begin_call()
        try:
            while True:
                if await self._attend(deadline):
                    batches = self._take_several(limit)
                    if batches:
                        return ConsumerRecords(batches)
                if trio.current_time() >= deadline:
                    return ConsumerRecords([])
                with trio.move_on_at(deadline):
                    await self._wait_arrival()
        finally:
            self._is_busy = False

    def _take_several(self, limit: int) -> list[ConsumerBatch]:
        self._stop_records()
        batches: list[ConsumerBatch] = []
        while limit > 0:
            try:
                batch = self._take(self._state.take)
            except KafkaError:
                if batches:
                    break  # it comes again with the next poll
                raise
            if batch is None:
                break
            batch, rest = batch.split(limit)
            limit -= len(batch)
            self._hand_over(batch)
            if rest is not None:
                self._state.put_back(rest)
            batches.append(batch)
        return batches

    def _hand_over(self, batch: ConsumerBatch) -> None:
        self._in_hand.setdefault(batch.topic_partition, batch.first_offset)
        position = Position(batch.next_offset, batch.leader_epoch)
        self._state.handed_over(batch.topic_partition, position)

    def _take(self, take: Callable[[], T]) -> T | None:
        """Take what comes next; no await may come between this and handing it over."""
        try:
            return take()
        except FetchFailure as failure:
            cause, state = failure.cause, failure.partition
            topic, partition = state.topic_partition
            if cause.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise _located(cause, state.topic_partition, failure.offset) from None
            reset = self.config.offset_reset
            if reset.to is ResetTo.NONE:
                raise OffsetOutOfRangeError(
                    f"{topic}-{partition} has no offset {failure.offset}, and auto_offset_reset"
                    " is none"
                ) from None
            logger.info("%s-%s has no offset %s: reset", topic, partition, failure.offset)
            self._state.request_reset(state, reset)
            return None

    # -- between records ------------------------------------------------------------------------

    def _begin_call(self) -> None:
        if not self._is_open:
            raise ClosedError("the consumer is not open")
        if self._is_busy:
            raise trio.BusyResourceError("another task is taking records from this consumer")
        self._is_busy = True

    async def _attend(self, deadline: float = math.inf) -> bool:
        """Do what has to be done before anything is handed over; lets other tasks run, too.

        Returns:
            False when a rebalance was not over before the deadline.
        """
        self._attention = False
        self._credit = _RECORDS_PER_TURN
        self._finish_hand()
        group = self._group
        if group is not None:
            group.polled()
        await trio.lowlevel.checkpoint()
        if self._turnstile.is_wanted:
            await self._give_way(deadline)
        if group is not None and group.membership.failure is not None:
            failure = group.membership.failure
            raise type(failure)(failure.message, code=failure.code)
        self._raise_failure()
        if self._commit_is_due:
            self._commit_is_due = False
            self._commits.submit(self._consumed(self._state.assignment), _log_commit)
        return not self._turnstile.is_wanted

    async def _give_way(self, deadline: float) -> None:
        self._is_waiting = True
        try:
            with trio.move_on_at(deadline):
                await self._turnstile.give_way()
        finally:
            self._is_waiting = False
            self._attention |= self._turnstile.is_wanted

    async def _wait_arrival(self) -> None:
        self._arrived = trio.Event()
        if self._attention:
            return
        self._is_waiting = True
        try:
            await self._arrived.wait()
        finally:
            self._is_waiting = False

    def _settle(self) -> None:
        """Tell the state what was handed over one by one."""
        handed = self._handed
        if handed is not None:
            self._handed = None
            topic_partition = self._run[0].topic_partition
            self._in_hand = {topic_partition: handed.offset}
            position = Position(handed.offset + 1, handed.leader_epoch)
            self._state.handed_over(topic_partition, position)

    def _finish_hand(self) -> None:
        """The program has finished with everything it was given."""
        self._settle()
        self._in_hand = {}

    def _take_back_in_hand(self) -> None:
        """The program was stopped by an error while it worked: that work is not done."""
        for topic_partition, offset in self._in_hand.items():
            state = self._state.get(topic_partition)
            if state is not None and state.position is not None:
                state.position = Position(
                    min(offset, state.position.offset), state.position.leader_epoch
                )

    async def _remind_of_commits(self) -> None:
        """Have positions committed now and then, between two records."""
        while True:
            await trio.sleep(self.config.auto_commit_interval_ms / 1000)
            self._commit_is_due = True
            self._interrupt()

    def _interrupt(self) -> None:
        """Have the next call look after what there is to look after."""
        self._attention = True
        self._arrived.set()

    def _arrive(self) -> None:
        self._arrived.set()

    def _fail(self, error: Exception) -> None:
        """Have the next call raise this; the same thing over and over is told once."""
        if not any(str(known) == str(error) for known in self._failures):
            self._failures.append(error)
        self._interrupt()

    def _raise_failure(self) -> None:
        if self._failures:
            self._attention = True
            raise self._failures.pop(0)

    def _state_changed(self) -> None:
        self._interrupt()
        self._positions.wake()

    def _is_alive(self) -> bool:
        """Whether the program has asked for anything since the last time."""
        handed = self._handed
        is_new = handed is not None and handed is not self._seen
        self._seen = handed
        return is_new or self._is_waiting

    def _wake_group(self) -> None:
        if self._group is not None:
            self._group.wake()

    def _metadata_changed(self) -> None:
        metadata = self._cluster.metadata
        for state in self._state:
            # At once: no position may be committed for a topic that it is not of.
            self._state.note_metadata(state, metadata)
        group = self._group
        if group is not None:
            if self._pattern is not None:
                group.want_topics(self._matching_topics())
            group.metadata_changed()
        for name, topic in metadata.topics.items():
            code = topic.error_code
            if code in _FATAL_TOPIC_ERRORS and (
                name in self._subscription or self._state.reads(name)
            ):
                self._fail(error_for(code, f"topic {name!r}: {code.text}"))

    # -- what to read ---------------------------------------------------------------------------

    async def subscribe(self, topics: Topics, *, listener: RebalanceListener | None = None) -> None:
        """Read these topics as a member of the group; replaces an earlier subscription.

        Args:
            topics: one, several, or a pattern that whole names must match.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
            TypeError: topics are none of these.
            ValueError: partitions were assigned by hand, or no topic can have such a name.
        """
        self._check_open()
        group_id = self._offsets.group_id
        if self._group is None and len(self._state):
            raise ValueError("partitions are assigned by hand: unsubscribe first")
        pattern, wanted = pattern_or_topics(topics)
        await trio.lowlevel.checkpoint()
        if pattern is not None:
            self._pattern = pattern
            self._cluster.want_all_topics = True
            self._cluster.request_refresh()
            names = self._matching_topics()
        else:
            self._pattern = None
            self._cluster.want_all_topics = False
            names = wanted
            if not names:
                await self.unsubscribe()
                return
        self._subscription = names
        if self._group is None:
            logger.debug("joining the group %s", group_id)
            self._start_group()
        assert self._group is not None
        self._group.subscribe(names, listener)

    def _start_group(self) -> None:
        group = Group(
            self._cluster,
            self.config,
            self._state,
            self._offsets,
            self._rng,
            self._turnstile,
            self._is_alive,
            self._commit_automatically,
            self._fail,
        )
        self._group = group
        self._commits.membership = group.membership
        self._group_scope = trio.CancelScope()
        self._cluster.nursery.start_soon(self._run_group, group, self._group_scope)

    async def _run_group(self, group: Group, scope: trio.CancelScope) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.run)
                nursery.start_soon(group.run_heartbeats)

    def _matching_topics(self) -> frozenset[str]:
        assert self._pattern is not None
        skips_internal = self.config.exclude_internal_topics
        return frozenset(
            name
            for name, topic in self._cluster.metadata.topics.items()
            if self._pattern.fullmatch(name) and not (skips_internal and topic.is_internal)
        )

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, and no others, without a group sharing them out.

        Raises:
            TypeError: these are no partitions.
            ValueError: the consumer has subscribed, or there can be no such partition.
        """
        self._check_open()
        if self._group is not None:
            raise ValueError("the consumer has subscribed: unsubscribe first")
        wanted = topic_partitions("partitions", partitions)
        self._cluster.set_topics(partition.topic for partition in wanted)
        self._state.assign(wanted)

    async def unsubscribe(self) -> None:
        """Leave the group, or drop what was assigned by hand; nothing is committed."""
        self._check_open()
        self._settle()
        group = self._group
        if group is not None:
            self._group_scope.cancel()
            await group.leave(commit=False)
            self._group = None
            self._commits.membership = None
        else:
            await trio.lowlevel.checkpoint()
        self._pattern = None
        self._subscription = frozenset()
        self._cluster.want_all_topics = False
        self._state.assign(())
        self._cluster.set_topics(())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return self._state.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; with a pattern, those that match it."""
        if self._pattern is not None and self._is_open:
            return self._matching_topics()
        return self._subscription

    def group_metadata(self) -> GroupMetadata:
        """Return who the consumer is in its group at the moment.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
        """
        if self._group is not None:
            return self._group.membership.metadata
        return GroupMetadata(
            self._offsets.group_id, group_instance_id=self.config.group_instance_id
        )


@asynccontextmanager
async def _shielded_cluster(
    config: ConsumerConfig, network: Network, rng: random.Random
) -> AsyncIterator[Cluster]:
    """Run a cluster's tasks beside the body, in which a cancellation of the body ends nothing.

    So whoever is cancelled can still say farewell. Leaving the body ends the tasks.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        cluster, scope = await nursery.start(_run_cluster, config, network, rng)
        try:
            yield cluster
        except (Exception, trio.Cancelled) as error:
            failure = error  # raised below: from here the nursery would wrap it in a group
        finally:
            scope.cancel()
    if failure is not None:
        raise failure


async def _run_cluster(
    config: ConsumerConfig,
    network: Network,
    rng: random.Random,
    task_status: trio.TaskStatus[tuple[Cluster, trio.CancelScope]],
) -> None:
    with trio.CancelScope(shield=True) as scope:
        async with open_cluster(config=config, network=network, rng=rng) as cluster:
            task_status.started((cluster, scope))
            await trio.sleep_forever()


class _Batches:
    """What `Consumer.batches` returns."""

    def __init__(self, next_batch: Callable[[], Awaitable[ConsumerBatch]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerBatch:
        return await self._next_batch()


def _located(error: KafkaError, where: TopicPartition, offset: int) -> KafkaError:
    """Say where it happened."""
    message = f"{where.topic}-{where.partition} at offset {offset}: {error}"
    if isinstance(error, CorruptRecordError):
        return CorruptRecordError(message)
    return error_for(error.code, message)
