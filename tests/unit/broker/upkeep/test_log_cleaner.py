"""The cleaner's shell: which log, what is saved, and what happens when something goes wrong."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable

import trio
import trio.testing

from kraftrio.base.clock import Clock
from kraftrio.base.threads import RunInThread, run_in_worker_thread
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.upkeep.log_cleaner import LogCleaner
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import NOW_MS, batch, load_all, records_of
from tests.support.memory_files import MemoryFile, MemoryFileSystem

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
CHECKPOINT = "/data/cleaner-offset-checkpoint"


class WatchedFileSystem(MemoryFileSystem):
    """Calls `on_copy` on the event loop when the cleaner's thread starts a copy."""

    on_copy: Callable[[], None] | None = None

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        if create and path.endswith(".timeindex.cleaned") and self.on_copy is not None:
            call, self.on_copy = self.on_copy, None
            trio.from_thread.run_sync(call)
        return file


class FixedClock(Clock):
    """Stands still unless told."""

    __slots__ = ("now_ms",)

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.now_ms


class CleanerContext:
    """Logs and their cleaner."""

    def __init__(self, **settings: str) -> None:
        self.fs = WatchedFileSystem()
        self.clock = FixedClock()
        self.run_in_thread: RunInThread = run_in_worker_thread
        self.config = BrokerConfig.load(None, settings, {}, host_name=lambda: "h")
        self.moving: set[str] = set()
        self._ids = itertools.count(1)
        self.start()

    def start(self) -> None:
        self.logs = LogManager(
            self.fs, ["/data"], new_id=lambda: next(self._ids).to_bytes(16, "big")
        )
        config = LogConfig(cleanup_policy="compact", segment_bytes=300)
        load_all(self.logs, self.logs.start(CLUSTER, 1), NOW_MS, config)
        self.cleaner = LogCleaner(
            self.logs,
            self.clock,
            lambda: self.config,
            lambda work: self.run_in_thread(work),
            lambda topic_partition: topic_partition.topic in self.moving,
        )

    def add(self, topic: str, count: int = 12, **config: object) -> PartitionLog:
        """A log with records of two keys."""
        settings = {"cleanup_policy": "compact", "segment_bytes": 300, **config}
        log = self.logs.get_or_create_log(
            TopicPartition(topic, 0),
            topic.encode().ljust(16),
            LogConfig(**settings),  # type: ignore[arg-type]
            NOW_MS,
        )
        for number in range(count):
            log.append_as_leader(batch(b"v" * 40, key=b"k%d" % (number % 2)), 0, NOW_MS)
        log.update_high_watermark(log.log_end_offset)
        return log

    def files(self, log: PartitionLog, *suffixes: str) -> list[str]:
        names = self.fs.list_directory(log.directory)
        return [name for name in names if name.endswith(suffixes)]


def count_of(log: PartitionLog) -> int:
    return sum(
        len(records_of(scanned.buffer[header.position : header.position + header.size_bytes]))
        for scanned in log.batches(0)
        for header in [scanned.header]
    )


async def test_cleans_what_is_due_and_saves_how_far() -> None:
    """One log a turn; the checkpoint is Kafka's, and the next start goes on from it."""
    context = CleanerContext()
    logs = [context.add("one"), context.add("two")]
    context.add("deleted", cleanup_policy="delete")
    context.add("small", count=1)
    assert await context.cleaner.clean_next()
    assert await context.cleaner.clean_next()
    assert not await context.cleaner.clean_next()
    assert [count_of(log) for log in logs] == [4, 4]  # two of them in the active segment
    assert context.fs.read_file(CHECKPOINT) == b"0\n2\none 0 10\ntwo 0 10\n"
    context.logs.release()
    context.start()
    log = context.logs.get_log(TopicPartition("one", 0))
    assert log is not None
    assert log.first_dirty_offset == 10
    assert count_of(log) == 4
    assert not await context.cleaner.clean_next()


async def test_checkpoint_follows_deletions_and_truncations() -> None:
    """The file says nothing of logs that are gone, nor of offsets that were cut."""
    context = CleanerContext()
    first, second = context.add("one"), context.add("two")
    while await context.cleaner.clean_next():
        continue
    context.logs.delete_log(first.topic_partition, NOW_MS)
    second.truncate_to(7)
    assert not await context.cleaner.clean_next()
    end = second.log_end_offset
    assert context.fs.read_file(CHECKPOINT) == b"0\n1\ntwo 0 %d\n" % end


