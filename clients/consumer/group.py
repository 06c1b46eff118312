"""Keeps a consumer in its group: does what `membership` says, and sends heartbeats.

Owns the tasks of the group. Rules:
1. Partitions are given up and taken over only while the application looks at no record: within
   its poll (`Turnstile`). Once that has begun it is finished, also if the poll is cancelled; the
   next poll waits for it. So a listener is not cancelled by a poll's timeout.
2. Before partitions are given up what was consumed of them is committed, if that is automatic.
3. Listeners may be sync or async. What one raises comes out of the application's next poll, and
   the rebalance goes on.
4. An application that stays away from poll longer than max_poll_interval_ms loses its partitions;
   who takes records one by one is seen by that.
5. The leader watches the partitions of all topics of the group; each member its pattern.

Called by: `consumer`. KIP-62, KIP-345, KIP-429.
"""

from __future__ import annotations

import inspect
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import trio

from kraftrio.clients.cluster import Cluster
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.auto_commit import AutoCommit
from kraftrio.clients.consumer.calls import Calls
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.handover import Handover
from kraftrio.clients.consumer.membership.member_state import MemberState
from kraftrio.clients.consumer.membership.membership import (
    Complete,
    Join,
    Membership,
    Prepare,
    ShareOut,
    Sync,
    Wait,
)
from kraftrio.clients.consumer.membership.requests import MembershipConfig
from kraftrio.clients.consumer.offsets import OffsetClient
from kraftrio.clients.errors import KafkaClientError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupResponse,
)
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)

_JOIN_GRACE_MS = 5_000  # beyond the rebalance timeout, as the Java client has it

Partitions = list[TopicPartition]


class RebalanceListener:
    """What an application wants to know of its partitions; any method may also be async."""

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are new, also when there are none: a rebalance has ended. Seek here."""
        return None

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are given up next: the last chance to commit."""
        return None

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """These belong to others already, so nothing can be committed."""
        return self.on_partitions_revoked(partitions)


