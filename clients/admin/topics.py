"""The admin client's part for topics: creation, partitions, settings, offsets, records.

Called by: `admin`. KIP-4, KIP-195, KIP-204, KIP-339.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftrio.base.clock import wall_ms
from kraftrio.clients.admin.calls import AdminCalls, Deadline, by_topic, collect
from kraftrio.clients.admin.types import (
    CreatedTopic,
    ListedOffset,
    NewTopic,
    OffsetSpec,
    Results,
    TopicListing,
)
from kraftrio.clients.arguments.several import Texts, broker_ids, by_item, several, topic_partition
from kraftrio.clients.arguments.several import topics as topic_names
from kraftrio.clients.arguments.times import PastMoment, past_moment_ms
from kraftrio.clients.arguments.values import (
    MAX_INT16,
    MAX_INT32,
    config_value,
    text,
    whole_number,
)
from kraftrio.clients.metadata import ClusterMetadata, TopicMetadata
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kraftrio.wire.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kraftrio.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftrio.wire.primitives import TopicPartition

_CONSUMER_REPLICA_ID = -1
_OFFSET_SPECS = frozenset(OffsetSpec)


async def create_topics(
    calls: AdminCalls,
    deadline: Deadline,
    topics: NewTopic | Iterable[NewTopic],
    *,
    validate_only: bool = False,
) -> Results[str, CreatedTopic]:
    """Create topics."""
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in several("topics", topics, NewTopic)],
        timeout_ms=int(deadline.request_timeout_s * 1000),
        validate_only=validate_only,
    )
    response: CreateTopicsResponse = await calls.ask_controller(
        request, deadline, lambda answer: [topic.error_code for topic in answer.topics]
    )
    return collect(
        (
            reported.name,
            reported.error_code,
            reported.error_message,
            CreatedTopic(
                reported.name,
                reported.topic_id,
                reported.num_partitions,
                reported.replication_factor,
                {entry.name: entry.value for entry in reported.configs or ()},
            ),
        )
        for reported in response.topics
    )


async def delete_topics(
    calls: AdminCalls,
    deadline: Deadline,
    topics: Texts,
) -> Results[str, None]:
    """Delete topics by name."""
    names = topic_names("topics", topics)
    await calls.know_brokers(deadline)
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=names,
        timeout_ms=int(deadline.request_timeout_s * 1000),
    )
    response: DeleteTopicsResponse = await calls.ask_controller(
        request, deadline, lambda answer: [topic.error_code for topic in answer.responses]
    )
    return collect(
        (reported.name or "", reported.error_code, reported.error_message, None)
        for reported in response.responses
    )


async def create_partitions(
    calls: AdminCalls,
    deadline: Deadline,
    new_totals: Mapping[str, int],
    *,
    validate_only: bool = False,
) -> Results[str, None]:
    """Raise topics' numbers of partitions to these totals."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=text("a topic", name),
                count=whole_number("a number of partitions", total, 0, MAX_INT32),
                assignments=None,
            )
            for name, total in by_item("new_totals", new_totals).items()
        ],
        timeout_ms=int(deadline.request_timeout_s * 1000),
        validate_only=validate_only,
    )
    response: CreatePartitionsResponse = await calls.ask_controller(
        request, deadline, lambda answer: [topic.error_code for topic in answer.results]
    )
    return collect(
        (reported.name, reported.error_code, reported.error_message, None)
        for reported in response.results
    )


async def list_topics(
    calls: AdminCalls,
    deadline: Deadline,
    *,
    list_internal: bool = False,
) -> dict[str, TopicListing]:
    """Return the topics there are, by name."""
    response: MetadataResponse = await calls.ask_any(
        MetadataRequest(topics=None, allow_auto_topic_creation=False),
        deadline,
    )
    return {
        topic.name: TopicListing(topic.name, topic.topic_id, topic.is_internal)
        for topic in sorted(response.topics, key=lambda topic: topic.name or "")
        if topic.name is not None and (list_internal or not topic.is_internal)
    }


