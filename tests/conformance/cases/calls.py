"""The requests that most cases need, for one topic and partition at a time.

Each function makes one call over a `RawClient` and returns the part of the response that is about
that partition; the error code in it is for the test to look at.
"""

from __future__ import annotations

import time
from typing import Any

from kraftrio.wire.codec.message import Records, records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kraftrio.wire.messages.cluster import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kraftrio.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionData,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.messages.groups import DescribeGroupsRequest
from kraftrio.wire.records.batch import Record, build_batch, iter_headers, iter_records
from tests.conformance.cases.raw_client import RawClient

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER = 2, 4

SETTLE_DEADLINE_S = 15.0

NOT_SERVED_YET = {
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}

# The newest versions that name topics by name.
PRODUCE_BY_NAME = 12
FETCH_BY_NAME = 12


def now_ms() -> int:
    """The wall clock in Kafka's unit."""
    return time.time_ns() // 1_000_000


def batch_of(*values: bytes | None, timestamp: int | None = None, **options: Any) -> bytearray:
    """Build a batch with a record for each value, with the present time unless one is given."""
    at = now_ms() if timestamp is None else timestamp
    return build_batch([Record(0, at, None, value) for value in values], **options)


def records_in(data: Records | None) -> list[Record]:
    """Read every record of a fetched partition; an incomplete last batch does not count."""
    if not data:
        return []
    buffer = records_view(data)
    return [
        record
        for header in iter_headers(buffer, allow_partial=True)
        for record in iter_records(buffer, header)
    ]


# Topics


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: object) -> str:
    """Create a topic and wait until its partitions are led; configs have _ for Kafka's dots."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                    for key, value in configs.items()
                ],
            )
        ]
    )
    (result,) = client.call(request).topics
    assert result.error_code == ErrorCode.NONE, (result.error_code, result.error_message)
    wait_for_leaders(client, name, partitions)
    return name


def wait_for_leaders(client: RawClient, name: str, partitions: int = 1) -> None:
    """Wait until every partition of a topic is served."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    for partition in range(partitions):
        while list_offset(client, name, LATEST, partition).error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline, f"{name}-{partition} is not served"
            time.sleep(0.02)


def delete_topic(client: RawClient, name: str) -> None:
    """Delete a topic and wait until the broker no longer knows it."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    (result,) = client.call(request).responses
    assert result.error_code == ErrorCode.NONE
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while describe_topic(client, name).error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        assert time.monotonic() < deadline, f"{name} is still there"
        time.sleep(0.02)


def describe_topic(client: RawClient, name: str) -> MetadataResponseTopic:
    """Ask for a topic's metadata without creating it."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    (topic,) = client.call(request).topics
    assert isinstance(topic, MetadataResponseTopic)
    return topic


def topic_id(client: RawClient, name: str) -> bytes:
    """Return the id of a topic that exists."""
    topic = describe_topic(client, name)
    assert topic.error_code == ErrorCode.NONE
    return topic.topic_id


def alter_config(
    client: RawClient,
    name: str,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """Change configs, each as (name, operation, value); return the error code and message."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    (response,) = client.call(request).responses
    return response.error_code, response.error_message


# Data


def produce_request(
    topic: str, records: bytes | bytearray | None, partition: int = 0, *, acks: int = -1
) -> ProduceRequest:
    """Make a Produce of one partition."""
    data = PartitionProduceData(
        index=partition, records=None if records is None else memoryview(records)
    )
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def produce(
    client: RawClient,
    topic: str,
    records: bytes | bytearray | None,
    partition: int = 0,
    *,
    acks: int = -1,
    version: int = PRODUCE_BY_NAME,
) -> PartitionProduceResponse:
    """Produce to one partition."""
    response = client.call(produce_request(topic, records, partition, acks=acks), version)
    ((answer,),) = [topic.partition_responses for topic in response.responses]
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def append(client: RawClient, topic: str, *values: bytes | None, partition: int = 0) -> int:
    """Produce a batch, which must succeed; return its base offset."""
    answer = produce(client, topic, batch_of(*values), partition)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.base_offset


def fetch_request(
    topic: str,
    *asked: FetchPartition,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 24,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """Make a Fetch of partitions of one topic."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=list(asked))] if asked else [],
    )


def fetch(
    client: RawClient,
    topic: str,
    offset: int,
    partition: int = 0,
    *,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    version: int = FETCH_BY_NAME,
    **options: int,
) -> PartitionData:
    """Fetch one partition without a session."""
    asked = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    response = client.call(fetch_request(topic, asked, **options), version)
    assert response.error_code == ErrorCode.NONE
    ((answer,),) = [topic.partitions for topic in response.responses]
    assert isinstance(answer, PartitionData)
    return answer


def list_offset(
    client: RawClient,
    topic: str,
    timestamp: int,
    partition: int = 0,
    *,
    version: int = 11,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
    replica_id: int = -1,
) -> ListOffsetsPartitionResponse:
    """Ask for one offset."""
    asked = ListOffsetsPartition(
        partition_index=partition,
        timestamp=timestamp,
        current_leader_epoch=current_leader_epoch,
    )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    response = client.call(request, version)
    ((answer,),) = [topic.partitions for topic in response.topics]
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer


def end_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    """Return the high watermark of a partition."""
    answer = list_offset(client, topic, LATEST, partition)
    assert answer.error_code == ErrorCode.NONE
    return answer.offset


def delete_records(
    client: RawClient, topic: str, offset: int, partition: int = 0
) -> DeleteRecordsPartitionResult:
    """Move a partition's log start offset."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)],
            )
        ],
        timeout_ms=10_000,
    )
    ((answer,),) = [topic.partitions for topic in client.call(request).topics]
    assert isinstance(answer, DeleteRecordsPartitionResult)
    return answer


def new_producer_id(client: RawClient) -> int:
    """Get a new producer id, with epoch 0."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        response = client.call(request)
        if response.error_code == ErrorCode.NONE:
            assert response.producer_epoch == 0
            return int(response.producer_id)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_coordinator(client: RawClient, *groups: str) -> None:
    """Wait until groups are served; the first question creates the offsets topic.

    Without groups wait for every partition of that topic, or nearly so: any group is served then.
    """
    names = list(groups or (f"probe-{number}" for number in range(20)))
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        response = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=names))
        codes = {one.error_code for one in response.coordinators}
        if codes == {ErrorCode.NONE}:
            described = client.call(DescribeGroupsRequest(groups=names), 5)
            codes = {one.error_code for one in described.groups}
            if codes == {ErrorCode.NONE}:
                return
        assert codes <= NOT_SERVED_YET, codes
        assert time.monotonic() < deadline, "no coordinator"
        time.sleep(0.05)
