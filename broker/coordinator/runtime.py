"""Runs the shards of one coordinator: elections, requests, their time.

Owns a shard for each partition of the coordinator's topic that this broker leads, and the mapping
from a key (a group id, say) to its partition. It knows neither the topic nor what the shards are
about: `settings` and `new_shard` say so. Rules:

1. A shard is made by `elect` and dropped by `resign`; everything it had not committed is dropped
   with it, and parked requests are answered with NOT_COORDINATOR. Nothing in it refers back to it:
   what the collector passes over (`base/live_objects`) would stay for good.
2. Requests meet COORDINATOR_LOAD_IN_PROGRESS until everything that the partition held at the
   election is replayed (`loading`). An empty partition is ready at once.
3. What a shard decides is carried out in one go, with no await (`outcome_runner`).
4. A write for a producer's transaction waits until the transaction is verified, which may be asked
   of another broker (KIP-890). What it wrote is pending in the shard until `end_transaction` has
   appended the marker of the transaction.

Called by the coordinator's handlers (`write`, `read`, ...), by WriteTxnMarkers (`end_transaction`)
and by the metadata publisher (`elect`,
`resign`, `on_topics_deleted`, `on_topics_changed`); `run` is a task of the node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Generic, TypeVar

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.statistics import Statistics
from kraftrio.broker.coordinator.led_partition import (
    LedPartition,
    LoadState,
    ShardT,
    ShardTimer,
)
from kraftrio.broker.coordinator.loading import ShardLoader
from kraftrio.broker.coordinator.outcome import (
    Now,
    Outcome,
    ProducerOfBatch,
    append_error_to_response,
)
from kraftrio.broker.coordinator.outcome_runner import Describe, OutcomeRunner
from kraftrio.broker.coordinator.partitioning import partition_for
from kraftrio.broker.coordinator.ports import Replicas
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import SchedulerPort, VerificationResult
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.control import EndTransactionMarker

R = TypeVar("R")

_RELOAD_MS = 5000
# What a disk may do to a log that is there: the same load may succeed later. A damaged batch may
# look like one of an old format.
_DISK_ERRORS = frozenset(
    {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
)


class CoordinatorRuntime(Generic[ShardT]):
    """The shards of one coordinator on this broker. See the rules at the top of the module.

    Args:
        new_shard: makes the shard of a partition (index, leader epoch), before anything is
            replayed.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        new_shard: Callable[[int, int], ShardT],
        *,
        replicas: Replicas,
        timers: SchedulerPort,
        clock: Clock,
        metadata: MetadataCache,
    ) -> None:
        self._settings = settings
        self._new_shard = new_shard
        self._replicas = replicas
        self._timers = timers
        self._clock = clock
        self._metadata = metadata
        self._led: dict[int, LedPartition[ShardT]] = {}
        self._log = logging.getLogger(f"kraftrio.{settings.name}")
        self._runner = OutcomeRunner(replicas, clock, settings, self._log)
        self._loader: ShardLoader[ShardT] = ShardLoader(
            replicas, clock, settings, self._log, self._activate, self._on_load_failed
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load shards as they are elected, until cancelled."""
        await self._loader.run(task_status)

    def describe_outcomes(self, describe: Describe) -> None:
        """Have the events of outcomes logged, and counted."""
        self._runner.describe = describe

    def event_count(self, message: str) -> dict[tuple[str, ...], float]:
        """How often an event has been, by the type that it was of."""
        return {
            (of_type,): count
            for (event, of_type), count in self._runner.event_counts.items()
            if event == message
        }

    def statistics(self) -> Statistics:
        """The led partitions, and how many of them cannot be asked."""
        states = [led.state for led in self._led.values()]
        return {
            "partitions": len(states),
            "loading_partitions": states.count(LoadState.LOADING),
            "failed_partitions": states.count(LoadState.FAILED),
        }

    # --- which partition ---

    @property
    def topic(self) -> str:
        """The internal topic whose leaders run the shards."""
        return self._settings.topic

    def partition_count(self) -> int:
        """How many partitions the topic has; the configured count until it exists."""
        topic = self._metadata.topic(self.topic)
        return self._settings.default_partition_count if topic is None else len(topic.partitions)

    def partition_for(self, key: str) -> int:
        """The partition that a key belongs to."""
        return partition_for(key, self.partition_count())

    # --- elections ---

    def elect(self, partition: int, leader_epoch: int) -> None:
        """This broker leads a partition now: make its shard and load it.

        A shard goes on when the leader epoch is the same or the next, since nobody else can have
        led in between.
        """
        former = self._led.get(partition)
        if former is not None:
            if leader_epoch <= former.leader_epoch + 1 and former.state is not LoadState.FAILED:
                if leader_epoch > former.leader_epoch:
                    former.leader_epoch = leader_epoch
                    former.shard.on_leader_epoch(leader_epoch)
                return
            self.resign(partition)
        timer = ShardTimer(self._timers, self._clock, partial(self._on_deadline, partition))
        shard = self._new_shard(partition, leader_epoch)
        led = LedPartition(TopicPartition(self.topic, partition), leader_epoch, shard, timer)
        self._led[partition] = led
        if self._is_empty(led):
            self._activate(led)
        else:
            self._loader.load_when_committed(led)

    def resign(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker no longer leads a partition; with an epoch, only if that is not outdated."""
        led = self._led.get(partition)
        if led is None or (leader_epoch is not None and leader_epoch < led.leader_epoch):
            return
        del self._led[partition]
        led.timer.cancel()
        led.move_to(LoadState.RESIGNED)
        now = self._runner.now()
        self._runner.run(led, led.shard.unload(now), now)
        self._log.debug("resigned partition=%s epoch=%d", led.topic_partition, led.leader_epoch)

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Topics (name and id) were deleted."""
        now = self._runner.now()
        for led in list(self._led.values()):
            if led.state is LoadState.ACTIVE:
                self._runner.run(led, led.shard.on_topics_deleted(topics), now)
            else:
                led.deleted_topics.update(topics)

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Topics are new, gone, or have other partitions or replicas; the metadata has them.

        A shard that is loading looks at them once it is active.
        """
        now = self._runner.now()
        for led in self._led.values():
            if led.state is LoadState.ACTIVE:
                led.shard.on_topics_changed(names, now)

    def _is_empty(self, led: LedPartition[ShardT]) -> bool:
        try:
            return self._replicas.is_empty(led.topic_partition)
        except KafkaError:
            return False  # loading finds out what is wrong

    def _activate(self, led: LedPartition[ShardT]) -> None:
        """Begin to serve a partition whose records were replayed."""
        led.move_to(LoadState.ACTIVE)
        now = self._runner.now()
        self._runner.run(led, led.shard.on_loaded(now), now)
        if led.deleted_topics:
            self._runner.run(led, led.shard.on_topics_deleted(led.deleted_topics), now)
        led.arm_timer()

    def _on_load_failed(self, led: LedPartition[ShardT], error: Exception) -> None:
        led.move_to(LoadState.FAILED)
        self._log.error("load failed partition=%s reason=%s", led.topic_partition, error)
        if isinstance(error, KafkaError) and error.code in _DISK_ERRORS:
            self._timers.schedule(_RELOAD_MS, partial(self._load_again, led))

    def _load_again(self, led: LedPartition[ShardT]) -> None:
        """Start over with a partition whose disk failed, unless another broker leads by now."""
        if led.is_led:
            self.elect(led.topic_partition.partition, led.leader_epoch)

    def _on_deadline(self, partition: int) -> None:
        led = self._led[partition]  # whose timer ends with it
        now = self._runner.now()
        for outcome in led.shard.on_deadline(now):
            self._runner.run(led, outcome, now)
        led.arm_timer()

    # --- requests ---

    def _led_for(self, key: str) -> LedPartition[ShardT]:
        led = self._led.get(self.partition_for(key))
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        led.check_active()
        return led

    def read(self, key: str, operation: Callable[[ShardT, Now], R]) -> R:
        """Ask a key's shard something that appends nothing.

        Raises:
            KafkaError: this broker is not the key's coordinator, or the shard refuses.
        """
        led = self._led_for(key)
        result = operation(led.shard, self._runner.now())
        led.arm_timer()
        return result

    def read_stable(
        self, key: str, operation: Callable[[ShardT, Now], R]
    ) -> Deferred[R | ErrorCode]:
        """Ask like `read`, and answer once everything written so far is committed.

        The result is an ErrorCode when that fails.
        """
        deferred: Deferred[R | ErrorCode] = Deferred()
        try:
            led, now = self._led_for(key), self._runner.now()
            result = operation(led.shard, now)
        except KafkaError as error:
            deferred.complete(error.code)
            return deferred
        self._replicas.when_committed(
            led.topic_partition,
            led.written_end_offset,
            self._runner.commit_deadline_ms(now),
            lambda code: deferred.complete(result if code is ErrorCode.NONE else code),
        )
        return deferred

    def read_all(self, operation: Callable[[ShardT], R]) -> list[R]:
        """Ask every shard.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while one is loading.
        """
        results = []
        for _, led in sorted(self._led.items()):
            if led.state is LoadState.LOADING:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if led.state is LoadState.ACTIVE:
                results.append(operation(led.shard))
        return results

    def active_shards(self) -> list[ShardT]:
        """The shards that are loaded."""
        return [led.shard for led in self._led.values() if led.state is LoadState.ACTIVE]

    def write(
        self,
        key: str,
        operation: Callable[[ShardT, Now], Outcome],
        error_response: Callable[[ErrorCode], R],
    ) -> Deferred[R]:
        """Let a key's shard serve a request; its response comes when its records are committed.

        `error_response` makes the response to a failure of the whole request.
        """
        deferred: Deferred[R] = Deferred()
        self._write(deferred, key, operation, error_response)
        return deferred

    def _write(
        self,
        deferred: Deferred[R],
        key: str,
        operation: Callable[[ShardT, Now], Outcome],
        error_response: Callable[[ErrorCode], R],
        guard: VerificationGuard | None = None,
    ) -> None:
        try:
            led, now = self._led_for(key), self._runner.now()
            outcome = operation(led.shard, now)
        except KafkaError as error:
            deferred.complete(error_response(error.code))
            return
        respond = partial(_respond, deferred, outcome.response, error_response)
        self._runner.run(led, outcome, now, respond, guard)
        led.arm_timer()

    def write_for_transaction(
        self,
        key: str,
        verify: Callable[[TopicPartition], Deferred[VerificationResult]],
        operation: Callable[[ShardT, Now], Outcome],
        error_response: Callable[[ErrorCode], R],
    ) -> Deferred[R]:
        """Like `write`, once it is verified that a transaction is open on the key's partition.

        Args:
            verify: asks for a partition. Its error is the response's; its guard goes with the
                append, so that the log refuses what comes after the end of the transaction.
        """
        try:
            verified = verify(self._led_for(key).topic_partition)
        except KafkaError as error:
            return Deferred.completed(error_response(error.code))
        deferred: Deferred[R] = Deferred()

        def write(_verified: Deferred[VerificationResult]) -> None:
            error, guard = verified.value
            if error is ErrorCode.NONE:
                self._write(deferred, key, operation, error_response, guard)
            else:
                deferred.complete(error_response(append_error_to_response(error)))

        verified.when_done(write)
        return deferred

    def write_parked(
        self,
        key: str,
        operation: Callable[[ShardT, Deferred[R], Now], Outcome],
        error_response: Callable[[ErrorCode], R],
    ) -> Deferred[R]:
        """Like `write` for requests that the shard may park: the operation gets the ticket.

        An outcome with a response answers the request; else the shard answers the ticket.
        """
        deferred: Deferred[R] = Deferred()
        try:
            led, now = self._led_for(key), self._runner.now()
            outcome = operation(led.shard, deferred, now)
        except KafkaError as error:
            deferred.complete(error_response(error.code))
            return deferred
        respond = None
        if outcome.response is not None:
            respond = partial(_respond, deferred, outcome.response, error_response)
        self._runner.run(led, outcome, now, respond)
        led.arm_timer()
        return deferred

    # --- ends of transactions ---

    def end_transaction(
        self,
        partition: int,
        producer: ProducerOfBatch,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
    ) -> Deferred[ErrorCode]:
        """Append a transaction's end marker to a partition; done once it is committed.

        The result is an error of WriteTxnMarkers: NOT_LEADER_OR_FOLLOWER while the partition is
        not served here, not even loaded yet, or whatever the log says.
        """
        ended: Deferred[ErrorCode] = Deferred()
        led = self._led.get(partition)
        if led is None or led.state is not LoadState.ACTIVE:
            ended.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return ended
        self._runner.end_transaction(led, producer, marker, transaction_version, ended.complete)
        led.arm_timer()
        return ended


def _respond(
    deferred: Deferred[R],
    response: R,
    error_response: Callable[[ErrorCode], R],
    error: ErrorCode,
) -> None:
    if error is ErrorCode.NONE:
        deferred.complete(response)
    else:
        deferred.complete(error_response(append_error_to_response(error)))
