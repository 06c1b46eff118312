"""Asks the leaders of partitions, on whichever broker, how far their logs are (ListOffsets).

One request goes to each leader. It is not sent again: the caller learns that there was no answer.
Called by the handler of DescribeShareGroupOffsets, which says how far a group lags behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import BrokerRequests
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftrio.wire.primitives import TopicPartition

_CONSUMER: Final = -1  # in the place of a replica's id
_LATEST: Final = -1  # in the place of a timestamp

OffsetsOrErrors: TypeAlias = Mapping[TopicPartition, int | ErrorCode]


class LatestOffsets:
    """See the module.

    Args:
        timeout_ms: for each request.
    """

    def __init__(self, brokers: BrokerRequests, metadata: MetadataCache, timeout_ms: int) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._timeout_ms = timeout_ms

    def ask(self, topic_partitions: Iterable[TopicPartition]) -> Deferred[OffsetsOrErrors]:
        """Ask for the high watermarks of partitions."""
        found: dict[TopicPartition, int | ErrorCode] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in topic_partitions:
            partition = self._metadata.partition(*topic_partition)
            if partition is None:
                found[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.leader < 0:
                found[topic_partition] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(partition.leader, []).append(topic_partition)
        answered: Deferred[OffsetsOrErrors] = Deferred()
        missing = set(by_leader)
        if not missing:
            answered.complete(found)

        def on_answer(
            leader: int, asked: Sequence[TopicPartition], done: Deferred[ListOffsetsResponse]
        ) -> None:
            found.update(_read(asked, done))
            missing.discard(leader)
            if not missing:
                answered.complete(found)

        for leader, asked in by_leader.items():
            answer = self._brokers.send(leader, self._request(asked), timeout_ms=self._timeout_ms)
            answer.when_done(partial(on_answer, leader, asked))
        return answered

    def _request(self, topic_partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for name, index in topic_partitions:
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
        return ListOffsetsRequest(
            replica_id=_CONSUMER, topics=list(topics.values()), timeout_ms=self._timeout_ms
        )


def _read(
    asked: Sequence[TopicPartition], done: Deferred[ListOffsetsResponse]
) -> dict[TopicPartition, int | ErrorCode]:
    if isinstance(done.error, ConnectionLost):
        return dict.fromkeys(asked, ErrorCode.NETWORK_EXCEPTION)
    found: dict[TopicPartition, int | ErrorCode] = dict.fromkeys(
        asked, ErrorCode.UNKNOWN_SERVER_ERROR
    )
    for topic in done.value.topics:
        for partition in topic.partitions:
            code = partition.error_code
            found[TopicPartition(topic.name, partition.partition_index)] = (
                partition.offset if code is ErrorCode.NONE else code
            )
    return found