class GroupMember:
    """One consumer's membership.

    Args:
        calls: where the application lets a rebalance pass, and learns of errors.
        handover: knows whether the application has taken anything.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        partitions: AssignedPartitions,
        offsets: OffsetClient,
        calls: Calls,
        handover: Handover,
        auto_commit: AutoCommit,
        rng: random.Random,
    ) -> None:
        self.listener: RebalanceListener | None = None
        self.membership = Membership(
            MembershipConfig(
                group_id=offsets.group_id,
                group_instance_id=config.group_instance_id,
                session_timeout_ms=config.session_timeout_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
                max_poll_interval_ms=config.max_poll_interval_ms,
                retry_backoff_ms=config.retry_backoff_ms,
                retry_backoff_max_ms=config.retry_backoff_max_ms,
                rack_id=config.client_rack or None,
            ),
            config.make_assignors(),
            rng,
        )
        self._cluster = cluster
        self._config = config
        self._partitions = partitions
        self._offsets = offsets
        self._calls = calls
        self._turnstile = calls.turnstile
        self._handover = handover
        self._auto_commit = auto_commit
        self._wake = trio.Event()
        self._wake_heart = trio.Event()

    # -- what the application does --------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None) -> None:
        """Want these topics."""
        self.listener = listener
        self.want_topics(topics)

    def want_topics(self, topics: Iterable[str]) -> None:
        """Want these topics, with the listener as it is."""
        self.membership.subscribe(frozenset(topics))
        self._watch_topics()
        self.wake()

    def polled(self) -> None:
        """The application polls."""
        is_away = self.membership.state is MemberState.UNJOINED
        self.membership.liveness.polled(_now_ms())
        if is_away:
            if self.membership.owned:
                self._turnstile.announce()  # what it still holds is lost
            self.wake()

    def metadata_changed(self) -> None:
        """Look whether the group has to rebalance, or whether topics are still missing."""
        topics = self._cluster.metadata.topics
        watched = self.membership.group_topics
        self.membership.leader.metadata_changed(self._partition_counts(watched))
        if any(name not in topics or topics[name].error_code for name in watched):
            self._cluster.request_refresh()
        self.wake()

    def wake(self) -> None:
        """Look again what is to be done."""
        self._wake.set()
        self._wake_heart.set()

    async def leave(self, *, commit: bool) -> None:
        """Give up everything and leave, as far as the coordinator can be reached."""
        membership = self.membership
        owned = membership.owned
        is_lost = not membership.can_commit
        if owned and commit and not is_lost:
            await self._auto_commit.commit(owned)
        if owned:
            await self._call_listener(owned, is_lost=is_lost)
        request = membership.leave()
        membership.forget_owned()
        self._partitions.assign(())
        if request is not None:
            await self._send_leave(request)

    # -- the member's steps ---------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the membership as long as the consumer is open."""
        while True:
            self._wake = trio.Event()
            try:
                step = self.membership.step(_now_ms())
            except KafkaClientError as error:
                self._calls.fail(error)
                await self._wake.wait()
                continue
            if isinstance(step, Wait):
                until_ms = math.inf if step.until_ms is None else step.until_ms
                with trio.move_on_at(until_ms / 1000):
                    await self._wake.wait()
                continue
            if isinstance(step, Prepare):
                await self._prepare(step)
            elif isinstance(step, Join):
                await self._join(step)
            elif isinstance(step, ShareOut):
                await self._share(step)
            elif isinstance(step, Sync):
                await self._sync(step)
            else:
                await self._complete()
            self._wake_heart.set()

    async def _prepare(self, step: Prepare) -> None:
        if not step.revoked:
            self.membership.prepared()
            await trio.lowlevel.checkpoint()
            return
        async with self._turnstile.turn():
            now = self.membership.step(_now_ms())  # the member may have been thrown out meanwhile
            if isinstance(now, Prepare):
                if not now.lost:
                    await self._auto_commit.commit(now.revoked)
                await self._call_listener(now.revoked, is_lost=now.lost)
                self._partitions.assign(self.membership.owned - now.revoked)
                self.membership.prepared()

    async def _complete(self) -> None:
        async with self._turnstile.turn():
            step = self.membership.step(_now_ms())
            if not isinstance(step, Complete):
                return
            if step.revoked:
                await self._auto_commit.commit(step.revoked)
                await self._call_listener(step.revoked, is_lost=False)
            self._partitions.assign(sorted(step.assigned))
            self.membership.completed()
            self._watch_topics()
            if self.listener is not None:
                await self._call(self.listener.on_partitions_assigned, step.added)

    async def _call_listener(self, partitions: Iterable[TopicPartition], *, is_lost: bool) -> None:
        listener = self.listener
        if listener is not None:
            method = listener.on_partitions_lost if is_lost else listener.on_partitions_revoked
            await self._call(method, partitions)

    async def _call(
        self,
        method: Callable[[Partitions], Awaitable[None] | None],
        partitions: Iterable[TopicPartition],
    ) -> None:
        try:
            waits = method(sorted(partitions))
            if inspect.isawaitable(waits):
                await waits
        except Exception as error:  # the application's own, which its poll raises
            self._calls.fail(error)

    async def _join(self, step: Join) -> None:
        timeout_ms = max(
            self._config.request_timeout_ms, self._config.max_poll_interval_ms + _JOIN_GRACE_MS
        )
        response: JoinGroupResponse | None = await self._ask(step.request, timeout_ms)
        if response is not None:
            self._offsets.note_coordinator_error(response.error_code)
            self.membership.joined(response, _now_ms())

    async def _sync(self, step: Sync) -> None:
        timeout_ms = max(
            self._config.request_timeout_ms, self._config.max_poll_interval_ms + _JOIN_GRACE_MS
        )
        response: SyncGroupResponse | None = await self._ask(step.request, timeout_ms)
        if response is not None:
            self._offsets.note_coordinator_error(response.error_code)
            self.membership.synced(response, _now_ms())

    async def _ask(self, request: object, timeout_ms: float) -> Any:
        """Ask the coordinator; what fails is tried again later, or never."""
        try:
            return await self._offsets.ask_coordinator(request, timeout_ms / 1000)
        except KafkaClientError as error:
            if error.retriable:
                self.membership.request_failed(_now_ms())
            else:
                self.membership.fail(error.code, str(error))
        return None

    async def _share(self, step: ShareOut) -> None:
        try:
            await self._cluster.refresh(step.topics)
        except KafkaClientError as error:
            logger.warning("no metadata to share out partitions with: %s", error)
            self.membership.request_failed(_now_ms())
            return
        self.membership.shared(self._partition_counts(step.topics))
        self._watch_topics()

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._cluster.metadata.topics
        return {name: len(known[name].partitions) for name in topics if name in known}

    def _watch_topics(self) -> None:
        self._cluster.set_topics(self.membership.group_topics)

    # -- heartbeats -----------------------------------------------------------------------------

    async def run_heartbeats(self) -> None:
        """Tell the coordinator, as long as the consumer is open, that the member lives."""
        membership = self.membership
        while True:
            self._wake_heart = trio.Event()
            due_ms = membership.next_heartbeat_ms
            if due_ms is None:
                await self._wake_heart.wait()
                continue
            with trio.move_on_at(min(due_ms, membership.liveness.poll_deadline_ms) / 1000):
                await self._wake_heart.wait()
            if self._handover.has_moved() or self._calls.is_waiting:
                membership.liveness.polled(_now_ms())
            request = membership.heartbeat(_now_ms())
            if membership.state is MemberState.UNJOINED:
                self._turnstile.notify()
            if request is None:
                # A deadline that has only just been reached is not past yet.
                await trio.sleep(0.001)
            elif isinstance(request, LeaveGroupRequest):
                await self._send_leave(request)
                self._wake.set()
            else:
                await self._beat(request)
            if membership.session_is_over(_now_ms()):
                self._offsets.forget_coordinator()
                membership.liveness.heard(_now_ms())

    async def _beat(self, request: HeartbeatRequest) -> None:
        membership = self.membership
        timeout_s = min(self._config.request_timeout_ms, self._config.session_timeout_ms) / 1000
        try:
            response: HeartbeatResponse = await self._offsets.ask_coordinator(request, timeout_s)
        except KafkaClientError as error:
            logger.debug("heartbeat failed: %s", error)
            membership.liveness.heartbeat_failed(_now_ms())
            return
        code = response.error_code
        if not membership.heartbeat_answered(request, code, _now_ms()):
            self._offsets.forget_coordinator()
        if code != ErrorCode.NONE:
            self._wake.set()

    async def _send_leave(self, request: LeaveGroupRequest) -> None:
        try:
            await self._offsets.ask_coordinator(request)
        except KafkaClientError as error:
            logger.info("leaving the group failed, it will notice: %s", error)


def _now_ms() -> float:
    return trio.current_time() * 1000
