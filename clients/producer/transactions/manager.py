"""Runs a producer's transactions with their coordinator: id, beginning, offsets, commit, abort.

`transaction_state` says what is legal, `requests` sends the requests.

Rules:
1. A commit waits until everything in the transaction is written, without lingering; if a record is
   given up, the transaction is aborted, and the error says why.
2. An abort sends nothing more. It waits a moment for what is in flight, so that it does not arrive
   later; what is not answered by then is fenced by its epoch.
3. Once the coordinator is asked to end a transaction, that goes on in the background until it is
   answered. A program that is cancelled waits for it a few seconds at most; the next transaction
   begins after it.
4. If a commit is not answered within max_block_ms, or is refused after an attempt that may have
   been carried out, its result is unknown, and the producer can only be closed. An abort that is
   not answered is tried again before the next transaction, and in the end the coordinator aborts
   by itself (transaction_timeout_ms).

Called by: `producer`, `transaction`. KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from kraftrio.base.background import run_aside
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.config import ProducerConfig
from kraftrio.clients.errors import (
    AuthenticationError,
    FatalProducerError,
    KafkaClientError,
    TimedOutError,
    TransactionAbortedError,
    renewed,
)
from kraftrio.clients.group_offsets import GroupMetadata, OffsetAndMetadata
from kraftrio.clients.producer.accumulator import Accumulator
from kraftrio.clients.producer.batch import wait_batch
from kraftrio.clients.producer.queues import PartitionQueue
from kraftrio.clients.producer.sender import Sender
from kraftrio.clients.producer.transaction_state import TransactionState
from kraftrio.clients.producer.transactional_sequences import TransactionalSequences
from kraftrio.clients.producer.transactions.requests import TransactionRequests
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ProducerIdAndEpoch, TopicPartition

logger = logging.getLogger(__name__)

_CANCELLED_END_S: Final = 3.0  # how long a program that is cancelled waits for the end
_DRAIN_S: Final = 1.0  # how long an abort waits for what is in flight


class _Addition:
    """A task that adds partitions to the transaction at the coordinator."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.done = trio.Event()