async def describe_topics(
    calls: AdminCalls,
    deadline: Deadline,
    topics: Texts,
) -> Results[str, TopicMetadata]:
    """Return topics' partitions with their leaders, replicas and in-sync replicas."""
    response: MetadataResponse = await calls.ask_any(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topic_names("topics", topics)],
            allow_auto_topic_creation=False,
        ),
        deadline,
    )
    described = ClusterMetadata().updated(response).topics
    return collect((name, topic.error_code, None, topic) for name, topic in described.items())


async def list_offsets(
    calls: AdminCalls,
    deadline: Deadline,
    wanted: Mapping[TopicPartition, OffsetSpec | PastMoment],
    *,
    read_committed: bool = False,
) -> Results[TopicPartition, ListedOffset]:
    """Look offsets up."""

    def make_request(items: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=_CONSUMER_REPLICA_ID,
            isolation_level=int(read_committed),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=item.partition, timestamp=items[item])
                        for item in part
                    ],
                )
                for topic, part in by_topic(items)
            ],
            timeout_ms=calls.config.request_timeout_ms,
        )

    def read_response(
        response: ListOffsetsResponse,
    ) -> Iterable[tuple[TopicPartition, ErrorCode, ListedOffset]]:
        for topic in response.topics:
            for reported in topic.partitions:
                epoch = reported.leader_epoch if reported.leader_epoch >= 0 else None
                listed = ListedOffset(reported.offset, reported.timestamp, epoch)
                yield (
                    TopicPartition(topic.name, reported.partition_index),
                    reported.error_code,
                    listed,
                )

    now_ms = wall_ms()
    checked = {
        topic_partition(item): _timestamp(spec, now_ms)
        for item, spec in by_item("wanted", wanted).items()
    }
    return await calls.ask_leaders(checked, deadline, make_request, read_response)


async def delete_records(
    calls: AdminCalls,
    deadline: Deadline,
    before_offsets: Mapping[TopicPartition, int],
) -> Results[TopicPartition, int]:
    """Delete the records before these offsets (-1: all); return the new start offsets."""

    def make_request(items: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=item.partition, offset=items[item])
                        for item in part
                    ],
                )
                for topic, part in by_topic(items)
            ],
            timeout_ms=int(deadline.request_timeout_s * 1000),
        )

    def read_response(
        response: DeleteRecordsResponse,
    ) -> Iterable[tuple[TopicPartition, ErrorCode, int]]:
        for topic in response.topics:
            for reported in topic.partitions:
                item = TopicPartition(topic.name, reported.partition_index)
                yield item, reported.error_code, reported.low_watermark

    checked = {
        topic_partition(item): whole_number("an offset", offset, -1)
        for item, offset in by_item("before_offsets", before_offsets).items()
    }
    return await calls.ask_leaders(checked, deadline, make_request, read_response)


def _timestamp(given: OffsetSpec | PastMoment, now_ms: int) -> int:
    """Return which offset is meant, as requests have it."""
    if isinstance(given, int) and given in _OFFSET_SPECS:
        return int(given)
    if isinstance(given, str):
        raise TypeError(
            "an offset to look up must be an OffsetSpec such as OffsetSpec.EARLIEST, milliseconds"
            f" since 1970, a datetime or a timedelta, not {given!r}"
        )
    return past_moment_ms("a timestamp", given, now_ms)


def _creatable(topic: NewTopic) -> CreatableTopic:
    if not isinstance(topic, NewTopic):
        raise TypeError(f"a topic to create must be a NewTopic, not {topic!r}")
    assignment = topic.replica_assignment or {}
    partitions = whole_number("num_partitions", topic.num_partitions, -1, MAX_INT32)
    replicas = whole_number("replication_factor", topic.replication_factor, -1, MAX_INT16)
    return CreatableTopic(
        name=text("a topic", topic.name),
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replicas,
        assignments=[
            CreatableReplicaAssignment(
                partition_index=whole_number("a partition", partition, 0, MAX_INT32),
                broker_ids=broker_ids(brokers),
            )
            for partition, brokers in by_item("replica_assignment", assignment).items()
        ],
        configs=[
            CreatableTopicConfig(name=text("a setting", name), value=config_value(name, value))
            for name, value in by_item("configs", topic.configs).items()
        ],
    )
