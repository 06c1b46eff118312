"""The share consumer: `async with ShareConsumer("localhost:9092", group_id="g") as consumer`.

Owns what programs call. The members of a share group work on the records of a topic together:
several may read one partition, and each record goes to one of them. It is locked for that member,
for a time that the group sets; unless the member acknowledges it by then it is delivered again.
Rules:
1. Records are taken one by one (`async for record in consumer`), in batches of one partition
   (`batches`), or all that are there (`poll`); by one task at a time.
2. With share_acknowledgement_mode "implicit", asking for more accepts the records that were handed
   over before. With "explicit" the program acknowledges each record before it asks for more:
   `record.accept()`, `release()`, `reject()`, or `renew()`, after which it keeps the record, under
   a new lock, and acknowledges it later.
3. Acknowledgements go to brokers with the next request for records, within a few seconds, or by
   `commit`. They may come too late: `commit` returns, and `acknowledgement_callback` gets, an error
   for each partition where they did (InvalidRecordStateError, for one).
4. Every wait is cancellable, and nothing is taken before the last of them. Errors are raised by the
   calls for records; the next call tries again what failed.
5. If the body of `async with` raises, the records in its hands are released; else they are accepted
   ("implicit") or, if they are not acknowledged, released. Records that were not handed over are
   released in any case, so that other members get them at once.

A record is delivered at least once, and out of order where it was delivered before. Names and
defaults of the settings are those of the Java share consumer in snake_case. KIP-932.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

import trio

from kraftrio.base.background import run_aside
from kraftrio.clients import surroundings
from kraftrio.clients.arguments.several import Texts
from kraftrio.clients.arguments.several import topics as checked_topics
from kraftrio.clients.arguments.times import Duration, timeout_or_default
from kraftrio.clients.calls import Calls
from kraftrio.clients.cluster import open_shielded_cluster
from kraftrio.clients.config import describe_client, make_config
from kraftrio.clients.diagnostics.open_clients import noted_as_open
from kraftrio.clients.diagnostics.statistics import ShareConsumerStatistics
from kraftrio.clients.errors import SubscriptionStateError
from kraftrio.clients.group_coordinator import GroupCoordinator
from kraftrio.clients.heartbeat_member.member_id import new_member_id
from kraftrio.clients.serialization import Deserializer, Deserializers, K, V
from kraftrio.clients.share.acknowledgements import AcknowledgeType
from kraftrio.clients.share.config import ShareConsumerConfig, ShareConsumerSettings
from kraftrio.clients.share.fetcher import ShareFetcher
from kraftrio.clients.share.in_hand import InHand
from kraftrio.clients.share.member import ShareMember
from kraftrio.clients.share.records import ShareBatch, ShareRecord, ShareRecords
from kraftrio.clients.share.results import AcknowledgementCallback, AcknowledgementResults, Outcome
from kraftrio.net.transport import Network
from kraftrio.wire.primitives import TopicPartition

__all__ = ["AcknowledgeType", "ShareBatch", "ShareConsumer", "ShareRecord", "ShareRecords"]

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 30.0
_CANCELLED_CLOSE_TIMEOUT_S = 1.0  # to leave the group when the program is cancelled


T = TypeVar("T")


class ShareConsumer(Generic[K, V]):
    """Works on records of a share group; to be entered with `async with`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such.
        key_deserializer: makes a key of bytes; None: it stays bytes. See `serialization`.
        value_deserializer: the same for values. A record that cannot be read is released, and
            raised as a RecordDeserializationError by the next call for records.
        network: makes connections, instead of the system's sockets.
        rng: source of randomness, for tests that must be repeatable.
        settings: see `ShareConsumerConfig`.

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
        **settings: Unpack[ShareConsumerSettings],
    ) -> None:
        if not settings.get("client_id"):
            group_id = settings.get("group_id") or ""
            settings["client_id"] = f"share-consumer-{group_id}-{next(surroundings.numbers.get())}"
        config = self.config = make_config(ShareConsumerConfig, bootstrap_servers, settings)
        self._deserializers = Deserializers(key_deserializer, value_deserializer)
        self._network = network or surroundings.network.get()()
        self._rng = rng or surroundings.chance.get()()
        self._stack = AsyncExitStack()
        self._calls = Calls()
        self._results = AcknowledgementResults(self._calls.fail)
        self._in_hand = InHand(
            is_explicit=config.is_explicit, on_first=lambda: self._fetcher.wake()
        )
        self._member_scope: trio.CancelScope | None = None  # of the membership, while there is one
        self._is_entered = False

    def __repr__(self) -> str:
        return describe_client(self, self.config, is_open=self._calls.is_open)

    async def __aenter__(self) -> Self:
        assert not self._is_entered, "a share consumer is entered once"
        self._is_entered = True
        config, rng, calls = self.config, self._rng, self._calls
        cluster = self._cluster = await self._stack.enter_async_context(
            open_shielded_cluster(config=config, network=self._network, rng=rng)
        )
        self._stack.enter_context(noted_as_open(self))
        cluster.on_refusal(calls.fail)
        member_id = new_member_id(rng)
        self._fetcher = ShareFetcher(
            cluster,
            config,
            member_id,
            self._in_hand,
            self._results,
            self._deserializers,
            on_records=calls.arrive,
            fail=calls.fail,
        )
        self._member = ShareMember(
            cluster,
            config,
            GroupCoordinator(cluster, config, rng, config.group_id),
            member_id,
            assign=self._fetcher.assign,
            is_working=lambda: calls.is_waiting,
            on_failure=calls.interrupt,
            rng=rng,
        )
        cluster.on_change(self._member.metadata_changed)
        cluster.nursery.start_soon(run_aside, self._fetcher.run)
        calls.is_open = True
        return self

    async def _run_member(self, scope: trio.CancelScope) -> None:
        with scope:
            await self._member.run()

    async def _leave_group(self) -> None:
        """Leave; no heartbeat comes after that."""
        if self._member_scope is not None:
            self._member_scope.cancel()
            self._member_scope = None
            await self._member.leave()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._calls.close()
        is_cancelled = error is not None and not isinstance(error, Exception)
        timeout_s = _CANCELLED_CLOSE_TIMEOUT_S if is_cancelled else CLOSE_TIMEOUT_S
        try:
            self._in_hand.settle(is_done=error is None)
            with trio.move_on_after(timeout_s, shield=is_cancelled):
                await self._fetcher.close()
                await self._leave_group()
            for failure in self._calls.failures:
                logger.warning("not raised before the consumer was closed: %r", failure)
        finally:
            await self._stack.__aexit__(kind, error, traceback)

    # -- what to read ---------------------------------------------------------------------------

    async def subscribe(self, topics: Texts) -> None:
        """Work on the records of these topics; replaces an earlier subscription.

        Raises:
            TypeError, ValueError: these are no names of topics.
        """
        self._calls.check_open()
        wanted = checked_topics("topics", topics)
        if not wanted:
            await self.unsubscribe()
            return
        await trio.lowlevel.checkpoint()
        self._member.subscribe(frozenset(wanted))
        if self._member_scope is None:
            scope = self._member_scope = trio.CancelScope()
            self._cluster.nursery.start_soon(run_aside, self._run_member, scope)

    async def unsubscribe(self) -> None:
        """Leave the group; records that were handed over may still be acknowledged."""
        self._calls.check_open()
        await self._leave_group()

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._member.topics if self._is_entered else frozenset()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read; other members may read them, too."""
        return self._member.owned if self._is_entered else frozenset()

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are locked for the member that gets them; None before the first."""
        return self._fetcher.lock_timeout_ms if self._is_entered else None

    def statistics(self) -> ShareConsumerStatistics:
        """Return figures of this moment.

        Raises:
            ClosedError: the consumer is not open.
        """
        self._calls.check_open()
        return ShareConsumerStatistics(
            cluster=self._cluster.statistics(),
            assignment=self.assignment,
            waiting_records=self._in_hand.waiting_records,
            records_in_hand=self._in_hand.held_records,
            pending_acknowledgements=len(self._in_hand.pending),
            member_id=self._member.member_id,
            member_epoch=self._member.member_epoch,
        )

    # -- taking records -------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord[K, V]:
        """Return the next record, waiting for it.

        Raises:
            AcknowledgementStateError: mode "explicit", and the last record is not acknowledged.
        """
        record = await self._next(lambda: self._in_hand.next_record(trio.current_time()))
        assert record is not None, "there is no deadline"
        return record

    def batches(self) -> AsyncIterator[ShareBatch[K, V]]:
        """Iterate over batches: records of one partition each."""
        return _ShareBatches(self)

    async def poll(self, timeout_ms: Duration | None = None) -> ShareRecords[K, V]:
        """Return the records that are there, waiting until there are some.

        Args:
            timeout_ms: return without records after that time; None: wait as long as it takes.

        Raises:
            AcknowledgementStateError: mode "explicit", and a record is not acknowledged.
        """
        deadline = (
            trio.current_time() + timeout_or_default("timeout_ms", timeout_ms, math.inf) / 1000
        )
        limited = self.config.share_acquire_mode == "record_limit"
        limit = self.config.max_poll_records if limited else 1 << 31

        def take() -> list[ShareBatch[K, V]] | None:
            return self._in_hand.next_batches(trio.current_time(), limit) or None

        return ShareRecords(await self._next(take, deadline) or [])

    async def _next(self, take: Callable[[], T | None], deadline: float = math.inf) -> T | None:
        """Take something, waiting for it; None: nothing was there before the deadline."""
        calls = self._calls
        calls.begin()
        try:
            if self._member_scope is None:
                raise SubscriptionStateError(
                    "nothing is subscribed to: call subscribe before records are asked for"
                )
            self._in_hand.finish()
            self._member.polled()
            self._want_records()
            await trio.lowlevel.checkpoint()
            while True:
                calls.is_interrupted = False
                self._member.raise_failure()
                calls.raise_failure()
                found = take()
                if found is not None:
                    self._fetcher.is_wanted = False
                    return found
                if trio.current_time() >= deadline:
                    return None
                self._want_records()
                with trio.move_on_at(deadline):
                    await calls.wait_arrival()
        finally:
            calls.end()

    def _want_records(self) -> None:
        """Have records fetched, unless some are there; even for a call that does not wait."""
        if self._in_hand.is_empty:
            self._fetcher.is_wanted = True
            self._fetcher.wake()

    # -- acknowledging --------------------------------------------------------------------------

    def acknowledge(
        self, record: ShareRecord[K, V], kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record, as its own methods do.

        Raises:
            AcknowledgementStateError: the record cannot be acknowledged, or not any more.
        """
        self._in_hand.acknowledge(record, AcknowledgeType(kind))

    async def commit(self, *, timeout_ms: Duration | None = None) -> Outcome:
        """Send the acknowledgements, wait, and return the result of each partition (None: success).

        In the mode "implicit" everything that was handed over is accepted.

        Raises:
            TimedOutError: not every broker has answered in time.
        """
        self._calls.check_open()
        self._finish_implicitly()
        timeout_s = self.config.call_timeout_s(timeout_ms)
        with self._results.collected() as outcome:
            await trio.lowlevel.checkpoint()
            await self._fetcher.flush(timeout_s)
        return outcome

    def commit_async(self) -> None:
        """As `commit`, without waiting: the callback gets the result."""
        self._calls.check_open()
        self._finish_implicitly()
        self._fetcher.begin_flush()

    def _finish_implicitly(self) -> None:
        if not self.config.is_explicit:
            self._in_hand.finish()

    @property
    def acknowledgement_callback(self) -> AcknowledgementCallback | None:
        """Called, synchronously, with a partition, the offsets that were acknowledged, and the
        error if that failed.
        """
        return self._results.callback

    @acknowledgement_callback.setter
    def acknowledgement_callback(self, callback: AcknowledgementCallback | None) -> None:
        self._results.callback = callback


class _ShareBatches(Generic[K, V]):
    """What `ShareConsumer.batches` returns."""

    def __init__(self, consumer: ShareConsumer[K, V]) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareBatch[K, V]:
        consumer = self._consumer
        batch = await consumer._next(lambda: consumer._in_hand.next_batch(trio.current_time()))
        assert batch is not None, "there is no deadline"
        return batch
