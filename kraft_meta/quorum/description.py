"""DescribeQuorum (KIP-595, KIP-836, KIP-853): how far voters and observers are, by the leader.

Behaviour: only the leader of the metadata partition knows; other nodes answer
NOT_LEADER_OR_FOLLOWER with the leader they know of, and other topics are unknown. Times are wall
clock; the leader itself is always caught up.
Version notes: v1 has the fetch times, v2 the nodes' endpoints, error messages and directory ids
(zero for voters, which are static), older versions are fitted by the caller.

Called by: quorum/service.py.
Tested by: tests/unit/kraft_meta/quorum/test_service.py and broker/controller/test_quorum_peers.py.
"""

from __future__ import annotations

from kraftrio.kraft_meta.controller.control import METADATA_TOPIC
from kraftrio.kraft_meta.raft.quorum_state import (
    OBSERVER_SESSION_TIMEOUT_MS,
    Leader,
    ReplicaProgress,
)
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    DescribeQuorumListener,
    DescribeQuorumNode,
    DescribeQuorumReplicaState,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)

_MOST_ASKED = 16


def describe_quorum(
    request: DescribeQuorumRequest,
    core: RaftCore | None,
    voters: VoterSet,
    *,
    wall_ms: int,
    now_ms: float,
) -> DescribeQuorumResponse:
    """Answer for each partition asked about; now_ms and wall_ms are the same moment.

    There is one quorum: a request that names very many partitions is answered that none of them is
    known, as Kafka answers for every partition but that one.
    """
    if _is_long(request):
        return _unknown_partitions(request)
    topics: list[DescribeQuorumResponseTopicData] = []
    has_leader_answer = False
    for topic in request.topics:
        result = DescribeQuorumResponseTopicData(topic_name=topic.topic_name)
        for data in topic.partitions:
            if topic.topic_name != METADATA_TOPIC or data.partition_index != 0:
                partition = DescribeQuorumResponsePartitionData(
                    partition_index=data.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.sentence,
                )
            else:
                partition = _metadata_partition(core, wall_ms, now_ms)
                has_leader_answer |= partition.error_code == ErrorCode.NONE
            result.partitions.append(partition)
        topics.append(result)
    nodes = _nodes(voters) if has_leader_answer else []
    return DescribeQuorumResponse(topics=topics, nodes=nodes)


def _is_long(request: DescribeQuorumRequest) -> bool:
    topics = request.topics
    return len(topics) > _MOST_ASKED or (
        sum(len(topic.partitions) for topic in topics) > _MOST_ASKED
    )


def _unknown_partitions(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=each(
            lambda topic: DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=each(
                    lambda data: DescribeQuorumResponsePartitionData(
                        partition_index=data.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    ),
                    topic.partitions,
                ),
            ),
            request.topics,
        )
    )


def _metadata_partition(
    core: RaftCore | None, wall_ms: int, now_ms: float
) -> DescribeQuorumResponsePartitionData:
    role = None if core is None else core.quorum.role
    if core is None or not isinstance(role, Leader):
        return DescribeQuorumResponsePartitionData(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error_message=ErrorCode.NOT_LEADER_OR_FOLLOWER.sentence,
            leader_id=-1 if core is None else core.leader_id,
            leader_epoch=0 if core is None else core.epoch,
            high_watermark=-1,
        )

    role.forget_observers_before(now_ms - OBSERVER_SESSION_TIMEOUT_MS)

    def wall(time_ms: float) -> int:
        return -1 if time_ms < 0 else int(wall_ms - (now_ms - time_ms))

    def state(replica_id: int, progress: ReplicaProgress) -> DescribeQuorumReplicaState:
        return DescribeQuorumReplicaState(
            replica_id=replica_id,
            replica_directory_id=progress.directory_id,
            log_end_offset=progress.log_end_offset,
            last_fetch_timestamp=wall(progress.last_fetch_ms),
            last_caught_up_timestamp=wall(progress.last_caught_up_ms),
        )

    own = DescribeQuorumReplicaState(
        replica_id=core.node_id,
        log_end_offset=core.log.stable_end_offset,
        last_fetch_timestamp=wall_ms,
        last_caught_up_timestamp=wall_ms,
    )
    return DescribeQuorumResponsePartitionData(
        leader_id=core.node_id,
        leader_epoch=core.epoch,
        high_watermark=-1 if core.log.high_watermark is None else core.log.high_watermark,
        current_voters=[
            own if voter == core.node_id else state(voter, role.progress[voter])
            for voter in core.quorum.voters
        ],
        observers=[state(node, role.observers[node]) for node in sorted(role.observers)],
    )


def _nodes(voters: VoterSet) -> list[DescribeQuorumNode]:
    return [
        DescribeQuorumNode(
            node_id=node_id,
            listeners=[
                DescribeQuorumListener(name=e.listener_name, host=e.host, port=e.port)
                for e in voters.endpoints(node_id)
            ],
        )
        for node_id in voters
        if voters.endpoints(node_id)
    ]
