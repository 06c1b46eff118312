"""Commits offsets, one request after the other, so that a later commit is never overtaken.

Owns the queue of commits and the task that sends them. Rules:
1. Commits are sent in the order in which they were asked for. A call that waits for one (`commit`)
   has it repeated until its time is over; others (`submit`) are tried once, as in the Java client.
2. A commit is that of the member, and of the topics, as they were when it was asked for: however
   late it is sent, it is never applied in a later generation, after the member has given up its
   partitions, or to a topic that was re-created.
3. A caller that is cancelled takes back a commit that is not sent yet, and stops its repetition.
4. A member that is in no generation cannot commit what it was assigned: it fails without asking.
   A commit of nothing succeeds, whoever asks for it. What the coordinator says about the member
   goes to the membership. A member whose epoch has moved on, without its partitions, commits again
   in the new one (STALE_MEMBER_EPOCH).
5. An automatic commit leaves out partitions that are gone: no rebalance waits for them to come.

Called by: `consumer` and `group`. Protocol guide, "OffsetCommit"; KIP-848 (topic ids).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial

import trio

from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.offsets import OffsetClient
from kraftrio.clients.consumer.ports import Standing
from kraftrio.clients.errors import (
    ClosedError,
    CommitFailedError,
    FencedInstanceIdError,
    KafkaClientError,
    RebalanceInProgressError,
    RetriableError,
    StaleMemberEpochError,
    UnknownTopicOrPartitionError,
)
from kraftrio.clients.group_offsets import NO_GENERATION, GroupMetadata, OffsetAndMetadata
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, KafkaClientError | None], None]

_ABOUT_THE_MEMBER = (
    CommitFailedError,
    RebalanceInProgressError,
    FencedInstanceIdError,
    StaleMemberEpochError,
)


class _Commit:
    """One commit."""

    __slots__ = (
        "callback",
        "done",
        "failure",
        "generation_id",
        "is_automatic",
        "offsets",
        "scope",
        "tenure",
        "timeout_s",
        "topic_ids",
    )

    def __init__(
        self,
        offsets: Offsets,
        topic_ids: Mapping[str, bytes],
        timeout_s: float | None,
        callback: CommitCallback | None = None,
        *,
        is_automatic: bool = False,
    ) -> None:
        self.offsets = offsets
        self.topic_ids = topic_ids
        self.timeout_s = timeout_s  # None: try once
        self.callback = callback
        self.is_automatic = is_automatic
        self.generation_id = NO_GENERATION  # when it was asked for
        self.tenure: Hashable = None  # of the member, unless `failure` says that there is no member
        self.failure: KafkaClientError | None = None
        self.scope = trio.CancelScope()  # of the sending
        self.done = trio.Event()

    def give_up(self) -> None:
        """Report to those that wait that it is not known whether it was committed."""
        self.failure = ClosedError("the consumer was closed before the commit was answered")
        self.done.set()


class Commits:
    """Sends what is to be committed.

    Args:
        on_thrown_out: called when the membership has changed by what the coordinator said.
        fail: called with what a callback raises.
    """

    def __init__(
        self,
        offsets: OffsetClient,
        config: ConsumerConfig,
        on_thrown_out: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self.membership: Standing | None = None  # of a consumer that subscribes
        self._offsets = offsets
        self._config = config
        self._on_thrown_out = on_thrown_out
        self._fail = fail
        self._jobs: deque[_Commit] = deque()
        self._wake = trio.Event()
        self._idle = trio.Event()

    async def commit(
        self, offsets: Offsets, timeout_s: float | None = None, *, is_automatic: bool = False
    ) -> None:
        """Commit and wait for it.

        Args:
            timeout_s: None is default_api_timeout_ms.
            is_automatic: not asked for by the program, so partitions that are gone do not matter.

        Raises:
            TimedOutError, KafkaClientError: as `OffsetClient.commit`.
        """
        if timeout_s is None:
            timeout_s = self._config.default_api_timeout_ms / 1000
        topic_ids = self._offsets.topic_ids(offsets)
        job = self._add(_Commit(offsets, topic_ids, timeout_s, is_automatic=is_automatic))
        try:
            await job.done.wait()
        except trio.Cancelled:
            if job in self._jobs:
                self._jobs.remove(job)
                job.done.set()
            job.scope.cancel()
            raise
        if job.failure is not None:
            raise job.failure

    def submit(self, offsets: Offsets, callback: CommitCallback | None = None) -> None:
        """Have it committed, tried once and without waiting.

        Args:
            callback: called with what was committed, and why it was not.
        """
        self._add(_Commit(offsets, self._offsets.topic_ids(offsets), None, callback))

    async def wait_idle(self) -> None:
        """Wait until every commit that was asked for is decided."""
        while self._jobs:
            await self._jobs[-1].done.wait()
        await self._idle.wait()

    def _add(self, job: _Commit) -> _Commit:
        job.failure = self._refusal() if job.offsets else None
        job.tenure = self._tenure(job)
        job.generation_id = self._metadata().generation_id
        self._jobs.append(job)
        self._wake.set()
        return job

    async def run(self) -> None:
        """Send as long as the consumer is open."""
        try:
            while True:
                self._wake = trio.Event()
                if self._jobs:
                    self._idle = trio.Event()
                while self._jobs:
                    await self._do(self._jobs.popleft())
                self._idle.set()
                await self._wake.wait()
        finally:
            for job in self._jobs:
                job.give_up()

    async def _do(self, job: _Commit) -> None:
        attempt = partial(self._send, job)
        try:
            with job.scope:
                if job.timeout_s is not None:
                    await self._offsets.repeat(attempt, job.timeout_s)
                else:
                    await self._try_once(attempt)
        except KafkaClientError as error:
            job.failure = error
        except trio.Cancelled:  # the consumer is closed
            job.give_up()
            raise
        job.done.set()
        if job.callback is not None:
            try:
                job.callback(job.offsets, job.failure)
            except Exception as error:  # a program's own function, whose error is the program's
                self._fail(error)

    async def _try_once(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Send it once; again only where the member need not do anything but learn its epoch."""
        try:
            await attempt()
        except RetriableError as error:
            if error.code != ErrorCode.STALE_MEMBER_EPOCH:
                raise
            await self._offsets.repeat(attempt, self._config.request_timeout_ms / 1000)

    async def _send(self, job: _Commit) -> None:
        if not job.offsets:
            return
        self._check_tenure(job)
        member = self._metadata()
        try:
            await self._offsets.commit(job.offsets, job.topic_ids, member)
        except _ABOUT_THE_MEMBER as error:
            membership = self.membership
            if membership is not None and membership.metadata == member:
                membership.refused(error.code)
                self._on_thrown_out()
            if isinstance(error, StaleMemberEpochError):
                raise RetriableError(error.message, code=error.code) from None
            raise
        except UnknownTopicOrPartitionError:
            if job.is_automatic:
                self._leave_out_gone(job)
            raise

    def _leave_out_gone(self, job: _Commit) -> None:
        """Have another attempt without the partitions that metadata does not know any more."""
        job.offsets = {
            partition: offset
            for partition, offset in job.offsets.items()
            if self._offsets.is_there(partition, job.topic_ids[partition.topic])
        }
        job.tenure = self._tenure(job)

    def _check_tenure(self, job: _Commit) -> None:
        """Raise unless the consumer is the member still that it was when the commit was asked for.

        Raises:
            RebalanceInProgressError, CommitFailedError: it is not.
        """
        if job.failure is not None:
            raise job.failure
        if job.tenure != self._tenure(job):
            raise CommitFailedError(
                f"the offsets were to be committed in generation {job.generation_id} of the group,"
                " which is over, or of partitions that the member has given up since"
            )

    def _tenure(self, job: _Commit) -> Hashable:
        membership = self.membership
        return None if membership is None else membership.tenure(job.offsets)

    def _metadata(self) -> GroupMetadata:
        """Return who the consumer is at the moment; no member if it has not subscribed."""
        membership = self.membership
        return GroupMetadata(self._offsets.group_id) if membership is None else membership.metadata

    def reader(self) -> GroupMetadata | None:
        """Return as which member committed offsets are asked for; None: as no member."""
        return None if self.membership is None else self.membership.reader

    def _refusal(self) -> KafkaClientError | None:
        """Return why the consumer can commit nothing at the moment; None if it can."""
        membership = self.membership
        if membership is None or membership.can_commit:
            return None
        if membership.is_rebalancing and membership.member_id:
            return RebalanceInProgressError(
                "the group is rebalancing: what the member owned is no longer its own, or is"
                " assigned to it again with its next poll"
            )
        return CommitFailedError(
            "the consumer is not in the group (any more): its offsets were not committed"
        )
