"""One segment: its batches in order, its records well formed, its indexes true to them.

Owns `SegmentFacts`, what the log file itself says, and the checks of the files beside it. Rules:
1. Offsets rise from batch to batch and lie within the segment; leader epochs never fall; records
   have rising offsets within their batch, and none is later than the batch says.
2. An entry of the offset index names the start of a batch, one of the time index the last offset of
   a batch with the largest timestamp so far, one of the transaction index an abort marker.
3. Zero entries at the end of an index are padding, which a broker that was killed leaves behind.

Called by: `partition_check`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.inspection.batches import Damage, StoredBatch, walk_batches
from kraftrio.broker.log.inspection.findings import REBUILT, Finding, reason
from kraftrio.broker.log.segment.txn_index import AbortedTxn, check_index, decode_index
from kraftrio.wire.errors import CorruptBatchError, KafkaError
from kraftrio.wire.records.batch import iter_records
from kraftrio.wire.records.control import read_end_transaction_marker

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")


class BatchFact(NamedTuple):
    """What matters of a batch once it was looked at."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


@dataclass(slots=True)
class OpenTransactions:
    """The transactions of a partition that have begun and not ended, by producer id."""

    first_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class SegmentFacts:
    """What a segment's log file holds.

    Attributes:
        end_offset: the offset after its last batch; its base offset if it has none.
        aborted: (producer id, first offset or None, offset of the marker) of transactions that
            were aborted here.
        is_sparse: offsets are missing within it, as compaction leaves it.
    """

    base_offset: int
    end_offset: int
    size_bytes: int = 0
    batches: list[BatchFact] = field(default_factory=list)
    aborted: list[tuple[int, int | None, int]] = field(default_factory=list)
    is_sparse: bool = False
    has_damage: bool = False


def check_log_file(
    fs: FileSystem,
    path: str,
    base_offset: int,
    next_base_offset: int | None,
    open_transactions: OpenTransactions,
    facts: SegmentFacts,
    *,
    with_records: bool,
) -> Iterator[Finding]:
    """Check the batches of a segment, and note what they say.

    Args:
        next_base_offset: of the segment after it; None: it is the last.
        open_transactions: those of earlier segments, which this one may end.
        facts: gets what was seen.
    """
    last_epoch = -1
    for found in walk_batches(fs, path):
        if isinstance(found, Damage):
            facts.has_damage = True
            yield _damage_finding(path, found, is_last_segment=next_base_offset is None)
            continue
        header = found.header
        where = {"offset": header.base_offset, "position": found.position}
        for fault in _order_faults(found, facts, next_base_offset, last_epoch):
            yield Finding(path, fault, "its records can be read, but not found by offset", **where)
        if with_records:
            fault_of_records = _record_fault(found)
            if fault_of_records is not None:
                remains = "the batches before and after it can be read"
                yield Finding(path, fault_of_records, remains, **where)
        facts.is_sparse |= _is_sparse(found, facts)
        last_epoch = max(last_epoch, header.partition_leader_epoch)
        _note_transactions(found, open_transactions, facts)
        facts.end_offset = max(facts.end_offset, header.next_offset)
        facts.batches.append(
            BatchFact(
                found.position,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.partition_leader_epoch,
            )
        )
    facts.size_bytes = fs.size_bytes(path)


def _damage_finding(path: str, damage: Damage, *, is_last_segment: bool) -> Finding:
    if damage.is_last and is_last_segment:
        remains = "what is before it can be read; a broker truncates it when it starts"
    elif damage.is_last:
        remains = "what is before it, and the next segments, can be read"
    else:
        remains = (
            f"what is before it can be read, and again from position"
            f" {damage.position + damage.size_bytes} on"
        )
    fault = f"{damage.reason} ({damage.size_bytes} bytes)"
    return Finding(path, fault, remains, damage.base_offset, damage.position)


def _order_faults(
    batch: StoredBatch, facts: SegmentFacts, next_base_offset: int | None, last_epoch: int
) -> Iterator[str]:
    header = batch.header
    if header.base_offset < facts.base_offset:
        yield f"offset {header.base_offset} is below the segment's first, {facts.base_offset}"
    elif header.base_offset < facts.end_offset:
        yield f"offset {header.base_offset} comes again: the batch before it ends at" + (
            f" {facts.end_offset - 1}"
        )
    if next_base_offset is not None and header.last_offset >= next_base_offset:
        yield f"offset {header.last_offset} belongs to the next segment, from {next_base_offset} on"
    if header.partition_leader_epoch < last_epoch:
        yield f"leader epoch {header.partition_leader_epoch} comes after {last_epoch}"
    if header.record_count > header.last_offset_delta + 1 or header.last_offset_delta < 0:
        yield f"{header.record_count} records cannot have {header.last_offset_delta + 1} offsets"


def _record_fault(batch: StoredBatch) -> str | None:
    """Return what is wrong with the records of a batch whose checksum is right."""
    header = batch.header
    expected = header.base_offset
    latest = -1
    try:
        for record in iter_records(batch.data, header):
            if not expected <= record.offset <= header.last_offset:
                return f"a record has the offset {record.offset}, out of order"
            expected = record.offset + 1
            latest = max(latest, record.timestamp)
    except KafkaError as error:
        return f"its records cannot be read: {reason(error)}"
    if latest > header.max_timestamp:
        return f"a record is of {latest}, later than the batch's latest, {header.max_timestamp}"
    return None