class TransactionManager:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        sender: Sender,
        config: ProducerConfig,
        rng: random.Random,
    ) -> None:
        core, sequences = accumulator.transactions, accumulator.sequences
        assert core is not None, "only with a transactional id"
        assert isinstance(sequences, TransactionalSequences), "only with a transactional id"
        self.core = core
        self._sequences = sequences
        self._cluster = cluster
        self._accumulator = accumulator
        self._sender = sender
        self._timeout_s = config.max_block_ms / 1000
        self._requests = TransactionRequests(cluster, config, rng)
        self._adding: _Addition | None = None
        self._ending: trio.Event | None = None  # while a transaction is being ended

    @property
    def _identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self._sequences.producer_id, self._sequences.producer_epoch)

    async def initialize(self) -> None:
        """Get the producer's id and epoch, which fences other producers of its transactional id.

        A transaction that one of them left open is aborted by that.

        Raises:
            AuthenticationError: a broker refused the client's login.
            FatalProducerError, TimedOutError: the coordinator refused, or did not answer.
        """
        try:
            identity = await self._requests.init_producer_id(ProducerIdAndEpoch())
        except FatalProducerError as error:
            if isinstance(error.__cause__, AuthenticationError):
                raise error.__cause__ from None  # nothing has begun that could be lost
            raise
        self._sequences.set_producer_id(*identity)
        self.core.on_initialized(self._requests.transaction_version(0))

    # -- beginning ------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Begin a transaction, once the previous one has ended.

        Raises:
            TransactionStateError: another transaction is open.
            FatalProducerError: the producer can only be closed.
            TimedOutError: the end of the previous one is not answered.
        """
        core = self.core
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(self._timeout_s):
            await self._wait_ended()
        if self._ending is None and core.state is TransactionState.FAILED:
            # Its abort was not answered, and nothing else will try again.
            await self._abort_now()
        if self._ending is not None:
            raise TimedOutError("the end of the previous transaction is not answered")
        core.check_may_begin()
        version = self._requests.transaction_version(core.transaction_version)
        if version != core.transaction_version:
            had_epoch = core.has_epoch_of_its_own
            core.transaction_version = version
            if core.has_epoch_of_its_own and not had_epoch:
                await self._upgrade()
        core.begin()

    async def _upgrade(self) -> None:
        """Begin to use transaction.version 2 with a new epoch, as Kafka's clients do."""
        try:
            await self._renew()
        except FatalProducerError as error:
            raise self.core.fail_fatally(error) from error
        self.core.check_may_begin()  # another task may have begun one meanwhile

    def on_new_batch(self, queue: PartitionQueue) -> None:
        """The first record of a batch was accepted: add its partition at the coordinator."""
        partition = TopicPartition(queue.topic, queue.partition)
        if self.core.add_partition(partition) and self._adding is None:
            self._adding = _Addition()
            self._cluster.nursery.start_soon(run_aside, self._add_partitions, self._adding)

    async def _add_partitions(self, addition: _Addition) -> None:
        """Add new partitions at the coordinator: each request has all that came meanwhile."""
        core = self.core
        try:
            with addition.scope:
                while partitions := core.take_new_partitions():
                    try:
                        await self._requests.add_partitions(self._identity, partitions)
                    except KafkaClientError as error:
                        self._fail(error)
                    else:
                        core.on_partitions_added(partitions)
                        self._sender.pump()
            if addition.scope.cancelled_caught:
                core.is_started = True  # the coordinator may have added them all the same
        finally:
            self._adding = None
            addition.done.set()

    # -- offsets --------------------------------------------------------------------------------

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, number: int
    ) -> None:
        """Have a group's offsets committed with the transaction of that number.

        Raises:
            TransactionAbortedError, FatalProducerError: see `Transaction.send_offsets`.
        """
        core = self.core
        core.check_may_send(number)
        await trio.lowlevel.checkpoint()
        if not offsets:
            return
        try:
            if not core.has_epoch_of_its_own:
                core.on_sent()  # whether it is answered or not
                await self._requests.add_offsets(self._identity, group.group_id)
                core.check_may_send(number)
            core.on_sent()
            await self._requests.commit_offsets(
                self._identity, offsets, group, adds_group=core.has_epoch_of_its_own
            )
        except KafkaClientError as error:
            if core.number == number and core.is_sending:
                self._fail(error)
            core.raise_failure()
            raise
        except trio.Cancelled:
            if core.number == number and core.is_sending:
                self._fail(TransactionAbortedError("the commit of offsets was cancelled"))
            raise
        core.check_may_send(number)

    def _fail(self, error: KafkaClientError) -> None:
        """A request failed the transaction, or the producer."""
        core = self.core
        if isinstance(error, FatalProducerError):
            failure: KafkaClientError = core.fail_fatally(error)
        elif core.is_sending or core.state is TransactionState.FAILED:
            core.is_started |= isinstance(error, TimedOutError)  # it may have been done
            failure = core.fail(error)
        else:
            return  # it is being aborted anyway
        self._accumulator.outcomes.give_up_waiting(failure)
        self._sender.wake()

    # -- ending ---------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit; if that is impossible, abort, and raise why.

        Raises:
            TransactionAbortedError: it is aborted instead.
            FatalProducerError: the producer can only be closed.
        """
        core = self.core
        try:
            if core.state is TransactionState.OPEN:
                core.begin_flush()
                await self._flush()
            core.raise_failure()
        except (TransactionAbortedError, trio.Cancelled) as error:
            await self.abort(error)
            raise
        core.begin_commit()
        await self._end(self._commit_at_coordinator)
        if core.state is TransactionState.FAILED:
            failure = core.failure
            assert failure is not None
            await self.abort(failure)
            raise renewed(failure)
        core.raise_failure()

    async def _flush(self) -> None:
        """Wait until everything is written, or something has failed."""
        accumulator, core = self._accumulator, self.core
        accumulator.close_all()
        self._sender.pump()
        await trio.lowlevel.checkpoint()
        for batch in list(accumulator.incomplete):
            await wait_batch(batch)
            if core.has_failed:
                return
        while self._adding is not None:
            await self._adding.done.wait()

    async def abort(self, cause: BaseException | None = None) -> None:
        """Abort; what cannot be done in time is done before the next transaction.

        Args:
            cause: why. A task that is cancelled waits for a few seconds only.

        Raises:
            FatalProducerError: the producer can only be closed; not raised in a task that is
                cancelled, nor if the cause is the program's own exception.
        """
        core = self.core
        is_cancelled = cause is not None and not isinstance(cause, Exception)
        if core.is_open:
            self._begin_abort()
            await self._end(self._abort_at_coordinator, is_cancelled=is_cancelled)
        elif self._ending is not None:
            await self._wait_end(self._ending, is_cancelled=is_cancelled)
        failure = core.failure
        if not isinstance(failure, FatalProducerError):
            return
        if cause is None:
            raise renewed(failure)
        if isinstance(cause, TransactionAbortedError):
            raise renewed(failure) from cause
        if isinstance(cause, FatalProducerError):
            return
        logger.warning("the transaction could not be aborted: %s", failure)

    async def _abort_now(self) -> None:
        self._begin_abort()
        with trio.move_on_after(self._timeout_s):
            await self._end(self._abort_at_coordinator)

    def _begin_abort(self) -> None:
        self.core.begin_abort()
        failure = self.core.failure or TransactionAbortedError("the transaction is aborted")
        self._accumulator.outcomes.give_up_waiting(failure)

    async def close(self, error: BaseException | None) -> None:
        """Abort what is open, in a bounded time: the producer is closed."""
        is_cancelled = error is not None and not isinstance(error, Exception)
        timeout_s = _CANCELLED_END_S if is_cancelled else self._timeout_s
        with trio.move_on_after(timeout_s, shield=is_cancelled):
            if self.core.is_open:
                self._begin_abort()
                await self._end(self._abort_at_coordinator)
            await self._wait_ended()

    # -- at the coordinator ---------------------------------------------------------------------

    async def _end(self, end: Callable[[], Awaitable[None]], *, is_cancelled: bool = False) -> None:
        """End a transaction in the background, and wait for that."""
        done = self._ending = trio.Event()

        async def run() -> None:
            try:
                await end()
            finally:
                self._ending = None
                done.set()

        self._cluster.nursery.start_soon(run_aside, run)
        await self._wait_end(done, is_cancelled=is_cancelled)

    async def _wait_end(self, done: trio.Event, *, is_cancelled: bool) -> None:
        if not is_cancelled:
            try:
                await done.wait()
            except trio.Cancelled:
                await self._wait_end(done, is_cancelled=True)
                raise
            return
        with trio.move_on_after(_CANCELLED_END_S, shield=True):
            await done.wait()

    async def _wait_ended(self) -> None:
        while self._ending is not None:
            await self._ending.wait()

    async def _commit_at_coordinator(self) -> None:
        core = self.core
        try:
            if core.is_started:
                identity = await self._requests.end(
                    self._identity, commit=True, gets_epoch=core.has_epoch_of_its_own
                )
                self._sequences.renew(*identity)
        except TransactionAbortedError as error:
            core.fail(error)
        except FatalProducerError as error:
            self._accumulator.outcomes.give_up_all(core.fail_fatally(error))
        else:
            core.on_ended()

    async def _abort_at_coordinator(self) -> None:
        core, accumulator = self.core, self._accumulator
        with trio.move_on_after(_DRAIN_S):
            if self._adding is not None:
                await self._adding.done.wait()
            for batch in list(accumulator.incomplete):
                await wait_batch(batch)
        if self._adding is not None:
            self._adding.scope.cancel()
            await self._adding.done.wait()
        if core.has_failed:  # the producer did, by an answer that was still to come
            assert core.failure is not None
            accumulator.outcomes.give_up_all(core.failure)
            return
        accumulator.outcomes.give_up_all(TransactionAbortedError("the transaction is aborted"))
        before = self._identity
        try:
            if core.is_started:
                await self._end_aborted()
            if self._identity == before and core.needs_new_epoch:
                await self._renew()
        except (TimedOutError, TransactionAbortedError) as error:
            logger.warning("the transaction is not aborted yet: %s", error)
            core.on_abort_unanswered()
        except FatalProducerError as error:
            core.fail_fatally(error)
        else:
            core.on_ended()

    async def _end_aborted(self) -> None:
        try:
            identity = await self._requests.end(
                self._identity, commit=False, gets_epoch=self.core.has_epoch_of_its_own
            )
        except TransactionAbortedError as error:
            if error.code != ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise
            # The coordinator has forgotten the transactional id, and whatever was open with it.
            self.core.needs_new_epoch = True
        else:
            self._sequences.renew(*identity)

    async def _renew(self) -> None:
        """Get a new epoch (KIP-360)."""
        self._sequences.renew(*await self._requests.init_producer_id(self._identity))