async def test_old_files_go_after_their_delay() -> None:
    """What was compacted waits as `.deleted` for file.delete.delay.ms."""
    context = CleanerContext()
    log = context.add("one", file_delete_delay_ms=1000)
    await context.cleaner.clean_next()
    assert context.files(log, ".deleted")
    context.clock.now_ms += 999
    await context.cleaner.clean_next()
    assert context.files(log, ".deleted")
    context.clock.now_ms += 1
    await context.cleaner.clean_next()
    assert not context.files(log, ".deleted")


async def test_damaged_log_is_left_alone() -> None:
    """It keeps all it has; the others are cleaned."""
    context = CleanerContext()
    damaged, sound = context.add("damaged", count=20), context.add("sound")
    path = damaged.segments[0].path(".log")
    data = bytearray(context.fs.read_file(path))
    data[80] ^= 1
    context.fs.open(path).write_at(bytes(data), 0)
    assert await context.cleaner.clean_next()
    assert await context.cleaner.clean_next()
    assert not await context.cleaner.clean_next()
    assert damaged.first_dirty_offset == 0
    assert sound.first_dirty_offset == 10
    assert not context.files(damaged, ".cleaned", ".deleted")


async def test_full_disk_puts_a_log_off() -> None:
    """The log stays in service and is tried again after a while."""
    context = CleanerContext()
    log = context.add("one")
    context.fs.fail("write", ".cleaned", errno.ENOSPC)
    assert await context.cleaner.clean_next()
    assert not await context.cleaner.clean_next()
    assert context.logs.get_log(log.topic_partition) is log
    assert not context.files(log, ".cleaned")
    context.fs.heal()
    context.clock.now_ms += 300_000
    assert await context.cleaner.clean_next()
    assert log.first_dirty_offset == 10


async def test_broken_disk_takes_the_directory_offline() -> None:
    """Any other fault means the same as for appends and flushes."""
    context = CleanerContext()
    log = context.add("one")
    context.fs.fail("write", ".cleaned", errno.EIO)
    assert await context.cleaner.clean_next()
    assert context.logs.get_log(log.topic_partition) is None
    assert not context.logs.dirs[0].is_online


async def test_failing_swap_takes_the_directory_offline() -> None:
    """Half renamed files are for the next start to sort out, whatever the fault was."""
    context = CleanerContext()
    log = context.add("one")
    context.fs.fail("rename", ".log.swap", errno.ENOSPC)
    assert await context.cleaner.clean_next()
    assert context.logs.get_log(log.topic_partition) is None
    context.fs.heal()
    context.logs.release()
    context.start()
    found = context.logs.get_log(log.topic_partition)
    assert found is not None
    assert (found.log_end_offset, count_of(found)) == (12, 10)  # the first group was swapped


async def test_deletion_while_cleaning() -> None:
    """A topic that is deleted and made again meanwhile gets nothing of the old one."""
    context = CleanerContext()
    old = context.add("one")

    def delete_and_create() -> None:
        context.logs.delete_log(old.topic_partition, NOW_MS)
        context.add("one", count=2)

    context.fs.on_copy = delete_and_create
    assert await context.cleaner.clean_next()
    log = context.logs.get_log(old.topic_partition)
    assert log is not None
    assert (count_of(log), log.first_dirty_offset) == (2, 0)
    assert not context.files(log, ".cleaned", ".swap", ".deleted")
    assert all(log_dir.is_online for log_dir in context.logs.dirs)


async def test_retention_while_cleaning() -> None:
    """The copy of a segment that was deleted meanwhile is dropped."""
    context = CleanerContext()
    log = context.add("one", cleanup_policy="compact,delete", file_delete_delay_ms=0)

    def delete() -> None:
        log.delete_records_before(7)
        context.logs.retain_log(log, NOW_MS)

    context.fs.on_copy = delete
    assert await context.cleaner.clean_next()
    assert log.segments.first_base_offset >= 6
    assert not context.files(log, ".cleaned", ".swap", ".deleted")
    assert all(log_dir.is_online for log_dir in context.logs.dirs)


