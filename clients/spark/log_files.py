"""Log directories without a broker: which partitions lie there, and the batches in their segments.

Owns `find_partitions`, `SegmentFile` and the walks over it. Read-only. Rules:
1. A segment is what `<topic>-<partition>/<base offset>.log` says; indexes are not looked at. Files
   of an interrupted compaction count as a broker would recover them: a `.swap` replaces what it
   was made from, unless `.cleaned` files show that not all of it was written.
2. Records below the log start offset (`log-start-offset-checkpoint`) are deleted, so not shown.
   High watermarks are not looked at: what a crash left behind may be newer than their checkpoint.
3. The log ends at the first batch that is incomplete or damaged in its last segment, as it does
   once a broker has recovered it. Earlier damage is an error, or tolerated with what lies after it
   in that segment.
4. What a transaction wrote is aborted, committed or still open by the markers in the log: markers
   stay as long as anything of their transaction does, also through compaction.

Called by: the data source of logs. Layout of Kafka's log directories; KIP-98, KIP-107.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from kraftrio.clients.errors import ConfigError
from kraftrio.clients.spark.options import partition_text
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    LegacyFormatError,
    parse_header,
    verify_crc,
)
from kraftrio.wire.records.control import read_end_transaction_marker

logger = logging.getLogger(__name__)

MAX_OFFSET: Final = 0x7FFF_FFFF_FFFF_FFFF

_CHUNK_BYTES = 8 << 20
_DIRECTORY = re.compile(r"(.+)-(\d+)")
_SEGMENT = re.compile(r"(\d{20})\.log(\.swap|\.cleaned)?")
_CHECKPOINT = "log-start-offset-checkpoint"


class AbortedRange(NamedTuple):
    """What one transaction wrote that was aborted: its batches between two offsets."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment; `next_base_offset` is where the one after it starts."""

    path: str
    base_offset: int
    next_base_offset: int = MAX_OFFSET

    @property
    def is_last(self) -> bool:
        """Whether the partition's log ends in it."""
        return self.next_base_offset == MAX_OFFSET


@dataclass(frozen=True, slots=True)
class PartitionLogFiles:
    """One partition's log, its segments in order."""

    topic_partition: TopicPartition
    log_start_offset: int
    segments: tuple[SegmentFile, ...]


def find_partitions(paths: str) -> list[PartitionLogFiles]:
    """List the partitions in directories, separated by commas as in `log.dirs`.

    A directory of one partition is taken, too.

    Raises:
        ConfigError: one cannot be read, there is nothing, or a partition is there twice.
    """
    found: dict[TopicPartition, PartitionLogFiles] = {}
    places: dict[TopicPartition, Path] = {}
    for text in filter(None, (part.strip() for part in paths.split(","))):
        for directory in _partition_directories(Path(text.removeprefix("file://"))):
            item = _topic_partition(directory.name)
            assert item is not None
            if item in found:
                raise ConfigError(
                    f"{partition_text(item)} is both in {places[item].parent} and in"
                    f" {directory.parent}"
                )
            places[item] = directory
            found[item] = _partition_folder(item, directory)
    if not found:
        raise ConfigError(f"there is no partition of a topic in {paths!r}")
    return [found[item] for item in sorted(found)]


