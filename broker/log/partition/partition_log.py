"""One partition's log: segments in a row, with producers, leader epochs and offsets (UnifiedLog).

Owns everything in one partition directory. Synchronous; the replica manager, the coordinators and
the log manager call it from one thread, except `flush` and `durability`, which any thread may call.
It is opened by `recovery.open_log`.

Rules:
1. Check, write, record: an append that is refused or fails on disk leaves the log as it was.
   Producer state, epochs, indexes and `log_end_offset` change only after the bytes are in the file.
   If only the flush after the write fails, the batch stays, and `log_end_offset` is behind it.
2. log_start_offset <= high_watermark <= log_end_offset, recovery_point <= log_end_offset.
3. `high_watermark` is what the owner last set (`update_high_watermark`); the log itself lowers it
   only when it is truncated.
4. Reads give whole batches and never one at or beyond `max_offset`.
5. Deleted segments keep their files as `.deleted` for file.delete.delay.ms: `retired` removes them.
6. What a flush makes durable includes producers, epochs and topic id, so the recovery point never
   promises more than a restart finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from kraftrio.broker.log.leader_epoch_cache import EpochEntry
from kraftrio.broker.log.log_config import INT_MAX, LONG_MAX, LogConfig
from kraftrio.broker.log.partition.append_validation import (
    RecordValidationError,
    check_fits_segment,
    validate_client_batch,
)
from kraftrio.broker.log.partition.follower_batches import check_follower_batches
from kraftrio.broker.log.partition.log_flush import LogFlush
from kraftrio.broker.log.partition.log_parts import LogParts, LogResources
from kraftrio.broker.log.partition.log_reads import ReadLimits, read_batches
from kraftrio.broker.log.partition.own_batches import check_own_batches, stamp_own_batches
from kraftrio.broker.log.partition.partition_files import PartitionFiles
from kraftrio.broker.log.partition.pending_truncation import PendingTruncation
from kraftrio.broker.log.partition.results import AppendInfo, LogRead, LogSlice, RecoveryEvent
from kraftrio.broker.log.partition.retention import RetiredSegments, deletable_segments
from kraftrio.broker.log.partition.roll_policy import RollPolicy
from kraftrio.broker.log.partition.tail_cache import TailCache
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.broker.log.producers.replay import record_producer
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.broker.log.segment.batch_scan import ScannedBatch
from kraftrio.broker.log.segment.names import SWAP_SUFFIX
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.broker.log.segment.txn_index import AbortedTxn
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import Buffer, TopicPartition
from kraftrio.wire.records.batch import (
    BatchHeader,
    assign_offsets,
)
from kraftrio.wire.records.control import EndTransactionMarker
from kraftrio.wire.stored_bytes import StoredBytes

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "LogRead",
    "LogSlice",
    "PartitionLog",
    "RecordValidationError",
]


class PartitionLog:
    """See the module. `segments` is never empty; the last one is active."""

    __slots__ = (
        "_files",
        "_fs",
        "_pending_truncation",
        "_rolls",
        "_tail",
        "active_segment",
        "config",
        "directory",
        "durability",
        "first_dirty_offset",
        "high_watermark",
        "last_append_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "producer_state",
        "producers",
        "recovery_events",
        "retired",
        "segments",
        "size_bytes",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        resources: LogResources,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        parts: LogParts,
    ) -> None:
        """Put the parts together; they must fit (`recovery.open_log` sees to that)."""
        self._fs = resources.fs
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = parts.topic_id
        self.segments = parts.segments
        self.active_segment = parts.segments.active
        self.leader_epochs = parts.leader_epochs
        self.producers = parts.producers
        self.producer_state = parts.producers.state
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = self.active_segment.end_offset
        assert self.log_start_offset <= self.log_end_offset, parts
        self.high_watermark = parts.log_start_offset
        self.size_bytes = parts.segments.total_bytes()
        self.recovery_events: Sequence[RecoveryEvent] = ()
        self.last_append_ms = 0  # by the caller's clock: producers expire by it
        self.first_dirty_offset = 0  # compaction has looked at everything before it
        self._tail = TailCache(resources.tail_budget)
        self.retired = RetiredSegments()
        self._files = PartitionFiles(self._fs, directory, self.leader_epochs)
        self.durability = LogFlush(
            self._files,
            parts.producers.snapshots,
            self.segments,
            min(parts.recovery_point, self.log_end_offset),
        )
        self._pending_truncation = PendingTruncation(self._fs, self._files)
        self.set_config(config)

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic_partition}, {self.log_start_offset}.."
            f"{self.high_watermark}..{self.log_end_offset})"
        )

    # -- configuration and offsets --------------------------------------------------------------

    def set_config(self, config: LogConfig) -> None:
        """Take a new configuration."""
        self.config = config
        for segment in self.segments:
            segment.indexes.set_config(config)
        self._rolls = RollPolicy(config, self.topic_partition)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that wrote or was started here, -1 for none."""
        return self.leader_epochs.latest_epoch

    @property
    def recovery_point(self) -> int:
        """Everything before it is durable; a restart after a crash checks what follows."""
        return self.durability.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed ends: the first open transaction, else the high watermark."""
        unstable = self.producer_state.first_unstable_offset
        high_watermark = self.high_watermark
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)

    def update_high_watermark(self, offset: int) -> None:
        """Set how far the log is committed; the caller decides that, and stays within the log."""
        assert self.log_start_offset <= offset <= self.log_end_offset, offset
        self.high_watermark = offset
        self.producer_state.on_high_watermark(offset)

    def start_leader_epoch(self, epoch: int) -> None:
        """This replica leads from now on: its epoch starts at the log end."""
        if self.leader_epochs.assign(epoch, self.log_end_offset):
            self._files.save_epochs()

    def set_topic_id(self, topic_id: bytes) -> None:
        """Give an id to a log that was found without one."""
        self._files.save_topic_id(topic_id)
        self.topic_id = topic_id

    # -- appends --------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Check batches (of a client one), give them offsets and epoch in place, and append them.

        Args:
            guard: of the verification that a transactional batch depends on.

        Raises:
            KafkaError: refused. OSError: the disk failed (see rule 1).
        """
        if self._pending_truncation.rest is not None:
            self._pending_truncation.finish()
        config = self.config
        if origin is not AppendOrigin.CLIENT:
            headers, markers = check_own_batches(
                records, config, self.producer_state, now_ms, origin, transaction_version, guard
            )
            stamp_own_batches(records, headers, config, now_ms, self.log_end_offset, leader_epoch)
            return self._append_stamped(records, headers, markers, now_ms)
        records, header = validate_client_batch(records, config, self.topic_partition, now_ms)
        has_producer = header.producer_id >= 0
        if has_producer:
            duplicate = self.producer_state.check(header, now_ms, origin, guard=guard)
            if duplicate is not None:
                return AppendInfo(
                    duplicate.base_offset,
                    duplicate.last_offset,
                    duplicate.timestamp,
                    self.log_start_offset,
                    True,
                    duplicate.timestamp,
                    0,
                )
        size = header.size_bytes
        check_fits_segment(size, config)
        base_offset = self.log_end_offset
        assign_offsets(records, header, base_offset, leader_epoch)
        last_offset = base_offset + header.last_offset_delta
        segment = self.active_segment
        if self._rolls.must_roll(segment, size, last_offset, header.max_timestamp, now_ms):
            segment = self.roll(now_ms)
        segment.append(records, (header,))
        self.last_append_ms = now_ms
        self.size_bytes += size
        self.log_end_offset = last_offset + 1
        if leader_epoch != self.leader_epochs.latest_epoch:
            self._files.record_epoch(leader_epoch, base_offset)
        if has_producer:
            self.producer_state.update(header, base_offset, now_ms)
        if self._tail.wanted:
            self._tail.append(records, base_offset, last_offset)
        if self.log_end_offset - self.durability.recovery_point >= config.flush_messages:
            self.flush()
        return AppendInfo(
            base_offset,
            last_offset,
            now_ms if config.log_append_time else -1,
            self.log_start_offset,
            False,
            header.max_timestamp,
            size,
        )

    def append_as_follower(
        self, records: Buffer, now_ms: int, *, leader_epoch: int | None = None
    ) -> AppendInfo:
        """Append batches as the leader has them (see `check_follower_batches`).

        Raises:
            KafkaError: a bad checksum, or offsets that do not follow the log's end.
        """
        if self._pending_truncation.rest is not None:
            self._pending_truncation.finish()
        end_offset = self.log_end_offset
        records, headers, markers = check_follower_batches(
            records,
            self.topic_partition,
            log_end_offset=end_offset,
            log_is_empty=self.log_start_offset == end_offset,
            leader_epoch=leader_epoch,
        )
        if not headers:
            return AppendInfo(end_offset, end_offset - 1, -1, self.log_start_offset, False, -1, 0)
        if headers[0].base_offset < end_offset:
            # The leader's log starts within this batch, and so will this one.
            self.truncate_fully_and_start_at(headers[0].base_offset, now_ms)
        return self._append_stamped(records, headers, markers, now_ms)

    def _append_stamped(
        self,
        records: Buffer,
        headers: Sequence[BatchHeader],
        markers: Sequence[EndTransactionMarker | None],
        now_ms: int,
    ) -> AppendInfo:
        """Write batches that have their final bytes, then record them."""
        size = len(records)
        first, last_offset = headers[0], headers[-1].last_offset
        max_timestamp = first.max_timestamp
        is_too_large = False
        if len(headers) > 1:
            max_timestamp = max(header.max_timestamp for header in headers)
            fits_offset = self.active_segment.fits_offset(last_offset)
            is_too_large = size > self.config.segment_bytes or not fits_offset
        if is_too_large:
            # The leader's segments are larger, or the offsets have a gap: append one by one.
            for header, marker in zip(headers, markers, strict=True):
                end = header.position + header.size_bytes
                piece = memoryview(records)[header.position : end]
                self._append_stamped(piece, (header,), (marker,), now_ms)
        else:
            segment = self.active_segment
            if self._rolls.must_roll(segment, size, last_offset, max_timestamp, now_ms):
                segment = self._roll_before(first, last_offset, now_ms)
            segment.append(records, headers)
            self.last_append_ms = now_ms
            self.size_bytes += size
            self.log_end_offset = last_offset + 1
            tail = self._tail
            for header, marker in zip(headers, markers, strict=True):
                if tail.wanted:
                    start = header.position - first.position  # a piece does not begin at 0
                    piece = memoryview(records)[start : start + header.size_bytes]
                    tail.append(piece, header.base_offset, header.last_offset)
                epoch = header.partition_leader_epoch
                if epoch != self.leader_epochs.latest_epoch:
                    self._files.record_epoch(epoch, header.base_offset)
                if header.producer_id >= 0:
                    record_producer(self.producer_state, segment, header, marker, now_ms)
        if self.log_end_offset - self.durability.recovery_point >= self.config.flush_messages:
            self.flush()
        return AppendInfo(
            first.base_offset,
            last_offset,
            now_ms if self.config.log_append_time else -1,
            self.log_start_offset,
            False,
            max_timestamp,
            size,
        )

    def _roll_before(self, first: BatchHeader, last_offset: int, now_ms: int) -> Segment:
        """Roll for batches whose offsets are given: they may leave a gap, or exceed a segment."""
        active = self.active_segment
        fits = active.fits_offset(last_offset)
        if not active.size_bytes and fits and not active.indexes.are_full:
            return active
        if last_offset - self.log_end_offset > INT_MAX:
            return self.roll(now_ms, first.base_offset)
        return self.roll(now_ms)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Close the active segment and start one at the log end (or later); snapshot producers.

        OSError: the log is as before; files that the roll has already written do no harm.
        """
        offset = max(self.log_end_offset, base_offset or 0)
        old = self.active_segment
        if old.base_offset == offset:
            if old.size_bytes:
                raise AssertionError(f"{old} cannot be rolled onto itself")
            old.restart_empty(now_ms)  # an empty segment with full indexes (KAFKA-6388)
            return old
        old.on_become_inactive()
        old.indexes.flush(sync=False)
        self.producers.write_snapshot(offset)
        new = Segment.create(self._fs, self.directory, offset, self.config, now_ms)
        old.end_offset = offset  # nothing can fail any more
        self.segments.append(new)
        self.active_segment = new
        self.log_end_offset = offset
        return new

    # -- reads ----------------------------------------------------------------------------------

    def read(
        self, start_offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool
    ) -> LogRead:
        """Read whole batches of about `max_bytes`, the first one holding `start_offset`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE below the log start or above the log end.
        """
        records, next_offset = self.read_lazily(
            start_offset, max_bytes, LONG_MAX, max_offset=max_offset, min_one_batch=min_one_batch
        )
        assert not isinstance(records, StoredBytes)
        return LogRead(records, next_offset)

    def read_lazily(
        self,
        start_offset: int,
        max_bytes: int,
        hold_bytes: int,
        *,
        max_offset: int,
        min_one_batch: bool,
    ) -> LogSlice:
        """As `read`, but more than `hold_bytes` are a `FileSlice`, read when it is sent."""
        end = self.log_end_offset
        if not self.log_start_offset <= start_offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {start_offset} of {self.topic_partition} is not within "
                f"[{self.log_start_offset}, {end}]",
            )
        limits = ReadLimits(max_bytes, hold_bytes, min(max_offset, end), min_one_batch)
        return read_batches(
            self.segments, self._tail, start_offset, limits, end, self.high_watermark
        )

    def batches(self, start_offset: int, end_offset: int | None = None) -> Iterator[ScannedBatch]:
        """Every batch that ends after `start_offset` and begins before `end_offset`."""
        end_offset = self.log_end_offset if end_offset is None else end_offset
        return self.segments.scan(start_offset, end_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEntry:
        """(largest epoch <= `epoch` here, its end offset); (-1, -1) when unknown (KIP-279)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that touch offsets in [start_offset, end_offset)."""
        return self.segments.aborted_transactions(
            start_offset, end_offset, self.producers.snapshots
        )

    # -- truncation and deletion ----------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from `offset` on; False if the log ends before it.

        A batch that holds `offset` goes as a whole: the log then ends where that batch began.
        """
        if offset >= self.log_end_offset:
            # An epoch that this replica began as leader, without a record, is unknown to the
            # leader.
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self._files.save_epochs()
            return False
        if offset < self.segments.first_base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self.durability.on_truncation_begins()
        self._tail.clear()
        try:
            self.segments.remove_after(offset)
            self.segments.active.truncate_to(offset)
        finally:  # also after an error: the later segments may be gone already
            self._on_truncated(self._restore_producers)
        self._pending_truncation.finish()
        return True

    def _on_truncated(self, rest: Callable[[], None]) -> None:
        """Set offsets and sizes by where the segments end now; `rest` is left to do on disk."""
        self._pending_truncation.rest = rest
        self.active_segment = active = self.segments.active
        self.log_end_offset = end_offset = active.end_offset
        self.size_bytes = self.segments.total_bytes()
        start_offset = max(min(self.log_start_offset, end_offset), self.segments.first_base_offset)
        self.log_start_offset = start_offset
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self.high_watermark = max(min(self.high_watermark, end_offset), start_offset)
        self.leader_epochs.truncate_from_end(end_offset)
        self.durability.on_truncated(end_offset)

    def _restore_producers(self) -> None:
        """Make the producers' state what it was at the present log end."""
        end_offset = self.log_end_offset
        self.producers.snapshots.remove_after(end_offset)
        self.producers.restore(
            self.segments.from_offset(0),
            self.log_start_offset,
            end_offset,
            self.last_append_ms,
            high_watermark=self.high_watermark,
        )
        self.producer_state.on_high_watermark(self.high_watermark)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Drop everything and start again at `offset` (which may be after the old end).

        OSError: the log keeps some of its first segments, or is empty at another offset.
        """
        assert offset >= 0, offset
        self.durability.on_truncation_begins()
        self._tail.clear()
        try:
            self.segments.remove_after(-1)
            first = self.segments.active
            first.truncate_to_position(0, first.base_offset)
            if first.base_offset != offset:
                self.segments.replace_all(
                    Segment.create(self._fs, self.directory, offset, self.config, now_ms)
                )
        finally:
            active = self.segments.active
            is_done = active.base_offset == active.end_offset == offset
            self._on_truncated(
                partial(self.producers.forget, offset) if is_done else self._restore_producers
            )
        self.log_start_offset = self.high_watermark = offset
        self.leader_epochs.clear()
        self._pending_truncation.finish()

    def delete_records_before(self, offset: int) -> bool:
        """Move the log start offset up, at most to the high watermark; False: it is there already.

        Retention then deletes the segments before it.
        """
        assert offset <= self.high_watermark, offset
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset(offset)
        self._files.save_epochs()
        return True

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that retention does not keep any more; return how many."""
        count = deletable_segments(
            self.segments,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
        )
        if not count:
            return 0
        if count == len(self.segments):
            self.roll(now_ms)  # the log always has an active segment
        self.delete_records_before(self.segments.base_offsets[count])
        oldest = list(self.segments)[:count]
        try:
            self.retired.retire(oldest, now_ms + self.config.file_delete_delay_ms)
        finally:
            self.segments.forget_retired()
            self.size_bytes = self.segments.total_bytes()
        self.producers.snapshots.remove([segment.base_offset for segment in oldest])
        return count

    def replace_segments(self, old: Sequence[Segment], new: Segment, now_ms: int) -> None:
        """Put a durable `.cleaned` segment in the place of closed neighbours (see `cleaner`)."""
        assert self.segments.has_closed(old) and old[0].base_offset == new.base_offset
        new.rename_files(SWAP_SUFFIX, log_last=True)
        self.retired.retire(old, now_ms + self.config.file_delete_delay_ms)
        new.rename_files("")
        new.indexes.set_config(self.config)
        self.segments.replace(old, new)
        self._tail.clear()  # it may hold records that are no longer in the log
        self.size_bytes = self.segments.total_bytes()
        self.producers.snapshots.remove_stray(self.segments.base_offsets)

    # -- flush and close ------------------------------------------------------------------------

    def flush(self) -> int:
        """Make everything appended so far durable; return the new recovery point. Any thread."""
        return self.durability.flush_before(LONG_MAX)

    def close(self) -> None:
        """Stop cleanly: snapshot, last time index entry, everything durable."""
        if self.durability.is_closed:
            return
        if self._pending_truncation.rest is not None:
            self._pending_truncation.finish()
        self._files.save_epochs()
        had_records = self.log_end_offset or self.durability.truncation_count
        if had_records:
            self.active_segment.on_become_inactive()
            self.producers.write_snapshot(self.log_end_offset, sync=True)
            for segment in self.segments:
                segment.indexes.flush(sync=False)  # old ones too, where a damaged file was rebuilt
            self.flush()
        self.close_files()

    def close_files(self) -> None:
        """Close the files without saving anything: a failed disk, a deleted log, a crash test."""
        self.durability.close()
        self._tail.clear()
        for segment in self.segments:
            segment.close_file()
        self.retired.close_files()

    def moved(self, directory: str) -> None:
        """Use the new path: the partition directory was renamed."""
        self.directory = directory
        self._files.directory = directory
        self.producers.snapshots.directory = directory
        for segment in self.segments:
            segment.moved(directory)
        self.retired.moved(directory)
