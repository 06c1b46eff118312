"""When a log is flushed."""

from __future__ import annotations

from kraftrio.broker.log.manager.flush_schedule import FlushSchedule
from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_registry import LogRegistry
from kraftrio.broker.log.manager.offset_checkpoints import OffsetCheckpoints
from tests.support.logs import NOW_MS, TOPIC_PARTITION, LogContext


def schedule_of(context: LogContext) -> FlushSchedule:
    registry = LogRegistry()
    registry.add(context.log, LogDir("/logs", OffsetCheckpoints(context.fs, "/logs")))
    return FlushSchedule(registry)


def test_a_roll_makes_the_closed_segments_due() -> None:
    context = LogContext()
    flushes = schedule_of(context)
    context.append(b"a")
    assert flushes.logs_to_flush(NOW_MS) == []
    context.log.roll(NOW_MS)
    assert flushes.logs_to_flush(NOW_MS) == [context.log]
    assert not flushes.needs_full_flush(context.log, NOW_MS)
    context.log.durability.flush_closed_segments()
    assert flushes.logs_to_flush(NOW_MS) == []


def test_flush_ms_counts_from_the_first_look_and_from_each_flush() -> None:
    context = LogContext(flush_ms=1000)
    flushes = schedule_of(context)
    context.append(b"a")
    assert flushes.logs_to_flush(NOW_MS) == flushes.logs_to_flush(NOW_MS + 999) == []
    assert flushes.logs_to_flush(NOW_MS + 1000) == [context.log]
    flushes.on_flushed(context.log, NOW_MS + 1000)
    assert flushes.logs_to_flush(NOW_MS + 1999) == []
    flushes.forget(TOPIC_PARTITION)
    assert flushes.logs_to_flush(NOW_MS + 5000) == []
    assert flushes.logs_to_flush(NOW_MS + 6000) == [context.log]
