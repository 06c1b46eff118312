"""Messages of the data path: what the declarations promise to handlers and clients."""

from __future__ import annotations

import pytest

from kraftrio.wire.codec.message import decode, encode, encode_parts
from kraftrio.wire.errors import LocalProtocolError
from kraftrio.wire.messages.data import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    ReplicaState,
    TopicProduceData,
)


def test_produce_names_topics_by_id_from_13_on() -> None:
    """The name is dropped silently in version 13, the id before."""
    topic = TopicProduceData(
        name="t1", topic_id=b"i" * 16, partition_data=[PartitionProduceData(index=1)]
    )
    request = ProduceRequest(acks=-1, topic_data=[topic])
    old, _ = decode(ProduceRequest, 12, encode(request, 12))
    assert (old.topic_data[0].name, old.topic_data[0].topic_id) == ("t1", bytes(16))
    new, _ = decode(ProduceRequest, 13, encode(request, 13))
    assert (new.topic_data[0].name, new.topic_data[0].topic_id) == ("", b"i" * 16)


def test_produced_records_are_a_writable_view_of_the_frame() -> None:
    """The log stamps offsets in place, without a copy."""
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t1", partition_data=[PartitionProduceData(records=memoryview(b"batch"))]
            )
        ]
    )
    frame = bytearray(encode(request, 9))
    decoded, _ = decode(ProduceRequest, 9, memoryview(frame))
    records = decoded.topic_data[0].partition_data[0].records
    assert records is not None
    assert not records.readonly
    records[:1] = b"B"
    assert b"Batch" in frame


def test_fetch_replica_id_moves_to_replica_state_in_15() -> None:
    """A follower's id is in another place from version 15 on (KIP-903)."""
    old = FetchRequest(replica_id=2)
    assert decode(FetchRequest, 14, encode(old, 14))[0].replica_id == 2
    with pytest.raises(LocalProtocolError, match="replica_id"):
        encode(old, 15)
    new = FetchRequest(replica_state=ReplicaState(replica_id=2, replica_epoch=9))
    assert decode(FetchRequest, 15, encode(new, 15))[0].replica_state.replica_epoch == 9
    assert decode(FetchRequest, 15, encode(FetchRequest(), 15))[0].replica_state.replica_id == -1


def test_last_fetched_epoch_cannot_be_sent_before_12() -> None:
    """Divergence detection would be lost silently, so it is an error."""
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(last_fetched_epoch=3)])]
    )
    with pytest.raises(LocalProtocolError, match="last_fetched_epoch"):
        encode(request, 11)


def test_tagged_structs_of_a_fetched_partition_are_none_when_not_sent() -> None:
    """Absent and present ones are told apart, and absent ones cost no bytes."""
    plain = PartitionData(records=b"")
    moved = PartitionData(records=b"", current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=8))
    for partition in (plain, moved):
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
        decoded, _ = decode(FetchResponse, 16, encode(response, 16))
        assert decoded.responses[0].partitions[0] == partition


def test_fetched_records_go_out_in_the_pieces_given() -> None:
    """Slices of files and of the newest batches are not copied together."""
    pieces = [memoryview(bytes(10_000)), memoryview(bytes(20_000))]
    response = FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData(records=list(pieces))])]
    )
    parts = encode_parts(response, 17)
    assert [part for part in parts if len(part) >= 8192] == pieces
    decoded, _ = decode(FetchResponse, 17, b"".join(parts))
    records = decoded.responses[0].partitions[0].records
    assert records is not None
    assert len(records) == 30_000


def test_node_endpoints_need_version_10() -> None:
    """A leader hint that the version cannot carry is an error, not lost."""
    hint = ProduceResponse(node_endpoints=[NodeEndpoint(node_id=2, host="h", port=9092)])
    assert decode(ProduceResponse, 10, encode(hint, 10))[0] == hint
    with pytest.raises(LocalProtocolError, match="node_endpoints"):
        encode(hint, 9)