async def test_stop_while_cleaning() -> None:
    """A cancellation ends the task; the group that was under way is swapped or dropped."""
    context = CleanerContext()
    log = context.add("one")
    with trio.CancelScope() as scope:
        context.fs.on_copy = scope.cancel
        await context.cleaner.run()
    assert scope.cancelled_caught
    assert log.first_dirty_offset == 0
    # Dropped by the rest in which the thread met the cancellation; or done, by one group or two.
    assert count_of(log) in (12, 10, 4)
    assert not context.files(log, ".cleaned", ".swap")


async def test_cleaner_can_be_turned_off() -> None:
    """log.cleaner.enable=false, or no threads for it."""
    for name, value in (("log.cleaner.enable", "false"), ("log.cleaner.threads", "0")):
        context = CleanerContext(**{name: value, "log.cleaner.backoff.ms": "0"})
        log = context.add("one")
        with trio.move_on_after(0.05):
            await context.cleaner.run()
        assert log.first_dirty_offset == 0


async def test_changed_settings_end_the_pause(autojump_clock: trio.testing.MockClock) -> None:
    """Else a long log.cleaner.backoff.ms would hold up the shorter one that takes its place."""
    context = CleanerContext(**{"log.cleaner.backoff.ms": "3600000"})

    async def run_in_place(work: Callable[[], object]) -> None:
        await trio.lowlevel.checkpoint()
        work()

    context.run_in_thread = run_in_place
    async with trio.open_nursery() as nursery:
        nursery.start_soon(context.cleaner.run)
        await trio.sleep(5)
        log = context.add("one")
        await trio.sleep(1000)
        assert log.first_dirty_offset == 0
        context.config = context.config.with_overrides({"log.cleaner.backoff.ms": "15000"})
        await trio.sleep(2)
        assert log.first_dirty_offset == 10
        nursery.cancel_scope.cancel()


async def test_works_in_place_where_there_are_no_threads() -> None:
    """In a simulation: same result, and no rest however slow it ought to be."""
    context = CleanerContext(**{"log.cleaner.io.max.bytes.per.second": "1"})
    log = context.add("one")
    in_trio: list[bool] = []

    async def run_in_place(work: Callable[[], object]) -> None:
        await trio.lowlevel.checkpoint()
        work()
        in_trio.append(trio.lowlevel.in_trio_run())

    context.run_in_thread = run_in_place
    started_at = time.monotonic()
    assert await context.cleaner.clean_next()
    assert time.monotonic() - started_at < 5, "at one byte a second it would take minutes"
    assert (log.first_dirty_offset, count_of(log)) == (10, 4)
    assert context.fs.read_file(CHECKPOINT) == b"0\n1\none 0 10\n"
    assert all(in_trio)
    assert in_trio


async def test_a_log_that_moves_to_another_directory_is_left_alone() -> None:
    """Also when the move begins while it is cleaned: a copy must not miss a tombstone."""
    context = CleanerContext()
    log = context.add("moving")
    before = count_of(log)
    context.moving.add("moving")
    assert not await context.cleaner.clean_next()
    context.moving.clear()
    context.fs.on_copy = lambda: context.moving.add("moving")
    assert await context.cleaner.clean_next()
    assert (count_of(log), log.first_dirty_offset) == (before, 0)
    context.moving.clear()
    context.clock.now_ms += 100_000
    assert await context.cleaner.clean_next()
    assert count_of(log) < before


async def test_what_was_cleaned_and_cannot_be_is_counted() -> None:
    context = CleanerContext()
    context.add("one")
    while await context.cleaner.clean_next():
        continue
    figures = context.cleaner.statistics()
    assert (figures["logs_cleaned_total"], figures["uncleanable_partitions"]) == (1, 0)
    assert 0 < figures["cleaner_written_bytes_total"] < figures["cleaner_read_bytes_total"]
    damaged = context.add("two")
    segment = damaged.segments[0]
    file = context.fs.open(f"{damaged.directory}/{segment.base_offset:020d}.log")
    file.write_at(b"\xff" * 8, 70)
    while await context.cleaner.clean_next():
        continue
    assert context.cleaner.statistics()["uncleanable_partitions"] == 1
