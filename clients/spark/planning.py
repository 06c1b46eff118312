"""What a query is about to read, asked of the cluster: partitions, and offsets in them.

Owns the lookups of a query's planning: which partitions its topics have, and where their logs
start, end, or reach a time. Rules:
1. A round of lookups is one attempt; a round that fails with what may go away by itself is repeated
   `fetchOffset.numRetries` times in all, `fetchOffset.retryIntervalMs` apart, as Spark does; not
   one that has waited for brokers until its time was up.
2. Partitions are asked of their leaders, all partitions of a leader in one request.
3. Topics are never created by being read.
4. A topic whose id is another one than in an earlier round was re-created: earlier offsets say
   nothing about it. Offsets, as Spark keeps them, do not show it: only a process that has seen the
   former topic knows.

Called by: the data source, in the driver. Protocol guide, "ListOffsets"; KIP-79, KIP-98.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

import trio

from kraftrio.clients.cluster import Cluster, open_cluster
from kraftrio.clients.errors import (
    ConfigError,
    LeaderNotAvailableError,
    RetriableError,
    TimedOutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kraftrio.clients.metadata import is_another
from kraftrio.clients.spark.options import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    OffsetChoice,
    ReadOptions,
    partition_text,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftrio.wire.primitives import TopicPartition

Positions = dict[TopicPartition, int]
T = TypeVar("T")


class Planner:
    """Looks up what one query needs to know; each method is one round, with its retries."""

    def __init__(self, options: ReadOptions) -> None:
        self.topic_ids: dict[str, bytes] = {}  # as of the last round
        self.recreated: set[str] = set()  # topics; each is removed once it was noted
        self._former_ids: set[bytes] = set()
        self._options = options

    async def starting(self) -> Positions:
        """Return where the query starts."""
        return await self._round(functools.partial(self._resolve, self._options.starting, True))

    async def both_ends(self) -> tuple[Positions, Positions]:
        """Return where a batch query starts and ends."""

        async def look(cluster: Cluster) -> tuple[Positions, Positions]:
            starts = await self._resolve(self._options.starting, True, cluster)
            ends = await self._resolve(self._options.ending, False, cluster)
            return starts, ends

        return await self._round(look)

    async def latest(self) -> Positions:
        """Return where the logs end: what committed, if the query reads that only."""

        async def look(cluster: Cluster) -> Positions:
            return await self._list(cluster, dict.fromkeys(await self._partitions(cluster), LATEST))

        return await self._round(look)

    async def earliest(self, wanted: Collection[TopicPartition]) -> Positions:
        """Return where the logs of these partitions start; those that are gone are left out."""
        if not wanted:
            return {}

        async def look(cluster: Cluster) -> Positions:
            present = set(await self._partitions(cluster))
            return await self._list(cluster, {item: EARLIEST for item in wanted if item in present})

        return await self._round(look)

    async def at_time(self, wanted: Mapping[TopicPartition, int]) -> Positions:
        """Return the first offsets whose records are as new as given, or LATEST for none."""
        return await self._round(lambda cluster: self._list(cluster, wanted))

    async def _round(self, look: Callable[[Cluster], Awaitable[T]]) -> T:
        options = self._options
        for attempt in range(1, options.num_retries + 1):
            try:
                async with open_cluster(config=options.fetch.config) as cluster:
                    return await look(cluster)
            except RetriableError as error:
                if attempt == options.num_retries or isinstance(error, TimedOutError):
                    raise
            await trio.sleep(options.retry_interval_ms / 1000)
        raise AssertionError("the last attempt returns or raises")

    async def _partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Return the partitions that the query is about."""
        topics = self._options.topics
        if topics.pattern is not None:
            cluster.want_all_topics = True
            metadata = await cluster.refresh()
            names = [name for name, topic in metadata.topics.items() if not topic.is_internal]
        else:
            if topics.subscribe is not None:
                names = list(topics.subscribe)
            else:
                assert topics.assign is not None
                names = list(dict.fromkeys(item.topic for item in topics.assign))
            metadata = await cluster.refresh(names)
        found = []
        for name in names:
            topic = metadata.topics.get(name)
            if topic is None or topic.error_code != ErrorCode.NONE:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
                raise error_for(code, _topic_error(name, code))
            self._note_id(name, topic.topic_id)
            found += [TopicPartition(name, number) for number in topic.partitions]
        if topics.assign is not None:
            missing = sorted(set(topics.assign) - set(found))
            if missing:
                raise UnknownTopicOrPartitionError(
                    f"there is no partition {partition_text(missing[0])}"
                )
        return [item for item in found if topics.wants(item)]

    def _note_id(self, name: str, topic_id: bytes) -> None:
        if topic_id in self._former_ids:
            raise RetriableError(f"a broker that is behind still knows a former topic {name!r}")
        known = self.topic_ids.get(name, topic_id)
        self.topic_ids[name] = topic_id
        if is_another(topic_id, known):
            self._former_ids.add(known)
            self.recreated.add(name)

    async def _resolve(self, spec: OffsetChoice, is_start: bool, cluster: Cluster) -> Positions:
        """Turn what the options say into offsets."""
        partitions = await self._partitions(cluster)
        if spec.everywhere is not None:
            return await self._list(cluster, dict.fromkeys(partitions, spec.everywhere))
        if spec.offsets is not None:
            self._check_named(spec.offsets, partitions, "offsets")
            known = dict(spec.offsets)
        else:
            wanted = spec.timestamps_ms
            if wanted is None:
                assert spec.timestamp_ms is not None
                wanted = dict.fromkeys(partitions, spec.timestamp_ms)
            self._check_named(wanted, partitions, "timestamps")
            known = await self._list(cluster, wanted)
            if is_start and not self._options.start_at_latest_if_none:
                for item, offset in known.items():
                    if offset == LATEST:
                        raise ConfigError(
                            f"no record of {partition_text(item)} has the timestamp"
                            f" {wanted[item]} or a later one; with"
                            " startingOffsetsByTimestampStrategy=latest the query would start at"
                            " the end"
                        )
        symbolic = {item: offset for item, offset in known.items() if offset < 0}
        return known | await self._list(cluster, symbolic)

    async def _list(self, cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> Positions:
        return await list_offsets(cluster, wanted, self._options.fetch.isolation_level)

    def _check_named(
        self, named: Mapping[TopicPartition, int], partitions: list[TopicPartition], what: str
    ) -> None:
        if named.keys() != set(partitions):
            differing = ", ".join(map(partition_text, sorted(named.keys() ^ set(partitions))))
            raise ConfigError(
                f"{what} must be given for every partition that is read and for no other, unlike"
                f" {differing}; as an offset, -1 means latest and -2 earliest"
            )


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], level: IsolationLevel
) -> Positions:
    """Ask the leaders for offsets: EARLIEST, LATEST, or the first one as new as a time.

    A time that no record reaches gives LATEST.

    Raises:
        KafkaClientError: a partition has no leader, or a leader does not answer.
    """
    if any(cluster.metadata.leader(*item) is None for item in wanted):
        await cluster.refresh({item.topic for item in wanted})
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for item, time in wanted.items():
        leader = cluster.metadata.leader(*item)
        if leader is None:
            raise LeaderNotAvailableError(f"{partition_text(item)} has no leader")
        by_leader.setdefault(leader[0], {})[item] = time
    found: Positions = {}
    for node_id, items in by_leader.items():
        request = _list_request(cluster, items, level)
        response: ListOffsetsResponse = await cluster.request(node_id, request)
        for topic in response.topics:
            for reported in topic.partitions:
                item = TopicPartition(topic.name, reported.partition_index)
                if reported.error_code != ErrorCode.NONE:
                    error = error_for(reported.error_code)
                    raise error_for(reported.error_code, f"{partition_text(item)}: {error}")
                found[item] = reported.offset
    return found


def _list_request(
    cluster: Cluster, items: Mapping[TopicPartition, int], level: IsolationLevel
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for item, time in items.items():
        leader = cluster.metadata.leader(*item)
        assert leader is not None
        by_topic.setdefault(item.topic, []).append(
            ListOffsetsPartition(
                partition_index=item.partition, current_leader_epoch=leader[1], timestamp=time
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(level),
        topics=[
            ListOffsetsTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
        timeout_ms=cluster.config.request_timeout_ms,
    )


def _topic_error(name: str, code: ErrorCode) -> str:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"there is no topic {name!r}"
    return f"topic {name!r}: {code.text}"
