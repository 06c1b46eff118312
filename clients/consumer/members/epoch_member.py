"""Keeps a consumer in a group of the consumer protocol: does what `heartbeat_member` says.

Owns the tasks of the member. Rules:
1. Partitions are given up and taken over only while the application looks at no record: within
   its poll (`Turnstile`). Once that has begun it is finished, also if the poll is cancelled.
2. Before partitions are given up what was consumed of them is committed, if that is automatic;
   then the listener is called, and only then the coordinator is notified.
3. Heartbeats go on meanwhile, as often as the coordinator wants them.
4. An application that stays away from poll longer than max_poll_interval_ms leaves the group, and
   joins again with its next poll; a program that takes records one by one is watched in the same
   way, and one that waits in its poll does not stay away.

Called by: `subscription`. KIP-848, KIP-1082 (the member names itself).
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable
from typing import Any

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.calls import Calls
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.auto_commit import AutoCommit
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.handover import Handover
from kraftrio.clients.consumer.listener import ListenerCalls, RebalanceListener
from kraftrio.clients.consumer.members.epoch_standing import EpochStanding
from kraftrio.clients.consumer.members.heartbeats import ConsumerHeartbeatRequests
from kraftrio.clients.errors import KafkaClientError, UnsupportedVersionError
from kraftrio.clients.group_coordinator import GroupCoordinator
from kraftrio.clients.heartbeat_member.member import (
    HeartbeatMember,
    Lose,
    Partitions,
    Reconcile,
)
from kraftrio.clients.heartbeat_member.member_id import new_member_id
from kraftrio.clients.heartbeat_member.states import HeartbeatMemberState
from kraftrio.wire.messages.groups import ConsumerGroupHeartbeatResponse

logger = logging.getLogger(__name__)


class EpochMember:
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
        group_id = coordinator.group_id
        self._listener = ListenerCalls(calls.fail)
        self._heartbeats = ConsumerHeartbeatRequests.of(group_id, config)
        self._member = HeartbeatMember(
            f"the group {group_id!r}",
            new_member_id(rng),
            self._heartbeats,
            lambda topic_id: cluster.metadata.topic_name(topic_id),
            max_poll_interval_ms=config.max_poll_interval_ms,
            backoff=ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            rng=rng,
        )
        self.standing = EpochStanding(self._member, group_id, config.group_instance_id)
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
        self._heartbeats.pattern = None
        self.want_topics(topics)

    def subscribe_pattern(self, pattern: str, listener: RebalanceListener | None) -> None:
        """Want the topics whose names match, as the broker finds them."""
        self._listener.listener = listener
        self._heartbeats.pattern = pattern
        self.want_topics(())

    def want_topics(self, topics: Iterable[str]) -> None:
        """Want these topics, with the listener as it is."""
        wanted = frozenset(topics)
        if (
            wanted != self._heartbeats.topics
            or self._member.state is HeartbeatMemberState.UNSUBSCRIBED
        ):
            self._heartbeats.topics = wanted
        self._cluster.set_topics(wanted)
        self._member.subscribe()
        self.wake()

    def polled(self) -> None:
        """The application polls."""
        is_away = self._member.state in (HeartbeatMemberState.STALE, HeartbeatMemberState.FENCED)
        self._member.polled(_now_ms())
        if is_away or self._member.state is HeartbeatMemberState.UNSUBSCRIBED:
            self.wake()

    def recover(self) -> None:
        """Join again with the next poll, if what has ended the membership may have changed."""
        if self._member.recover():
            self._calls.interrupt()

    def metadata_changed(self) -> None:
        """Topics of the assignment may have names now."""
        if self._member.state is HeartbeatMemberState.RECONCILING:
            self._wake.set()

    def wake(self) -> None:
        """Look again what is to be done."""
        self._wake.set()
        self._wake_heart.set()

    async def leave(self, *, commit: bool) -> None:
        """Give up everything and leave, as far as the coordinator can be reached."""
        member = self._member
        owned = member.owned
        is_lost = not member.can_commit
        if owned and commit and not is_lost:
            await self._auto_commit.commit(owned)
        if owned:
            await self._listener.given_up(owned, is_lost=is_lost)
        request = member.leave()
        member.forget_owned()
        self._partitions.assign(())
        if request is not None:
            await self._coordinator.leave(request)

    # -- the member's steps ---------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the membership as long as the consumer is open."""
        member = self._member
        while True:
            self._wake = trio.Event()
            self._look_at_program()
            try:
                step = member.step(_now_ms())
            except KafkaClientError:
                self._calls.interrupt()  # every call raises it
                await self._wake.wait()
                continue
            if isinstance(step, Lose):
                await self._lose()
            elif isinstance(step, Reconcile):
                await self._reconcile()
            else:
                pause_s = math.inf
                if step.lacks_names:
                    self._cluster.request_refresh()
                    pause_s = self._config.retry_backoff_ms / 1000
                self._wake_heart.set()
                with trio.move_on_after(pause_s):
                    await self._wake.wait()

    def _look_at_program(self) -> None:
        """A program that waits in a call, or has taken a record since, counts as polling."""
        if self._handover.has_moved() or self._calls.is_waiting:
            self._member.polled(_now_ms())

    async def _lose(self) -> None:
        async with self._turnstile.turn():
            owned = self._member.owned
            await self._listener.given_up(owned, is_lost=True)
            self._partitions.assign(())
            self._member.lost()

    async def _reconcile(self) -> None:
        member = self._member
        async with self._turnstile.turn():
            step = member.step(_now_ms())  # there may be a newer assignment, or none any more
            if not isinstance(step, Reconcile):
                return
            if step.revoked:
                await self._auto_commit.commit(step.revoked)
                await self._listener.given_up(step.revoked, is_lost=False)
            if not member.revoked(step):
                self._partitions.assign(sorted(member.owned))  # fenced meanwhile
                return
            self._partitions.assign(sorted(step.assigned))
            member.reconciled(step)
            self._watch_topics(step.assigned)
            await self._listener.assigned(step.added)

    def _watch_topics(self, assigned: Partitions) -> None:
        """Keep metadata of what is read, also of topics that only the broker knows to match."""
        self._cluster.set_topics(self._heartbeats.topics | {topic for topic, _ in assigned})

    # -- heartbeats -----------------------------------------------------------------------------

    async def run_heartbeats(self) -> None:
        """Send heartbeats to the coordinator as long as the consumer is open."""
        member = self._member
        while True:
            self._wake_heart = trio.Event()
            due_ms = member.next_heartbeat_ms
            with trio.move_on_at(math.inf if due_ms is None else due_ms / 1000):
                await self._wake_heart.wait()
            self._look_at_program()
            request = member.heartbeat(_now_ms())
            if request is None:
                # A deadline that has only just been reached is not past yet.
                await trio.sleep(0.001)
            elif member.state is HeartbeatMemberState.STALE:
                self._turnstile.notify()
                self._wake.set()
                await self._coordinator.leave(request)
            else:
                await self._beat(request)

    async def _beat(self, request: Any) -> None:
        member = self._member
        try:
            answer: ConsumerGroupHeartbeatResponse = await self._coordinator.ask(request)
        except UnsupportedVersionError as error:
            what = "patterns that it resolves" if request.subscribed_topic_regex else "it"
            member.fail(
                error.code,
                f'group_protocol="consumer" needs brokers that serve {what}: {error}',
            )
        except KafkaClientError as error:
            logger.debug("heartbeat failed: %s", error)
            if error.may_pass:
                member.heartbeat_failed(request, _now_ms())
            else:
                member.fail(error.code, str(error))
        else:
            self._coordinator.note_error(answer.error_code)
            member.heartbeat_answered(request, answer, _now_ms())
        self._wake.set()


def _now_ms() -> float:
    return trio.current_time() * 1000
