"""Questions about offsets: to leaders (where does a log begin, end, part?) and to the coordinator.

Owns the requests ListOffsets, OffsetForLeaderEpoch, OffsetFetch and OffsetCommit. Rules:
1. Each function asks once; what may be asked again is a `RetriableError`, and by then metadata is
   being refreshed, or the coordinator forgotten. `repeat` asks until a deadline.
2. Leaders answer for many partitions: what one partition is refused does not fail the others, so
   results hold either a value or the error of each.
3. Commits and lookups of a group fail as a whole.

Called by: `positions`, `group` and `consumer`. Protocol guide, "ListOffsets" and others; KIP-79,
KIP-207, KIP-320, KIP-447 (stable offsets), KIP-709.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import trio

from kraftrio.base.background import run_aside
from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.cluster import Cluster
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.errors import (
    CommitFailedError,
    KafkaClientError,
    LeaderNotAvailableError,
    RetriableError,
    StaleMemberEpochError,
    TimedOutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kraftrio.clients.group_coordinator import RETRIED_OF_COORDINATOR, GroupCoordinator
from kraftrio.clients.group_offsets import GroupMetadata, OffsetAndMetadata
from kraftrio.clients.metadata import is_another
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kraftrio.wire.primitives import ZERO_UUID, TopicPartition, indexes_by_topic
from kraftrio.wire.protocol.api import ApiKey

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2

_NAMED_TOPICS_VERSION = 9  # OffsetFetch and OffsetCommit name topics by id from version 10 on
_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_GROUPS_VERSION = 8  # OffsetFetch asks for several groups
_CONSUMER_ID = -1  # in the place of a replica's id

_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
_THROWN_OUT = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)

T = TypeVar("T")


class OffsetAndTimestamp(NamedTuple):
    """An offset that was looked up, and the timestamp of its record (-1: none)."""

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


class EpochEnd(NamedTuple):
    """Where a leader epoch ends in the leader's log: the newest up to the one asked for."""

    leader_epoch: int
    end_offset: int


