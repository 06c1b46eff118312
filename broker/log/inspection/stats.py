"""What fills log directories: bytes, batches, records, codecs, keys, topic by topic.

Owns `TopicStats` and `add_partition`. Keys are distinguished by their hashes, up to a limit; beyond
it there are "at least" so many.

Called by: the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.inspection.batches import Damage, walk_batches
from kraftrio.broker.log.inspection.folders import PartitionFolder
from kraftrio.broker.log.segment.names import LOG_SUFFIX, SEGMENT_SUFFIXES
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.records.batch import BATCH_OVERHEAD, iter_records, records_data

MAX_KEYS = 1_000_000

_MAX_DECOMPRESSED_BYTES = 1 << 30


@dataclass(slots=True)
class TopicStats:
    """One topic, all its partitions in the directories together.

    Attributes:
        log_bytes, index_bytes: of its files.
        record_bytes, packed_bytes: of its records uncompressed, and as they are in the files.
        codecs: bytes of batches by the name of their codec.
        keys: how many different ones; `has_more_keys` if there are more than that.
        null_keys, null_values: how many records.
        damaged_bytes: that are no batch.
    """

    topic: str
    partitions: int = 0
    segments: int = 0
    log_bytes: int = 0
    index_bytes: int = 0
    batches: int = 0
    records: int = 0
    record_bytes: int = 0
    packed_bytes: int = 0
    codecs: dict[str, int] = field(default_factory=dict)
    null_keys: int = 0
    null_values: int = 0
    oldest_timestamp: int | None = None
    newest_timestamp: int | None = None
    damaged_bytes: int = 0
    _keys: set[int] = field(default_factory=set)

    @property
    def keys(self) -> int:
        """How many different keys were seen."""
        return len(self._keys)

    @property
    def has_more_keys(self) -> bool:
        """Whether there are more than were counted."""
        return len(self._keys) >= MAX_KEYS

    @property
    def compression_ratio(self) -> float | None:
        """The records' size uncompressed, divided by that in the files; None without records."""
        return self.record_bytes / self.packed_bytes if self.packed_bytes else None

    def note_record(self, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        """Count a record."""
        self.records += 1
        if key is None:
            self.null_keys += 1
        elif len(self._keys) < MAX_KEYS:
            self._keys.add(hash(key))
        self.null_values += value is None
        if timestamp >= 0:
            oldest, newest = self.oldest_timestamp, self.newest_timestamp
            self.oldest_timestamp = timestamp if oldest is None else min(oldest, timestamp)
            self.newest_timestamp = timestamp if newest is None else max(newest, timestamp)


def add_partition(fs: FileSystem, folder: PartitionFolder, stats: TopicStats) -> None:
    """Count what lies in a partition.

    Raises:
        OSError: a file cannot be read.
    """
    stats.partitions += 1
    stats.segments += len(folder.bases)
    for base in folder.bases:
        path = folder.file(base, LOG_SUFFIX)
        stats.log_bytes += fs.size_bytes(path)
        for suffix in SEGMENT_SUFFIXES:
            if suffix != LOG_SUFFIX and folder.has(base, suffix):
                stats.index_bytes += fs.size_bytes(folder.file(base, suffix))
        for found in walk_batches(fs, path):
            if isinstance(found, Damage):
                stats.damaged_bytes += found.size_bytes
                continue
            header = found.header
            stats.batches += 1
            codec = header.compression.name.lower()
            stats.codecs[codec] = stats.codecs.get(codec, 0) + header.size_bytes
            if header.is_control:
                continue
            try:
                data = records_data(found.data, header, _MAX_DECOMPRESSED_BYTES)
                stats.record_bytes += len(data)
                stats.packed_bytes += header.size_bytes - BATCH_OVERHEAD
                for record in iter_records(found.data, header):
                    stats.note_record(record.key, record.value, record.timestamp)
            except KafkaError:
                stats.damaged_bytes += header.size_bytes
