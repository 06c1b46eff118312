"""A vocabulary for tests of the log engine: batches, and one log on the in-memory file system."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from kraftrio.broker.log.checkpoints import LEADER_EPOCH_CHECKPOINT
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_dir import PendingLog
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets, LogResources
from kraftrio.broker.log.partition.partition_log import AppendInfo, AppendOrigin, PartitionLog
from kraftrio.broker.log.partition.recovery import open_log
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import (
    Compression,
    Record,
    build_batch,
    iter_headers,
    iter_records,
)
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.support.memory_files import MemoryFileSystem

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
TOPIC_PARTITION = TopicPartition("topic", 0)
DIRECTORY = "/logs/topic-0"


def batch(
    *values: bytes | None,
    timestamps: Iterable[int] | None = None,
    key: bytes | None = b"k",
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch as a client sends it: one record for each value."""
    times = list(timestamps) if timestamps is not None else [NOW_MS] * len(values)
    return build_batch(
        [Record(0, time, key, value) for time, value in zip(times, values, strict=True)],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def records_of(data: bytes | bytearray | memoryview) -> list[Record]:
    """All records in whole batches."""
    return [record for header in iter_headers(data) for record in iter_records(data, header)]


def load_tree(fs: MemoryFileSystem, source: Path, target: str) -> None:
    """Copy a real directory into the in-memory file system, durable."""
    fs.make_directory(target)
    for path in sorted(source.rglob("*")):
        inside = f"{target}/{path.relative_to(source).as_posix()}"
        if path.is_dir():
            fs.make_directory(inside)
        else:
            fs.make_directory(inside.rpartition("/")[0])
            file = fs.open(inside, create=True)
            file.write_at(path.read_bytes(), 0)
            file.sync()
    for directory in list(fs.directories):
        fs.sync_directory(directory)


class LogContext:
    """One log that can be restarted cleanly, killed, and lose power."""

    def __init__(self, fs: MemoryFileSystem | None = None, **config: object) -> None:
        self.fs = fs or MemoryFileSystem()
        self.fs.make_directory("/logs")
        self.fs.sync_directory("/")
        self.config = dataclasses.replace(LogConfig(), **config)  # type: ignore[arg-type]
        self.now_ms = NOW_MS
        self.leader_epoch = 0
        self.recovery_point: int | None = 0  # as the checkpoint of the log manager would have it
        self.log_start_offset = 0
        self.first_dirty_offset = 0
        self.high_watermark = 0
        self.log = self.open(clean=True)

    def open(self, *, clean: bool) -> PartitionLog:
        """Open the log from what is on the file system."""
        self.log = open_log(
            LogResources(self.fs),
            DIRECTORY,
            TOPIC_PARTITION,
            self.config,
            CheckpointedOffsets(
                log_start_offset=self.log_start_offset,
                recovery_point=self.recovery_point,
                high_watermark=self.high_watermark,
                first_dirty_offset=self.first_dirty_offset,
            ),
            topic_id=TOPIC_ID,
            clean_shutdown=clean,
            now_ms=self.now_ms,
        )
        return self.log

    def restart(self) -> PartitionLog:
        """Stop cleanly and open again."""
        self.log.close()
        self.recovery_point = self.log.recovery_point
        self.log_start_offset = self.log.log_start_offset
        return self.open(clean=True)

    def kill(self) -> PartitionLog:
        """The process dies (the machine goes on) and the log is opened again."""
        self.log.close_files()
        return self.open(clean=False)

    def append(self, *values: bytes | None, **options: object) -> AppendInfo:
        return self.append_bytes(batch(*values, **options))  # type: ignore[arg-type]

    def append_bytes(self, data: bytearray) -> AppendInfo:
        return self.log.append_as_leader(data, self.leader_epoch, self.now_ms)

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> AppendInfo:
        data = build_end_transaction_batch(
            producer_id,
            producer_epoch,
            EndTransactionMarker(commit, coordinator_epoch),
            timestamp=self.now_ms,
        )
        return self.log.append_as_leader(
            data, self.leader_epoch, self.now_ms, origin=AppendOrigin.COORDINATOR
        )

    def commit(self) -> None:
        """Let the high watermark reach the log end."""
        self.log.update_high_watermark(self.log.log_end_offset)

    def read_all(self, start_offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
        """Every record from an offset (the log start) on, read as a consumer does."""
        offset = self.log.log_start_offset if start_offset is None else start_offset
        records: list[Record] = []
        while offset < self.log.log_end_offset:
            read = self.log.read(
                offset, max_bytes, max_offset=self.log.log_end_offset, min_one_batch=True
            )
            records += [r for r in records_of(read.records) if r.offset >= offset]
            if read.next_offset <= offset:
                break
            offset = read.next_offset
        return records

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.read_all()]

    def files(self) -> list[str]:
        return self.fs.list_directory(DIRECTORY)

    def path(self, name: str) -> str:
        return f"{DIRECTORY}/{name}"

    def overwrite(self, name: str, data: bytes) -> None:
        """Put other bytes into a file, durably, as a broken disk or an operator might."""
        file = self.fs.open(self.path(name), create=True)
        file.truncate(0)
        file.write_at(data, 0)
        file.sync()
        file.close()
        self.fs.sync_directory(DIRECTORY)

    def read_file(self, name: str) -> bytes:
        return self.fs.read_file(self.path(name))

    def epochs_file(self) -> bytes:
        return self.read_file(LEADER_EPOCH_CHECKPOINT)


def segment_of(count: int, **config: object) -> tuple[MemoryFileSystem, Segment]:
    """A segment in /t-0 with batches of one record each, a millisecond apart."""
    fs = MemoryFileSystem()
    fs.make_directory("/t-0")
    settings = dataclasses.replace(LogConfig(), **config)  # type: ignore[arg-type]
    segment = Segment.create(fs, "/t-0", 0, settings, NOW_MS)
    for offset in range(count):
        append_to(segment, offset)
    return fs, segment


def append_to(segment: Segment, offset: int, *, count: int = 1) -> None:
    """Append a batch of records whose timestamps are as many milliseconds on as their offsets."""
    times = [NOW_MS + offset + index for index in range(count)]
    data = batch(*[b"v"] * count, timestamps=times, base_offset=offset)
    segment.append(data, list(iter_headers(data)))


def load_all(
    manager: LogManager, pending: Iterable[PendingLog], now_ms: int, config: LogConfig | None = None
) -> None:
    """Load every log that was found in this thread."""
    for found in pending:
        manager.load_log(found, config or LogConfig(), now_ms)
    manager.dirs.finish_loading()
