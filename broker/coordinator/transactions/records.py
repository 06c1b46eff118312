"""Transactional ids as records of `__transaction_state`, and back.

Owns the bytes: a key is an int16 record type and the transactional id; a value is an int16 version
and a `TransactionLogValue`; a null value is a tombstone. Version 1 is written from transaction
version 1 on; version 0 has no room for a next producer id and the client's version. Topics and
partitions are written in order, where Kafka's order is that of its hash tables.

Called by `shard`.
"""

from __future__ import annotations

import struct

from kraftrio.broker.coordinator.outcome import CoordinatorRecord
from kraftrio.broker.coordinator.transactions.producer_epochs import ProducerIdentity
from kraftrio.broker.coordinator.transactions.state import TransactionMetadata, TransactionState
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.transactions import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
)
from kraftrio.wire.primitives import Buffer, TopicPartition, indexes_by_topic
from kraftrio.wire.records.batch import NO_PRODUCER_EPOCH

_TRANSACTION = 0  # the only record type of the topic
_KEY_VERSION = 0
_MAX_VALUE_VERSION = 1
_INT16 = struct.Struct(">h")

_STORED_STATES = {
    state.value: state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}


def transaction_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id's records."""
    key = TransactionLogKey(transactional_id=transactional_id)
    return _INT16.pack(_TRANSACTION) + encode(key, _KEY_VERSION)


def transaction_record(
    transaction: TransactionMetadata, transaction_version: int
) -> CoordinatorRecord:
    """Make the record of a transactional id as the cluster's transaction version has it."""
    version = min(transaction_version, _MAX_VALUE_VERSION)
    producer = transaction.producer
    value = TransactionLogValue(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=_topics(transaction),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if version >= 1:
        value.previous_producer_id = producer.previous_id
        value.next_producer_id = producer.next_id
        value.client_transaction_version = transaction.client_version
    return CoordinatorRecord(
        transaction_key(transaction.transactional_id), _INT16.pack(version) + encode(value, version)
    )


def transaction_tombstone(transactional_id: str) -> CoordinatorRecord:
    """Make the record that removes a transactional id."""
    return CoordinatorRecord(transaction_key(transactional_id), None)


def read_transaction_key(key: Buffer) -> str:
    """Read the transactional id of a record.

    Raises:
        RemoteProtocolError: the record is of another type, or damaged.
    """
    record_type = _leading_int16(key)
    if record_type != _TRANSACTION:
        raise RemoteProtocolError(f"transaction log key of unknown type {record_type}")
    return decode(TransactionLogKey, _KEY_VERSION, key, _INT16.size)[0].transactional_id


def read_transaction(transactional_id: str, value: Buffer) -> TransactionMetadata:
    """Read what a record says about its transactional id.

    Raises:
        RemoteProtocolError: the value has an unknown version or state, or is damaged.
    """
    version = _leading_int16(value)
    if not 0 <= version <= _MAX_VALUE_VERSION:
        raise RemoteProtocolError(f"transaction log value of unknown version {version}")
    stored = decode(TransactionLogValue, version, value, _INT16.size)[0]
    state = _STORED_STATES.get(stored.transaction_status)
    if state is None:
        raise RemoteProtocolError(f"transaction of unknown state {stored.transaction_status}")
    producer = ProducerIdentity(
        stored.producer_id,
        stored.producer_epoch,
        NO_PRODUCER_EPOCH,
        stored.previous_producer_id,
        stored.next_producer_id,
    )
    topics = stored.transaction_partitions or []
    if state is TransactionState.EMPTY:
        topics = []
    return TransactionMetadata(
        transactional_id,
        producer,
        stored.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in topics
            for partition in topic.partition_ids
        ),
        stored.transaction_start_timestamp_ms,
        stored.transaction_last_update_timestamp_ms,
        stored.client_transaction_version,
    )


def _topics(transaction: TransactionMetadata) -> list[TransactionLogPartitions] | None:
    """The partitions by topic; null without a transaction, as Kafka writes it."""
    if transaction.state is TransactionState.EMPTY:
        assert not transaction.partitions
        return None
    return [
        TransactionLogPartitions(topic=topic, partition_ids=indexes)
        for topic, indexes in indexes_by_topic(sorted(transaction.partitions)).items()
    ]


def _leading_int16(buf: Buffer) -> int:
    if len(buf) < _INT16.size:
        raise RemoteProtocolError("record of the transaction log without a version")
    version: int = _INT16.unpack_from(buf)[0]
    return version
