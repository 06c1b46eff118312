"""Compaction of one log: of every key the newest record stays (Kafka's Cleaner, KIP-534).

Owns a run over the closed segments of a `CleaningTarget`: read the dirty part into an `OffsetMap`,
then copy all segments before its end, group by group, without records that have a newer one of
their key, and put each copy in the place of its group.

The caller (`broker/upkeep/log_cleaner.py`) runs `build_map`, `clean_group` and `sync` in a worker
thread, everything else, the swap above all, on the event loop; the order is that of the methods
here.

Rules:
1. The thread reads closed segments through files of its own and writes `.cleaned` files only. A log
   that was truncated, closed, deleted or is no longer compacted meanwhile ends the run
   (`CleaningAborted`) with nothing changed: `check` finds out, and the swap checks again.
2. Offsets, sequences, producers and the ends of batches stay. Kept though empty are the last batch
   of each active producer (KAFKA-8335: its sequence) and the last one of each group, so that no
   segment ends before the next one begins.
3. A tombstone or the marker of a transaction that is gone gets a delete horizon at the first pass
   that keeps it (delete.retention.ms from then) and goes at the first pass after it.
4. Crash safety: the copy is durable as `.cleaned` before the swap. `PartitionLog.replace_segments`
   then renames its indexes and at last its log to `.swap` (the decision: before it a restart drops
   the copy, after it the old segments), the old files to `.deleted`, and the log first and then
   the indexes to their names. All of it is in one directory, whose file system keeps the order.
5. `first_dirty_offset` moves only after `sync`: a checkpoint that outlives the swap in a power cut
   would let a tombstone go before the record it deletes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from kraftrio.broker.log.cleaner.cleaned_transactions import CleanedTransactions
from kraftrio.broker.log.cleaner.offset_map import OffsetMap
from kraftrio.broker.log.cleaner.pace import CleanerPace
from kraftrio.broker.log.cleaner.plan import CleaningTarget, group_segments
from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.segment.batch_scan import ScannedBatch, scan_batches
from kraftrio.broker.log.segment.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.wire.primitives import Buffer
from kraftrio.wire.records.batch import (
    BatchHeader,
    RawRecord,
    iter_records,
    parse_header,
    retain_records,
)

_logger = logging.getLogger(__name__)

_WRITE_BYTES = 1 << 20


class CleaningAborted(Exception):
    """The log changed so that the work on its old segments is void."""


class CleaningRun:
    """One pass over one log.

    Args:
        map_bytes: how much memory the offset map may use.
    """

    def __init__(
        self,
        fs: FileSystem,
        target: CleaningTarget,
        now_ms: int,
        *,
        map_bytes: int,
        pace: CleanerPace,
    ) -> None:
        log = target.log
        self._fs = fs
        self.log = log
        self._target = target
        self._now_ms = now_ms
        self._pace = pace
        self._config = log.config
        self._directory = log.directory
        self._truncation_count = log.durability.truncation_count
        self._segments = [s for s in log.segments if s.base_offset < target.end_offset]
        self._map = OffsetMap(map_bytes, target.first_dirty_offset)
        start_offset = log.segments.first_base_offset
        aborted = log.aborted_transactions(start_offset, target.end_offset)
        self._dirty_transactions = CleanedTransactions(
            item for item in aborted if item.last_offset >= target.first_dirty_offset
        )
        self._transactions = CleanedTransactions(aborted)
        self._groups: Iterator[list[Segment]] = iter(())
        self._group: list[Segment] = []
        self._last_records: dict[int, tuple[int, int]] = {}
        self._output: _Output | None = None
        self.bytes_before = 0
        self.bytes_after = 0

    @property
    def end_offset(self) -> int:
        """Where the next run's dirty part begins."""
        return self._map.latest_offset + 1

    # -- may the work go on? --------------------------------------------------------------------

    def check(self) -> None:
        """Raise CleaningAborted when the run must not go on. Any thread."""
        log = self.log
        if log.durability.truncation_count != self._truncation_count or not log.config.compact:
            raise CleaningAborted(f"cleaning of {log.topic_partition}")

    def check_segments(self) -> None:
        """Raise CleaningAborted if retention has deleted what is still to be cleaned."""
        self.check()
        present = set(self.log.segments)
        if not all(segment in present for segment in self._segments):
            raise CleaningAborted(f"segments of {self.log.topic_partition} are gone")

    def _worked(self, size_bytes: int) -> None:
        self.check()
        self._pace.pause(size_bytes, self.check)

    # -- the dirty part -------------------------------------------------------------------------

    def build_map(self) -> None:
        """Read the keys of the dirty part as far as the map holds them. Worker thread."""
        self.log.durability.flush_closed_segments()
        first_dirty_offset = self._target.first_dirty_offset
        for segment in self._segments:
            if segment.end_offset <= first_dirty_offset:
                continue
            for batch in self._scan(segment):
                if batch.header.last_offset >= first_dirty_offset and not self._add_batch(batch):
                    self._plan_groups()
                    return
                self._worked(batch.header.size_bytes)
            self._map.latest_offset = segment.end_offset - 1
        self._plan_groups()

    def _add_batch(self, batch: ScannedBatch) -> bool:
        """Note the batch's keys; False when the map is full before its end."""
        header, buf = batch.header, batch.buffer
        offset_map = self._map
        can_drop = self._dirty_transactions.can_drop(buf, header)
        if not can_drop and not header.is_control:
            first_dirty_offset = self._target.first_dirty_offset
            # The first batch goes in whole, whatever its size: a run must make progress.
            may_stop = len(offset_map) > 0
            for record in iter_records(buf, header):
                if record.key is not None and record.offset >= first_dirty_offset:
                    if may_stop and offset_map.is_full:
                        return False
                    offset_map.put(record.key, record.offset)
        offset_map.latest_offset = header.last_offset
        return True

    def _plan_groups(self) -> None:
        known = [s for s in self._segments if s.base_offset < self.end_offset]
        self._groups = iter(group_segments(known, self._config, self._index_bytes))

    def _index_bytes(self, segment: Segment) -> int:
        paths = (segment.path(INDEX_SUFFIX), segment.path(TIME_INDEX_SUFFIX))
        return max(self._fs.size_bytes(path) if self._fs.exists(path) else 0 for path in paths)

    def _scan(self, segment: Segment) -> Iterator[ScannedBatch]:
        file = self._fs.open(segment.path(LOG_SUFFIX))
        try:
            yield from scan_batches(
                file, segment.base_offset, 0, segment.size_bytes, check_crc=True
            )
        finally:
            file.close()

    # -- group by group -------------------------------------------------------------------------

    def next_group(self) -> bool:
        """Choose the next group and note where the producers are; False after the last one."""
        self.check()
        self._group = next(self._groups, [])
        self._last_records = {
            entry.producer_id: (entry.last_offset, entry.producer_epoch)
            for entry in self.log.producer_state.active_producers()
        }
        return bool(self._group)

    def clean_group(self) -> None:
        """Write the group's copy and make it durable. Worker thread."""
        self.check()
        output = self._output = _Output(self._fs, self._directory, self._group, self._now_ms)
        previous: ScannedBatch | None = None
        for segment in self._group:
            for batch in self._scan(segment):
                if previous is not None:
                    self._clean_batch(previous, output, is_last=False)
                previous = batch
        if previous is not None:
            self._clean_batch(previous, output, is_last=True)
        if output.is_changed:
            output.finish()

    def _clean_batch(self, batch: ScannedBatch, output: _Output, *, is_last: bool) -> None:
        header = batch.header
        can_drop = self._transactions.can_drop(batch.buffer, header)
        for transaction in self._transactions.take_kept():
            output.segment.indexes.transactions.append(transaction)
        is_needed = is_last or self._is_last_of_producer(header)
        data = self._retained(batch, can_drop)
        if data is None:
            if header.record_count or is_needed:
                start = header.position
                piece = memoryview(batch.buffer)[start : start + header.size_bytes]
                output.add(piece, header)
            else:
                output.is_changed = True
        else:
            output.is_changed = True
            new_header = parse_header(data)
            if new_header.record_count or is_needed:
                output.add(data, new_header)
        self._worked(header.size_bytes)

    def _retained(self, batch: ScannedBatch, can_drop: bool) -> Buffer | None:
        """The batch with what stays of its records; None when all of it stays as it is."""
        header, buf = batch.header, batch.buffer
        if not header.record_count:
            return None
        horizon = header.delete_horizon
        new_horizon = self._now_ms + self._config.delete_retention_ms
        if header.is_control:
            if not can_drop:
                return None
            if horizon is None:
                return retain_records(buf, header, _keep_all, delete_horizon=new_horizon)
            return retain_records(buf, header, _keep_none) if horizon <= self._now_ms else None
        if can_drop:
            return retain_records(buf, header, _keep_none)
        keep = _Keep(self._map, keep_tombstones=horizon is None or self._now_ms < horizon)
        data = retain_records(buf, header, keep)
        if keep.kept_tombstones and horizon is None:
            return retain_records(buf, header, keep, delete_horizon=new_horizon)
        return data

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the batch holds what a restart must know of its producer (KAFKA-8335)."""
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_offset, producer_epoch = last
        if last_offset >= 0:
            return header.last_offset == last_offset
        # Only markers in its present epoch: they fence older ones.
        return header.is_control and header.producer_epoch == producer_epoch

    def swap(self, now_ms: int) -> None:
        """Put the copy in the place of its group.

        Raises:
            CleaningAborted: the group is no longer what was copied.
            OSError: half done; only a restart can sort the files out.
        """
        output, group = self._output, self._group
        assert output is not None
        self.check_segments()
        size = sum(segment.size_bytes for segment in group)
        self.bytes_before += size
        self._segments = self._segments[len(group) :]
        if not output.is_changed:
            self.bytes_after += size
            self.discard()
            return
        self.bytes_after += output.segment.size_bytes
        self._output = None
        self.log.replace_segments(group, output.segment, now_ms)

    # -- the end --------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make the swaps durable. Worker thread."""
        self._fs.sync_directory(self._directory)

    def complete(self) -> None:
        """The log is clean up to `end_offset`."""
        self.check()
        self.log.first_dirty_offset = self.end_offset

    def discard(self) -> None:
        """Remove an unfinished copy."""
        output, self._output = self._output, None
        if output is not None:
            try:
                output.segment.remove()
            except OSError as error:
                _logger.warning("cannot remove %s: %s", output.segment.path(LOG_SUFFIX), error)


