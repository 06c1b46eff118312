"""The messages of the quorum as Kafka's wire messages, both ways.

Owns: the translation of every message of raft/messages.py, pure. Rules:
1. The metadata partition is the one partition of the one topic in each message; whatever asks about
   another is INVALID_REQUEST, as in Kafka (KafkaError; the edge makes the answer of it).
2. Batches travel as the record batches that the logs store, byte for byte.
3. What a peer answers is checked; what cannot be is RemoteProtocolError, and an error of the
   whole answer (another cluster's id, say) is raised as KafkaError.
4. Requests go out in the versions of SENT_VERSIONS; requests and answers of every older version
   that the API table has are understood, too.

Version notes: Vote 1 and the others' newest have voter ids and directories (KIP-853; directory ids
are zero, for voters are static), Vote 2 pre-votes (KIP-996), Fetch 13 topic ids, 15 the replica in
a field of its own, 17 the directory, 18 the high watermark that the follower knows (KIP-1166).

Called by: broker/controller/quorum_peers.py (requests out, answers in), broker/api/quorum.py (the
other way round).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftrio.kraft_meta.controller.control import METADATA_TOPIC
from kraftrio.kraft_meta.quorum.log_batches import decode_batches, encode_batch
from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    Request,
    Response,
    Vote,
    VoteReply,
)
from kraftrio.kraft_meta.raft.values import NO_NODE, LogBatch, OffsetAndEpoch, SnapshotId
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.messages import data, quorum
from kraftrio.wire.primitives import ZERO_UUID, Buffer

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
METADATA_PARTITION: Final = 0

SENT_VERSIONS: Final[Mapping[type, int]] = {
    quorum.VoteRequest: 2,
    quorum.BeginQuorumEpochRequest: 1,
    quorum.EndQuorumEpochRequest: 1,
    data.FetchRequest: 18,
    quorum.FetchSnapshotRequest: 1,
}
"""The versions in which our nodes ask each other."""

_TOPIC_ID_VERSION = 13
_REPLICA_STATE_VERSION = 15


# ---- requests out


def encode_request(
    message: Request,
    cluster_id: str | None,
    voters: VoterSet,
    directory_id: bytes = ZERO_UUID,
) -> Any:
    """Return the wire request for a message, to be sent in its version of SENT_VERSIONS."""
    match message:
        case Vote():
            return _vote_request(message, cluster_id)
        case BeginQuorumEpoch():
            return quorum.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=message.destination,
                topics=[
                    quorum.BeginQuorumEpochRequestTopicData(
                        topic_name=METADATA_TOPIC,
                        partitions=[
                            quorum.BeginQuorumEpochRequestPartitionData(
                                leader_id=message.source, leader_epoch=message.epoch
                            )
                        ],
                    )
                ],
                leader_endpoints=_leader_endpoints(message.source, voters),
            )
        case EndQuorumEpoch():
            return _end_quorum_epoch_request(message, cluster_id, voters)
        case Fetch():
            return _fetch_request(message, cluster_id, directory_id)


def _vote_request(message: Vote, cluster_id: str | None) -> quorum.VoteRequest:
    return quorum.VoteRequest(
        cluster_id=cluster_id,
        voter_id=message.destination,
        topics=[
            quorum.VoteRequestTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    quorum.VoteRequestPartitionData(
                        replica_epoch=message.epoch,
                        replica_id=message.source,
                        last_offset_epoch=message.last_offset_and_epoch.epoch,
                        last_offset=message.last_offset_and_epoch.offset,
                        pre_vote=message.pre_vote,
                    )
                ],
            )
        ],
    )


def _end_quorum_epoch_request(
    message: EndQuorumEpoch, cluster_id: str | None, voters: VoterSet
) -> quorum.EndQuorumEpochRequest:
    return quorum.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[
            quorum.EndQuorumEpochRequestTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    quorum.EndQuorumEpochRequestPartitionData(
                        leader_id=message.source,
                        leader_epoch=message.epoch,
                        preferred_successors=list(message.preferred_successors),
                        preferred_candidates=[
                            quorum.ReplicaInfo(candidate_id=successor)
                            for successor in message.preferred_successors
                        ],
                    )
                ],
            )
        ],
        leader_endpoints=_leader_endpoints(message.source, voters),
    )


def _fetch_request(
    message: Fetch, cluster_id: str | None, directory_id: bytes
) -> data.FetchRequest:
    return data.FetchRequest(
        cluster_id=cluster_id,
        replica_state=data.ReplicaState(replica_id=message.replica_id),
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        topics=[
            data.FetchTopic(
                topic=METADATA_TOPIC,
                topic_id=METADATA_TOPIC_ID,
                partitions=[
                    data.FetchPartition(
                        partition=METADATA_PARTITION,
                        current_leader_epoch=message.epoch,
                        fetch_offset=message.fetch_offset,
                        last_fetched_epoch=message.last_fetched_epoch,
                        high_watermark=message.high_watermark,
                        replica_directory_id=directory_id,
                    )
                ],
            )
        ],
    )


def snapshot_request(
    source: int,
    epoch: int,
    snapshot_id: SnapshotId,
    position: int,
    max_bytes: int,
    cluster_id: str | None,
) -> quorum.FetchSnapshotRequest:
    """Return the request for a piece of a snapshot."""
    return quorum.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=source,
        max_bytes=max_bytes,
        topics=[
            quorum.TopicSnapshot(
                name=METADATA_TOPIC,
                partitions=[
                    quorum.PartitionSnapshot(
                        partition=METADATA_PARTITION,
                        current_leader_epoch=epoch,
                        snapshot_id=quorum.FetchSnapshotId(
                            end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch
                        ),
                        position=position,
                    )
                ],
            )
        ],
    )


def _leader_endpoints(node_id: int, voters: VoterSet) -> list[quorum.LeaderEndpoint]:
    return [
        quorum.LeaderEndpoint(name=e.listener_name, host=e.host, port=e.port)
        for e in voters.endpoints(node_id)
    ]


# ---- requests in


def decode_request(request: Any, api_version: int, destination: int, request_id: int) -> Request:
    """Return the message that a wire request stands for.

    Raises:
        KafkaError: INVALID_REQUEST, it is about something else than the metadata partition.
    """
    match request:
        case quorum.VoteRequest():
            vote = _asked(request.topics, by_id=False)
            return Vote(
                vote.replica_id,
                destination,
                vote.replica_epoch,
                OffsetAndEpoch(vote.last_offset, vote.last_offset_epoch),
                vote.pre_vote,
                request_id,
            )
        case quorum.BeginQuorumEpochRequest():
            begin = _asked(request.topics, by_id=False)
            return BeginQuorumEpoch(begin.leader_id, destination, begin.leader_epoch, request_id)
        case quorum.EndQuorumEpochRequest():
            end = _asked(request.topics, by_id=False)
            successors = end.preferred_successors
            if api_version >= 1:
                successors = [candidate.candidate_id for candidate in end.preferred_candidates]
            return EndQuorumEpoch(
                end.leader_id, destination, end.leader_epoch, tuple(successors), request_id
            )
        case _:
            assert isinstance(request, data.FetchRequest)
            return _decode_fetch(request, api_version, destination, request_id)


def _decode_fetch(
    request: data.FetchRequest, api_version: int, destination: int, request_id: int
) -> Fetch:
    asked = _asked(request.topics, by_id=api_version >= _TOPIC_ID_VERSION)
    source = request.replica_id
    if api_version >= _REPLICA_STATE_VERSION:
        source = request.replica_state.replica_id
    return Fetch(
        source=source,
        destination=destination,
        epoch=asked.current_leader_epoch,
        fetch_offset=asked.fetch_offset,
        last_fetched_epoch=asked.last_fetched_epoch,
        high_watermark=asked.high_watermark,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        request_id=request_id,
        directory_id=asked.replica_directory_id,
    )


def _asked(topics: Sequence[Any], *, by_id: bool) -> Any:
    """Return the one partition that a request is about."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic, partition = topics[0], topics[0].partitions[0]
        if by_id:
            is_metadata = topic.topic_id == METADATA_TOPIC_ID
        else:
            name = topic.topic if isinstance(topic, data.FetchTopic) else topic.topic_name
            is_metadata = name == METADATA_TOPIC
        index = (
            partition.partition
            if isinstance(partition, data.FetchPartition)
            else partition.partition_index
        )
        if is_metadata and index == METADATA_PARTITION:
            return partition
    raise KafkaError(ErrorCode.INVALID_REQUEST)


