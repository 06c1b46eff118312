"""The quorum's messages on the wire: each comes back as it went, in every version that has it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftrio.kraft_meta.quorum.raft_wire import (
    METADATA_TOPIC_ID,
    SENT_VERSIONS,
    decode_request,
    decode_response,
    decode_snapshot_response,
    encode_request,
    encode_response,
    snapshot_request,
)
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
from kraftrio.kraft_meta.raft.values import LogBatch, OffsetAndEpoch, SnapshotId
from kraftrio.kraft_meta.raft.voters import Voter, VoterEndpoint, VoterSet
from kraftrio.wire.codec.message import decode, encode, spec_of
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.messages import data, quorum
from kraftrio.wire.primitives import uuid_to_text
from kraftrio.wire.protocol.api import APIS
from kraftrio.wire.protocol.fitting import fit_version
from kraftrio.wire.records.control import ControlRecordType, control_key

VOTERS = VoterSet(
    tuple(Voter(n, (VoterEndpoint("CONTROLLER", f"host{n}", 9090 + n),)) for n in (1, 2, 3))
)
SILENT = VoterSet.of_ids([1, 2, 3])
ERRORS = (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def over_the_wire(message: Any, version: int) -> Any:
    """Encode and decode a request or response in a version."""
    body = encode(message, version)
    decoded, end = decode(type(message), version, bytearray(body))
    assert end == len(body)
    return decoded


def batches(rng: random.Random, epoch: int, offset: int) -> tuple[LogBatch, ...]:
    found: list[LogBatch] = []
    for _ in range(rng.randrange(4)):
        values = tuple(rng.randbytes(rng.randrange(300)) for _ in range(rng.randrange(1, 5)))
        keys: tuple[bytes, ...] = ()
        if rng.random() < 0.2:
            values = values[:1]
            keys = (control_key(ControlRecordType.LEADER_CHANGE),)
        found.append(LogBatch(offset, epoch, rng.randrange(10**12), values, keys))
        offset = found[-1].end_offset
    return tuple(found)


def random_exchange(rng: random.Random) -> tuple[Request, Response]:
    """Make a request and an answer to it."""
    source, destination = rng.sample([1, 2, 3], 2)
    epoch, offset = rng.randrange(2**31 - 1), rng.randrange(2**40)
    now, leader_id = rng.randrange(2**31), rng.choice([-1, 1, 2, 3])
    error, back = rng.choice(ERRORS), (destination, source)
    kind = rng.randrange(4)
    if kind == 0:
        pre_vote = rng.random() < 0.5
        vote = Vote(source, destination, epoch, OffsetAndEpoch(offset, epoch), pre_vote)
        granted = error is ErrorCode.NONE and rng.random() < 0.5
        return vote, VoteReply(*back, now, leader_id, granted, pre_vote, error)
    if kind == 1:
        begin = BeginQuorumEpoch(source, destination, epoch)
        return begin, BeginQuorumEpochReply(*back, now, leader_id, error)
    if kind == 2:
        successors = tuple(rng.sample([1, 2, 3], rng.randrange(4)))
        end = EndQuorumEpoch(source, destination, epoch, successors)
        return end, EndQuorumEpochReply(*back, now, leader_id, error)
    fetch = Fetch(source, destination, epoch, offset, epoch, rng.choice([-1, offset]), 500, 10**6)
    answer = FetchReply(
        *back, now, leader_id, offset, epoch, error, rng.choice([-1, offset]), log_start_offset=3
    )
    match rng.randrange(3):
        case 0:
            answer = replace(answer, batches=batches(rng, epoch, offset))
        case 1:
            answer = replace(answer, diverging=OffsetAndEpoch(offset, now))
        case 2:
            answer = replace(answer, snapshot_id=SnapshotId(offset, now))
    return fetch, answer


@pytest.mark.parametrize("seed", range(100))
def test_messages_come_back_as_they_went(seed: int) -> None:
    """In the versions that our nodes use among themselves."""
    rng = random.Random(seed)
    request, response = random_exchange(rng)
    sent = encode_request(request, "cluster", VOTERS)
    version = SENT_VERSIONS[type(sent)]
    received = over_the_wire(sent, version)
    assert received.cluster_id == "cluster"
    assert decode_request(received, version, request.destination, 0) == request
    answer = over_the_wire(fit_version(encode_response(response, VOTERS), version), version)
    assert decode_response(request, answer) == response
    named = [node.node_id for node in answer.node_endpoints]
    assert named == ([response.leader_id] if response.leader_id >= 0 else [])


def versions(key: int) -> list[int]:
    return list(range(APIS[key].min_version, APIS[key].max_version + 1))


@pytest.mark.parametrize("seed", range(20))
def test_older_versions_are_understood(seed: int) -> None:
    """Every version of the API table, as far as it has the fields."""
    rng = random.Random(seed)
    request, response = random_exchange(rng)
    sent = encode_request(request, "cluster", VOTERS)
    key = spec_of(type(sent)).api_key
    assert key is not None
    for version in versions(key):
        expected: Any = request
        if isinstance(request, Vote):
            sent.topics[0].partitions[0].pre_vote = request.pre_vote and version >= 2
            expected = replace(request, pre_vote=request.pre_vote and version >= 2)
        elif isinstance(request, Fetch):
            if version < 12:
                continue
            if version < 15:
                sent.replica_id, sent.replica_state = request.source, data.ReplicaState()
            else:
                sent.replica_id = -1
                sent.replica_state = data.ReplicaState(replica_id=request.source)
            if version < 18:
                expected = replace(request, high_watermark=2**63 - 1)
        received = over_the_wire(sent, version)
        assert decode_request(received, version, request.destination, 0) == expected, version
        answer = over_the_wire(fit_version(encode_response(response, VOTERS), version), version)
        decoded = decode_response(request, answer)
        assert decoded.epoch == response.epoch
        assert decoded.leader_id == response.leader_id


def test_answers_fit_fetches_of_any_version() -> None:
    """Before version 12 nothing names the leader, but the answer can be sent."""
    response = FetchReply(
        1, 2, 7, 3, 10, 5, ErrorCode.FENCED_LEADER_EPOCH, snapshot_id=SnapshotId(20, 6)
    )
    for version in versions(1):
        answer = fit_version(encode_response(response, VOTERS), version)
        (partition,) = over_the_wire(answer, version).responses[0].partitions
        assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
        if version >= 12:
            assert partition.current_leader.leader_id == 3
            assert partition.snapshot_id.end_offset == 20


def test_the_metadata_topic_has_kafkas_id() -> None:
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


def wrong_topic(request: Any) -> None:
    request.topics[0].topic_name = "other"


def two_partitions(request: Any) -> None:
    request.topics[0].partitions *= 2


def no_topic(request: Any) -> None:
    request.topics = []


def other_partition(request: Any) -> None:
    request.topics[0].partitions[0].partition_index = 1


@pytest.mark.parametrize("spoil", [wrong_topic, two_partitions, no_topic, other_partition])
def test_only_the_metadata_partition_is_meant(spoil: Callable[[Any], None]) -> None:
    """INVALID_REQUEST otherwise."""
    request = encode_request(BeginQuorumEpoch(1, 2, 3), "cluster", SILENT)
    spoil(request)
    with pytest.raises(KafkaError) as caught:
        decode_request(request, 1, 2, 0)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_fetch_by_id_or_name_means_the_metadata_partition_only() -> None:
    """Names before version 13, ids from there on."""
    request = encode_request(Fetch(1, 2, 3, 4, 3, 4, 500), "cluster", SILENT)
    request.topics[0].topic = "other"
    assert decode_request(request, 13, 2, 0).epoch == 3
    with pytest.raises(KafkaError):
        decode_request(request, 12, 2, 0)
    request.topics[0].topic_id = bytes(16)
    with pytest.raises(KafkaError):
        decode_request(request, 13, 2, 0)


def test_what_is_no_answer_is_the_peers_fault() -> None:
    """No partition, damaged batches; a refusal of the whole request is an error of its own."""
    vote = Vote(1, 2, 3, OffsetAndEpoch(4, 2), False)
    with pytest.raises(RemoteProtocolError):
        decode_response(vote, quorum.VoteResponse())
    with pytest.raises(KafkaError) as caught:
        decode_response(vote, quorum.VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    fetch = Fetch(1, 2, 3, 4, 3, 4, 500)
    good = FetchReply(2, 1, 3, 2, 4, 3, batches=(LogBatch(4, 3, 7, (b"value",)),))
    answer = encode_response(good, SILENT)
    records = bytearray(b"".join(answer.responses[0].partitions[0].records))
    answer.responses[0].partitions[0].records = records
    assert decode_response(fetch, answer) == good
    records[-3] ^= 1
    with pytest.raises(RemoteProtocolError):
        decode_response(fetch, answer)


def test_an_unknown_error_is_some_error() -> None:
    """A newer peer may know more of them."""
    vote = Vote(1, 2, 3, OffsetAndEpoch(4, 2), False)
    answer = encode_response(VoteReply(2, 1, 3, -1, True, False), SILENT)
    answer.topics[0].partitions[0].error_code = ErrorCode.of_peer(31_000)
    decoded = decode_response(vote, answer)
    assert isinstance(decoded, VoteReply)
    assert decoded.error == 31_000
    assert not decoded.error.is_known
    assert not decoded.vote_granted


def test_a_piece_of_a_snapshot() -> None:
    """The request names it; the answer's errors are raised."""
    request = snapshot_request(4, 7, SnapshotId(100, 6), 500, 1000, "cluster")
    for version in versions(59):
        received = over_the_wire(request, version)
        (asked,) = received.topics[0].partitions
        assert (received.replica_id, received.max_bytes) == (4, 1000)
        assert (asked.snapshot_id.end_offset, asked.snapshot_id.epoch) == (100, 6)
        assert (asked.position, asked.current_leader_epoch) == (500, 7)
    piece = quorum.PartitionSnapshotResponse(size=7, position=3, unaligned_records=b"data")
    response = quorum.FetchSnapshotResponse(
        topics=[quorum.TopicSnapshotResponse(partitions=[piece])]
    )
    assert decode_snapshot_response(response) is piece
    piece.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
    with pytest.raises(KafkaError):
        decode_snapshot_response(response)
    with pytest.raises(RemoteProtocolError):
        decode_snapshot_response(quorum.FetchSnapshotResponse())
