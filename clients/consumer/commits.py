"""Commits offsets, one request after the other, so that a later commit is never overtaken.

Owns the queue of commits and the task that sends them. Rules:
1. Commits are sent in the order in which they were asked for. Whoever waits for one (`commit`)
   has it repeated until its time is over; others (`submit`) are tried once, as in the Java client.
2. A commit is that of the member, and of the topics, as they were when it was asked for: however
   late it is sent, it is never applied in a later generation, or to a topic that was re-created.
3. A caller that is cancelled takes back a commit that is not sent yet, and stops its repetition.
4. A member that is in no generation cannot commit what it was assigned: it fails without
   asking. What the coordinator says about the member goes to the membership.
5. An automatic commit leaves out partitions that are gone: no rebalance waits for them to come.

Called by: `consumer` and `group`. Protocol guide, "OffsetCommit"; KIP-848 (topic ids).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import trio

from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.membership.membership import Membership
from kraftrio.clients.consumer.offsets import OffsetClient
from kraftrio.clients.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaClientError,
    RebalanceInProgressError,
    UnknownTopicOrPartitionError,
)
from kraftrio.clients.group_offsets import GroupMetadata, OffsetAndMetadata
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, KafkaClientError | None], None]


class _Commit:
    """One commit."""

    __slots__ = (
        "callback",
        "done",
        "failure",
        "is_automatic",
        "member",
        "offsets",
        "scope",
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
        self.member: GroupMetadata | None = None  # None: `failure` says why there is none
        self.failure: KafkaClientError | None = None
        self.scope = trio.CancelScope()  # of the sending
        self.done = trio.Event()


class Commits:
    """Sends what is to be committed.

    Args:
        on_thrown_out: called when the membership has changed by what the coordinator said.
    """

    def __init__(
        self, offsets: OffsetClient, config: ConsumerConfig, on_thrown_out: Callable[[], None]
    ) -> None:
        self.membership: Membership | None = None  # of a consumer that subscribes
        self._offsets = offsets
        self._config = config
        self._on_thrown_out = on_thrown_out
        self._jobs: deque[_Commit] = deque()
        self._wake = trio.Event()
        self._idle = trio.Event()

    async def commit(
        self, offsets: Offsets, timeout_s: float | None = None, *, is_automatic: bool = False
    ) -> None:
        """Commit and wait for it.

        Args:
            timeout_s: None is default_api_timeout_ms.
            is_automatic: nobody has asked for it, so partitions that are gone do not matter.

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
        try:
            job.member = self._member()
        except KafkaClientError as error:
            job.failure = error
        self._jobs.append(job)
        self._wake.set()
        return job

    async def run(self) -> None:
        """Send as long as the consumer is open."""
        while True:
            self._wake = trio.Event()
            while self._jobs:
                self._idle = trio.Event()
                await self._do(self._jobs.popleft())
            self._idle.set()
            await self._wake.wait()

    async def _do(self, job: _Commit) -> None:
        attempt = partial(self._send, job)
        try:
            with job.scope:
                if job.timeout_s is None:
                    await attempt()
                else:
                    await self._offsets.repeat(attempt, job.timeout_s)
        except KafkaClientError as error:
            job.failure = error
        job.done.set()
        if job.callback is not None:
            job.callback(job.offsets, job.failure)

    async def _send(self, job: _Commit) -> None:
        if not job.offsets:
            return
        member = self._still_member(job)
        try:
            await self._offsets.commit(job.offsets, job.topic_ids, member)
        except (CommitFailedError, RebalanceInProgressError, FencedInstanceIdError) as error:
            membership = self.membership
            if membership is not None and membership.metadata == member:
                membership.fenced(error.code)
                self._on_thrown_out()
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

    def _still_member(self, job: _Commit) -> GroupMetadata:
        """Return which member to commit as: the one that the consumer was when it was asked for.

        Raises:
            RebalanceInProgressError, CommitFailedError: it is that member no longer.
        """
        member = job.member
        if member is None:
            assert job.failure is not None
            raise job.failure
        if member != self._metadata():
            raise CommitFailedError(
                f"the offsets were to be committed in generation {member.generation_id} of the"
                " group, which is over"
            )
        return member

    def _metadata(self) -> GroupMetadata:
        """Return who the consumer is at the moment; no member if it has not subscribed."""
        membership = self.membership
        return GroupMetadata(self._offsets.group_id) if membership is None else membership.metadata

    def _member(self) -> GroupMetadata:
        """Return which member the consumer is.

        Raises:
            RebalanceInProgressError, CommitFailedError: it is no member at the moment.
        """
        membership = self.membership
        if membership is None or membership.can_commit:
            return self._metadata()
        if membership.is_rebalancing and membership.member_id:
            raise RebalanceInProgressError(
                "the group is rebalancing: what the member owned is no longer its own, or is"
                " assigned to it again with its next poll"
            )
        raise CommitFailedError(
            "the consumer is not in the group (any more): its offsets were not committed"
        )