def _partition_directories(path: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if _topic_partition(path.name) is not None and any(map(_SEGMENT.fullmatch, names)):
        return [path]
    return [path / name for name in names if _topic_partition(name) and (path / name).is_dir()]


def _topic_partition(name: str) -> TopicPartition | None:
    match = _DIRECTORY.fullmatch(name)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def _partition_folder(item: TopicPartition, directory: Path) -> PartitionLogFiles:
    files: dict[str, dict[int, Path]] = {"": {}, ".swap": {}, ".cleaned": {}}
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be read: {error.strerror}") from None
    for name in names:
        match = _SEGMENT.fullmatch(name)
        if match is not None:
            files[match[2] or ""][int(match[1])] = directory / name
    chosen = files[""]
    incomplete_from = min(files[".cleaned"], default=MAX_OFFSET)
    for base_offset, path in sorted(files[".swap"].items()):
        if base_offset < incomplete_from:
            end = _end_offset(SegmentFile(str(path), base_offset))
            chosen = {base: old for base, old in chosen.items() if not base_offset <= base < end}
            chosen[base_offset] = path
    bases = sorted(chosen)
    segments = tuple(
        SegmentFile(str(chosen[base]), base, after)
        for base, after in zip(bases, [*bases[1:], MAX_OFFSET], strict=True)
    )
    return PartitionLogFiles(item, _log_start_offset(item, directory.parent), segments)


def _end_offset(segment: SegmentFile) -> int:
    end = segment.base_offset
    for header in iter_segment_headers(segment):
        end = header.next_offset
    return max(end, segment.base_offset + 1)


def _log_start_offset(item: TopicPartition, directory: Path) -> int:
    """Return what the checkpoint says; 0 where there is none, or it cannot be understood."""
    path = directory / _CHECKPOINT
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return 0
    except (OSError, UnicodeDecodeError) as error:
        logger.warning("%s cannot be read, so deleted records may show: %s", path, error)
        return 0
    for line in lines[2:]:
        words = line.rsplit(" ", 2)
        if words[:2] == [item.topic, str(item.partition)] and words[2].isdigit():
            return int(words[2])
    return 0


# -- walks over a segment -------------------------------------------------------------------------


def iter_segment_batches(
    segment: SegmentFile, start: int, end: int, *, check_crcs: bool, tolerate_damage: bool
) -> Iterator[tuple[bytes, BatchHeader]]:
    """Yield the batches that hold offsets from `start` to before `end`, whole.

    Raises:
        CorruptBatchError: the segment is damaged where that is not allowed.
        ConfigError: it cannot be read.
    """
    data = b""
    skipped_bytes = 0
    with _open(segment) as file:
        wanted_bytes = _CHUNK_BYTES
        while more := file.read(wanted_bytes):
            data += more
            pos = 0
            wanted_bytes = _CHUNK_BYTES
            while len(data) - pos >= BATCH_OVERHEAD:
                try:
                    header = parse_header(data, pos)
                    if header.size_bytes > len(data) - pos:
                        wanted_bytes = max(header.size_bytes, _CHUNK_BYTES)
                        break
                    if header.base_offset >= end:
                        return
                    # Where it ends is known for sure only once the checksum was compared.
                    if header.next_offset > start or header.base_offset >= start:
                        if check_crcs:
                            verify_crc(data, header)
                        yield data, header
                except CorruptBatchError as error:
                    where = skipped_bytes + pos
                    _note_damage(segment, where, error, data[pos:], tolerate=tolerate_damage)
                    return
                pos += header.size_bytes
            data = data[pos:]
            skipped_bytes += pos
    if data:
        _note_damage(
            segment, skipped_bytes, "the last batch is incomplete", data, tolerate=tolerate_damage
        )


def iter_segment_headers(segment: SegmentFile) -> Iterator[BatchHeader]:
    """Yield the headers of a segment's whole batches; contents are not read."""
    with _open(segment) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        position = 0
        while position + BATCH_OVERHEAD <= size_bytes:
            try:
                header = parse_header(os.pread(file.fileno(), BATCH_OVERHEAD, position))
            except CorruptBatchError:
                return
            if position + header.size_bytes > size_bytes:
                return
            header.position = position
            yield header
            position += header.size_bytes


def _open(segment: SegmentFile) -> BinaryIO:
    try:
        return open(segment.path, "rb")
    except OSError as error:
        raise ConfigError(f"{segment.path} cannot be read: {error.strerror}") from None


def _note_damage(
    segment: SegmentFile, position: int, reason: object, data: bytes, *, tolerate: bool
) -> None:
    if isinstance(reason, LegacyFormatError) and any(data[:BATCH_OVERHEAD]):
        raise CorruptBatchError(
            f"{segment.path}: records of message formats before 2 cannot be read here"
        )
    message = f"{segment.path} is damaged from byte {position} on: {reason}"
    if not (segment.is_last or tolerate):
        raise CorruptBatchError(
            f"{message}; with failOnDataLoss=false the rest of this segment is left out"
        )
    logger.warning("%s", message)


# -- transactions ---------------------------------------------------------------------------------


class TransactionOutcomes(NamedTuple):
    """What became of a partition's transactions."""

    aborted: list[AbortedRange]
    last_stable_offset: int  # where the first transaction still open begins; MAX_OFFSET: none is


def scan_transactions(segments: Sequence[SegmentFile]) -> TransactionOutcomes:
    """Walk over the headers of a partition's batches and the markers between them."""
    opened: dict[int, int] = {}
    aborted: list[AbortedRange] = []
    for segment in segments:
        for header in iter_segment_headers(segment):
            if not header.is_transactional:
                continue
            if not header.is_control:
                opened.setdefault(header.producer_id, header.base_offset)
                continue
            marker = _read_marker(segment, header)
            first_offset = opened.pop(header.producer_id, None)
            if marker is False and first_offset is not None:
                aborted.append(AbortedRange(header.producer_id, first_offset, header.base_offset))
    return TransactionOutcomes(aborted, min(opened.values(), default=MAX_OFFSET))


def _read_marker(segment: SegmentFile, header: BatchHeader) -> bool | None:
    """Return whether a marker commits; None for one that compaction emptied."""
    with _open(segment) as file:
        data = os.pread(file.fileno(), header.size_bytes, header.position)
    marker = read_end_transaction_marker(data, parse_header(data))
    return None if marker is None else marker.commit


def aborted_by_producer(
    aborted: Sequence[AbortedRange], start: int, end: int
) -> dict[int, list[AbortedRange]]:
    """Group what was aborted between two offsets."""
    found: dict[int, list[AbortedRange]] = {}
    for item in aborted:
        if item.first_offset < end and item.last_offset >= start:
            found.setdefault(item.producer_id, []).append(item)
    return found


def is_aborted(header: BatchHeader, aborted: Mapping[int, Sequence[AbortedRange]]) -> bool:
    """Whether a batch of data belongs to an aborted transaction."""
    return header.is_transactional and any(
        item.first_offset <= header.base_offset <= item.last_offset
        for item in aborted.get(header.producer_id, ())
    )
