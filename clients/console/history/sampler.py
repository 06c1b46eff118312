"""Samples the cluster regularly, once for all visitors; lists and charts are made from that.

Owns `Sampler`. Rules:
1. However many visitors there are, the cluster is asked every two seconds, and the less often the
   more partitions and groups there are: that takes about a fiftieth of the time.
2. Only so many topics and groups have figures over time (`MAX_TOPICS`, `MAX_GROUPS`).
3. Where no broker answers, `latest` says so. Where one of several does not, what it alone knows is
   missing, or as it was: the others are shown.

Called by: `console`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import (
    ClusterDescription,
    GroupListing,
    LogDirDescription,
    OffsetSpec,
)
from kraftrio.clients.cli.cluster.standing import all_topics, min_insync_replicas
from kraftrio.clients.cli.groups.lag import SHARE, committed_offsets
from kraftrio.clients.console.history.series import Series
from kraftrio.clients.errors import KafkaClientError, NetworkError, TimedOutError
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.wire.primitives import TopicPartition

MAX_TOPICS: Final = 500
MAX_GROUPS: Final = 500

_INTERVAL_S: Final = 2.0
_MAX_INTERVAL_S: Final = 60.0
_REST_S: Final = 0.002  # for each partition and group that was asked for
_SETTINGS_EVERY: Final = 15  # looks


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group and how far it is behind; `lag` is None where that is not known."""

    listing: GroupListing
    lag: int | None


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """A cluster at one moment.

    Attributes:
        starts, ends: of the partitions whose leaders answer.
        directories: of the brokers that answer, by path.
    """

    at_ms: int
    cluster: ClusterDescription
    topics: Mapping[str, TopicMetadata]
    min_insync_replicas: Mapping[str, int]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    directories: Mapping[int, Mapping[str, LogDirDescription]]
    groups: Mapping[str, GroupLag]
    sizes: Mapping[TopicPartition, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", _sizes(self.topics, self.directories))

    def record_count(self, topic: TopicMetadata) -> int | None:
        """Return how many offsets a topic spans; None where a partition does not answer."""
        items = [TopicPartition(topic.name, number) for number in topic.partitions]
        if any(item not in self.ends or item not in self.starts for item in items):
            return None
        return sum(self.ends[item] - self.starts[item] for item in items)

    def size_bytes(self, topic: TopicMetadata) -> int | None:
        """Return how large a topic's leaders are together; None where one does not answer."""
        items = [TopicPartition(topic.name, number) for number in topic.partitions]
        if any(item not in self.sizes for item in items):
            return None
        return sum(self.sizes[item] for item in items)


class Sampler:
    """See the module.

    Attributes:
        records: end offsets of each topic together, by topic.
        sizes: bytes of each topic's leaders, by topic.
        lags: of each group.
        total: end offsets of all topics but Kafka's own together.
    """

    def __init__(self, admin: Admin, now_ms: Callable[[], int]) -> None:
        self._admin = admin
        self._now_ms = now_ms
        self._least_isrs: dict[str, int] = {}
        self._groups: dict[str, GroupLag] = {}
        self._looks = 0
        self._latest: ClusterSample | KafkaClientError | None = None
        self._has_looked = trio.Event()
        self.records: dict[str, Series] = {}
        self.sizes: dict[str, Series] = {}
        self.lags: dict[str, Series] = {}
        self.total = Series()
        self._ends: dict[TopicPartition, int] = {}

    async def latest(self) -> ClusterSample:
        """Return the latest sample; waits for the first one.

        Raises:
            KafkaClientError: the cluster did not answer then.
        """
        await self._has_looked.wait()
        assert self._latest is not None
        if isinstance(self._latest, KafkaClientError):
            raise type(self._latest)(self._latest.message, code=self._latest.code)
        return self._latest

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            pause_s = _INTERVAL_S
            try:
                seen = self._latest = await self._look()
                asked = len(seen.ends) + len(seen.groups)
                pause_s = min(max(_INTERVAL_S, asked * _REST_S), _MAX_INTERVAL_S)
            except KafkaClientError as error:
                self._latest = error
            self._has_looked.set()
            await trio.sleep(pause_s)

    async def _look(self) -> ClusterSample:
        admin = self._admin
        cluster = await admin.describe_cluster()
        topics = await all_topics(admin)
        if self._looks % _SETTINGS_EVERY == 0 or topics.keys() - self._least_isrs.keys():
            self._least_isrs = await min_insync_replicas(admin, topics)
        self._looks += 1
        items = [
            TopicPartition(name, number)
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader_id >= 0
        ]
        ends = await self._offsets(items, OffsetSpec.LATEST)
        starts = await self._offsets(items, OffsetSpec.EARLIEST)
        brokers = [broker.node_id for broker in cluster.nodes]
        found = await admin.describe_log_dirs(brokers, raise_errors=False)
        directories = {each: found[each] for each in brokers if each not in found.errors}
        with suppress(NetworkError, TimedOutError):  # a broker is away: rule 3
            self._groups = await self._look_at_groups(ends)
        snapshot = ClusterSample(
            self._now_ms(),
            cluster,
            topics,
            self._least_isrs,
            starts,
            ends,
            directories,
            self._groups,
        )
        self._note(snapshot)
        return snapshot

    async def _offsets(
        self, items: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(items, spec)
        if not wanted:
            return {}
        found = await self._admin.list_offsets(wanted, raise_errors=False)
        return {item: found[item].offset for item in wanted if item not in found.errors}

    async def _look_at_groups(self, ends: Mapping[TopicPartition, int]) -> dict[str, GroupLag]:
        groups: dict[str, GroupLag] = {}
        for number, listing in enumerate(await self._admin.list_groups()):
            lag = await self._lag(listing, ends) if number < MAX_GROUPS else None
            groups[listing.group_id] = GroupLag(listing, lag)
        return groups

    async def _lag(self, listing: GroupListing, ends: Mapping[TopicPartition, int]) -> int | None:
        group_id, kind = listing.group_id, listing.type.lower()
        try:
            if kind == SHARE:
                share = await self._admin.share_groups.list_offsets(group_id)
                return sum(found.lag or 0 for found in share.values() if found is not None)
            offsets = await committed_offsets(self._admin, group_id, kind)
        except KafkaClientError:
            return None  # gone meanwhile, or its coordinator moves: the next sample shows it
        return sum(
            max(ends[item] - offset, 0)
            for item, offset in offsets.items()
            if offset is not None and item in ends
        )

    def _note(self, snapshot: ClusterSample) -> None:
        """Add to the figures over time; forget those of what is gone."""
        at_ms = snapshot.at_ms
        for series, names in (
            (self.records, snapshot.topics),
            (self.sizes, snapshot.topics),
            (self.lags, snapshot.groups),
        ):
            for name in series.keys() - names.keys():
                del series[name]
        # Of a partition without a leader the end is still where it was: it has gained nothing.
        self._ends = {
            item: snapshot.ends.get(item, self._ends.get(item, 0))
            for name, topic in snapshot.topics.items()
            if not topic.is_internal
            for item in (TopicPartition(name, number) for number in topic.partitions)
        }
        self.total.add(at_ms, sum(self._ends.values()))
        for name, topic in snapshot.topics.items():
            if len(self.records) >= MAX_TOPICS and name not in self.records:
                break
            items = [TopicPartition(name, number) for number in topic.partitions]
            if all(item in snapshot.ends for item in items):
                count = sum(snapshot.ends[item] for item in items)
                self.records.setdefault(name, Series()).add(at_ms, count)
            size_bytes = snapshot.size_bytes(topic)
            if size_bytes is not None:
                self.sizes.setdefault(name, Series()).add(at_ms, size_bytes)
        for group_id, group in snapshot.groups.items():
            if group.lag is not None:
                self.lags.setdefault(group_id, Series()).add(at_ms, group.lag)


def _sizes(
    topics: Mapping[str, TopicMetadata],
    directories: Mapping[int, Mapping[str, LogDirDescription]],
) -> dict[TopicPartition, int]:
    """Return how large each partition is on its leader."""
    sizes: dict[TopicPartition, int] = {}
    for broker_id, described in directories.items():
        for directory in described.values():
            for item, replica in directory.replicas.items():
                topic = topics.get(item.topic)
                partition = None if topic is None else topic.partitions.get(item.partition)
                is_led_here = partition is not None and partition.leader_id == broker_id
                if is_led_here and not replica.is_future:
                    sizes[item] = replica.size_bytes
    return sizes