def _keep_all(offset: int, record: RawRecord) -> bool:
    return True


def _keep_none(offset: int, record: RawRecord) -> bool:
    return False


class _Keep:
    """Which data records stay: beyond the map all, else the newest of its key, unless it is a
    tombstone whose time is over. Records without a key have no place in a compacted log.
    """

    __slots__ = ("_get", "_keep_tombstones", "_latest_offset", "kept_tombstones")

    def __init__(self, offset_map: OffsetMap, *, keep_tombstones: bool) -> None:
        self._get = offset_map.get
        self._latest_offset = offset_map.latest_offset
        self._keep_tombstones = keep_tombstones
        self.kept_tombstones = False

    def __call__(self, offset: int, record: RawRecord) -> bool:
        if offset <= self._latest_offset:
            key = record.key
            if key is None or offset < self._get(key):
                return False
            if not record.has_value and not self._keep_tombstones:
                return False
        if not record.has_value:
            self.kept_tombstones = True
        return True


class _Output:
    """The `.cleaned` segment that a group is copied into."""

    def __init__(
        self, fs: FileSystem, directory: str, group: Sequence[Segment], now_ms: int
    ) -> None:
        self.segment = Segment.create(
            fs,
            directory,
            group[0].base_offset,
            group[0].indexes.config,
            now_ms,
            suffix=CLEANED_SUFFIX,
        )
        self._end_offset = group[-1].end_offset
        self.is_changed = len(group) > 1
        self._pieces: list[Buffer] = []
        self._headers: list[BatchHeader] = []
        self._pending_bytes = 0

    def add(self, data: Buffer, header: BatchHeader) -> None:
        """Append one batch."""
        self._pieces.append(data)
        self._headers.append(header)
        self._pending_bytes += header.size_bytes
        if self._pending_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._headers:
            self.segment.append(b"".join(self._pieces), self._headers)
            self._pieces.clear()
            self._headers.clear()
            self._pending_bytes = 0

    def finish(self) -> None:
        """Write what is left and make all of it durable."""
        self._write()
        segment = self.segment
        segment.on_become_inactive()
        segment.flush()
        segment.unload_indexes()
        segment.end_offset = self._end_offset
