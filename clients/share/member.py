"""Keeps a share consumer in its group: the Trio shell of `heartbeat_member`.

Partitions are given up and taken over at once: several members read the same partition, and a
member may acknowledge the records in its hands after the partition was taken from it.

Called by: `share/consumer`. KIP-932, "Group membership".
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.errors import KafkaClientError, UnsupportedVersionError
from kraftrio.clients.group_coordinator import GroupCoordinator
from kraftrio.clients.heartbeat_member.member import HeartbeatMember, Lose, Reconcile
from kraftrio.clients.heartbeat_member.states import HeartbeatMemberState
from kraftrio.clients.share.acknowledgements import TopicIdPartition
from kraftrio.clients.share.config import ShareConsumerConfig
from kraftrio.clients.share.heartbeats import ShareHeartbeatRequests
from kraftrio.wire.messages.share_groups import ShareGroupHeartbeatResponse
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)


class ShareMember:
    """One share consumer's membership.

    Args:
        assign: called with the partitions that the member is to read.
        is_working: whether the program is in a call, and so counts as alive.
        on_failure: called when the membership has ended for good.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ShareConsumerConfig,
        coordinator: GroupCoordinator,
        member_id: str,
        assign: Callable[[Iterable[TopicIdPartition]], None],
        is_working: Callable[[], bool],
        on_failure: Callable[[], None],
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._coordinator = coordinator
        self._assign = assign
        self._is_working = is_working
        self._on_failure = on_failure
        self._heartbeats = ShareHeartbeatRequests(config.group_id, config.client_rack or None)
        self._member = HeartbeatMember(
            f"the share group {config.group_id!r}",
            member_id,
            self._heartbeats,
            lambda topic_id: cluster.metadata.topic_name(topic_id),
            max_poll_interval_ms=config.max_poll_interval_ms,
            backoff=ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            rng=rng,
        )
        self._wake = trio.Event()

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._heartbeats.topics

    @property
    def member_id(self) -> str:
        """The id of the member in the group."""
        return self._member.member_id

    @property
    def member_epoch(self) -> int:
        """The epoch of the member; 0 before it has joined."""
        return self._member.member_epoch

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return self._member.owned

    def subscribe(self, topics: frozenset[str]) -> None:
        """Subscribe to these topics, and join the group for them."""
        self._heartbeats.topics = topics
        self._cluster.set_topics(topics)
        self._member.subscribe()
        self._wake.set()

    def polled(self) -> None:
        """The program asks for records."""
        self._member.polled(_now_ms())
        if self._member.state.is_out:
            self._wake.set()

    def raise_failure(self) -> None:
        """Raise the error that has ended the membership, if one has.

        It has ended for good, except after a lack of rights: then the next call joins again.
        """
        failure = self._member.failure
        if failure is not None:
            self._member.recover()
            raise type(failure)(failure.message, code=failure.code)

    def metadata_changed(self) -> None:
        """Go on if topics of the assignment have names now."""
        if self._member.state is HeartbeatMemberState.RECONCILING:
            self._wake.set()

    async def leave(self) -> None:
        """Leave the group, if the coordinator can be reached."""
        request = self._member.leave()
        self._member.forget_owned()
        self._heartbeats.topics = frozenset()
        self._assign(())
        if request is not None:
            await self._coordinator.leave(request)

    async def run(self) -> None:
        """Send heartbeats and follow assignments until cancelled."""
        member = self._member
        while True:
            self._wake = trio.Event()
            if self._is_working():
                member.polled(_now_ms())
            lacks_names = self._reconcile()
            request = member.heartbeat(_now_ms())
            if request is None:
                await self._wait(lacks_names=lacks_names)
            elif member.state is HeartbeatMemberState.STALE:
                await self._coordinator.leave(request)
            else:
                await self._beat(request)

    def _reconcile(self) -> bool:
        """Follow the assignment; return whether metadata has to name topics first."""
        member = self._member
        while member.failure is None:
            step = member.step(_now_ms())
            if isinstance(step, Lose):
                member.lost()
                self._assign(())
            elif isinstance(step, Reconcile):
                member.revoked(step)
                member.reconciled(step)
                self._assign(
                    TopicIdPartition(self._cluster.metadata.topic_id(partition.topic), partition)
                    for partition in step.assigned
                )
            else:
                return step.lacks_names
        return False

    async def _wait(self, *, lacks_names: bool) -> None:
        due_ms = self._member.next_heartbeat_ms
        until_s = math.inf if due_ms is None else due_ms / 1000
        if lacks_names:
            self._cluster.request_refresh()
            until_s = min(until_s, trio.current_time() + self._config.retry_backoff_ms / 1000)
        # A deadline that has only just been reached is not past yet.
        with trio.move_on_at(max(until_s, trio.current_time() + 0.001)):
            await self._wake.wait()

    async def _beat(self, request: Any) -> None:
        member = self._member
        try:
            answer: ShareGroupHeartbeatResponse = await self._coordinator.ask(request)
        except UnsupportedVersionError as error:
            member.fail(error.code, f"share groups need brokers that serve them: {error}")
        except KafkaClientError as error:
            logger.debug("heartbeat failed: %s", error)
            if error.may_pass:
                member.heartbeat_failed(request, _now_ms())
            else:
                member.fail(error.code, str(error))
        else:
            self._coordinator.note_error(answer.error_code)
            member.heartbeat_answered(request, answer, _now_ms())
        if member.failure is not None:
            self._assign(())
            self._on_failure()


def _now_ms() -> float:
    return trio.current_time() * 1000
