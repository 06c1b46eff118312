"""A share partition while its partition is led here: the shell of the core `SharePartition`.

Owns the core, its one write under way, the timer of its locks, and the fetches that wait for it.
Rules
1. It belongs to one leader epoch of one replica. When that ends it ends, too, and the next fetch
   makes another one, which loads what was kept. So it does when a write is fenced, or its group is
   gone.
2. Writes go out one at a time; what changes meanwhile goes with the next. Who acknowledges is
   answered when the write that has its records has ended.
3. Nothing is acquired before it is loaded, beyond the high watermark, or (read_committed) beyond
   the last stable offset.

Owned by `SharePartitions`; asked by the handlers of ShareFetch and ShareAcknowledge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import log_event
from kraftrio.base.timers import Timer, Timers
from kraftrio.broker.coordinator.groups.properties import GroupSettingsPort
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.replica_reads import ReplicaReads
from kraftrio.broker.replica.waiting.waiters import FetchWaiter
from kraftrio.broker.share.initial_offset import initial_offset
from kraftrio.broker.share.ports import ShareState
from kraftrio.broker.share.read_batches import ReadBatches
from kraftrio.broker.share.state.acknowledgement import AcknowledgedBatch
from kraftrio.broker.share.state.acquisition import Demand
from kraftrio.broker.share.state.share_partition import (
    AcquiredRange,
    ShareLimits,
    SharePartition,
    StateWrite,
)
from kraftrio.broker.share.waiting import Turns
from kraftrio.broker.share_state import (
    NO_START_OFFSET,
    SharePartitionKey,
    SharePartitionState,
    ShareStateWrite,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.stored_bytes import Piece

_log = logging.getLogger("kraftrio.share")

_READS_AT_ONCE: Final = 8  # of what turns out to be aborted or gone

_NOT_COORDINATED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_GONE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def error_of_state(code: ErrorCode) -> KafkaError:
    """What an error of a share partition's state means to its members."""
    if code in _NOT_COORDINATED:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return KafkaError(code if code in _GONE else ErrorCode.UNKNOWN_SERVER_ERROR)


@dataclass(frozen=True, slots=True)
class ShareServices:
    """What share partitions use of the broker."""

    state: ShareState
    settings: GroupSettingsPort
    reads: ReplicaReads
    disk_errors: DiskErrors
    timers: Timers
    clock: Clock


class Taken(NamedTuple):
    """Records that a member has acquired, and the batches that they are in."""

    records: Piece
    ranges: Sequence[AcquiredRange]


_NOTHING: Final = Taken(b"", ())