def _is_sparse(batch: StoredBatch, facts: SegmentFacts) -> bool:
    header = batch.header
    has_gap = bool(facts.batches) and header.base_offset > facts.end_offset
    return has_gap or header.record_count < header.last_offset_delta + 1


def _note_transactions(
    batch: StoredBatch, open_transactions: OpenTransactions, facts: SegmentFacts
) -> None:
    header = batch.header
    if not header.is_transactional:
        return
    if not header.is_control:
        open_transactions.first_offsets.setdefault(header.producer_id, header.base_offset)
        return
    try:
        marker = read_end_transaction_marker(batch.data, header)
    except KafkaError:
        return  # its records were reported already
    if marker is None:
        return
    first = open_transactions.first_offsets.pop(header.producer_id, None)
    if not marker.commit:
        facts.aborted.append((header.producer_id, first, header.base_offset))


# -- indexes ------------------------------------------------------------------------------------


def check_offset_index(path: str, data: bytes, facts: SegmentFacts) -> Iterator[Finding]:
    """Check the entries of a `.index`."""
    entries = _entries(data, _OFFSET_ENTRY)
    if entries is None:
        yield _incomplete(path, data, _OFFSET_ENTRY)
        return
    starts = {batch.position: batch.base_offset for batch in facts.batches}
    last_offsets = {batch.last_offset for batch in facts.batches}
    previous = (-1, -1)
    for number, (relative, position) in enumerate(entries):
        offset = facts.base_offset + relative
        at = number * _OFFSET_ENTRY.size
        fault = None
        if relative <= previous[0] or position <= previous[1]:
            fault = f"the entry for offset {offset} does not rise above the one before it"
        elif position not in starts:
            fault = f"offset {offset} is said to be at {position}, where no batch begins"
        elif offset not in last_offsets or starts[position] > offset:
            fault = f"offset {offset} is said to be at {position}, but it is not"
        if fault is not None:
            yield Finding(path, fault, REBUILT, offset, at)
            return  # what follows is of no use to a broker either
        previous = (relative, position)


def check_time_index(path: str, data: bytes, facts: SegmentFacts) -> Iterator[Finding]:
    """Check the entries of a `.timeindex`."""
    entries = _entries(data, _TIME_ENTRY)
    if entries is None:
        yield _incomplete(path, data, _TIME_ENTRY)
        return
    last_offsets = [batch.last_offset for batch in facts.batches]
    latest: list[int] = []
    for batch in facts.batches:
        latest.append(max(batch.max_timestamp, latest[-1] if latest else -1))
    previous = (-1, -1)
    for number, (timestamp, relative) in enumerate(entries):
        offset = facts.base_offset + relative
        fault = None
        if number and (timestamp <= previous[0] or relative < previous[1]):
            fault = f"the entry for {timestamp} does not rise above the one before it"
        else:
            # Kafka names the batch of the largest timestamp by one of its offsets.
            index = bisect_right(last_offsets, offset - 1)
            if index >= len(last_offsets):
                fault = f"{timestamp} is said to be at offset {offset}, which is not here"
            elif latest[index] != timestamp:
                fault = f"until offset {offset} the latest is {latest[index]}, not {timestamp}"
        if fault is not None:
            yield Finding(path, fault, REBUILT, offset, number * _TIME_ENTRY.size)
            return
        previous = (timestamp, relative)


def check_transaction_index(
    path: str, data: bytes | None, facts: SegmentFacts
) -> Iterator[Finding]:
    """Check the entries of a `.txnindex`, or that there is none to be missed."""
    entries: list[AbortedTxn] = []
    if data is not None:
        try:
            entries = decode_index(data)
            check_index(entries, facts.base_offset)
        except CorruptBatchError as error:
            yield Finding(path, reason(error), REBUILT)
            return
    if facts.has_damage:
        return  # what the log lost cannot speak for its index
    markers = {(producer_id, at): first for producer_id, first, at in facts.aborted}
    listed = {(entry.producer_id, entry.last_offset) for entry in entries}
    hidden = "until it is rebuilt, committed readers see what was aborted"
    for entry in entries:
        known = (entry.producer_id, entry.last_offset)
        if known not in markers:
            if not facts.is_sparse:
                fault = f"producer {entry.producer_id} aborted nothing at {entry.last_offset}"
                yield Finding(path, fault, REBUILT, entry.last_offset)
        elif (first := markers[known]) is not None and first != entry.first_offset:
            fault = (
                f"the transaction that producer {entry.producer_id} aborted at"
                f" {entry.last_offset} began with {first}, not {entry.first_offset}"
            )
            yield Finding(path, fault, hidden, entry.first_offset)
    for (producer_id, at), first in markers.items():
        if first is not None and (producer_id, at) not in listed:
            fault = f"what producer {producer_id} aborted at {at} is not in it"
            yield Finding(path, fault, hidden, first)


def _entries(data: bytes, entry: struct.Struct) -> list[tuple[int, int]] | None:
    """Return the entries of an index without padding; None if the last one is incomplete."""
    if len(data) % entry.size:
        return None
    end = len(data)
    while end > entry.size and not any(data[end - entry.size : end]):
        end -= entry.size
    if end == entry.size and not any(data[:end]):
        end = 0
    return list(entry.iter_unpack(data[:end]))


def _incomplete(path: str, data: bytes, entry: struct.Struct) -> Finding:
    fault = f"{len(data)} bytes are no whole number of entries of {entry.size}"
    return Finding(path, fault, REBUILT, None, len(data) - len(data) % entry.size)
