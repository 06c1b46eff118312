"""Keeps a consumer in a group of the classic protocol: does what `membership` says.

Owns the tasks of the member. Rules:
1. Partitions are given up and taken over only while the application looks at no record: within
   its poll (`Turnstile`). Once that has begun it is finished, also if the poll is cancelled; the
   next poll waits for it. So a listener is not cancelled by a poll's timeout.
2. Before partitions are given up what was consumed of them is committed, if that is automatic.
3. An application that stays away from poll longer than max_poll_interval_ms loses its partitions;
   a program that takes records one by one is watched in the same way, and one that waits in its
   poll does not stay away.
4. The leader watches the partitions of all topics of the group; each member its pattern.

Called by: `subscription`. KIP-62, KIP-345, KIP-429.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable
from typing import Any

import trio

from kraftrio.clients.calls import Calls
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.auto_commit import AutoCommit
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.handover import Handover
from kraftrio.clients.consumer.listener import ListenerCalls, RebalanceListener
from kraftrio.clients.consumer.members.classic_standing import ClassicStanding
from kraftrio.clients.consumer.membership.member_state import ClassicMemberState
from kraftrio.clients.consumer.membership.membership import Membership
from kraftrio.clients.consumer.membership.requests import MembershipConfig
from kraftrio.clients.consumer.membership.steps import (
    Complete,
    Join,
    Prepare,
    ShareOut,
    Sync,
    WaitUntil,
)
from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.group_coordinator import GroupCoordinator
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupResponse,
)

logger = logging.getLogger(__name__)

_JOIN_GRACE_MS = 5_000  # beyond the rebalance timeout, as the Java client has it


class ClassicMember:
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
        coordinator: GroupCoordinator,
        calls: Calls,
        handover: Handover,
        auto_commit: AutoCommit,
        rng: random.Random,
    ) -> None:
        self._listener = ListenerCalls(calls.fail)
        self.membership = Membership(
            MembershipConfig(
                group_id=coordinator.group_id,
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
        self.standing = ClassicStanding(self.membership)
        self._cluster = cluster
        self._config = config
        self._partitions = partitions
        self._coordinator = coordinator
        self._calls = calls
        self._turnstile = calls.turnstile
        self._handover = handover
        self._auto_commit = auto_commit
        self._wake = trio.Event()
        self._wake_heart = trio.Event()

    # -- what the application does --------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None) -> None:
        """Want these topics."""
        self._listener.listener = listener
        self.want_topics(topics)

    def subscribe_pattern(self, pattern: str, listener: RebalanceListener | None) -> None:
        """Refuse it: members of the classic protocol name topics."""
        raise ValueError(
            'a SubscriptionPattern needs group_protocol="consumer"; subscribe to a compiled pattern'
            " of Python, which the consumer matches itself"
        )

    def want_topics(self, topics: Iterable[str]) -> None:
        """Want these topics, with the listener as it is."""
        self.membership.subscribe(frozenset(topics))
        self._watch_topics()
        self.wake()

    def polled(self) -> None:
        """The application polls."""
        is_away = self.membership.state is ClassicMemberState.UNJOINED
        self.membership.liveness.polled(_now_ms())
        if is_away:
            if self.membership.owned:
                self._turnstile.announce()  # what it still holds is lost
            self.wake()

    def recover(self) -> None:
        """Join again with the next poll, if what has ended the membership may have changed."""
        if self.membership.recover():
            self._calls.interrupt()

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
            await self._listener.given_up(owned, is_lost=is_lost)
        request = membership.leave()
        membership.forget_owned()
        self._partitions.assign(())
        if request is not None:
            await self._coordinator.leave(request)

    # -- the member's steps ---------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the membership as long as the consumer is open."""
        while True:
            self._wake = trio.Event()
            self._look_at_program()
            try:
                step = self.membership.step(_now_ms())
            except KafkaClientError:
                self._calls.interrupt()  # every call raises it
                await self._wake.wait()
                continue
            if isinstance(step, WaitUntil):
                until_ms = math.inf if step.until_ms is None else step.until_ms
                # A deadline that has only just been reached is not past yet.
                with trio.move_on_at(max(until_ms / 1000, trio.current_time() + 0.001)):
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

    def _look_at_program(self) -> None:
        """A program that waits in a call, or has taken a record since, counts as polling."""
        if self._handover.has_moved() or self._calls.is_waiting:
            self.membership.liveness.polled(_now_ms())

    async def _prepare(self, step: Prepare) -> None:
        if not step.revoked:
            self.membership.prepared()
            await trio.lowlevel.checkpoint()
            return
        async with self._turnstile.turn():
            now = self.membership.step(_now_ms())  # the member may have been removed meanwhile
            if isinstance(now, Prepare):
                if not now.lost:
                    await self._auto_commit.commit(now.revoked)
                await self._listener.given_up(now.revoked, is_lost=now.lost)
                self._partitions.assign(self.membership.owned - now.revoked)
                self.membership.prepared()

    async def _complete(self) -> None:
        async with self._turnstile.turn():
            step = self.membership.step(_now_ms())
            if not isinstance(step, Complete):
                return
            if step.revoked:
                await self._auto_commit.commit(step.revoked)
                await self._listener.given_up(step.revoked, is_lost=False)
            self._partitions.assign(sorted(step.assigned))
            self.membership.completed()
            self._watch_topics()
            await self._listener.assigned(step.added)

    async def _join(self, step: Join) -> None:
        timeout_ms = max(
            self._config.request_timeout_ms, self._config.max_poll_interval_ms + _JOIN_GRACE_MS
        )
        response: JoinGroupResponse | None = await self._ask(step.request, timeout_ms)
        if response is not None:
            self._coordinator.note_error(response.error_code)
            self.membership.joined(response, _now_ms())

    async def _sync(self, step: Sync) -> None:
        timeout_ms = max(
            self._config.request_timeout_ms, self._config.max_poll_interval_ms + _JOIN_GRACE_MS
        )
        response: SyncGroupResponse | None = await self._ask(step.request, timeout_ms)
        if response is not None:
            self._coordinator.note_error(response.error_code)
            self.membership.synced(response, _now_ms())

    async def _ask(self, request: object, timeout_ms: float) -> Any:
        """Ask the coordinator; what fails is tried again later, or never."""
        try:
            return await self._coordinator.ask(request, timeout_ms / 1000)
        except KafkaClientError as error:
            if error.may_pass:
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
        """Send heartbeats to the coordinator as long as the consumer is open."""
        membership = self.membership
        while True:
            self._wake_heart = trio.Event()
            due_ms = membership.next_heartbeat_ms
            if due_ms is None:
                await self._wake_heart.wait()
                continue
            with trio.move_on_at(min(due_ms, membership.liveness.poll_deadline_ms) / 1000):
                await self._wake_heart.wait()
            self._look_at_program()
            request = membership.heartbeat(_now_ms())
            if membership.state is ClassicMemberState.UNJOINED:
                self._turnstile.notify()
            if request is None:
                # A deadline that has only just been reached is not past yet.
                await trio.sleep(0.001)
            elif isinstance(request, LeaveGroupRequest):
                await self._coordinator.leave(request)
                self._wake.set()
            else:
                await self._beat(request)
            if membership.session_is_over(_now_ms()):
                self._coordinator.forget()
                membership.liveness.coordinator_seen(_now_ms())

    async def _beat(self, request: HeartbeatRequest) -> None:
        membership = self.membership
        timeout_s = min(self._config.request_timeout_ms, self._config.session_timeout_ms) / 1000
        try:
            response: HeartbeatResponse = await self._coordinator.ask(request, timeout_s)
        except KafkaClientError as error:
            logger.debug("heartbeat failed: %s", error)
            membership.liveness.heartbeat_failed(_now_ms())
            return
        code = response.error_code
        if not membership.heartbeat_answered(request, code, _now_ms()):
            self._coordinator.forget()
        if code != ErrorCode.NONE:
            self._wake.set()


def _now_ms() -> float:
    return trio.current_time() * 1000