# ---- answers out


def encode_response(message: Response, voters: VoterSet) -> Any:
    """Return the wire response for a message, in the newest version (see `wire.fitting`)."""
    match message:
        case VoteReply():
            return quorum.VoteResponse(
                topics=[
                    quorum.VoteResponseTopicData(
                        topic_name=METADATA_TOPIC,
                        partitions=[
                            quorum.VoteResponsePartitionData(
                                error_code=message.error,
                                leader_id=message.leader_id,
                                leader_epoch=message.epoch,
                                vote_granted=message.vote_granted,
                            )
                        ],
                    )
                ],
                node_endpoints=_node_endpoints(message.leader_id, voters),
            )
        case BeginQuorumEpochReply():
            return quorum.BeginQuorumEpochResponse(
                topics=[_epoch_topic(message)],
                node_endpoints=_node_endpoints(message.leader_id, voters),
            )
        case EndQuorumEpochReply():
            return quorum.EndQuorumEpochResponse(
                topics=[_epoch_topic(message)],
                node_endpoints=_node_endpoints(message.leader_id, voters),
            )
        case FetchReply():
            return _fetch_response(message, voters)


def _epoch_topic(
    message: BeginQuorumEpochReply | EndQuorumEpochReply,
) -> quorum.QuorumEpochTopicData:
    return quorum.QuorumEpochTopicData(
        topic_name=METADATA_TOPIC,
        partitions=[
            quorum.QuorumEpochPartitionData(
                error_code=message.error, leader_id=message.leader_id, leader_epoch=message.epoch
            )
        ],
    )


