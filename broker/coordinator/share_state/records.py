"""Share partitions as records of `__share_group_state`, and back.

Owns the bytes: a key is an int16 record type (0 a snapshot, 1 an update), the group, topic id and
partition; a value is an int16 version and its fields. A snapshot without a value is the tombstone
of the share partition; an update never is one. Called by `shard`.
"""

from __future__ import annotations

import struct

from kraftrio.broker.coordinator.outcome import CoordinatorRecord
from kraftrio.broker.coordinator.share_state.state import ShareSnapshot, Update
from kraftrio.broker.share_state import SharePartitionKey, read_batches, wire_batches
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from kraftrio.wire.primitives import Buffer

_SNAPSHOT, _UPDATE = 0, 1
_KEY_VERSION = _VALUE_VERSION = 0
_INT16 = struct.Struct(">h")


def snapshot_record(key: SharePartitionKey, snapshot: ShareSnapshot) -> CoordinatorRecord:
    """Make the record of a whole state."""
    value = ShareSnapshotValue(
        snapshot_epoch=snapshot.snapshot_epoch,
        state_epoch=snapshot.state_epoch,
        leader_epoch=snapshot.leader_epoch,
        start_offset=snapshot.start_offset,
        delivery_complete_count=snapshot.delivery_complete_count,
        create_timestamp=snapshot.created_ms,
        write_timestamp=snapshot.written_ms,
        state_batches=wire_batches(snapshot.batches),
    )
    return CoordinatorRecord(_snapshot_key(key), _value(value))


def update_record(key: SharePartitionKey, update: Update) -> CoordinatorRecord:
    """Make the record of what has changed."""
    group_id, topic_id, partition = key
    update_key = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
    value = ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=wire_batches(update.batches),
    )
    return CoordinatorRecord(_INT16.pack(_UPDATE) + encode(update_key, _KEY_VERSION), _value(value))


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """Make the record that removes a share partition."""
    return CoordinatorRecord(_snapshot_key(key), None)


def read_record(
    key: Buffer, value: Buffer | None
) -> tuple[SharePartitionKey, ShareSnapshot | Update | None] | None:
    """Read a record: what it is about, and what it says (None: a tombstone).

    A record of a type that only a newer Kafka knows is None.

    Raises:
        RemoteProtocolError: it is damaged, or of an unknown version.
    """
    record_type = _leading_int16(key)
    if record_type == _SNAPSHOT:
        found = decode(ShareSnapshotKey, _KEY_VERSION, key, _INT16.size)[0]
        partition = SharePartitionKey(found.group_id, found.topic_id, found.partition)
        return partition, None if value is None else _read_snapshot(value)
    if record_type == _UPDATE:
        named = decode(ShareUpdateKey, _KEY_VERSION, key, _INT16.size)[0]
        if value is None:
            raise RemoteProtocolError("update of a share partition without a value")
        return (
            SharePartitionKey(named.group_id, named.topic_id, named.partition),
            _read_update(value),
        )
    return None


def _snapshot_key(key: SharePartitionKey) -> bytes:
    group_id, topic_id, partition = key
    snapshot_key = ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
    return _INT16.pack(_SNAPSHOT) + encode(snapshot_key, _KEY_VERSION)


def _value(value: ShareSnapshotValue | ShareUpdateValue) -> bytes:
    return _INT16.pack(_VALUE_VERSION) + encode(value, _VALUE_VERSION)


def _read_snapshot(value: Buffer) -> ShareSnapshot:
    _check_version(value)
    found = decode(ShareSnapshotValue, _VALUE_VERSION, value, _INT16.size)[0]
    return ShareSnapshot(
        found.snapshot_epoch,
        found.state_epoch,
        found.leader_epoch,
        found.start_offset,
        found.delivery_complete_count,
        read_batches(found.state_batches),
        found.create_timestamp,
        found.write_timestamp,
    )


def _read_update(value: Buffer) -> Update:
    _check_version(value)
    found = decode(ShareUpdateValue, _VALUE_VERSION, value, _INT16.size)[0]
    return Update(
        found.snapshot_epoch,
        found.leader_epoch,
        found.start_offset,
        found.delivery_complete_count,
        read_batches(found.state_batches),
    )


def _check_version(value: Buffer) -> None:
    version = _leading_int16(value)
    if version != _VALUE_VERSION:
        raise RemoteProtocolError(f"share state value of unknown version {version}")


def _leading_int16(buf: Buffer) -> int:
    if len(buf) < _INT16.size:
        raise RemoteProtocolError("record of the share state topic without a version")
    version: int = _INT16.unpack_from(buf)[0]
    return version
