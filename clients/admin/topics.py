"""The admin client's part for topics: creation, partitions, settings, offsets, records.

Called by: `admin`. KIP-4, KIP-195, KIP-204, KIP-339.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from kraftrio.clients.admin.calls import AdminCalls, collect, finish
from kraftrio.clients.admin.types import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    CreatedTopic,
    ListedOffset,
    NewTopic,
    OpType,
    Results,
    TopicListing,
)
from kraftrio.clients.arguments import (
    MAX_INT16,
    MAX_INT32,
    MAX_INT64,
    broker_ids,
    several,
    text,
    topic_partition,
    whole_number,
)
from kraftrio.clients.arguments import topics as topic_names
from kraftrio.clients.errors import KafkaClientError, RetriableError
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
from kraftrio.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
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
_BROKERS_OWN = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class TopicCalls(AdminCalls):
    """Calls about topics; every `raise_errors` raises the first item's error, as `Results` does."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Results[str, CreatedTopic]:
        """Create topics.

        Raises:
            TopicExistsError, InvalidTopicError, ...: for a topic, if `raise_errors`.
            TimedOutError, NetworkError: the controller did not answer.
        """
        deadline = self._deadline(timeout_ms)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in several("topics", topics)],
            timeout_ms=int(deadline.request_timeout_s * 1000),
            validate_only=validate_only,
        )
        response: CreateTopicsResponse = await self._ask_controller(
            request, deadline, lambda answer: [topic.error_code for topic in answer.topics]
        )
        return finish(
            collect(
                (
                    told.name,
                    told.error_code,
                    told.error_message,
                    CreatedTopic(
                        told.name,
                        told.topic_id,
                        told.num_partitions,
                        told.replication_factor,
                        {entry.name: entry.value for entry in told.configs or ()},
                    ),
                )
                for told in response.topics
            ),
            raise_errors,
        )

    async def delete_topics(
        self,
        topics: Iterable[str],
        *,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Delete topics by name.

        Raises:
            UnknownTopicOrPartitionError, ...: for a topic, if `raise_errors`.
            TimedOutError, NetworkError: the controller did not answer.
        """
        deadline = self._deadline(timeout_ms)
        names = topic_names("topics", topics)
        await self._cluster_is_known(deadline.left_s)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names],
            topic_names=names,
            timeout_ms=int(deadline.request_timeout_s * 1000),
        )
        response: DeleteTopicsResponse = await self._ask_controller(
            request, deadline, lambda answer: [topic.error_code for topic in answer.responses]
        )
        return finish(
            collect(
                (told.name or "", told.error_code, told.error_message, None)
                for told in response.responses
            ),
            raise_errors,
        )

    async def create_partitions(
        self,
        new_totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Raise topics' numbers of partitions to these totals.

        Raises:
            InvalidPartitionsError, ...: for a topic, if `raise_errors`.
            TimedOutError, NetworkError: the controller did not answer.
        """
        deadline = self._deadline(timeout_ms)
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=text("a topic", name),
                    count=whole_number("a number of partitions", total, 0, MAX_INT32),
                    assignments=None,
                )
                for name, total in new_totals.items()
            ],
            timeout_ms=int(deadline.request_timeout_s * 1000),
            validate_only=validate_only,
        )
        response: CreatePartitionsResponse = await self._ask_controller(
            request, deadline, lambda answer: [topic.error_code for topic in answer.results]
        )
        return finish(
            collect(
                (told.name, told.error_code, told.error_message, None) for told in response.results
            ),
            raise_errors,
        )

    async def list_topics(
        self, *, list_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicListing]:
        """Return the topics there are, by name."""
        response: MetadataResponse = await self._ask_any(
            MetadataRequest(topics=None, allow_auto_topic_creation=False),
            self._deadline(timeout_ms),
        )
        return {
            topic.name: TopicListing(topic.name, topic.topic_id, topic.is_internal)
            for topic in sorted(response.topics, key=lambda topic: topic.name or "")
            if topic.name is not None and (list_internal or not topic.is_internal)
        }

    async def describe_topics(
        self,
        topics: Iterable[str],
        *,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Results[str, TopicMetadata]:
        """Return topics' partitions with their leaders, replicas and in-sync replicas.

        Raises:
            UnknownTopicOrPartitionError, ...: for a topic, if `raise_errors`.
            TimedOutError, NetworkError: no broker answered.
        """
        response: MetadataResponse = await self._ask_any(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in topic_names("topics", topics)],
                allow_auto_topic_creation=False,
            ),
            self._deadline(timeout_ms),
        )
        described = ClusterMetadata().updated(response).topics
        results = collect(
            (name, topic.error_code, None, topic) for name, topic in described.items()
        )
        return finish(results, raise_errors)

    # -- settings -------------------------------------------------------------------------------

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of topics, brokers, groups, by name.

        Raises:
            UnknownTopicOrPartitionError, ...: for a resource, if `raise_errors`.
            TimedOutError, NetworkError: a broker did not answer.
        """
        results: Results[ConfigResource, dict[str, ConfigEntry]] = Results({}, {})
        for node_id, part in _by_broker(several("resources", resources)).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None,
                    )
                    for resource in part
                ],
                include_documentation=include_documentation,
            )
            response: DescribeConfigsResponse = await self._ask_node(node_id, request, timeout_ms)
            results = results.joined(
                collect(
                    (
                        _resource(told.resource_type, told.resource_name),
                        told.error_code,
                        told.error_message,
                        {entry.name: _entry(entry) for entry in told.configs},
                    )
                    for told in response.results
                ),
            )
        return finish(results, raise_errors)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, None]:
        """Change single settings; those not named stay as they are.

        Raises:
            InvalidConfigurationError, ...: for a resource, if `raise_errors`.
            TimedOutError, NetworkError: a broker did not answer.
        """
        results: Results[ConfigResource, None] = Results({}, {})
        for node_id, part in _by_broker(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            _alterable(change)
                            for change in several("changes of one resource", changes[resource])
                        ],
                    )
                    for resource in part
                ],
                validate_only=validate_only,
            )
            response: IncrementalAlterConfigsResponse = await self._ask_node(
                node_id, request, timeout_ms
            )
            results = results.joined(
                collect(
                    (
                        _resource(told.resource_type, told.resource_name),
                        told.error_code,
                        told.error_message,
                        None,
                    )
                    for told in response.responses
                ),
            )
        return finish(results, raise_errors)

    async def _ask_node(self, node_id: int | None, request: Any, timeout_ms: int | None) -> Any:
        """Ask one broker, or any, until it answers or the time is up."""
        deadline = self._deadline(timeout_ms)
        if node_id is None:
            return await self._ask_any(request, deadline)
        await self._cluster_is_known(deadline.left_s)
        while True:
            failure: KafkaClientError
            try:
                return await self._open_cluster.request(
                    node_id, request, deadline.request_timeout_s
                )
            except RetriableError as error:
                failure = error
            if not await deadline.pause():
                raise failure

    async def _cluster_is_known(self, timeout_s: float) -> None:
        if not self._open_cluster.metadata.brokers:
            await self._open_cluster.refresh(timeout_s=timeout_s)

    # -- offsets and records --------------------------------------------------------------------

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, ListedOffset]:
        """Look offsets up.

        Args:
            wanted: an `OffsetSpec`, or a timestamp in milliseconds: the first record not older.
            read_committed: the latest offset is then that of the last decided transaction.

        Raises:
            UnknownTopicOrPartitionError, ...: for a partition, if `raise_errors`.
        """

        def make_request(items: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                replica_id=_CONSUMER_REPLICA_ID,
                isolation_level=int(read_committed),
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=item.partition, timestamp=items[item]
                            )
                            for item in part
                        ],
                    )
                    for topic, part in _by_topic(items)
                ],
                timeout_ms=self.config.request_timeout_ms,
            )

        def read_response(
            response: ListOffsetsResponse,
        ) -> Iterable[tuple[TopicPartition, ErrorCode, ListedOffset]]:
            for topic in response.topics:
                for told in topic.partitions:
                    epoch = told.leader_epoch if told.leader_epoch >= 0 else None
                    listed = ListedOffset(told.offset, told.timestamp, epoch)
                    yield TopicPartition(topic.name, told.partition_index), told.error_code, listed

        checked = {
            topic_partition(item): whole_number("a timestamp", timestamp, -MAX_INT64)
            for item, timestamp in wanted.items()
        }
        results = await self._ask_leaders(
            checked, self._deadline(timeout_ms), make_request, read_response
        )
        return finish(results, raise_errors)

    async def delete_records(
        self,
        before_offsets: Mapping[TopicPartition, int],
        *,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Results[TopicPartition, int]:
        """Delete the records before these offsets (-1: all); return the new start offsets.

        Raises:
            OffsetOutOfRangeError, ...: for a partition, if `raise_errors`.
        """
        deadline = self._deadline(timeout_ms)

        def make_request(items: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
            return DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=item.partition, offset=items[item]
                            )
                            for item in part
                        ],
                    )
                    for topic, part in _by_topic(items)
                ],
                timeout_ms=int(deadline.request_timeout_s * 1000),
            )

        def read_response(
            response: DeleteRecordsResponse,
        ) -> Iterable[tuple[TopicPartition, ErrorCode, int]]:
            for topic in response.topics:
                for told in topic.partitions:
                    item = TopicPartition(topic.name, told.partition_index)
                    yield item, told.error_code, told.low_watermark

        checked = {
            topic_partition(item): whole_number("an offset", offset, -1)
            for item, offset in before_offsets.items()
        }
        results = await self._ask_leaders(checked, deadline, make_request, read_response)
        return finish(results, raise_errors)


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
            for partition, brokers in assignment.items()
        ],
        configs=[
            CreatableTopicConfig(name=text("a setting", name), value=text(f"{name}", value))
            for name, value in topic.configs.items()
        ],
    )


def _alterable(change: AlterConfigOp) -> IncrementalAlterableConfig:
    name, value = text("a setting", change.name), change.value
    return IncrementalAlterableConfig(
        name=name,
        config_operation=OpType(change.op),
        value=None if value is None else text(name, value),
    )


def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Group by the broker that must be asked: a broker's own settings only it knows."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        if not isinstance(resource, ConfigResource):
            raise TypeError(f"a resource must be a ConfigResource, not {resource!r}")
        name = text("the name of a resource", resource.name)
        own = resource.type in _BROKERS_OWN and name.isdecimal()
        groups.setdefault(int(resource.name) if own else None, []).append(resource)
    return groups


def _by_topic(items: Iterable[TopicPartition]) -> Iterable[tuple[str, list[TopicPartition]]]:
    for topic, part in groupby(sorted(items), key=lambda item: item.topic):
        yield topic, list(part)


def _resource(kind: int, name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType(kind), name)


def _entry(told: DescribeConfigsResourceResult) -> ConfigEntry:
    known = told.config_source in set(ConfigSource)
    return ConfigEntry(
        told.name,
        told.value,
        ConfigSource(told.config_source) if known else ConfigSource.UNKNOWN,
        told.is_sensitive,
        told.read_only,
        told.documentation,
    )
