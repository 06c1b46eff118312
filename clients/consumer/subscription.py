"""What a consumer reads: topics that its group shares out, or partitions named by hand.

Rules:
1. It is one or the other: the first subscription makes the consumer a member of its group, until
   it unsubscribes.
2. A pattern of Python's is matched again with each change of metadata, which then covers all
   topics. A `SubscriptionPattern` goes to the broker, which names topics by id only: metadata of
   all topics has their names.
3. A topic of interest that no consumer can read is an error of the program's next call.

Called by: `consumer`, `polling`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

import trio

from kraftrio.base.background import run_aside
from kraftrio.clients.arguments.several import (
    Partitions,
    Texts,
    pattern_or_topics,
    topic_partitions,
)
from kraftrio.clients.arguments.values import text
from kraftrio.clients.calls import Calls
from kraftrio.clients.cluster import FATAL_TOPIC_ERRORS, Cluster
from kraftrio.clients.consumer.assigned_partitions import AssignedPartitions
from kraftrio.clients.consumer.commits import Commits
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.consumer.listener import RebalanceListener
from kraftrio.clients.consumer.ports import GroupMember
from kraftrio.clients.errors import SubscriptionStateError, error_for
from kraftrio.clients.group_coordinator import GroupCoordinator
from kraftrio.clients.group_offsets import GroupMetadata
from kraftrio.clients.metadata import ClusterMetadata
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """The topics whose whole names match a regular expression in RE2's syntax, as the broker finds
    them; needs `group_protocol="consumer"`.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not text("a pattern of topics", self.pattern):
            raise ValueError("a pattern of topics must not be empty")


Topics = Texts | re.Pattern[str] | SubscriptionPattern


