"""Messages of transactions: what the declarations promise to coordinators and clients."""

from __future__ import annotations

import pytest

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import LocalProtocolError
from kraftrio.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    TransactionLogKey,
    TransactionLogValue,
    TxnOffsetCommitRequest,
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)


def test_clients_and_brokers_add_partitions_in_different_fields() -> None:
    """One transaction up to version 3, many from 4 on; the other form is an error."""
    topic = AddPartitionsToTxnTopic(name="t", partitions=[0, 2])
    client = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_topics=[topic]
    )
    broker = AddPartitionsToTxnRequest(
        transactions=[AddPartitionsToTxnTransaction(transactional_id="x", topics=[topic])]
    )
    assert decode(AddPartitionsToTxnRequest, 3, encode(client, 3))[0] == client
    assert decode(AddPartitionsToTxnRequest, 4, encode(broker, 4))[0] == broker
    with pytest.raises(LocalProtocolError, match="v3_and_below_transactional_id"):
        encode(client, 4)
    with pytest.raises(LocalProtocolError, match="transactions"):
        encode(broker, 3)


def test_group_fencing_cannot_be_lost_by_an_old_version() -> None:
    """A commit that names its member must not go out where the member is not checked."""
    with pytest.raises(LocalProtocolError, match="member_id"):
        encode(TxnOffsetCommitRequest(member_id="m"), 2)


def test_transaction_version_of_a_marker_is_left_out_before_its_version() -> None:
    """Version 1 of the request has no such field, and the marker is as good without."""
    request = WriteTxnMarkersRequest(markers=[WritableTxnMarker(transaction_version=2)])
    decoded, _ = decode(WriteTxnMarkersRequest, 1, encode(request, 1))
    assert decoded.markers[0].transaction_version == 0
    assert decode(WriteTxnMarkersRequest, 2, encode(request, 2))[0] == request


def test_records_of_the_transaction_log() -> None:
    """The key is an old-style string; the producer ids of KIP-890 cost nothing unless set."""
    assert encode(TransactionLogKey(transactional_id="x"), 0).hex() == "000178"
    value = TransactionLogValue(producer_id=5, transaction_partitions=None)
    plain = encode(value, 1)
    value.next_producer_id = 6
    assert len(encode(value, 1)) == len(plain) + 10
    assert decode(TransactionLogValue, 1, encode(value, 1))[0] == value
