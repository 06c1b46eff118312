"""Opening a partition directory: finish what a crash interrupted, check, rebuild, put together.

Rules:
1. After a clean stop the files are trusted, and only what turns out to be wrong (a missing index, a
   tail that is not a batch, an unreadable checkpoint) is rebuilt.
2. After an unclean one every batch from the segment of the recovery point on is read: its checksum,
   and that offsets rise. The log is truncated before the first bad one, later segments are dropped;
   indexes, producer state, aborted transactions and leader epochs of that part are rebuilt.
3. Where offsets are missing between two segments that are read for that, the later ones are
   dropped: a failed sync may have lost the end of a segment and nothing of those after it.
   Compacted logs of Apache Kafka do have gaps: one is accepted below the checkpoint of the cleaner,
   in a log that no checkpoint names (it was copied here), and where one segment could not hold the
   offsets. Ours have none: the cleaner keeps the last batch of every segment.
4. A truncation is durable with the next flush. A power cut before that may bring back what was cut,
   also after batches that were written since, and none of it may count as the newer leader's: the
   epochs are taken from the batches, and the log is truncated before a batch of an earlier epoch.
5. Opening an existing log never moves its recovery point up: a second crash checks again.
6. Leftovers: `.deleted` and `.cleaned` are removed, a `.swap` is completed (KAFKA-12520); so are
   empty segments that are not where the log ends.

What was done is returned as `RecoveryEvent`s in `PartitionLog.recovery_events`, for the caller to
log. Called by `log_manager`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise

from kraftrio.broker.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    CheckpointError,
    parse_leader_epochs,
    parse_partition_metadata,
)
from kraftrio.broker.log.leader_epoch_cache import LeaderEpochCache
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition.log_parts import (
    CheckpointedOffsets,
    LogParts,
    LogResources,
)
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.partition.results import RecoveryEvent
from kraftrio.broker.log.partition.segment_list import SegmentList
from kraftrio.broker.log.producers.log_producers import LogProducers
from kraftrio.broker.log.producers.producer_state import ProducerStateManager
from kraftrio.broker.log.producers.replay import record_producer
from kraftrio.broker.log.producers.snapshots import ProducerSnapshots
from kraftrio.broker.log.segment.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    base_offset_of,
    segment_name,
)
from kraftrio.broker.log.segment.segment import Segment
from kraftrio.wire.errors import CorruptBatchError, KafkaError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import BatchHeader
from kraftrio.wire.records.control import read_end_transaction_marker


class InconsistentTopicIdError(Exception):
    """The directory holds the log of another topic of the same name."""


def open_log(
    resources: LogResources,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    checkpointed: CheckpointedOffsets,
    *,
    topic_id: bytes | None,
    clean_shutdown: bool,
    now_ms: int,
) -> PartitionLog:
    """Open the log in `directory`, recovering what a crash left, or make an empty one.

    Args:
        topic_id: of the log that is wanted; None: whichever is found.

    Raises:
        InconsistentTopicIdError: it is another topic's.
        OSError: the disk failed; the call may be repeated.
    """
    with ExitStack() as on_failure:
        loader = _Loader(resources, directory, config, checkpointed, now_ms, on_failure)
        names = loader.prepare_directory()
        stored_id = loader.load_topic_id(names)
        if stored_id is not None and topic_id is not None and stored_id != topic_id:
            raise InconsistentTopicIdError(f"{directory} has another topic id")
        segments = loader.open_segments(names)
        start = checkpointed.log_start_offset
        if segments:
            start = max(start, segments[0].base_offset)
        loader.producers.snapshots = ProducerSnapshots(resources.fs, directory, names)
        loader.load_epochs(names, has_data=any(segment.size_bytes for segment in segments))
        if segments:
            segments = loader.recover(segments, start, clean_shutdown)
        else:
            loader.producers.state.clear(start)
            segments = [loader.create_segment(start)]
        for segment in segments:
            segment.unload_indexes()  # those that opening loaded; an idle log needs none
        end_offset = segments[-1].end_offset
        loader.leader_epochs.truncate_from_end(end_offset)
        loader.leader_epochs.truncate_from_start(start)
        is_durable = clean_shutdown and not loader.repaired
        parts = LogParts(
            topic_id=stored_id,
            segments=SegmentList(segments),
            leader_epochs=loader.leader_epochs,
            producers=loader.producers,
            log_start_offset=start,
            recovery_point=end_offset if is_durable else loader.recovery_point,
        )
        log = PartitionLog(resources, directory, topic_partition, config, parts)
        if names and is_durable:
            log.durability.mark_durable()
        log.last_append_ms = now_ms
        log.recovery_events = tuple(loader.events)
        if stored_id is None and topic_id is not None:
            log.set_topic_id(topic_id)
        on_failure.pop_all()  # the files stay open
    return log


class _Loader:
    """The steps of opening one directory, with what they share."""

    def __init__(
        self,
        resources: LogResources,
        directory: str,
        config: LogConfig,
        checkpointed: CheckpointedOffsets,
        now_ms: int,
        on_failure: ExitStack,
    ) -> None:
        self._fs = resources.fs
        self._on_failure = on_failure  # closes the files
        self._directory = directory
        self._config = config
        self._checkpointed = checkpointed
        self.recovery_point = checkpointed.recovery_point or 0
        self._now_ms = now_ms
        self.events: list[RecoveryEvent] = []
        self.repaired = False
        self.leader_epochs = LeaderEpochCache()
        self._epochs_lost = False
        self._newest_epoch = -1  # of the batches that were checked
        self.producers = LogProducers(
            ProducerStateManager(producer_id_expiration_ms=resources.producer_id_expiration_ms),
            ProducerSnapshots(resources.fs, directory, ()),
        )

    def _record_event(self, action: str, path: str, reason: str) -> None:
        self.events.append(RecoveryEvent(action, path, reason))

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    # -- leftovers ------------------------------------------------------------------------------

    def prepare_directory(self) -> list[str]:
        """Make the directory, or finish renames that a crash left; return the names in it."""
        fs = self._fs
        if not fs.is_directory(self._directory):
            fs.make_directory(self._directory)
            return []
        names = fs.list_directory(self._directory)
        leftovers = [
            name
            for name in names
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp"))
        ]
        if not leftovers:
            return names
        self._remove_leftovers(leftovers)
        self._complete_swaps(
            [name for name in fs.list_directory(self._directory) if name.endswith(SWAP_SUFFIX)]
        )
        fs.sync_directory(self._directory)
        return fs.list_directory(self._directory)

    def _remove_leftovers(self, leftovers: Sequence[str]) -> None:
        """Remove deleted, half cleaned and half written files.

        While a cleaned file exists its group was not complete: swap files from that offset on
        belong to the same unfinished step, and the old segments are still there.
        """
        cleaned = [
            offset
            for name in leftovers
            if (offset := base_offset_of(name, LOG_SUFFIX + CLEANED_SUFFIX)) is not None
        ]
        for name in leftovers:
            stem = name.removesuffix(SWAP_SUFFIX).split(".")[0]
            if name.endswith(SWAP_SUFFIX):
                if not cleaned or not stem.isdigit() or int(stem) < min(cleaned):
                    continue
                self._record_event("removed", self._path(name), "part of an unfinished compaction")
            self._fs.remove(self._path(name))

    def _complete_swaps(self, names: Sequence[str]) -> None:
        """Put compacted segments in the place of the segments they were made from."""
        fs = self._fs
        bases = [
            base
            for name in names
            if (base := base_offset_of(name, LOG_SUFFIX + SWAP_SUFFIX)) is not None
        ]
        for base_offset in bases:
            swap = self._open_segment(base_offset, SWAP_SUFFIX)
            end_offset = base_offset + 1
            for batch in swap.log_file.scan():
                end_offset = batch.header.next_offset
            swap.close_file()
            for name in fs.list_directory(self._directory):
                old = base_offset_of(name, LOG_SUFFIX)
                if old is not None and base_offset < old < end_offset:
                    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                        fs.remove(self._path(segment_name(old) + suffix))
            # An old index must not stay behind under a log it does not belong to.
            for suffix in INDEX_SUFFIXES:
                if segment_name(base_offset) + suffix + SWAP_SUFFIX not in names:
                    fs.remove(self._path(segment_name(base_offset) + suffix))
            self._record_event(
                "completed", self._path(segment_name(base_offset)), "a compaction's swap"
            )
        for name in names:
            fs.rename(self._path(name), self._path(name.removesuffix(SWAP_SUFFIX)))

    # -- small files ----------------------------------------------------------------------------

    def load_topic_id(self, names: Sequence[str]) -> bytes | None:
        if PARTITION_METADATA not in names:
            return None
        path = self._path(PARTITION_METADATA)
        try:
            return parse_partition_metadata(self._fs.read_file(path))
        except CheckpointError as error:
            self._record_event("ignored", path, str(error))
            return None

    def load_epochs(self, names: Sequence[str], *, has_data: bool) -> None:
        path = self._path(LEADER_EPOCH_CHECKPOINT)
        if LEADER_EPOCH_CHECKPOINT not in names:
            self._epochs_lost = has_data
            return
        try:
            entries = parse_leader_epochs(self._fs.read_file(path))
        except CheckpointError as error:
            self._record_event("rebuilt", path, str(error))
            self._epochs_lost = True
        else:
            self.leader_epochs = LeaderEpochCache(entries)

    # -- segments -------------------------------------------------------------------------------

    def open_segments(self, names: Sequence[str]) -> list[Segment]:
        """Open the segments in order; an index without a log is removed."""
        logs = {base for name in names if (base := base_offset_of(name, LOG_SUFFIX)) is not None}
        for name in names:
            for suffix in INDEX_SUFFIXES:
                base = base_offset_of(name, suffix)
                if base is not None and base not in logs:
                    self._record_event("removed", self._path(name), "an index without its log")
                    self._fs.remove(self._path(name))
        segments = [self._open_segment(base) for base in sorted(logs)]
        segments = self._without_empty_segments(segments)
        for segment, after in pairwise(segments):
            segment.end_offset = after.base_offset
        return segments

    def _open_segment(self, base_offset: int, suffix: str = "") -> Segment:
        segment = Segment.open(self._fs, self._directory, base_offset, self._config, suffix=suffix)
        self._on_failure.callback(segment.close_file)
        return segment

    def create_segment(self, base_offset: int) -> Segment:
        """The segment of a log that has none."""
        segment = Segment.create(self._fs, self._directory, base_offset, self._config, self._now_ms)
        self._on_failure.callback(segment.close_file)
        return segment

    def _without_empty_segments(self, segments: Sequence[Segment]) -> list[Segment]:
        """Remove the empty segments that a roll or a truncation left when the disk failed.

        Appends went on in the segment before such a one, perhaps beyond its base offset, and reads
        must not look for them in the empty one. A first segment that has lost all of its records
        stays: `recover` drops what comes after them, or the log would begin behind them.
        """
        kept: list[Segment] = []
        for index, segment in enumerate(segments):
            if segment.size_bytes or self._may_be_empty(kept, segments[index:]):
                kept.append(segment)
            else:
                self._record_event("removed", segment.path(LOG_SUFFIX), "an empty segment")
                segment.remove()
        return kept

    def _may_be_empty(self, before: Sequence[Segment], rest: Sequence[Segment]) -> bool:
        """Whether the first of the rest stays although it is empty."""
        if len(rest) == 1:
            return self._is_at_log_end(before, rest[0])
        return not before and self._has_lost_all(rest[0], rest[1])

    def _has_lost_all(self, first: Segment, after: Segment) -> bool:
        """Whether an empty first segment once had the records up to the next one."""
        offset = after.base_offset
        return (
            offset > max(self.recovery_point, self._checkpointed.log_start_offset)
            and offset > first.base_offset
            and not self._may_have_gap(first, after)
        )

    def _is_at_log_end(self, before: Sequence[Segment], segment: Segment) -> bool:
        """Whether an empty last segment begins where the one before it ends."""
        if not before:
            return True
        try:
            end_offset = before[-1].load_end_offset()
        except CorruptBatchError:
            return True  # `recover` finds where it ends
        if end_offset < segment.base_offset:
            return self._may_have_gap(before[-1], segment)
        return end_offset == segment.base_offset

    def _may_have_gap(self, before: Segment, after: Segment) -> bool:
        """Whether offsets missing between two segments are no sign of loss (rule 3)."""
        if not self._config.compact:
            return False
        checkpointed, offset = self._checkpointed, after.base_offset
        if checkpointed.recovery_point is None or not before.fits_offset(offset):
            return True
        return offset <= max(checkpointed.recovery_point, checkpointed.first_dirty_offset)

    def _restore_producers(
        self, segments: Sequence[Segment], log_start_offset: int, end_offset: int
    ) -> None:
        self.producers.restore(
            segments,
            log_start_offset,
            end_offset,
            self._now_ms,
            high_watermark=self._checkpointed.high_watermark or None,  # 0: no checkpoint has it
        )

    def recover(
        self, segments: list[Segment], log_start_offset: int, clean_shutdown: bool
    ) -> list[Segment]:
        """Find the log's end and rebuild what is in doubt; return the segments that stay."""
        first_doubtful = len(segments)
        if not clean_shutdown:
            first_doubtful = max(
                0, sum(segment.base_offset <= self.recovery_point for segment in segments) - 1
            )
        else:
            try:
                segments[-1].load_end_offset()
            except KafkaError as error:
                self._record_event(
                    "checked", segments[-1].path(LOG_SUFFIX), f"{error} after a clean stop"
                )
                first_doubtful = len(segments) - 1
        if self._epochs_lost:
            self._rebuild_epochs(segments[:first_doubtful])
        if first_doubtful == len(segments):
            self._forget_snapshots_after(segments[-1].end_offset)
            self._restore_producers(segments, log_start_offset, segments[-1].end_offset)
        else:
            self.repaired = True
            base_offset = segments[first_doubtful].base_offset
            self.leader_epochs.truncate_from_end(base_offset)  # from there on the batches count
            self._restore_producers(segments[:first_doubtful], log_start_offset, base_offset)
            segments = self._recover_from(segments, first_doubtful)
            self._forget_snapshots_after(segments[-1].end_offset)
        if segments[-1].end_offset < log_start_offset:
            self._record_event(
                "emptied",
                self._directory,
                f"the log ends at {segments[-1].end_offset}, before its start {log_start_offset}",
            )
            segments = self._start_over(segments, log_start_offset)
        self.producers.snapshots.remove_stray(segment.base_offset for segment in segments)
        return segments

    def _start_over(self, segments: Sequence[Segment], offset: int) -> list[Segment]:
        self.repaired = True
        for segment in reversed(segments):
            segment.remove()
        self.producers.forget(offset)
        self.leader_epochs.clear()
        return [self.create_segment(offset)]

    def _forget_snapshots_after(self, end_offset: int) -> None:
        if self.producers.snapshots.remove_after(end_offset):
            # A snapshot of lost records must not return at the next power cut.
            self._fs.sync_directory(self._directory)

    def _rebuild_epochs(self, segments: Sequence[Segment]) -> None:
        """Take the epochs from the batches of segments that need no recovery otherwise."""
        for segment in segments:
            try:
                for batch in segment.log_file.scan():
                    self._note_epoch(batch.header.partition_leader_epoch, batch.header.base_offset)
            except KafkaError as error:
                self._record_event(
                    "skipped", segment.path(LOG_SUFFIX), f"{error}, looking for epochs"
                )

    def _note_epoch(self, epoch: int, base_offset: int) -> None:
        if epoch > self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(epoch, base_offset)

    def _recover_from(self, segments: list[Segment], first: int) -> list[Segment]:
        """Check every batch from segment `first` on; truncate and drop from the first bad one."""
        for index in range(first, len(segments)):
            segment = segments[index]
            reason = self._recover_segment(segment)
            is_last = index == len(segments) - 1
            if reason is None and not is_last:
                after = segments[index + 1]
                if segment.end_offset != after.base_offset and (
                    segment.end_offset > after.base_offset or not self._may_have_gap(segment, after)
                ):
                    reason = f"records {segment.end_offset}..{after.base_offset - 1} are lost"
            if reason is not None and not is_last:
                for dropped in reversed(segments[index + 1 :]):
                    self._record_event(
                        "dropped", dropped.path(LOG_SUFFIX), f"after lost data: {reason}"
                    )
                    dropped.remove()
                return segments[: index + 1]
            if not is_last:
                segment.end_offset = segments[index + 1].base_offset
        return segments

    def _check_epoch(self, header: BatchHeader) -> None:
        """Raise CorruptBatchError where the leader epoch falls: a truncation was lost (rule 4)."""
        epoch = header.partition_leader_epoch
        if 0 <= epoch < self._newest_epoch:
            raise CorruptBatchError(
                f"leader epoch {epoch} at offset {header.base_offset} follows {self._newest_epoch}"
            )
        self._newest_epoch = epoch

    def _recover_segment(self, segment: Segment) -> str | None:
        """Check one segment and rebuild its indexes; truncate it before a bad batch and say why."""
        segment.indexes.reset()
        segment.indexes.transactions.reset()
        position, end_offset, reason = 0, segment.base_offset, None
        try:
            for batch in segment.log_file.scan(check_crc=True):
                header = batch.header
                self._check_epoch(header)
                marker = read_end_transaction_marker(batch.buffer, header)
                segment.indexes.note_batch(header, batch.position)
                self._note_epoch(header.partition_leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    record_producer(self.producers.state, segment, header, marker, self._now_ms)
                position = batch.position + header.size_bytes
                end_offset = header.next_offset
        except KafkaError as error:
            reason = str(error)
            lost = segment.size_bytes - position
            self._record_event(
                "truncated",
                segment.path(LOG_SUFFIX),
                f"{lost} bytes from position {position} (offset {end_offset}) on: {reason}",
            )
            segment.truncate_to_position(position, end_offset)
        segment.end_offset = end_offset
        segment.on_become_inactive()  # the last time index entry, as after a clean stop
        self.producers.state.map_end_offset = end_offset
        return reason
