"""Periodic work on the logs: flushing, checkpoints, retention, the removal of deleted files,
compaction, expiry of producers.

What syncs files runs in a worker thread (the port `run_in_thread`; a simulation runs it in place),
one at a time, so that the event loop goes on; the rest is quick and runs on the loop.

Called by `node/broker_role`, as one task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.statistics import Statistics
from kraftrio.base.threads import RunInThread, run_in_worker_thread
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.manager.log_dirs import LogDirError
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.upkeep.log_cleaner import LogCleaner
from kraftrio.wire.primitives import TopicPartition

_MAX_FLUSH_POLL_MS = 1000
_REMOVAL_POLL_MS = 1000
_MIN_SLEEP_S = 0.01


class LogMaintenance:
    """Keeps the logs of one broker tidy (`is_moving`: see `LogCleaner`)."""

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
        self._cleaner = LogCleaner(log_manager, clock, settings, run_in_thread, is_moving)
        self._flush_count = 0
        self._checkpoint_count = 0
        self._deleted_segment_count = 0

    def statistics(self) -> Statistics:
        """How often each kind of work was done, and what the cleaner did."""
        return {
            "flushes_total": self._flush_count,
            "checkpoint_writes_total": self._checkpoint_count,
            "segments_deleted_total": self._deleted_segment_count,
            **self._cleaner.statistics(),
        }

    async def run(self) -> None:
        """Do all of it, each at its interval, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._every, self._flush_interval_ms, self._flush)
            nursery.start_soon(self._every, self._checkpoint_interval_ms, self._checkpoint)
            nursery.start_soon(
                self._every, self._retention_interval_ms, self._retain, self._first_retention_ms
            )
            nursery.start_soon(self._every, lambda: _REMOVAL_POLL_MS, self._remove)
            nursery.start_soon(self._cleaner.run)
            nursery.start_soon(self._every, self._expiry_interval_ms, self._expire)

    async def _every(
        self,
        interval_ms: Callable[[], float],
        work: Callable[[], Awaitable[None]],
        first_ms: Callable[[], float] | None = None,
    ) -> None:
        wait_ms = first_ms or interval_ms
        while True:
            await trio.sleep(max(wait_ms() / 1000, _MIN_SLEEP_S))
            wait_ms = interval_ms
            await work()
            if not any(log_dir.is_online for log_dir in self._logs.dirs):
                raise LogDirError(
                    f"no log directory is online any more: {self._logs.dirs.describe_failures()}"
                )

    def _flush_interval_ms(self) -> float:
        return min(self._settings().log_flush_scheduler_interval_ms, _MAX_FLUSH_POLL_MS)

    def _checkpoint_interval_ms(self) -> float:
        settings = self._settings()
        return min(
            settings.log_flush_offset_checkpoint_interval_ms,
            settings.log_flush_start_offset_checkpoint_interval_ms,
            settings.replica_high_watermark_checkpoint_interval_ms,
        )

    def _retention_interval_ms(self) -> float:
        return self._settings().log_retention_check_interval_ms

    def _first_retention_ms(self) -> float:
        """Soon: a broker that starts with a full disk, or often, must get rid of old records."""
        return min(self._settings().log_initial_task_delay_ms, self._retention_interval_ms())

    def _expiry_interval_ms(self) -> float:
        return self._settings().producer_id_expiration_check_interval_ms

    async def _flush(self) -> None:
        for log in self._logs.flushes.logs_to_flush(self._clock.wall_ms()):
            full = self._logs.flushes.needs_full_flush(log, self._clock.wall_ms())
            try:
                await self._run_in_thread(
                    log.flush if full else log.durability.flush_closed_segments
                )
            except OSError as error:
                self._logs.fail_log(log, error)
                continue
            self._flush_count += 1
            self._logs.flushes.on_flushed(log, self._clock.wall_ms())

    async def _checkpoint(self) -> None:
        for checkpoint in self._logs.checkpoints.stale():
            try:
                await self._run_in_thread(partial(self._logs.checkpoints.write, checkpoint))
            except OSError as error:
                self._logs.fail_dir(checkpoint.log_dir, error)
            else:
                self._checkpoint_count += 1

    async def _retain(self) -> None:
        self._deleted_segment_count += self._logs.retain(self._clock.wall_ms())

    async def _remove(self) -> None:
        self._logs.remove_deleted(self._clock.wall_ms())

    async def _expire(self) -> None:
        now_ms = self._clock.wall_ms()
        expiration_ms = self._settings().producer_id_expiration_ms
        # Logs that are opened later take it from the factory.
        self._logs.factory.resources.producer_id_expiration_ms = expiration_ms
        for log in self._logs.logs():
            log.producer_state.producer_id_expiration_ms = expiration_ms
            log.producer_state.expire(now_ms)
