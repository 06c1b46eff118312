"""What is done to the logs from time to time, in virtual time, with the thread's work in place."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import trio
import trio.testing

from kraftrio.base.clock import Clock
from kraftrio.base.statistics import HasStatistics
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_dirs import LogDirError
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.upkeep.maintenance import LogMaintenance
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import NOW_MS, batch, load_all
from tests.support.memory_files import MemoryFileSystem

RECOVERY_POINTS = "/data/recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "/data/replication-offset-checkpoint"


class VirtualClock(Clock):
    """The wall clock goes with Trio's, which a mock clock drives."""

    __slots__ = ("_start_s",)

    def __init__(self) -> None:
        self._start_s = trio.current_time()

    def wall_ms(self) -> int:
        return NOW_MS + int((trio.current_time() - self._start_s) * 1000)


class Maintained:
    """One log directory under maintenance."""

    def __init__(self, **settings: str) -> None:
        self.fs = MemoryFileSystem()
        self.config = BrokerConfig.load(None, settings, {}, host_name=lambda: "h")
        self.logs = LogManager(self.fs, ["/data"], new_id=lambda: b"d" * 16)
        load_all(self.logs, self.logs.start("AAAAAAAAAAAAAAAAAAAAAQ", 1), NOW_MS)
        self.jobs = 0
        self.maintenance = LogMaintenance(
            self.logs, VirtualClock(), lambda: self.config, self.run_in_place
        )

    async def run_in_place(self, work: Callable[[], object]) -> None:
        await trio.lowlevel.checkpoint()
        self.jobs += 1
        work()

    def add(self, **config: object) -> PartitionLog:
        log = self.logs.get_or_create_log(
            TopicPartition("t", 0),
            b"t" * 16,
            LogConfig(**config),  # type: ignore[arg-type]
            NOW_MS,
        )
        for _ in range(10):
            log.append_as_leader(batch(b"v" * 40), 0, NOW_MS)
        log.update_high_watermark(log.log_end_offset)
        return log

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.maintenance.run()


async def test_flushes_by_time_and_saves_the_checkpoints(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """flush.ms makes records durable; the recovery point follows, then the checkpoint files."""
    context = Maintained(**{"log.flush.offset.checkpoint.interval.ms": "5000"})
    log = context.add(flush_ms=1000)
    assert log.recovery_point == 0
    await context.run_for(4)
    assert log.recovery_point == 10
    await context.run_for(6)
    assert context.fs.read_file(RECOVERY_POINTS) == b"0\n1\nt 0 10\n"
    assert context.fs.read_file(HIGH_WATERMARKS) == b"0\n1\nt 0 10\n"
    assert context.jobs >= 3


async def test_closed_segments_are_flushed_soon(autojump_clock: trio.testing.MockClock) -> None:
    """A segment that was rolled is made durable without flush.ms."""
    context = Maintained()
    log = context.add(segment_bytes=300)
    await context.run_for(2)
    assert log.recovery_point == log.segments[-1].base_offset > 0


async def test_retention_deletes_what_is_too_old(autojump_clock: trio.testing.MockClock) -> None:
    context = Maintained(**{"log.retention.check.interval.ms": "10000"})
    log = context.add(segment_bytes=300, retention_ms=60_000)
    await context.run_for(50)
    assert log.log_start_offset == 0
    await context.run_for(30)
    assert log.log_start_offset == 10


@pytest.mark.parametrize(
    ("settings", "first_s"),
    [
        ({}, 30),
        ({"log.initial.task.delay.ms": "5000"}, 5),
        ({"log.retention.check.interval.ms": "10000"}, 10),
    ],
    ids=str,
)
async def test_retention_begins_soon_after_the_start(
    autojump_clock: trio.testing.MockClock, settings: dict[str, str], first_s: float
) -> None:
    """A disk that is full when the broker starts is not so until the first interval is over."""
    context = Maintained(**settings)
    log = context.add(segment_bytes=300, retention_ms=1)
    await context.run_for(first_s - 1)
    assert log.log_start_offset == 0
    await context.run_for(first_s + 1)
    assert log.log_start_offset == 10


async def test_deleted_files_go_once_their_delay_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Their room is wanted back; the next look for expired records may be long after."""
    context = Maintained()  # looks after 30 s, then every 5 minutes
    context.add(segment_bytes=300, retention_ms=1, file_delete_delay_ms=60_000)
    deleted = TopicPartition("u", 0)
    config = LogConfig(file_delete_delay_ms=20_000)
    context.logs.get_or_create_log(deleted, b"u" * 16, config, NOW_MS)
    context.logs.delete_log(deleted, NOW_MS)

    def waiting() -> tuple[bool, bool]:
        paths = list(context.fs.files)
        return any(p.endswith(".deleted") for p in paths), any("-delete/" in p for p in paths)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(context.maintenance.run)
        await trio.sleep(19)
        assert waiting() == (False, True)
        await trio.sleep(12)
        assert waiting() == (True, False)
        await trio.sleep(61)
        assert waiting() == (False, False)
        nursery.cancel_scope.cancel()


async def test_the_last_directory_that_fails_ends_the_maintenance(
    autojump_clock: trio.testing.MockClock,
) -> None:
    context = Maintained()
    log = context.add(flush_ms=1000)
    context.fs.fail("sync", ".log", errno.EIO)
    with pytest.raises(ExceptionGroup) as caught:
        await context.run_for(60)
    assert caught.group_contains(LogDirError, match="no log directory is online")
    assert context.logs.get_log(log.topic_partition) is None


async def test_idle_producers_expire_by_the_settings_of_now(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """producer.id.expiration.ms may change while the broker runs; the check has its interval."""
    context = Maintained(**{"producer.id.expiration.check.interval.ms": "5000"})
    log = context.add()
    records = batch(b"v", producer_id=7, producer_epoch=0, sequence=0)
    log.append_as_leader(records, 0, NOW_MS)
    await context.run_for(30)
    assert log.producer_state.get(7) is not None
    context.config = context.config.with_overrides({"producer.id.expiration.ms": "20000"})
    await context.run_for(4)
    assert log.producer_state.get(7) is not None
    await context.run_for(6)
    assert log.producer_state.get(7) is None
    assert context.logs.factory.resources.producer_id_expiration_ms == 20_000


@pytest.mark.parametrize(
    "interval",
    [
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "replica.high.watermark.checkpoint.interval.ms",
    ],
)
async def test_checkpoints_come_as_often_as_the_shortest_interval(
    autojump_clock: trio.testing.MockClock, interval: str
) -> None:
    """Each of the three intervals counts."""
    longer = {
        "log.flush.offset.checkpoint.interval.ms": "90000",
        "log.flush.start.offset.checkpoint.interval.ms": "90000",
        "replica.high.watermark.checkpoint.interval.ms": "90000",
    }
    context = Maintained(**(longer | {interval: "1000"}))
    context.add()
    await context.run_for(2)
    assert context.fs.exists(HIGH_WATERMARKS)


async def test_the_work_is_counted(autojump_clock: trio.testing.MockClock) -> None:
    context = Maintained(
        **{
            "log.flush.offset.checkpoint.interval.ms": "5000",
            "log.retention.check.interval.ms": "10000",
        }
    )
    context.add(segment_bytes=300, retention_ms=1000)
    shell: HasStatistics = context.maintenance
    assert set(shell.statistics().values()) == {0}
    await context.run_for(15)
    figures = shell.statistics()
    assert figures["flushes_total"] >= 1 and figures["checkpoint_writes_total"] >= 2
    assert figures["segments_deleted_total"] >= 2
    assert figures["logs_cleaned_total"] == 0
