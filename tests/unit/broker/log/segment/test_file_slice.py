"""Parts of files that answers name: they give what lay there when they were made, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets, LogResources
from kraftrio.broker.log.partition.recovery import open_log
from kraftrio.broker.log.segment.file_slice import FileSlice
from kraftrio.wire.stored_bytes import StoredBytes, StoredBytesGone
from tests.support.logs import (
    NOW_MS,
    TOPIC_ID,
    TOPIC_PARTITION,
    LogContext,
    batch,
    records_of,
)


def name(context: LogContext, offset: int = 0, max_bytes: int = 1 << 20) -> StoredBytes:
    """What a reader that holds nothing is given from an offset on."""
    log = context.log
    read = log.read_lazily(
        offset, max_bytes, 0, max_offset=log.log_end_offset, min_one_batch=True
    ).records
    assert isinstance(read, StoredBytes)
    return read


def content(stored: StoredBytes) -> bytes:
    return stored.read(0, len(stored))


def filled(count: int = 6, **config: Any) -> LogContext:
    context = LogContext(**config)
    for number in range(count):
        context.append(b"%d" % number)
    return context


def values(data: bytes) -> list[bytes | None]:
    return [record.value for record in records_of(data)]


def test_more_than_may_be_held_is_named() -> None:
    context = filled()
    log = context.log
    size = log.size_bytes
    for hold_bytes in (0, size - 1, size, size + 1):
        records, next_offset = log.read_lazily(
            0, 1 << 20, hold_bytes, max_offset=6, min_one_batch=True
        )
        assert isinstance(records, StoredBytes) is (hold_bytes < size)
        assert (len(records), next_offset) == (size, 6)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_a_read_gives(seed: int) -> None:
    """Random batches, limits and offsets, across segments."""
    rng = Random(seed)
    context = LogContext(index_interval_bytes=rng.choice([1, 200, 4096]), segment_bytes=20_000)
    for _ in range(80):
        context.append(
            *(rng.randbytes(rng.choice([1, 30, 2000])) for _ in range(rng.randint(1, 4)))
        )
    log = context.log
    for _ in range(200):
        offset = rng.randint(0, log.log_end_offset)
        max_offset = rng.randint(offset, log.log_end_offset)
        max_bytes = rng.choice([0, 100, 3000, 10_000, 1 << 20])
        one = rng.random() < 0.5
        read = log.read(offset, max_bytes, max_offset=max_offset, min_one_batch=one)
        named, next_offset = log.read_lazily(
            offset, max_bytes, 0, max_offset=max_offset, min_one_batch=one
        )
        data = content(named) if isinstance(named, StoredBytes) else named
        assert (data, next_offset) == (read.records, read.next_offset)
        offsets = [record.offset for record in records_of(bytes(data))]
        assert next_offset == (offsets[-1] + 1 if offsets else offset)
        assert all(found < max_offset for found in offsets)


def test_appends_change_nothing() -> None:
    context = filled()
    stored = name(context)
    before = content(stored)
    context.append(b"more")
    assert content(stored) == before


def test_a_truncation_ends_what_it_reaches_into() -> None:
    """Bytes that were announced are never followed by others that were written in their place."""
    context = filled()
    before, reaches_in = name(context, max_bytes=200), name(context)
    size = len(before)
    assert values(content(before)) == [b"0", b"1"]
    context.log.truncate_to(2)
    assert values(content(before)) == [b"0", b"1"]
    uses: list[Callable[[], object]] = [
        lambda: reaches_in.read(0, size),
        lambda: reaches_in.file_range(0),
        lambda: reaches_in.is_at_hand(0, size),
    ]
    for _ in range(2):
        for use in uses:
            with pytest.raises(StoredBytesGone):
                use()
        reaches_in.load(0, size)  # what a thread was about to do
        for number in range(4):
            context.append(b"other %d" % number)


@pytest.mark.parametrize("how", ["drop all", "close", "remove"])
def test_the_end_of_the_file_ends_it(how: str) -> None:
    context = filled()
    stored = name(context)
    if how == "drop all":
        context.log.truncate_fully_and_start_at(3, NOW_MS)
    elif how == "close":
        context.log.close()
    else:
        context.log.active_segment.remove()
    with pytest.raises(StoredBytesGone):
        content(stored)


def test_a_deleted_segment_is_read_until_its_files_go() -> None:
    """Retention renames it, and removes it after file.delete.delay.ms."""
    context = filled(retention_ms=1, file_delete_delay_ms=1000)
    context.log.roll(NOW_MS)
    stored = name(context)
    before = content(stored)
    context.commit()
    assert context.log.apply_retention(NOW_MS + 100) == 1
    assert content(stored) == before
    context.log.retired.remove_expired(NOW_MS + 2000)
    with pytest.raises(StoredBytesGone):
        content(stored)


def test_bytes_that_may_be_truncated_are_not_sent_from_the_file(tmp_path: Path) -> None:
    """Above the high watermark a socket must not keep the memory of the file."""
    log = open_log(
        LogResources(OsFileSystem()),
        str(tmp_path / "topic-0"),
        TOPIC_PARTITION,
        LogConfig(),
        CheckpointedOffsets(),
        topic_id=TOPIC_ID,
        clean_shutdown=True,
        now_ms=NOW_MS,
    )
    for _ in range(6):
        log.append_as_leader(batch(b"x"), 0, NOW_MS)

    def named(max_offset: int) -> StoredBytes:
        found = log.read_lazily(0, 1 << 20, 0, max_offset=max_offset, min_one_batch=True).records
        assert isinstance(found, StoredBytes)
        return found

    assert named(3).file_range(0) is None
    log.update_high_watermark(3)
    assert named(4).file_range(0) is None
    settled = named(3)
    found = settled.file_range(5)
    assert found is not None
    assert os.pread(found[0], 10, found[1]) == content(settled)[5:15]
    log.close()
    with pytest.raises(StoredBytesGone):
        settled.file_range(5)


def test_a_read_that_fails_is_reported() -> None:
    context = filled()
    stored = name(context)

    def broken(path: str, position: int, data: bytes) -> bytes:
        raise OSError(5, "injected")

    context.fs.read_fault = broken
    with pytest.raises(StoredBytesGone, match="injected"):
        content(stored)


def test_real_files_know_what_is_cached(tmp_path: Path) -> None:
    """What was dropped from the page cache is at hand once it is loaded."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4 << 20))
    file = OsFileSystem().open(str(path))
    descriptor = file.descriptor()
    assert descriptor is not None
    stored = FileSlice(file, [], 0, 4 << 20, is_settled=True)
    assert stored.is_at_hand(0, 1 << 20)
    file.sync()
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    stored.load(1 << 20, 1 << 20)
    assert stored.is_at_hand(1 << 20, 1 << 20)
    file.close()
    assert stored.file_range(0) is None
    with pytest.raises(StoredBytesGone):
        stored.read(0, 100)
    stored.load(0, 100)  # a thread that comes too late


def test_real_files_are_loaded_ahead_of_who_reads_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 << 20))
    file = OsFileSystem().open(str(path))
    descriptor = file.descriptor()
    assert descriptor is not None
    file.sync()
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # the system adds nothing itself
    first = FileSlice(file, [], 0, 1 << 20, is_settled=True)
    second = FileSlice(file, [], 1 << 20, 1 << 20, is_settled=True)
    assert first.loading_ahead(0) is None
    first.load(0, 1 << 20)
    assert first.loading_ahead(1 << 19) is None
    ahead = second.loading_ahead(0)
    assert ahead is not None
    ahead()
    third = FileSlice(file, [], 2 << 20, 2 << 20, is_settled=True)
    assert third.is_at_hand(0, 2 << 20)
    assert third.read(0, 2 << 20) == path.read_bytes()[2 << 20 : 4 << 20]
    file.close()
    ahead()  # a thread that comes too late
