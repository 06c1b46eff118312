"""Control records: recorded transaction markers and snapshot records, malformed ones."""

from __future__ import annotations

import struct

import pytest

from kraftrio.wire.errors import KafkaError
from kraftrio.wire.records import control
from kraftrio.wire.records.batch import (
    Record,
    iter_headers,
    iter_records,
)
from kraftrio.wire.records.control import ControlRecordType, EndTransactionMarker
from tests.unit.wire.batches import LOG_DIRS, batch_bytes, log_bytes


def test_recorded_transaction_markers() -> None:
    """Control batches distinguish commit from abort and are written to the byte."""
    buf = log_bytes("txn-0")
    markers = {}
    for header in iter_headers(buf):
        marker = control.read_end_transaction_marker(buf, header)
        assert (marker is None) == (not header.is_control)
        if marker is None:
            continue
        markers[header.base_offset] = marker
        built = control.build_end_transaction_batch(
            header.producer_id,
            header.producer_epoch,
            marker,
            timestamp=header.max_timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
        )
        assert built == batch_bytes(buf, header)
    commits = {offset for offset, marker in markers.items() if marker.commit}
    assert commits == {3, 8, 15, 18}
    assert set(markers) - commits == {6, 11, 13}
    assert {offset: marker.coordinator_epoch for offset, marker in markers.items()}[18] == 2


def test_recorded_snapshot_control_records() -> None:
    """A metadata snapshot starts and ends with its control records."""
    (path,) = LOG_DIRS.glob("__cluster_metadata-0/*.checkpoint")
    buf = path.read_bytes()
    batches = list(iter_headers(buf))
    types = []
    for header in (batches[0], batches[-1]):
        (record,) = iter_records(buf, header)
        types.append(control.control_type(record.key))
        assert control.end_transaction_marker(record) is None
        assert control.read_end_transaction_marker(buf, header) is None
        built = control.build_control_batch(
            types[-1],
            record.value or b"",
            timestamp=record.timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
        )
        assert built == batch_bytes(buf, header)
    assert types == [ControlRecordType.SNAPSHOT_HEADER, ControlRecordType.SNAPSHOT_FOOTER]


def test_control_records_that_are_malformed() -> None:
    """Short keys and values of control records are INVALID_RECORD, unknown types are skipped."""
    key = control.control_key(ControlRecordType.COMMIT)
    for bad in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(KafkaError):
            control.control_type(bad)
    for value in (None, b"", bytes(5), b"\xff\xff\x00\x00\x00\x00"):
        with pytest.raises(KafkaError):
            control.end_transaction_marker(Record(0, 0, key, value))
    assert control.control_type(struct.pack(">hh", 0, 99)) is ControlRecordType.UNKNOWN
    assert control.end_transaction_marker(Record(0, 0, struct.pack(">hh", 0, 99), None)) is None
    longer = struct.pack(">hi", 1, 7) + b"later fields"
    assert control.end_transaction_marker(Record(0, 0, key, longer)) == EndTransactionMarker(
        True, 7
    )
