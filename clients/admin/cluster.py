"""The admin client's part for the cluster: brokers, metadata quorum, leaders, reassignments.

Called by: `admin`. KIP-183, KIP-430, KIP-455, KIP-460, KIP-595, KIP-631, KIP-700, KIP-836.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraftrio.clients.admin.calls import AdminCalls, Deadline, by_topic, collect
from kraftrio.clients.admin.types import (
    ClusterDescription,
    ElectionType,
    PartitionReassignment,
    QuorumInfo,
    QuorumReplica,
    Results,
)
from kraftrio.clients.arguments.several import (
    Partitions,
    broker_ids,
    by_item,
    topic_partition,
    topic_partitions,
)
from kraftrio.clients.arguments.values import MAX_INT32, whole_number
from kraftrio.clients.errors import error_for
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kraftrio.wire.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftrio.wire.messages.quorum import (
    DescribeQuorumReplicaState,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kraftrio.wire.primitives import TopicPartition, indexes_by_topic

_METADATA_TOPIC = "__cluster_metadata"


async def describe_cluster(
    calls: AdminCalls,
    deadline: Deadline,
) -> ClusterDescription:
    """Return the cluster's id, its controller and its brokers."""
    response: DescribeClusterResponse = await calls.ask_any(
        DescribeClusterRequest(),
        deadline,
        lambda answer: (answer.error_code, answer.error_message),
    )
    return ClusterDescription(
        response.cluster_id,
        response.controller_id if response.controller_id >= 0 else None,
        tuple(
            BrokerAddress(broker.broker_id, broker.host, broker.port, broker.rack)
            for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
        ),
    )


async def describe_metadata_quorum(
    calls: AdminCalls,
    deadline: Deadline,
) -> QuorumInfo:
    """Return who leads the metadata quorum and how far its replicas are."""
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name=_METADATA_TOPIC,
                partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
            )
        ]
    )
    response: DescribeQuorumResponse = await calls.ask_any(request, deadline, _quorum_code)
    reported = response.topics[0].partitions[0]
    return QuorumInfo(
        reported.leader_id,
        reported.leader_epoch,
        reported.high_watermark,
        tuple(_replica(state) for state in reported.current_voters),
        tuple(_replica(state) for state in reported.observers),
    )


async def unregister_broker(calls: AdminCalls, deadline: Deadline, broker_id: int) -> None:
    """Have the cluster forget a broker."""
    response: UnregisterBrokerResponse = await calls.ask_controller(
        UnregisterBrokerRequest(broker_id=whole_number("broker_id", broker_id, 0, MAX_INT32)),
        deadline,
        lambda answer: [answer.error_code],
    )
    if response.error_code != ErrorCode.NONE:
        raise error_for(response.error_code, response.error_message)


async def elect_leaders(
    calls: AdminCalls,
    deadline: Deadline,
    election_type: ElectionType,
    partitions: Partitions | None = None,
) -> Results[TopicPartition, None]:
    """Have leaders elected; None: for all partitions, with results for those that needed one."""
    request = ElectLeadersRequest(
        election_type=ElectionType(election_type),
        topic_partitions=None
        if partitions is None
        else [
            TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in indexes_by_topic(
                sorted(topic_partitions("partitions", partitions))
            ).items()
        ],
        timeout_ms=int(deadline.request_timeout_s * 1000),
    )
    response: ElectLeadersResponse = await calls.ask_controller(
        request, deadline, _codes_of_election
    )
    if response.error_code != ErrorCode.NONE:
        raise error_for(response.error_code)
    return collect(
        (
            TopicPartition(topic.topic, reported.partition_id),
            reported.error_code,
            reported.error_message,
            None,
        )
        for topic in response.replica_election_results
        for reported in topic.partition_result
    )


async def alter_partition_reassignments(
    calls: AdminCalls,
    deadline: Deadline,
    reassignments: Mapping[TopicPartition, Sequence[int] | None],
) -> Results[TopicPartition, None]:
    """Move partitions to other brokers, or with None stop moving them."""
    wanted = {
        topic_partition(item): replicas
        for item, replicas in by_item("reassignments", reassignments).items()
    }
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(deadline.request_timeout_s * 1000),
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[_reassignable(item, wanted[item]) for item in part],
            )
            for topic, part in by_topic(wanted)
        ],
    )
    response: AlterPartitionReassignmentsResponse = await calls.ask_controller(
        request, deadline, lambda answer: [answer.error_code]
    )
    if response.error_code != ErrorCode.NONE:
        raise error_for(response.error_code, response.error_message)
    return collect(
        (
            TopicPartition(topic.name, reported.partition_index),
            reported.error_code,
            reported.error_message,
            None,
        )
        for topic in response.responses
        for reported in topic.partitions
    )


async def list_partition_reassignments(
    calls: AdminCalls,
    deadline: Deadline,
    partitions: Partitions | None = None,
) -> dict[TopicPartition, PartitionReassignment]:
    """Return the reassignments that are going on, of all partitions or of some."""
    request = ListPartitionReassignmentsRequest(
        timeout_ms=int(deadline.request_timeout_s * 1000),
        topics=None
        if partitions is None
        else [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in indexes_by_topic(
                sorted(topic_partitions("partitions", partitions))
            ).items()
        ],
    )
    response: ListPartitionReassignmentsResponse = await calls.ask_controller(
        request, deadline, lambda answer: [answer.error_code]
    )
    if response.error_code != ErrorCode.NONE:
        raise error_for(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, reported.partition_index): PartitionReassignment(
            tuple(reported.replicas),
            tuple(reported.adding_replicas),
            tuple(reported.removing_replicas),
        )
        for topic in response.topics
        for reported in topic.partitions
    }


def _quorum_code(response: DescribeQuorumResponse) -> tuple[ErrorCode, str | None]:
    """The first error there is: of the response, or of its one partition."""
    if response.error_code != ErrorCode.NONE:
        return response.error_code, response.error_message
    reported = response.topics[0].partitions[0]
    return reported.error_code, reported.error_message


def _codes_of_election(response: ElectLeadersResponse) -> list[ErrorCode]:
    return [
        response.error_code,
        *(
            reported.error_code
            for topic in response.replica_election_results
            for reported in topic.partition_result
        ),
    ]


def _reassignable(item: TopicPartition, replicas: Sequence[int] | None) -> ReassignablePartition:
    return ReassignablePartition(
        partition_index=item.partition,
        replicas=None if replicas is None else broker_ids(replicas),
    )


def _replica(state: DescribeQuorumReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
