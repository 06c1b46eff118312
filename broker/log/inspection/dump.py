"""The files of a partition as rows: batches with their records, entries of indexes and snapshots.

Owns `dump_file`, which goes by the file's name. Called by: the command line.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from kraftrio.broker.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    CheckpointError,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.inspection.batches import Damage, StoredBatch, walk_batches
from kraftrio.broker.log.inspection.findings import reason
from kraftrio.broker.log.producers.producer_state import decode_snapshot
from kraftrio.broker.log.segment.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
)
from kraftrio.broker.log.segment.txn_index import decode_index
from kraftrio.wire.errors import CorruptBatchError, KafkaError
from kraftrio.wire.records.batch import Record, iter_records

Row = Mapping[str, Any]

_METADATA_SNAPSHOT_SUFFIX = ".checkpoint"
_OFFSET_CHECKPOINT_SUFFIX = "-offset-checkpoint"
_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")


class NotDumpableError(Exception):
    """The file is not one that can be shown, or is damaged; says so in a sentence."""


def dump_file(fs: FileSystem, path: str, *, with_records: bool) -> Iterator[Row]:
    """Yield what is in a file: a row for each batch, record or entry.

    Args:
        with_records: a row for each record instead of one for each batch.

    Raises:
        NotDumpableError: it is not a file of a log, or cannot be read as one.
        OSError: it cannot be read.
    """
    name = posixpath.basename(path)
    try:
        if name.endswith((LOG_SUFFIX, _METADATA_SNAPSHOT_SUFFIX)):
            yield from _batches(fs, path, with_records)
        elif (base := base_offset_of(name, INDEX_SUFFIX)) is not None:
            for relative, position in _OFFSET_ENTRY.iter_unpack(fs.read_file(path)):
                yield {"offset": base + relative, "position": position}
        elif (base := base_offset_of(name, TIME_INDEX_SUFFIX)) is not None:
            for timestamp, relative in _TIME_ENTRY.iter_unpack(fs.read_file(path)):
                yield {"timestamp": timestamp, "offset": base + relative}
        elif name.endswith(TXN_INDEX_SUFFIX):
            for transaction in decode_index(fs.read_file(path)):
                yield transaction._asdict()
        elif name.endswith(SNAPSHOT_SUFFIX):
            yield from _producers(fs.read_file(path))
        elif name == LEADER_EPOCH_CHECKPOINT:
            for entry in parse_leader_epochs(fs.read_file(path)):
                yield entry._asdict()
        elif name.endswith(_OFFSET_CHECKPOINT_SUFFIX):
            for item, offset in parse_offset_checkpoint(fs.read_file(path)).items():
                yield {"topic": item.topic, "partition": item.partition, "offset": offset}
        else:
            raise NotDumpableError(f"{path} is not one of the files of a log")
    except CorruptBatchError as error:
        raise NotDumpableError(f"{path} is damaged: {reason(error)}") from None
    except (CheckpointError, struct.error) as error:
        raise NotDumpableError(f"{path} is damaged: {error}") from None


def _batches(fs: FileSystem, path: str, with_records: bool) -> Iterator[Row]:
    for found in walk_batches(fs, path):
        if isinstance(found, Damage):
            yield {
                "position": found.position,
                "size_bytes": found.size_bytes,
                "base_offset": found.base_offset,
                "damage": found.reason,
            }
        elif with_records:
            yield from _records(found)
        else:
            yield _batch(found)


def _batch(batch: StoredBatch) -> Row:
    header = batch.header
    return {
        "position": batch.position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "compression": header.compression.name.lower(),
        "timestamp_type": header.timestamp_type.name.lower(),
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "damage": None,
    }


def _records(batch: StoredBatch) -> Iterator[Row]:
    try:
        for record in iter_records(batch.data, batch.header):
            yield _record(record, batch)
    except KafkaError as error:
        yield {
            "position": batch.position,
            "size_bytes": batch.header.size_bytes,
            "base_offset": batch.header.base_offset,
            "damage": reason(error),
        }


def _record(record: Record, batch: StoredBatch) -> Row:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [[name, value] for name, value in record.headers],
        "control": batch.header.is_control,
        "damage": None,
    }


def _producers(data: bytes) -> Iterator[Row]:
    for entry in decode_snapshot(data):
        last = entry.batches[-1] if entry.batches else None
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": -1 if last is None else last.last_sequence,
            "last_offset": -1 if last is None else last.last_offset,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_start_offset": entry.current_txn_first_offset,
        }