class OffsetClient:
    """Asks leaders and the group's coordinator.

    Args:
        rng: for the jitter between attempts.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        coordinator: GroupCoordinator,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._coordinator = coordinator
        self._rng = rng
        # As which member committed offsets are asked for: the coordinator of a group of the
        # consumer protocol then refuses one that is behind, or is not a member any more.
        self.reader: Callable[[], GroupMetadata | None] = _no_member

    @property
    def group_id(self) -> str:
        """The group.

        Raises:
            InvalidGroupIdError: the consumer has none.
        """
        return self._coordinator.group_id

    def check_group(self) -> None:
        """Raise InvalidGroupIdError unless the consumer has a group."""
        assert self.group_id is not None

    async def repeat(self, attempt: Callable[[], Awaitable[T]], timeout_s: float | None) -> T:
        """Ask until it is answered.

        Args:
            timeout_s: None is default_api_timeout_ms.

        Raises:
            ClosedError: the consumer was closed meanwhile.
            TimedOutError: retriable errors lasted too long; says the last one.
        """
        config = self._config
        if timeout_s is None:
            timeout_s = config.default_api_timeout_ms / 1000
        failure: RetriableError | None = None
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        with trio.move_on_after(timeout_s):
            for failures in itertools.count():
                try:
                    return await attempt()
                except RetriableError as error:
                    failure = error
                self._cluster.check_open()
                await trio.sleep(backoff.jittered(failures, self._rng) / 1000)
        because = "" if failure is None else f": {failure}"
        raise TimedOutError(f"not answered within {timeout_s:g} s{because}")

    # -- leaders --------------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaClientError | None]:
        """Look up offsets by timestamp: -1 the end, -2 the beginning; None: nothing is that new."""

        def make(partitions: list[TopicPartition]) -> ListOffsetsRequest:
            topics: dict[str, ListOffsetsTopic] = {}
            for each in partitions:
                topic = topics.setdefault(each.topic, ListOffsetsTopic(name=each.topic))
                topic.partitions.append(
                    ListOffsetsPartition(
                        partition_index=each.partition,
                        current_leader_epoch=self._leader_epoch(each),
                        timestamp=wanted[each],
                    )
                )
            return ListOffsetsRequest(
                replica_id=_CONSUMER_ID,
                isolation_level=int(self._config.is_read_committed),
                topics=list(topics.values()),
                timeout_ms=self._config.request_timeout_ms,
            )

        def read(response: Any) -> dict[TopicPartition, tuple[ErrorCode, Any]]:
            return {
                TopicPartition(topic.name, each.partition_index): (each.error_code, each)
                for topic in response.topics
                for each in topic.partitions
            }

        answers = await self._ask_leaders(wanted, make, read)
        found: dict[TopicPartition, OffsetAndTimestamp | KafkaClientError | None] = {}
        for partition, reported in answers.items():
            if isinstance(reported, KafkaClientError):
                is_old = reported.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
                found[partition] = None if is_old else reported
            elif reported.offset < 0:
                found[partition] = None
            else:
                found[partition] = OffsetAndTimestamp(
                    reported.offset, reported.timestamp, reported.leader_epoch
                )
        return found

    async def look_up(
        self, wanted: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `list_offsets`, asking again where that may help.

        Raises:
            TimedOutError, KafkaClientError: it could not be found out.
        """
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

        async def attempt() -> None:
            left = {each: value for each, value in wanted.items() if each not in found}
            failure: RetriableError | None = None
            for each, reported in (await self.list_offsets(left)).items():
                if isinstance(reported, RetriableError):
                    failure = reported
                elif isinstance(reported, KafkaClientError):
                    raise reported
                else:
                    found[each] = reported
            if failure is not None:
                raise failure

        await self.repeat(attempt, timeout_s)
        return {each: found[each] for each in wanted}

    async def epoch_ends(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | KafkaClientError]:
        """Ask where leader epochs end in the leaders' logs; -1 means the leader does not know."""

        def make(partitions: list[TopicPartition]) -> OffsetForLeaderEpochRequest:
            topics: dict[str, OffsetForLeaderTopic] = {}
            for each in partitions:
                topic = topics.setdefault(each.topic, OffsetForLeaderTopic(topic=each.topic))
                topic.partitions.append(
                    OffsetForLeaderPartition(
                        partition=each.partition,
                        current_leader_epoch=self._leader_epoch(each),
                        leader_epoch=wanted[each],
                    )
                )
            return OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER_ID, topics=list(topics.values())
            )

        def read(response: Any) -> dict[TopicPartition, tuple[ErrorCode, Any]]:
            return {
                TopicPartition(topic.topic, each.partition): (each.error_code, each)
                for topic in response.topics
                for each in topic.partitions
            }

        answers = await self._ask_leaders(wanted, make, read, min_version=3)
        return {
            partition: reported
            if isinstance(reported, KafkaClientError)
            else EpochEnd(reported.leader_epoch, reported.end_offset)
            for partition, reported in answers.items()
        }

    def _leader_epoch(self, partition: TopicPartition) -> int:
        leader = self._cluster.metadata.leader(*partition)
        return -1 if leader is None else leader[1]

    async def _ask_leaders(
        self,
        wanted: Iterable[TopicPartition],
        make: Callable[[list[TopicPartition]], Any],
        read: Callable[[Any], dict[TopicPartition, tuple[ErrorCode, Any]]],
        *,
        min_version: int = 0,
    ) -> dict[TopicPartition, Any]:
        """Ask the leader of each partition; return the answer or the error of each."""
        found: dict[TopicPartition, Any] = {}
        by_node: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            self._cluster.use_topic(partition.topic)
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                found[partition] = self._leaderless(partition)
            else:
                by_node.setdefault(leader[0], []).append(partition)

        async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
            try:
                response = await self._cluster.request(
                    node_id, make(partitions), min_version=min_version
                )
            except KafkaClientError as error:
                if error.retriable:
                    self._cluster.request_refresh()
                found.update(dict.fromkeys(partitions, error))
                return
            reported = read(response)
            for partition in partitions:
                code, answer = reported.get(partition, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
                found[partition] = self._refusal(partition, code) if code else answer

        if len(by_node) == 1:
            await ask(*by_node.popitem())
        else:
            async with trio.open_nursery() as nursery:
                for node_id, partitions in by_node.items():
                    nursery.start_soon(run_aside, ask, node_id, partitions)
        return found

    def _leaderless(self, partition: TopicPartition) -> KafkaClientError:
        self._cluster.request_refresh()
        topic = self._cluster.metadata.topics.get(partition.topic)
        if topic is not None and topic.error_code != ErrorCode.NONE:
            return error_for(
                topic.error_code, f"topic {partition.topic!r}: {topic.error_code.text}"
            )
        name = f"{partition.topic}-{partition.partition}"
        return LeaderNotAvailableError(f"no leader of {name} is known")

    def _refusal(self, partition: TopicPartition, code: ErrorCode) -> KafkaClientError:
        if code in _MOVED:
            self._cluster.request_refresh()
        error = error_for(code)
        message = f"{partition.topic}-{partition.partition}: {error}"
        if code in _MOVED and not error.retriable:
            return RetriableError(message, code=error.code)
        return type(error)(message, code=error.code)

    # -- the coordinator ------------------------------------------------------------------------

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets; None where there is none.

        Raises:
            RetriableError: ask again.
            KafkaClientError: the coordinator refuses.
        """
        wanted = list(partitions)
        by_topic = indexes_by_topic(wanted)
        topic_ids = self.topic_ids(wanted)
        version = await self._coordinator.version(
            ApiKey.OFFSET_FETCH,
            max_version=_NAMED_TOPICS_VERSION if ZERO_UUID in topic_ids.values() else None,
        )
        request = self._fetch_request(by_topic, topic_ids, version)
        response = await self._coordinator.ask(request, max_version=version)
        reported = response.groups[0] if version >= _GROUPS_VERSION else response
        self._raise_coordinator_error(reported.error_code)
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(wanted)
        names = {topic_id: name for name, topic_id in topic_ids.items()}
        for topic in reported.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for each in topic.partitions:
                partition = TopicPartition(name, each.partition_index)
                if each.error_code:
                    self._raise_coordinator_error(each.error_code, partition)
                if each.committed_offset >= 0 and partition in found:
                    found[partition] = OffsetAndMetadata(
                        each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                    )
        return found

    def _fetch_request(
        self, by_topic: dict[str, list[int]], topic_ids: Mapping[str, bytes], version: int
    ) -> OffsetFetchRequest:
        # Offsets that an open transaction may still change are waited for: a consumer that goes on
        # without would do again what that transaction has done.
        is_stable = version >= 7
        if version < _GROUPS_VERSION:
            topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in by_topic.items()
            ]
            return OffsetFetchRequest(
                group_id=self.group_id, topics=topics, require_stable=is_stable
            )
        named = [
            OffsetFetchRequestTopics(name=name, topic_id=topic_ids[name], partition_indexes=numbers)
            for name, numbers in by_topic.items()
        ]
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=named)
        reader = self.reader()
        if reader is not None:
            group.member_id, group.member_epoch = reader.member_id, reader.generation_id
        return OffsetFetchRequest(groups=[group], require_stable=is_stable)

    def _raise_coordinator_error(
        self, code: ErrorCode, partition: TopicPartition | None = None
    ) -> None:
        if code == ErrorCode.NONE:
            return
        self._coordinator.note_error(code)
        if code in _UNKNOWN_TOPIC:
            self._cluster.request_refresh()
        error = error_for(code)
        where = "" if partition is None else f" for {partition.topic}-{partition.partition}"
        message = f"the coordinator of {self.group_id!r} refuses{where}: {error}"
        if code in _RETRIED and not error.retriable:
            raise RetriableError(message, code=error.code)
        raise type(error)(message, code=error.code)

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """Return the ids that topics have at the moment; zeros where none is known."""
        metadata = self._cluster.metadata
        return {partition.topic: metadata.topic_id(partition.topic) for partition in partitions}

    def is_there(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Whether metadata knows the partition, and its topic is still that one."""
        metadata = self._cluster.metadata
        is_same = not is_another(metadata.topic_id(partition.topic), topic_id)
        return is_same and metadata.partition(*partition) is not None

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, bytes],
        member: GroupMetadata,
    ) -> None:
        """Commit offsets for a member (or for no member: generation -1).

        Args:
            topic_ids: of the topics that the offsets are of; zeros for those that are not known.

        Raises:
            UnknownTopicOrPartitionError: some partition is not there (any more), or not yet; the
                others are committed.
            RetriableError: commit again.
            CommitFailedError, RebalanceInProgressError, FencedInstanceIdError: the partitions are,
                or may be, no longer the member's.
            KafkaClientError: the coordinator refuses.
        """
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, commit in offsets.items():
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = OffsetCommitRequestTopic(
                    name=partition.topic, topic_id=topic_ids[partition.topic]
                )
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=commit.offset,
                    committed_leader_epoch=commit.leader_epoch,
                    committed_metadata=commit.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=list(topics.values()),
        )
        has_ids = all(topic.topic_id != ZERO_UUID for topic in topics.values())
        response = await self._coordinator.ask(
            request, max_version=None if has_ids else _NAMED_TOPICS_VERSION
        )
        self._check_committed(response, {topic_id: name for name, topic_id in topic_ids.items()})

    def _check_committed(self, response: OffsetCommitResponse, names: Mapping[bytes, str]) -> None:
        """Raise what a commit was refused for; a partition that is not there counts last."""
        unknown: tuple[ErrorCode, TopicPartition] | None = None
        for answered in response.topics:
            name = answered.name or names.get(answered.topic_id, "")
            for each in answered.partitions:
                partition = TopicPartition(name, each.partition_index)
                if each.error_code == ErrorCode.STALE_MEMBER_EPOCH:
                    raise StaleMemberEpochError(
                        f"offsets of {self.group_id!r} were not committed: the member's epoch has"
                        " moved on"
                    )
                if each.error_code in _THROWN_OUT:
                    raise CommitFailedError(
                        f"offsets of {self.group_id!r} were not committed, because the group has"
                        " given the partitions to another member; the time between two polls may"
                        " be longer than max_poll_interval_ms",
                        code=each.error_code,
                    )
                if each.error_code in _UNKNOWN_TOPIC:
                    unknown = each.error_code, partition
                elif each.error_code:
                    self._raise_coordinator_error(each.error_code, partition)
        if unknown is not None:
            code, (name, index) = unknown
            self._cluster.request_refresh()
            raise UnknownTopicOrPartitionError(
                f"no offset of {self.group_id!r} was committed for {name}-{index}:"
                f" {error_for(code)}",
                code=code,
            )


# The member will find these out by itself; then it has another epoch, or nothing to read.
_RETRIED = RETRIED_OF_COORDINATOR | {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}


def _no_member() -> None:
    """Who asks for committed offsets as no member."""