class Subscription:
    """See the module.

    Args:
        make_group: for the first subscription, and the first after `unsubscribe`.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        partitions: AssignedPartitions,
        coordinator: GroupCoordinator,
        commits: Commits,
        calls: Calls,
        make_group: Callable[[], GroupMember],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._partitions = partitions
        self._coordinator = coordinator
        self._commits = commits
        self._calls = calls
        self._make_group = make_group
        self._pattern: re.Pattern[str] | None = None
        self._topics: frozenset[str] = frozenset()
        self._group: GroupMember | None = None
        self._group_scope = trio.CancelScope()
        cluster.on_change(self._metadata_changed)

    # -- choosing -------------------------------------------------------------------------------

    async def subscribe(self, topics: Topics, listener: RebalanceListener | None) -> None:
        """Read these topics as a member of the group.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
            TypeError, ValueError: `topics` is neither topics nor a pattern, or partitions were
                assigned by hand.
        """
        group_id = self._coordinator.group_id
        if self._group is None and len(self._partitions):
            raise ValueError("partitions are assigned by hand: unsubscribe first")
        if isinstance(topics, SubscriptionPattern):
            await trio.lowlevel.checkpoint()
            self._choose_pattern(topics, listener)
            return
        pattern, wanted = pattern_or_topics(topics)
        await trio.lowlevel.checkpoint()
        if pattern is not None:
            names = self._matching_topics(pattern)
        elif wanted:
            names = wanted
        else:
            await self.unsubscribe()
            return
        self._pattern, self._topics = pattern, names
        self._want_all_topics(pattern is not None)
        logger.debug("joining the group %s", group_id)
        self._in_group().subscribe(names, listener)

    def _choose_pattern(
        self, wanted: SubscriptionPattern, listener: RebalanceListener | None
    ) -> None:
        self._in_group().subscribe_pattern(wanted.pattern, listener)
        self._pattern, self._topics = None, frozenset()
        self._want_all_topics(True)

    def _want_all_topics(self, wants_all: bool) -> None:
        self._cluster.want_all_topics = wants_all
        if wants_all:
            self._cluster.request_refresh()

    def assign(self, partitions: Partitions) -> None:
        """Read these partitions, and no others.

        Raises:
            TypeError: these are no partitions.
            ValueError: the consumer has subscribed, or there can be no such partition.
        """
        if self._group is not None:
            raise ValueError("the consumer has subscribed: unsubscribe first")
        wanted = topic_partitions("partitions", partitions)
        self._cluster.set_topics(partition.topic for partition in wanted)
        self._partitions.assign(wanted)

    async def unsubscribe(self) -> None:
        """Leave the group, or drop what was assigned by hand; nothing is committed."""
        group = self._group
        if group is not None:
            self._group_scope.cancel()
            await group.leave(commit=False)
            self._group = None
            self._commits.membership = None
        else:
            await trio.lowlevel.checkpoint()
        self._pattern = None
        self._topics = frozenset()
        self._cluster.want_all_topics = False
        self._partitions.assign(())
        self._cluster.set_topics(())

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are subscribed to; with a pattern, those that match it.

        With a pattern that the broker resolves, those that the member has partitions of.
        """
        if self._pattern is not None and self._calls.is_open:
            return self._matching_topics(self._pattern)
        if self._group is not None and not self._topics:
            return frozenset(partition.topic for partition in self._partitions.assignment)
        return self._topics

    def _matching_topics(self, pattern: re.Pattern[str]) -> frozenset[str]:
        skips_internal = self._config.exclude_internal_topics
        return frozenset(
            name
            for name, topic in self._cluster.metadata.topics.items()
            if pattern.fullmatch(name) and not (skips_internal and topic.is_internal)
        )

    def _metadata_changed(self) -> None:
        metadata = self._cluster.metadata
        for partition in self._partitions:
            # At once: no position may be committed for a topic that it is not of.
            self._partitions.note_metadata(partition, metadata)
            self._report_missing(partition.topic_partition, metadata)
        group = self._group
        if group is not None:
            if self._pattern is not None:
                group.want_topics(self._matching_topics(self._pattern))
            group.metadata_changed()
        for name, topic in metadata.topics.items():
            code = topic.error_code
            if code in FATAL_TOPIC_ERRORS and (
                name in self._topics or self._partitions.reads(name)
            ):
                self._calls.fail(error_for(code, f"topic {name!r}: {code.text}"))

    def _report_missing(self, wanted: TopicPartition, metadata: ClusterMetadata) -> None:
        """Warn of a partition that the topic does not have."""
        described = metadata.topics.get(wanted.topic)
        if described is None or not described.partitions:
            return  # of a topic that does not exist the cluster warns
        if wanted.partition in described.partitions:
            self._cluster.notices.forget(wanted)
            return
        self._cluster.notices.warn(
            wanted,
            "topic %r has %d partition(s), and no partition %d: it is read once it is there;"
            " correct the number, or add partitions",
            wanted.topic,
            len(described.partitions),
            wanted.partition,
        )

    def check_chosen(self) -> None:
        """Raise SubscriptionStateError unless something is subscribed to, or assigned."""
        if self._group is None and not len(self._partitions):
            raise SubscriptionStateError(
                "nothing is subscribed to or assigned: call subscribe or assign before records"
                " are asked for"
            )

    # -- the group ------------------------------------------------------------------------------

    def _in_group(self) -> GroupMember:
        """Return the membership; the first time it begins."""
        if self._group is None:
            self._group = self._start_group()
        return self._group

    def _start_group(self) -> GroupMember:
        group = self._make_group()
        self._commits.membership = group.standing
        self._group_scope = trio.CancelScope()
        self._cluster.nursery.start_soon(run_aside, self._run_group, group, self._group_scope)
        return group

    async def _run_group(self, group: GroupMember, scope: trio.CancelScope) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_aside, group.run)
                nursery.start_soon(run_aside, group.run_heartbeats)

    def polled(self) -> None:
        """The program polls."""
        if self._group is not None:
            self._group.polled()

    def raise_failure(self) -> None:
        """Raise what has ended the membership, if anything has.

        It stays so, but for a lack of rights: after that the next call joins again.
        """
        group = self._group
        failure = None if group is None else group.standing.failure
        if group is not None and failure is not None:
            group.recover()
            raise type(failure)(failure.message, code=failure.code)

    def wake_group(self) -> None:
        """Have the group look at its membership again."""
        if self._group is not None:
            self._group.wake()

    def group_metadata(self) -> GroupMetadata:
        """Return as which member of its group the consumer was given what it reads.

        Raises:
            InvalidGroupIdError: the consumer has no group_id.
        """
        if self._group is not None:
            standing = self._group.standing
            return standing.owner or standing.metadata
        return GroupMetadata(
            self._coordinator.group_id, group_instance_id=self._config.group_instance_id
        )

    async def leave_group(self) -> bool:
        """Leave the group for good; return whether the consumer was in one.

        What was finished with is committed before that, if that is automatic.
        """
        if self._group is None:
            return False
        self._group_scope.cancel()
        await self._commits.wait_idle()  # they are the member's, which there is not after that
        await self._group.leave(commit=True)
        return True