def _fetch_response(message: FetchReply, voters: VoterSet) -> data.FetchResponse:
    partition = data.PartitionData(
        partition_index=METADATA_PARTITION,
        error_code=message.error,
        high_watermark=message.high_watermark,
        log_start_offset=message.log_start_offset,
        current_leader=data.LeaderIdAndEpoch(
            leader_id=message.leader_id, leader_epoch=message.epoch
        ),
        records=_records(message.batches),
    )
    if message.diverging is not None:
        partition.diverging_epoch = data.FetchEpochEndOffset(
            epoch=message.diverging.epoch, end_offset=message.diverging.offset
        )
    if message.snapshot_id is not None:
        partition.snapshot_id = data.SnapshotId(
            end_offset=message.snapshot_id.end_offset, epoch=message.snapshot_id.epoch
        )
    return data.FetchResponse(
        responses=[
            data.FetchableTopicResponse(
                topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
            )
        ],
        node_endpoints=[
            data.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=None)
            for node in _node_endpoints(message.leader_id, voters)
        ],
    )


def _records(batches: Sequence[LogBatch]) -> list[Buffer]:
    return [encode_batch(batch) for batch in batches] or [b""]


def _node_endpoints(leader_id: int, voters: VoterSet) -> list[quorum.QuorumNodeEndpoint]:
    """Where the leader that an answer names listens (its first controller listener)."""
    address = voters.address(leader_id)
    if address is None:
        return []
    return [quorum.QuorumNodeEndpoint(node_id=leader_id, host=address[0], port=address[1])]


# ---- answers in


def decode_response(question: Request, response: Any) -> Response:
    """Return the message that answers `question`.

    Raises:
        KafkaError: the whole request was refused.
        RemoteProtocolError: the answer is no answer to it.
    """
    if response.error_code:
        raise KafkaError(response.error_code)
    source, destination = question.destination, question.source
    if isinstance(question, Fetch):
        return _decode_fetch_response(question, response)
    partition = _answered(response.topics)
    epoch, leader_id = partition.leader_epoch, _leader(partition.leader_id)
    error = partition.error_code
    match question:
        case Vote():
            return VoteReply(
                source,
                destination,
                epoch,
                leader_id,
                bool(partition.vote_granted) and error is ErrorCode.NONE,
                question.pre_vote,
                error,
            )
        case BeginQuorumEpoch():
            return BeginQuorumEpochReply(source, destination, epoch, leader_id, error)
        case EndQuorumEpoch():
            return EndQuorumEpochReply(source, destination, epoch, leader_id, error)


def _decode_fetch_response(question: Fetch, response: data.FetchResponse) -> FetchReply:
    partition = _answered(response.responses)
    leader = partition.current_leader
    error = partition.error_code
    try:
        batches = decode_batches(records_view(partition.records))
    except KafkaError as refusal:
        raise RemoteProtocolError(f"damaged batches: {refusal}") from refusal
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging is not None and diverging.end_offset < 0:
        diverging = None
    if snapshot is not None and snapshot.end_offset < 0:
        snapshot = None
    return FetchReply(
        source=question.destination,
        destination=question.source,
        epoch=question.epoch if leader is None else leader.leader_epoch,
        leader_id=NO_NODE if leader is None else _leader(leader.leader_id),
        fetch_offset=question.fetch_offset,
        last_fetched_epoch=question.last_fetched_epoch,
        error=error,
        high_watermark=partition.high_watermark,
        batches=tuple(batches),
        diverging=(
            None if diverging is None else OffsetAndEpoch(diverging.end_offset, diverging.epoch)
        ),
        snapshot_id=None if snapshot is None else SnapshotId(snapshot.end_offset, snapshot.epoch),
        log_start_offset=partition.log_start_offset,
        fetch_id=question.fetch_id,
    )


def decode_snapshot_response(
    response: quorum.FetchSnapshotResponse,
) -> quorum.PartitionSnapshotResponse:
    """Return what an answer says of the metadata partition's snapshot.

    Raises:
        KafkaError: the request was refused, as a whole or for the partition.
        RemoteProtocolError: the answer is about something else.
    """
    if response.error_code:
        raise KafkaError(response.error_code)
    partition: quorum.PartitionSnapshotResponse = _answered(response.topics)
    if partition.error_code:
        raise KafkaError(partition.error_code)
    return partition


def _answered(topics: Sequence[Any]) -> Any:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise RemoteProtocolError("an answer about one partition was expected")
    return topics[0].partitions[0]


def _leader(node_id: int) -> int:
    return node_id if node_id >= 0 else NO_NODE
