"""One partition: its segments one after the other, and the small files about them.

Owns `check_partition`, and `PartitionFacts`, which the checks of a whole directory go by. Called
by: `directory_check`.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from kraftrio.broker.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    CheckpointError,
    parse_leader_epochs,
    parse_partition_metadata,
)
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.inspection.findings import REBUILT, Finding, reason
from kraftrio.broker.log.inspection.folders import PartitionFolder, orphans
from kraftrio.broker.log.inspection.segment_check import (
    OpenTransactions,
    SegmentFacts,
    check_log_file,
    check_offset_index,
    check_time_index,
    check_transaction_index,
)
from kraftrio.broker.log.producers.producer_state import decode_snapshot
from kraftrio.broker.log.segment.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from kraftrio.wire.errors import CorruptBatchError

_NOT_FOUND = "a broker does not know whose log it is, and sets it aside"


@dataclass(slots=True)
class PartitionFacts:
    """What was seen of a partition."""

    segments: list[SegmentFacts] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        """The offset after its last record."""
        return max((segment.end_offset for segment in self.segments), default=0)

    @property
    def size_bytes(self) -> int:
        """Of all log files."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_sparse(self) -> bool:
        """Whether offsets are missing, as compaction leaves it."""
        return any(segment.is_sparse for segment in self.segments)

    @property
    def has_damage(self) -> bool:
        """Whether bytes of a log file are no batch."""
        return any(segment.has_damage for segment in self.segments)


def check_partition(
    fs: FileSystem,
    folder: PartitionFolder,
    facts: PartitionFacts,
    *,
    log_start_offset: int,
    was_compacted: bool,
    with_records: bool,
) -> Iterator[Finding]:
    """Check all files of a partition, and note what they say.

    Args:
        log_start_offset: records before it are deleted.
        was_compacted: segments may lie apart, since there may be nothing left between them.
        with_records: look into each batch.

    Raises:
        OSError: a file cannot be read.
    """
    transactions = OpenTransactions()
    for index, base in enumerate(folder.bases):
        following = folder.bases[index + 1] if index + 1 < len(folder.bases) else None
        segment = SegmentFacts(base, base)
        facts.segments.append(segment)
        yield from check_log_file(
            fs,
            folder.file(base, LOG_SUFFIX),
            base,
            following,
            transactions,
            segment,
            with_records=with_records,
        )
        yield from _check_indexes(fs, folder, segment)
    if not (was_compacted or facts.is_sparse or facts.has_damage):
        yield from _check_gaps(folder, facts)
    for base, suffix in orphans(folder):
        path = folder.file(base, suffix)
        yield Finding(path, "the log of this segment is not there", "its records are lost", base)
    yield from _check_epochs(fs, folder, facts, log_start_offset)
    yield from _check_snapshots(fs, folder, facts)
    yield from _check_topic_id(fs, folder)


def _check_indexes(
    fs: FileSystem, folder: PartitionFolder, segment: SegmentFacts
) -> Iterator[Finding]:
    base = segment.base_offset
    checks = {INDEX_SUFFIX: check_offset_index, TIME_INDEX_SUFFIX: check_time_index}
    for suffix, check in checks.items():
        path = folder.file(base, suffix)
        if folder.has(base, suffix):
            if not segment.has_damage:  # what the log lost cannot speak for its index
                yield from check(path, fs.read_file(path), segment)
        elif not folder.is_metadata:
            yield Finding(path, "the file is not there", REBUILT, base)
    path = folder.file(base, TXN_INDEX_SUFFIX)
    data = fs.read_file(path) if folder.has(base, TXN_INDEX_SUFFIX) else None
    yield from check_transaction_index(path, data, segment)


def _check_gaps(folder: PartitionFolder, facts: PartitionFacts) -> Iterator[Finding]:
    for before, after in zip(facts.segments, facts.segments[1:], strict=False):
        if before.end_offset < after.base_offset:
            fault = f"nothing is there from offset {before.end_offset} to {after.base_offset - 1}"
            remains = "what is before and after it can be read"
            path = folder.file(before.base_offset, LOG_SUFFIX)
            yield Finding(path, fault, remains, before.end_offset, before.size_bytes)


def _check_epochs(
    fs: FileSystem, folder: PartitionFolder, facts: PartitionFacts, log_start_offset: int
) -> Iterator[Finding]:
    path = posixpath.join(folder.path, LEADER_EPOCH_CHECKPOINT)
    has_epochs = any(batch.leader_epoch >= 0 for part in facts.segments for batch in part.batches)
    if LEADER_EPOCH_CHECKPOINT not in folder.names:
        if has_epochs and not folder.is_metadata:
            yield Finding(path, "the file is not there", REBUILT)
        return
    try:
        data = fs.read_file(path)
        entries = parse_leader_epochs(data) if data else []  # Kafka makes the file ahead of time
    except CheckpointError as error:
        yield Finding(path, str(error), REBUILT)
        return
    if facts.has_damage:
        return
    starts = [entry.start_offset for entry in entries]
    reported_epochs: set[int] = set()
    for segment in facts.segments:
        for batch in segment.batches:
            epoch, offset = batch.leader_epoch, batch.base_offset
            if epoch < 0 or batch.last_offset < log_start_offset or epoch in reported_epochs:
                continue
            index = bisect_right(starts, max(offset, log_start_offset)) - 1
            if index < 0 or entries[index].epoch != epoch:
                reported_epochs.add(epoch)
                listed = "none" if index < 0 else str(entries[index].epoch)
                fault = f"offset {offset} was written in epoch {epoch}, but it says {listed}"
                yield Finding(path, fault, "followers may truncate too much", offset)
    if starts and starts[-1] > facts.end_offset:
        fault = f"epoch {entries[-1].epoch} begins with {starts[-1]}, beyond the end of the log"
        yield Finding(path, fault, REBUILT, starts[-1])


def _check_snapshots(
    fs: FileSystem, folder: PartitionFolder, facts: PartitionFacts
) -> Iterator[Finding]:
    for offset in folder.snapshots:
        path = folder.file(offset, SNAPSHOT_SUFFIX)
        try:
            entries = decode_snapshot(fs.read_file(path))
        except CorruptBatchError as error:
            yield Finding(path, reason(error), REBUILT, offset)
            continue
        if offset > facts.end_offset and not facts.has_damage:
            fault = f"it is of offset {offset}, beyond the end of the log, {facts.end_offset}"
            yield Finding(path, fault, "a broker leaves it out", offset)
        for entry in entries:
            if entry.last_offset >= offset:
                fault = f"producer {entry.producer_id} wrote {entry.last_offset}, after it"
                yield Finding(path, fault, REBUILT, entry.last_offset)


def _check_topic_id(fs: FileSystem, folder: PartitionFolder) -> Iterator[Finding]:
    path = posixpath.join(folder.path, PARTITION_METADATA)
    if PARTITION_METADATA not in folder.names:
        if not folder.is_metadata:
            yield Finding(path, "the file is not there", _NOT_FOUND)
        return
    try:
        parse_partition_metadata(fs.read_file(path))
    except CheckpointError as error:
        yield Finding(path, str(error), _NOT_FOUND)