class LedSharePartition:
    """See the module.

    Args:
        on_end: called once, when it has ended.

    Attributes:
        error: why it has ended.
        is_loaded: may records be acquired?
        turns: the requests that wait for it.
        may_rest: no member of its group is here; it ends when nothing is left to be done.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        services: ShareServices,
        on_end: Callable[[LedSharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.state.leader_epoch
        self.error: KafkaError | None = None
        self.is_loaded = False
        self.turns = Turns(self.has_records)
        self.may_rest = False
        self._services = services
        self._on_end = on_end
        self._core = SharePartition(self._limits)
        self._state_epoch = 0
        self._unanswered: list[Deferred[KafkaError | None]] = []  # acknowledged, not sent
        self._watch: FetchWaiter | None = None
        self._lock_timer: Timer | None = None
        self._lock_end_ms = 0.0

    def __repr__(self) -> str:
        group_id, index = self.key.group_id, self.key.partition
        return f"<LedSharePartition {group_id} {self.partition.topic_partition.topic}-{index}>"

    @property
    def core(self) -> SharePartition:
        """For those who look at it."""
        return self._core

    @property
    def is_current(self) -> bool:
        """Does this broker still lead the partition, in the same epoch?"""
        state = self.partition.state
        return self.error is None and state.is_leader and state.leader_epoch == self.leader_epoch

    def _limits(self) -> ShareLimits:
        settings, group_id = self._services.settings, self.key.group_id
        return ShareLimits(
            settings.number(group_id, "share.delivery.count.limit"),
            settings.number(group_id, "share.partition.max.record.locks"),
            settings.number(group_id, "share.record.lock.duration.ms"),
            settings.flag(group_id, "share.renew.acknowledge.enable"),
        )

    @property
    def _reads_committed(self) -> bool:
        level = self._services.settings.text(self.key.group_id, "share.isolation.level")
        return level == "read_committed"

    # -- load and end -----------------------------------------------------------------------------

    def load(self) -> None:
        """Begin to read what was kept."""
        self._services.state.read(self.key, self.leader_epoch).then(self._on_read)

    def _on_read(self, kept: SharePartitionState | KafkaError) -> None:
        if not self.is_current:
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        if isinstance(kept, KafkaError):
            self.end(error_of_state(kept.code))
            return
        self._state_epoch = kept.state_epoch
        try:
            start_offset = kept.start_offset
            if start_offset == NO_START_OFFSET:
                start_offset = self._initial_offset()
            self._core.load(start_offset, kept.batches)
        except KafkaError as error:
            self.end(error)
            return
        except ValueError as error:
            self._log_failure("state of share partition is unusable", str(error))
            self.end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self.is_loaded = True
        self._core.on_log_start(self.partition.log.log_start_offset)
        self._on_change()

    def _initial_offset(self) -> int:
        services = self._services
        reset = services.settings.text(self.key.group_id, "share.auto.offset.reset")
        return initial_offset(self.partition, reset, services.reads, services.clock.wall_ms())

    def end(self, error: KafkaError) -> None:
        """It serves no requests any more."""
        if self.error is not None:
            return
        self.error = error
        if self._lock_timer is not None:
            self._lock_timer.cancel()
        self._drop_watch()
        unanswered, self._unanswered = self._unanswered, []
        for answer in unanswered:
            answer.complete(error)
        self._on_end(self)
        self.turns.wake_all()

    # -- records ----------------------------------------------------------------------------------

    def _readable_end(self, reads_committed: bool) -> int:
        partition = self.partition
        if reads_committed:
            return partition.log.last_stable_offset
        return partition.state.high_watermark

    def has_records(self) -> bool:
        """Is there anything to be acquired now?"""
        core = self._core
        return (
            self.is_loaded
            and self.error is None
            and core.can_acquire()
            and core.next_fetch_offset() < self._readable_end(self._reads_committed)
        )

    def readable_bytes(self, max_bytes: int) -> int:
        """About how many bytes of records are there to be acquired, up to a limit.

        Raises:
            KafkaError: the disk fails.
        """
        return len(self._read(max_bytes, 0, min_one_batch=True)[0]) if self.has_records() else 0

    def _read(self, max_bytes: int, hold_bytes: int, *, min_one_batch: bool) -> tuple[Piece, int]:
        """Read from where there is something to be acquired; return what, and what follows it."""
        partition = self.partition
        offset, log = self._core.next_fetch_offset(), partition.log
        end = self._readable_end(self._reads_committed)
        if offset >= end:
            return b"", offset
        with self._services.disk_errors.guard("read", partition):
            return log.read_lazily(
                offset, max_bytes, hold_bytes, max_offset=end, min_one_batch=min_one_batch
            )

    def take(
        self, demand: Demand, max_bytes: int, hold_bytes: int, *, min_one_batch: bool
    ) -> Taken:
        """Let a member acquire what there is.

        Args:
            hold_bytes: more than this is only named, to be read when it is sent.
            min_one_batch: the first batch may be larger than `max_bytes`.

        Raises:
            KafkaError: the disk fails, or a batch is damaged.
        """
        core = self._core
        taken = _NOTHING
        if not self.is_loaded or self.error is not None:
            return taken
        core.on_log_start(self.partition.log.log_start_offset)
        try:
            for _ in range(_READS_AT_ONCE):
                if not core.can_acquire():
                    break
                offset = core.next_fetch_offset()
                records, next_offset = self._read(
                    max_bytes, hold_bytes, min_one_batch=min_one_batch
                )
                if not records:
                    break
                taken = self._acquire(demand, offset, records, next_offset)
                if taken.ranges or core.next_fetch_offset() == offset:
                    break
        finally:
            self._on_change()
        return taken

    def _acquire(self, demand: Demand, offset: int, records: Piece, next_offset: int) -> Taken:
        log = self.partition.log
        with self._services.disk_errors.guard("read", self.partition):
            aborted = log.aborted_transactions(offset, next_offset) if self._reads_committed else ()
            batches = ReadBatches(records, next_offset, aborted)
            now_ms = self._services.clock.monotonic_ms()
            ranges = self._core.acquire(demand, offset, batches, now_ms)
            if not ranges:
                return _NOTHING
            return Taken(batches.part_with(ranges[0].first_offset, ranges[-1].last_offset), ranges)

    # -- what members say -------------------------------------------------------------------------

    def check(self, member_id: str, batches: Sequence[AcknowledgedBatch]) -> None:
        """Look whether a member may say this of its records; nothing changes.

        Raises:
            KafkaError: it cannot be: INVALID_RECORD_STATE, say.
        """
        self._core.check(member_id, batches)

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgedBatch]
    ) -> Deferred[KafkaError | None]:
        """Take what a member says of its records; None: it counts.

        Raises:
            KafkaError: it cannot be: INVALID_RECORD_STATE, say.
        """
        now_ms = self._services.clock.monotonic_ms()
        is_changed = self._core.acknowledge(member_id, batches, now_ms)
        return self._answer_when_written(is_changed)

    def release(self, member_id: str) -> Deferred[KafkaError | None]:
        """Take back what a member has."""
        return self._answer_when_written(self._core.release(member_id))

    def _answer_when_written(self, is_changed: bool) -> Deferred[KafkaError | None]:
        answer: Deferred[KafkaError | None] = Deferred()
        if is_changed:
            self._unanswered.append(answer)
        else:
            answer.complete(None)
        self._on_change()
        return answer

    # -- writes -----------------------------------------------------------------------------------

    def _write(self) -> None:
        """Have what has changed kept, unless something is being written."""
        write = None if self.error is not None else self._core.next_write()
        if write is None:
            return
        answers, self._unanswered = self._unanswered, []
        self._services.state.write(
            self.key,
            ShareStateWrite(
                self._state_epoch,
                self.leader_epoch,
                write.start_offset,
                write.delivery_complete_count,
                write.batches,
            ),
        ).then(partial(self._on_written, write, answers))

    def _on_written(
        self, write: StateWrite, answers: Sequence[Deferred[KafkaError | None]], code: ErrorCode
    ) -> None:
        now_ms = self._services.clock.monotonic_ms()
        self._core.on_written(write, now_ms, succeeded=code is ErrorCode.NONE)
        error = None if code is ErrorCode.NONE else error_of_state(code)
        for answer in answers:
            answer.complete(error)
        if error is None:
            self._on_change()
        elif code in _FENCED or code in _GONE:
            self.end(error)
        else:
            # What members asked for has not happened. What has, is written with the next change.
            self._log_failure("state of share partition was not kept", code.name)
            self._schedule_lock_end()
            self.turns.on_change()

    def _log_failure(self, event: str, reason: str) -> None:
        topic, index = self.partition.topic_partition
        group_id = self.key.group_id
        log_event(
            _log,
            logging.WARNING,
            event,
            partition=f"{topic}-{index}",
            group=group_id,
            reason=reason,
        )

    # -- changes ----------------------------------------------------------------------------------

    def _on_change(self) -> None:
        """Something has changed: see what follows."""
        if self.error is not None:
            return
        self._write()
        self._schedule_lock_end()
        self.turns.on_change()
        if self.may_rest:
            self.rest()

    def rest(self) -> None:
        """No member of the group is here: end, once nothing is left to be done."""
        self.may_rest = True
        if self.is_loaded and self._core.is_at_rest:
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def watch(self) -> None:
        """Be notified of records to come, as long as a fetch waits for them."""
        if self._watch is not None or self.error is not None:
            return
        partition = self.partition
        if self._reads_committed:
            waiters = partition.stable_waiters.from_offset(partition.log.last_stable_offset)
        else:
            waiters = partition.fetch_waiters
        self._watch = watch = FetchWaiter(1)
        watch.watch([waiters])
        watch.woken.then(lambda _: self._on_log(watch))

    def _drop_watch(self) -> None:
        if self._watch is not None:
            self._watch.drop()
            self._watch = None

    def _on_log(self, watch: FetchWaiter) -> None:
        """The log has more records, or is not led here any more."""
        if self._watch is not watch:
            return
        self._watch = None
        if not self.is_current:
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        self.turns.on_change()
        if len(self.turns):
            self.watch()

    def _schedule_lock_end(self) -> None:
        end_ms = self._core.next_lock_end_ms()
        timer = self._lock_timer
        is_pending = timer is not None and timer.pending
        if end_ms is None or (is_pending and self._lock_end_ms <= end_ms):
            return
        if timer is not None:
            timer.cancel()
        self._lock_end_ms = end_ms
        delay_ms = end_ms - self._services.clock.monotonic_ms()
        self._lock_timer = self._services.timers.schedule(delay_ms, self._end_locks)

    def _end_locks(self) -> None:
        self._lock_timer = None
        self._core.end_locks(self._services.clock.monotonic_ms())
        self._on_change()
