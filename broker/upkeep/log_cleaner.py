"""The task that compacts logs: picks the dirtiest, has a thread do the work, swaps the result in.

The rules of compaction are in `log/cleaner/`; this is its shell. The thread is the port
`run_in_thread`: a simulation does the work in place, and then without rests. One log is cleaned at
a time, as more threads of Python would only take turns; then the checkpoint is written.
log.cleaner.enable turns it off, log.cleaner.backoff.ms is the pause when there is nothing to clean
(a change of settings ends it),
log.cleaner.dedupe.buffer.size (times its load factor) bounds the memory,
log.cleaner.io.max.bytes.per.second the speed.

Failures
- A log that changed meanwhile: the copy is dropped, and the log is considered again later.
- A damaged batch: the log is left alone until the broker restarts.
- No space: the log is left alone for a while; its segments are as they were.
- Any other fault of the disk: the log directory goes offline, as after a failed write elsewhere.

Called by `upkeep/maintenance`.
"""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Callable
from functools import partial

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.no_room import NO_ROOM
from kraftrio.base.statistics import Statistics
from kraftrio.base.threads import RunInThread, run_in_worker_thread
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.cleaner.cleaner import CleaningAborted, CleaningRun
from kraftrio.broker.log.cleaner.pace import CleanerPace
from kraftrio.broker.log.cleaner.plan import CleaningTarget, dirtiest
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.wire.errors import KafkaError
from kraftrio.wire.primitives import TopicPartition

_log = logging.getLogger("kraftrio.cleaner")

_PUT_OFF_MS = 300_000
_MIN_BACKOFF_S = 0.01
_SETTINGS_POLL_S = 1.0


class LogCleaner:
    """Compacts the logs of one broker.

    Args:
        is_moving: is the log being copied to another directory? Then it is not compacted: the copy
            could keep a record whose tombstone is gone before it is copied.
    """

    def __init__(
        self,
        log_manager: LogManager,
        clock: Clock,
        settings: Callable[[], BrokerConfig],
        run_in_thread: RunInThread = run_in_worker_thread,
        is_moving: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        self._logs = log_manager
        self._clock = clock
        self._settings = settings
        self._run_in_thread = run_in_thread
        self._is_moving = is_moving
        self._put_off: dict[PartitionLog, float] = {}
        self._cleaned_count = 0
        self._busy_ms = 0.0
        self._read_bytes = 0
        self._written_bytes = 0

    def statistics(self) -> Statistics:
        """How much was compacted, and what cannot be."""
        return {
            "logs_cleaned_total": self._cleaned_count,
            "cleaner_busy_ms_total": self._busy_ms,
            "cleaner_read_bytes_total": self._read_bytes,
            "cleaner_written_bytes_total": self._written_bytes,
            "uncleanable_partitions": sum(until == math.inf for until in self._put_off.values()),
        }

    async def run(self) -> None:
        """Clean what needs it, until cancelled."""
        while True:
            settings = self._settings()
            is_on = settings.log_cleaner_enable and settings.log_cleaner_threads > 0
            if not (is_on and await self.clean_next()):
                await self._back_off(settings)

    async def _back_off(self, settings: BrokerConfig) -> None:
        """Wait for log.cleaner.backoff.ms, or until the settings change: they may want a look."""
        wait_s = max(settings.log_cleaner_backoff_ms / 1000, _MIN_BACKOFF_S)
        until_s = trio.current_time() + wait_s
        while wait_s > 0 and self._settings() is settings:
            await trio.sleep(min(wait_s, _SETTINGS_POLL_S))
            wait_s = until_s - trio.current_time()

    async def clean_next(self) -> bool:
        """Clean the dirtiest log; False when none needs it."""
        now_ms = self._clock.wall_ms()
        compacted = [log for log in self._logs.logs() if log.config.compact]
        for log in compacted:
            # Also the segments before the log's start, and what waits as `.deleted`.
            self._logs.retain_log(log, now_ms)
        present = set(compacted)
        self._put_off = {
            log: until for log, until in self._put_off.items() if log in present and until > now_ms
        }
        target = dirtiest(
            (
                log
                for log in compacted
                if log not in self._put_off and not self._is_moving(log.topic_partition)
            ),
            now_ms,
        )
        if target is None:
            await self._save_offsets()
            return False
        await self._clean(target, now_ms)
        return True

    async def _clean(self, target: CleaningTarget, now_ms: int) -> None:
        log, settings = target.log, self._settings()
        try:
            run = CleaningRun(
                self._logs.fs,
                target,
                now_ms,
                map_bytes=int(
                    settings.log_cleaner_dedupe_buffer_size
                    * settings.log_cleaner_io_buffer_load_factor
                ),
                pace=CleanerPace(
                    time.perf_counter, _rest, settings.log_cleaner_io_max_bytes_per_second
                ),
            )
            began_ms = self._clock.monotonic_ms()
            try:
                await self._steps(run)
            finally:
                run.discard()
                self._busy_ms += self._clock.monotonic_ms() - began_ms
        except CleaningAborted:
            _log.info("cleaning aborted partition=%s", log.topic_partition)
            # Whatever changed may go on changing: do not spin.
            self._put_off[log] = now_ms + settings.log_cleaner_backoff_ms
        except KafkaError as error:
            self._put_off[log] = math.inf
            _log.error("cannot be cleaned partition=%s reason=%s", log.topic_partition, error)
        except OSError as error:
            if error.errno in NO_ROOM:
                self._put_off[log] = now_ms + _PUT_OFF_MS
                _log.warning(
                    "cleaning postponed partition=%s reason=%s", log.topic_partition, error
                )
            else:
                self._logs.fail_log(log, error)
        else:
            self._cleaned_count += 1
            self._read_bytes += run.bytes_before
            self._written_bytes += run.bytes_after
            _log.info(
                "cleaned partition=%s end_offset=%d bytes=%d->%d",
                log.topic_partition,
                run.end_offset,
                run.bytes_before,
                run.bytes_after,
            )
            await self._save_offsets()

    async def _steps(self, run: CleaningRun) -> None:
        await self._in_thread(run, run.build_map)
        while run.next_group():
            await self._in_thread(run, run.clean_group)
            if self._is_moving(run.log.topic_partition):
                raise CleaningAborted(f"{run.log.topic_partition} moves to another directory")
            try:
                run.swap(self._clock.wall_ms())
            except OSError as error:
                # Even with a full disk: the files are half renamed, a restart must sort them out.
                self._logs.fail_log(run.log, OSError(errno.EIO, f"swap of segments: {error}"))
                raise CleaningAborted(f"swap in {run.log.topic_partition}") from error
        await self._in_thread(run, run.sync)
        run.complete()

    async def _in_thread(self, run: CleaningRun, work: Callable[[], object]) -> None:
        try:
            await self._run_in_thread(work)
        except OSError:
            run.check_segments()  # a file that is gone is no fault if its segment is gone too
            raise

    async def _save_offsets(self) -> None:
        for checkpoint in self._logs.checkpoints.stale_cleaner_offsets():
            try:
                await self._run_in_thread(partial(self._logs.checkpoints.write, checkpoint))
            except OSError as error:
                self._logs.fail_dir(checkpoint.log_dir, error)


def _rest(seconds: float) -> None:
    """Let the event loop have the interpreter; the thread ends here once the broker stops."""
    if trio.lowlevel.in_trio_run():
        return  # done in place: no other task would run meanwhile, and time may be virtual
    trio.from_thread.check_cancelled()
    time.sleep(seconds)
