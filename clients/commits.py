"""Commits offsets, one request after the other, so that a later commit is never overtaken.

Owns the queue of commits and the task that sends them. Rules:
1. Commits are sent in the order in which they were asked for. Who waits for his (`commit`) has it
   repeated until his time is over; others (`submit`) are tried once, as in the Java client.
2. A caller that is cancelled takes back a commit that is not sent yet.
3. A member that is in no generation cannot commit what it was assigned: that is told without
   asking. What the coordinator says about the member goes to the membership.

Called by: `consumer` and `group`. Protocol guide, "OffsetCommit".
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import trio

from kraftrio.clients.consumer_config import ConsumerConfig
from kraftrio.clients.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaClientError,
    RebalanceInProgressError,
)
from kraftrio.clients.membership import GroupMetadata, Membership
from kraftrio.clients.offsets import OffsetAndMetadata, OffsetClient
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, KafkaClientError | None], None]


class _Job:
    """One commit."""

    __slots__ = ("callback", "done", "failure", "offsets", "timeout_s")

    def __init__(
        self, offsets: Offsets, timeout_s: float | None, callback: CommitCallback | None
    ) -> None:
        self.offsets = offsets
        self.timeout_s = timeout_s  # None: try once
        self.callback = callback
        self.failure: KafkaClientError | None = None
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
        self._jobs: deque[_Job] = deque()
        self._wake = trio.Event()
        self._idle = trio.Event()

    async def commit(self, offsets: Offsets, timeout_s: float | None = None) -> None:
        """Commit and wait for it.

        Args:
            timeout_s: None is default_api_timeout_ms.

        Raises:
            TimedOutError, KafkaClientError: as `OffsetClient.commit`.
        """
        if timeout_s is None:
            timeout_s = self._config.default_api_timeout_ms / 1000
        job = self._add(_Job(offsets, timeout_s, None))
        try:
            await job.done.wait()
        except trio.Cancelled:
            if job in self._jobs:
                self._jobs.remove(job)
            raise
        if job.failure is not None:
            raise job.failure

    def submit(self, offsets: Offsets, callback: CommitCallback | None = None) -> None:
        """Have it committed, once and without waiting; the callback tells how that went."""
        self._add(_Job(offsets, None, callback))

    async def wait_idle(self) -> None:
        """Wait until every commit that was asked for is decided."""
        while self._jobs:
            await self._jobs[-1].done.wait()
        await self._idle.wait()

    def _add(self, job: _Job) -> _Job:
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

    async def _do(self, job: _Job) -> None:
        try:
            if not job.offsets:
                pass
            elif job.timeout_s is None:
                await self._send(job.offsets)
            else:
                await self._offsets.repeat(partial(self._send, job.offsets), job.timeout_s)
        except KafkaClientError as error:
            job.failure = error
        job.done.set()
        if job.callback is not None:
            job.callback(job.offsets, job.failure)

    async def _send(self, offsets: Offsets) -> None:
        member = self._member()
        try:
            await self._offsets.commit(offsets, member)
        except (CommitFailedError, RebalanceInProgressError, FencedInstanceIdError) as error:
            membership = self.membership
            if membership is not None and membership.metadata == member:
                membership.fenced(error.code)
                self._on_thrown_out()
            raise

    def _member(self) -> GroupMetadata:
        """Return as whom to commit.

        Raises:
            RebalanceInProgressError, CommitFailedError: as nobody, at the moment.
        """
        membership = self.membership
        if membership is None:
            return GroupMetadata(self._offsets.group_id)
        if membership.can_commit:
            return membership.metadata
        if membership.is_rebalancing and membership.member_id:
            raise RebalanceInProgressError(
                "the group is rebalancing: what the member owned is no longer its own, or is"
                " assigned to it anew with its next poll"
            )
        raise CommitFailedError(
            "the consumer is not in the group (any more): its offsets were not committed"
        )
