"""The parts of a segment in step: appends, cuts, roll, rename, removal."""

from __future__ import annotations

import errno

import pytest

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.segment.names import LOG_SUFFIX
from kraftrio.broker.log.segment.segment import Segment
from tests.support.logs import NOW_MS, append_to, segment_of
from tests.support.memory_files import MemoryFileSystem


def test_create_cuts_what_lies_there() -> None:
    fs, segment = segment_of(3)
    segment.close_file()
    again = Segment.create(fs, "/t-0", 0, LogConfig(), NOW_MS)
    assert (again.size_bytes, again.end_offset, fs.size_bytes(again.path(LOG_SUFFIX))) == (0, 0, 0)


def test_open_finds_the_end() -> None:
    fs, segment = segment_of(3)
    segment.close_file()
    found = Segment.open(fs, "/t-0", 0, LogConfig())
    assert found.end_offset == -1
    assert found.load_end_offset() == found.end_offset == 3
    assert found.size_bytes == segment.size_bytes


def test_a_failed_append_leaves_the_indexes_as_they_were() -> None:
    fs, segment = segment_of(3, index_interval_bytes=0)
    fs.write_fault = lambda path, position, size: (10, OSError(errno.ENOSPC, "injected"))
    with pytest.raises(OSError) as error:
        append_to(segment, 3)
    assert error.value.errno == errno.ENOSPC
    assert (segment.end_offset, segment.indexes.offsets.entry_count) == (3, 2)
    assert segment.indexes.max_timestamp == NOW_MS + 2
    fs.heal()
    append_to(segment, 3)
    assert (segment.end_offset, segment.indexes.offsets.entry_count) == (4, 3)


def test_truncate_to_an_offset_within_a_batch_takes_the_batch() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("/t-0")
    segment = Segment.create(fs, "/t-0", 0, LogConfig(index_interval_bytes=0), NOW_MS)
    append_to(segment, 0, count=2)
    size = segment.size_bytes
    append_to(segment, 2, count=2)
    assert segment.truncate_to(3) == size
    assert (segment.end_offset, segment.size_bytes) == (2, size)
    assert segment.truncate_to(2) == 0


def test_a_retired_segment_is_read_until_it_is_removed() -> None:
    fs, segment = segment_of(3)
    segment.retire()
    assert segment.is_retired
    assert fs.list_directory("/t-0") == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
    ]
    assert len(list(segment.log_file.scan())) == 3
    segment.flush()  # a late one makes no file of the old name
    segment.remove()
    assert segment.is_removed
    assert fs.list_directory("/t-0") == []
    segment.flush()
    assert fs.list_directory("/t-0") == []
