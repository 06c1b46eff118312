"""Whether a metadata log is Apache Kafka's, whose records this node cannot read."""

from __future__ import annotations

import posixpath
from typing import Final

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.metadata.names import parse_segment_file_name, parse_snapshot_file_name
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.records.batch import iter_headers, iter_records, verify_crc

_CHECKED_BYTES: Final = 1 << 20


def holds_foreign_records(fs: FileSystem, directory: str) -> bool:
    """Whether a metadata log or snapshot is there whose records are not ours (read only)."""
    if not fs.is_directory(directory):
        return False
    for name in fs.list_directory(directory):
        is_segment = parse_segment_file_name(name) is not None
        if is_segment or parse_snapshot_file_name(name) is not None:
            file = fs.open(posixpath.join(directory, name))
            try:
                data = file.read_at(0, _CHECKED_BYTES)
            finally:
                file.close()
            if _first_record_is_foreign(data):
                return True
    return False


def _first_record_is_foreign(data: bytes) -> bool:
    try:
        for header in iter_headers(data, allow_partial=True):
            if header.is_control:
                continue
            verify_crc(data, header)
            for record in iter_records(data, header):
                # Kafka's values begin with their frame version, ours are msgpack arrays.
                return (record.value or b"").startswith(b"\x01")
    except KafkaError:
        return False  # damaged: opening the log says where
    return False
