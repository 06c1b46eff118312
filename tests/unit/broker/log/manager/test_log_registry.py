"""Which log serves a partition, and where it lies."""

from __future__ import annotations

from kraftrio.broker.log.manager.log_dir import LogDir
from kraftrio.broker.log.manager.log_registry import LogRegistry
from kraftrio.broker.log.manager.offset_checkpoints import OffsetCheckpoints
from tests.support.logs import TOPIC_PARTITION, LogContext
from tests.support.memory_files import MemoryFileSystem


def log_dir(path: str) -> LogDir:
    return LogDir(path, OffsetCheckpoints(MemoryFileSystem(), path))


def test_the_first_log_of_a_partition_stays() -> None:
    """Of two found in two directories; the caller refuses the start."""
    registry, first, second = LogRegistry(), LogContext().log, LogContext().log
    a, b = log_dir("/a"), log_dir("/b")
    assert registry.add(first, a) is first
    assert registry.add(second, b) is first
    assert registry.get(TOPIC_PARTITION) is first
    assert registry.dir_of(TOPIC_PARTITION) is a
    assert (registry.in_dir(a), registry.in_dir(b)) == ({TOPIC_PARTITION: first}, {})


def test_what_is_taken_is_gone() -> None:
    """Also while all logs are being walked over."""
    registry, a = LogRegistry(), log_dir("/a")
    log = registry.add(LogContext().log, a)
    for one in registry:
        assert one is log
        assert registry.take(TOPIC_PARTITION) is a
    assert registry.get(TOPIC_PARTITION) is None
    assert list(registry) == []


def test_the_least_used_directory() -> None:
    registry, a, b = LogRegistry(), log_dir("/a"), log_dir("/b")
    assert registry.least_used([a, b]) is a
    registry.add(LogContext().log, a)
    assert registry.least_used([a, b]) is b
    assert registry.least_used([a]) is a
