"""Messages of the metadata quorum: what the declarations promise to its cores and channels."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import LocalProtocolError
from kraftrio.wire.messages.quorum import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerState,
    FetchSnapshotResponse,
    LeaderChangeMessage,
    LeaderChangeVoter,
    PartitionSnapshotResponse,
    QuorumNodeEndpoint,
    TopicSnapshotResponse,
    VoteResponse,
)


def test_ports_are_unsigned() -> None:
    """Ports above 32767 are usual."""
    response = VoteResponse(node_endpoints=[QuorumNodeEndpoint(node_id=1, host="h", port=65535)])
    assert decode(VoteResponse, 1, encode(response, 1))[0].node_endpoints[0].port == 65535


def test_isr_with_epochs_replaces_the_plain_isr() -> None:
    """Version 3 fences restarted brokers by their epochs (KIP-903); the other form is an error."""

    def request(**isr: Any) -> AlterPartitionRequest:
        partition = AlterPartitionRequestPartitionData(**isr)
        return AlterPartitionRequest(
            topics=[AlterPartitionRequestTopicData(partitions=[partition])]
        )

    plain = request(new_isr=[1, 2])
    epochs = request(new_isr_with_epochs=[BrokerState(broker_id=1, broker_epoch=7)])
    assert decode(AlterPartitionRequest, 2, encode(plain, 2))[0] == plain
    assert decode(AlterPartitionRequest, 3, encode(epochs, 3))[0] == epochs
    with pytest.raises(LocalProtocolError, match="new_isr"):
        encode(plain, 3)
    with pytest.raises(LocalProtocolError, match="new_isr_with_epochs"):
        encode(epochs, 2)


def test_a_broker_is_fenced_until_told_otherwise() -> None:
    """The default of the heartbeat's answer is fenced, as in Kafka."""
    assert BrokerHeartbeatResponse().is_fenced


def test_cordoned_log_dirs_distinguish_null_from_none_at_all() -> None:
    """Null means no statement, an empty list that nothing is cordoned."""
    for dirs in (None, [], [b"d" * 16]):
        request = BrokerHeartbeatRequest(cordoned_log_dirs=dirs)
        assert decode(BrokerHeartbeatRequest, 2, encode(request, 2))[0].cordoned_log_dirs == dirs


def test_snapshot_bytes_are_required() -> None:
    """The records of a snapshot are never null."""
    partition = PartitionSnapshotResponse(unaligned_records=None)
    response = FetchSnapshotResponse(topics=[TopicSnapshotResponse(partitions=[partition])])
    with pytest.raises(LocalProtocolError):
        encode(response, 1)
    partition.unaligned_records = b"bytes"
    assert decode(FetchSnapshotResponse, 1, encode(response, 1))[0] == response


def test_leader_change_names_voters() -> None:
    """The control record at the start of every epoch."""
    message = LeaderChangeMessage(
        version=1,
        leader_id=3,
        voters=[LeaderChangeVoter(voter_id=3, voter_directory_id=b"d" * 16)],
    )
    assert decode(LeaderChangeMessage, 1, encode(message, 1))[0] == message
