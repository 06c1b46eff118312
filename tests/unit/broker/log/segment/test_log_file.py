"""The `.log` file alone: writes that fail, cuts, slices, syncs, and what a closed one does."""

from __future__ import annotations

import errno

import pytest

from kraftrio.broker.log.segment.log_file import LogFile
from kraftrio.broker.log.segment.names import SegmentNames
from kraftrio.wire.stored_bytes import StoredBytesGone
from tests.support.logs import batch
from tests.support.memory_files import MemoryFileSystem


def new_file() -> tuple[MemoryFileSystem, LogFile]:
    fs = MemoryFileSystem()
    fs.make_directory("/t-0")
    file = LogFile(fs, SegmentNames("/t-0", 0), size_bytes=0, end_offset=0)
    file.make()
    return fs, file


def append(file: LogFile, value: bytes) -> int:
    """Append a batch of one record; return its size."""
    data = batch(value, base_offset=file.end_offset)
    file.prepare_append()
    file.append(data, file.end_offset + 1)
    return len(data)


def test_append_moves_size_and_end() -> None:
    _, file = new_file()
    size = append(file, b"a") + append(file, b"b")
    assert (file.size_bytes, file.end_offset) == (size, 2)
    assert [found.header.base_offset for found in file.scan()] == [0, 1]


def test_a_failed_write_changes_nothing_and_is_cut() -> None:
    fs, file = new_file()
    size = append(file, b"a")
    fs.write_fault = lambda path, position, size: (10, OSError(errno.ENOSPC, "injected"))
    with pytest.raises(OSError) as error:
        append(file, b"b")
    assert error.value.errno == errno.ENOSPC
    assert (file.size_bytes, file.end_offset) == (size, 1)
    assert fs.size_bytes(file.path) == size
    fs.heal()
    append(file, b"c")
    assert [found.header.base_offset for found in file.scan()] == [0, 1]


def test_a_cut_ends_the_slices_that_reach_beyond() -> None:
    _, file = new_file()
    size = append(file, b"a")
    append(file, b"b")
    before = file.slice_at(0, size, is_settled=False)
    across = file.slice_at(0, file.size_bytes, is_settled=False)
    file.truncate(size, 1)
    assert before.read(0, size) == file.read_at(0, size)
    with pytest.raises(StoredBytesGone):
        across.read(0, size)


def test_a_closed_file_stays_closed() -> None:
    """Its holders must not read or sync what may be another segment's by now."""
    _, file = new_file()
    size = append(file, b"a")
    piece = file.slice_at(0, size, is_settled=True)
    file.close()
    with pytest.raises(OSError) as error:
        file.read_at(0, size)
    assert error.value.errno == errno.EBADF
    assert not file.sync()
    with pytest.raises(StoredBytesGone):
        piece.read(0, size)


def test_sync_makes_bytes_durable_once() -> None:
    fs, file = new_file()
    append(file, b"a")
    assert file.sync()
    fs.sync_directory("/t-0")
    fs.sync_directory("/")
    found = fs.after_crash(0)
    assert found.size_bytes(file.path) == file.size_bytes
