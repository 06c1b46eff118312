"""Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of the metadata log, and
DescribeQuorum: what the controller's listener serves for the quorum.

Behaviour (Apache Kafka's)
- Another cluster's id is INCONSISTENT_CLUSTER_ID; a request without an id is accepted, except a
  vote that would form a new cluster while this node knows an id. A request about anything
  but the metadata partition is INVALID_REQUEST; FetchSnapshot names it UNKNOWN_TOPIC_OR_PARTITION
  in the partition.
- An older epoch is FENCED_LEADER_EPOCH, always with the epoch and the leader that are known here;
  to a fetch a newer one is UNKNOWN_LEADER_EPOCH, and a node that does not lead answers
  NOT_LEADER_OR_FOLLOWER: so observers find the leader.
- Impossible numbers (negative ones; a log that is ahead of its candidate's epoch) are
  INVALID_REQUEST in the partition; a vote asked of another voter is INVALID_VOTER_KEY.
- An answer leaves when what it says is durable. A fetch that would be answered empty waits for
  max_wait_ms.
- Until the log is loaded the answer is BROKER_NOT_AVAILABLE.
- The voters are static (kraft.version 0): AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter are
  refused (see shared/static_voters.py).

Version notes: see kraft_meta/quorum/raft_wire.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kraftrio.broker.api.shared.static_voters import (
    check_cluster_id,
    refuse_to_add,
    refuse_to_remove,
)
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.kraft_meta.controller.control import METADATA_TOPIC
from kraftrio.kraft_meta.quorum.raft_wire import (
    METADATA_PARTITION,
    decode_request,
    encode_response,
)
from kraftrio.kraft_meta.quorum.service import QuorumService
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
from kraftrio.kraft_meta.raft.values import SnapshotId
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages import quorum, raft_voters
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.protocol.fitting import fit_version

_MAX_SNAPSHOT_PIECE_BYTES = 8 * 1024 * 1024
_MAX_WAIT_MS = 60_000


class QuorumHandlers:
    """The handlers of one node.

    Args:
        service: runs its part of the quorum.
        listener_names: of the controllers.
    """

    def __init__(self, service: QuorumService, listener_names: Sequence[str]) -> None:
        self._service = service
        self._listener_names = listener_names

    def table(self) -> HandlerTable:
        return {
            ApiKey.VOTE: self.answer,
            ApiKey.BEGIN_QUORUM_EPOCH: self.answer,
            ApiKey.END_QUORUM_EPOCH: self.answer,
            ApiKey.FETCH: self.answer,
            ApiKey.FETCH_SNAPSHOT: self.fetch_snapshot,
            ApiKey.DESCRIBE_QUORUM: self.describe_quorum,
            ApiKey.ADD_RAFT_VOTER: self.add_voter,
            ApiKey.REMOVE_RAFT_VOTER: self.remove_voter,
            ApiKey.UPDATE_RAFT_VOTER: self.update_voter,
        }

    # ---- what the consensus core answers

    def answer(self, request: Any, context: RequestContext) -> Any:
        """Hand a request to the consensus core."""
        version = context.api_version
        try:
            self._check_cluster(request.cluster_id)
            message = decode_request(request, version, self._service.node_id, 0)
            self._check_founding(message, request.cluster_id)
        except KafkaError as error:
            return APIS[context.api_key].response(error_code=error.code)
        if message.epoch >= self._service.leader_epoch:
            error_code = self._check_message(message, request)
            if error_code is not ErrorCode.NONE:
                return self._encode(self._refusal(message, error_code), version)
        if isinstance(message, Fetch) and message.max_wait_ms > _MAX_WAIT_MS:
            message = replace(message, max_wait_ms=_MAX_WAIT_MS)
        return self._service.messages.ask(message).map(
            lambda response: self._encode(response, version)
        )

    def _encode(self, response: Response, api_version: int) -> Any:
        wire = encode_response(response, self._service.voters.current)
        return fit_version(wire, api_version)

    def _check_cluster(self, cluster_id: str | None) -> None:
        if not self._service.identity.admits(cluster_id):
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID)
        self._check_loaded()

    def _check_loaded(self) -> None:
        if not self._service.is_loaded:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata log is being loaded")

    def _check_founding(self, message: Request, cluster_id: str | None) -> None:
        """Form no new cluster with a candidate that does not know this node's cluster id."""
        service = self._service
        is_founding = isinstance(message, Vote) and message.candidate_is_empty
        if is_founding and service.has_nothing and not cluster_id and service.identity.is_known:
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID)

    def _check_message(self, message: Request, request: Any) -> ErrorCode:
        """Check what the core takes for granted."""
        match message:
            case Vote():
                last = message.last_offset_and_epoch
                # A candidate's new epoch has no records yet; a pre-vote is asked in the present.
                newest = message.epoch if message.pre_vote else message.epoch - 1
                is_possible = message.source >= 0 and last.offset >= 0 and 0 <= last.epoch <= newest
            case BeginQuorumEpoch() | EndQuorumEpoch():
                is_possible = message.source >= 0 and message.source != self._service.node_id
            case Fetch():
                is_possible = (
                    min(message.max_wait_ms, message.epoch) >= 0
                    and min(message.fetch_offset, message.last_fetched_epoch) >= 0
                )
        if not is_possible:
            return ErrorCode.INVALID_REQUEST
        if getattr(request, "voter_id", -1) not in (-1, self._service.node_id):
            return ErrorCode.INVALID_VOTER_KEY
        return ErrorCode.NONE

    def _refusal(self, message: Request, error: ErrorCode) -> Response:
        service = self._service
        source, destination = service.node_id, message.source
        epoch, leader_id = service.leader_epoch, service.leader_id
        match message:
            case Vote():
                return VoteReply(
                    source, destination, epoch, leader_id, False, message.pre_vote, error
                )
            case BeginQuorumEpoch():
                return BeginQuorumEpochReply(source, destination, epoch, leader_id, error)
            case EndQuorumEpoch():
                return EndQuorumEpochReply(source, destination, epoch, leader_id, error)
            case Fetch():
                return FetchReply(source, destination, epoch, leader_id, 0, 0, error)

    # ---- snapshots

    def fetch_snapshot(
        self, request: quorum.FetchSnapshotRequest, context: RequestContext
    ) -> quorum.FetchSnapshotResponse:
        """Give a piece of a snapshot."""
        try:
            self._check_cluster(request.cluster_id)
        except KafkaError as error:
            return quorum.FetchSnapshotResponse(error_code=error.code)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return quorum.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        topic, asked = request.topics[0], request.topics[0].partitions[0]
        piece = quorum.PartitionSnapshotResponse(
            index=asked.partition,
            snapshot_id=asked.snapshot_id,
            position=asked.position,
            unaligned_records=b"",
        )
        response = quorum.FetchSnapshotResponse(
            topics=[quorum.TopicSnapshotResponse(name=topic.name, partitions=[piece])]
        )
        if (topic.name, asked.partition) != (METADATA_TOPIC, METADATA_PARTITION):
            piece.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return response
        service = self._service
        piece.current_leader = quorum.FetchSnapshotLeaderIdAndEpoch(
            leader_id=service.leader_id, leader_epoch=service.leader_epoch
        )
        try:
            piece.unaligned_records, piece.size = service.snapshots.read(
                request.replica_id,
                asked.current_leader_epoch,
                SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch),
                asked.position,
                min(max(request.max_bytes, 0), _MAX_SNAPSHOT_PIECE_BYTES),
            )
        except KafkaError as error:
            piece.error_code = error.code
        address = service.voters.current.address(service.leader_id)
        if address is not None:
            host, port = address
            response.node_endpoints = [
                quorum.QuorumNodeEndpoint(node_id=service.leader_id, host=host, port=port)
            ]
        return fit_version(response, context.api_version)

    # ---- descriptions and changes of the quorum

    def describe_quorum(
        self, request: quorum.DescribeQuorumRequest, context: RequestContext
    ) -> quorum.DescribeQuorumResponse:
        """Describe how far voters and observers are."""
        return fit_version(self._service.describe_quorum(request), context.api_version)

    def _cannot_decide(self, request: Any) -> KafkaError | None:
        try:
            check_cluster_id(request.cluster_id, self._service.identity.cluster_id)
            self._check_loaded()
        except KafkaError as error:
            return error
        if self._service.leader_id != self._service.node_id:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return None

    def add_voter(
        self, request: raft_voters.AddRaftVoterRequest, _context: RequestContext
    ) -> raft_voters.AddRaftVoterResponse:
        """Refuse to add a voter."""
        error = self._cannot_decide(request)
        if error is None:
            cluster_id = self._service.identity.cluster_id
            return refuse_to_add(request, cluster_id, self._listener_names)
        return raft_voters.AddRaftVoterResponse(error_code=error.code, error_message=error.message)

    def remove_voter(
        self, request: raft_voters.RemoveRaftVoterRequest, _context: RequestContext
    ) -> raft_voters.RemoveRaftVoterResponse:
        """Refuse to remove a voter."""
        error = self._cannot_decide(request)
        if error is None:
            return refuse_to_remove(request, self._service.identity.cluster_id)
        return raft_voters.RemoveRaftVoterResponse(
            error_code=error.code, error_message=error.message
        )

    def update_voter(
        self, request: raft_voters.UpdateRaftVoterRequest, _context: RequestContext
    ) -> raft_voters.UpdateRaftVoterResponse:
        """Refuse to change a voter."""
        error = self._cannot_decide(request)
        code = ErrorCode.UNSUPPORTED_VERSION if error is None else error.code
        return raft_voters.UpdateRaftVoterResponse(error_code=code)
