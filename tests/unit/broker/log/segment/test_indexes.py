"""Offset and time index: bytes on disk, look-ups, what is taken as damage."""

from __future__ import annotations

import errno
from random import Random

import pytest

from kraftrio.broker.log.segment.index_file import CorruptIndexError
from kraftrio.broker.log.segment.offset_index import OffsetIndex
from kraftrio.broker.log.segment.time_index import TimeIndex
from tests.support.memory_files import MemoryFileSystem

PATH = "/0.index"


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def write(fs: MemoryFileSystem, data: bytes) -> None:
    file = fs.open(PATH, create=True)
    file.truncate(0)
    file.write_at(data, 0)


def offsets(fs: MemoryFileSystem, *, new: bool = False) -> OffsetIndex:
    return OffsetIndex(fs, PATH, 100, 80, new=new)


def times(fs: MemoryFileSystem, *, new: bool = False, size: int = 120) -> TimeIndex:
    return TimeIndex(fs, PATH, 100, size, new=new)


def test_offset_entries_are_relative_and_big_endian(fs: MemoryFileSystem) -> None:
    index = offsets(fs, new=True)
    index.append(103, 70)
    index.append(260, 0x80000001)
    index.flush(sync=True)
    assert fs.read_file(PATH).hex() == "0000000300000046" + "000000a080000001"
    again = offsets(fs)
    assert again.last_entry == (260, 0x80000001)
    assert again.entry_count == 2


def test_offset_lookup_finds_the_entry_at_or_below(fs: MemoryFileSystem) -> None:
    index = offsets(fs, new=True)
    assert index.lookup(500) == (100, 0)
    for number in range(1, 10):
        index.append(100 + 10 * number, 1000 * number)
    for offset in range(95, 300):
        number = min((offset - 100) // 10, 9)
        expected = (100 + 10 * number, 1000 * number) if number > 0 else (100, 0)
        assert index.lookup(offset) == expected
    assert index.batch_start_before(3999) == 3000
    assert index.batch_start_before(999) == 0


def test_offset_index_is_full_at_its_size(fs: MemoryFileSystem) -> None:
    index = offsets(fs, new=True)
    for number in range(1, 10):
        index.append(100 + number, number)
    assert not index.is_full
    index.append(110, 10)
    assert index.is_full


def test_time_index_keeps_only_rising_timestamps(fs: MemoryFileSystem) -> None:
    index = times(fs, new=True)
    assert index.last_entry == (-1, 100)
    assert not index.maybe_append(-1, 100)
    assert index.maybe_append(50, 101)
    assert not index.maybe_append(50, 102)
    assert not index.maybe_append(40, 103)
    assert index.maybe_append(60, 104)
    index.flush(sync=False)
    assert fs.read_file(PATH).hex() == (
        "0000000000000032" + "00000001" + "000000000000003c" + "00000004"
    )
    again = times(fs)
    assert [again.lookup(t) for t in (49, 50, 59, 99)] == [
        (-1, 100), (50, 101), (50, 101), (60, 104),
    ]  # fmt: skip


def test_last_place_of_the_time_index_is_for_the_roll(fs: MemoryFileSystem) -> None:
    index = times(fs, new=True, size=36)
    assert index.maybe_append(1, 101)
    assert index.maybe_append(2, 102)
    assert index.is_full
    assert not index.maybe_append(3, 103)
    assert index.maybe_append(3, 103, at_roll=True)


@pytest.mark.parametrize(
    "data", [b"1234567", bytes(7), bytes.fromhex("00000002000000010000000200000005"),
             bytes.fromhex("00000002000000050000000300000005")]
)  # fmt: skip
def test_damaged_offset_index_is_refused(fs: MemoryFileSystem, data: bytes) -> None:
    write(fs, data)
    with pytest.raises(CorruptIndexError):
        offsets(fs).load()


def test_missing_index_is_refused(fs: MemoryFileSystem) -> None:
    with pytest.raises(CorruptIndexError):
        offsets(fs).load()


def test_preallocated_zeros_are_no_entries(fs: MemoryFileSystem) -> None:
    """Kafka preallocates; the zeros go when we write."""
    data = bytes.fromhex("0000000300000046")
    write(fs, data + bytes(800))
    index = offsets(fs)
    assert index.peek_last_entry() is None
    assert index.last_entry == (103, 70)
    index.append(105, 99)
    index.flush(sync=False)
    assert fs.read_file(PATH) == data + bytes.fromhex("0000000500000063")


def test_peek_reads_the_last_entry_only(fs: MemoryFileSystem) -> None:
    index = offsets(fs, new=True)
    index.append(103, 70)
    index.append(104, 90)
    index.flush(sync=False)
    again = offsets(fs)
    assert again.peek_last_entry() == (104, 90)
    assert not again.loaded


def test_truncation_and_new_entries(fs: MemoryFileSystem) -> None:
    """Cut entries leave the file with the next flush, also when fewer come after."""
    index = offsets(fs, new=True)
    for number in range(1, 8):
        index.append(100 + 10 * number, number)
    index.flush(sync=False)
    index.truncate_to(130)
    assert index.last_entry == (120, 2)
    index.append(125, 9)
    index.flush(sync=False)
    again = offsets(fs)
    assert again.entry_count == 3
    assert again.last_entry == (125, 9)


def test_unloaded_entries_are_read_again(fs: MemoryFileSystem) -> None:
    index = offsets(fs, new=True)
    index.append(103, 70)
    index.unload()
    assert index.loaded  # the file has not got it yet
    index.flush(sync=False)
    index.unload()
    assert not index.loaded
    assert index.lookup(104) == (103, 70)


@pytest.mark.parametrize("keeps", [0, 1])
def test_entries_that_were_removed_do_not_come_back(fs: MemoryFileSystem, keeps: int) -> None:
    """The file has them still: they are not dropped from memory before it has lost them."""
    index = offsets(fs, new=True)
    index.append(103, 70)
    index.append(104, 90)
    index.flush(sync=False)
    if keeps:
        index.truncate_to(104)
    else:
        index.reset()
    index.unload()
    assert index.entry_count == keeps
    index.flush(sync=False)
    index.unload()
    assert not index.loaded and index.entry_count == keeps


def test_flush_writes_only_what_is_new(fs: MemoryFileSystem) -> None:
    index = offsets(fs, new=True)
    index.append(103, 70)
    index.flush(sync=True)
    syncs, units = fs.sync_count, fs.unsynced_units
    index.flush(sync=True)
    assert (fs.sync_count, fs.unsynced_units) == (syncs, units)
    index.append(104, 80)
    index.flush(sync=False)
    assert fs.unsynced_units == units + 8


@pytest.mark.parametrize("seed", range(10))
def test_random_history_equals_a_plain_list(fs: MemoryFileSystem, seed: int) -> None:
    random = Random(seed)
    write(fs, b"")
    index = offsets(fs, new=True)
    model: list[tuple[int, int]] = []
    for _ in range(200):
        step = random.randrange(5)
        if step <= 1:
            last = model[-1] if model else (100, 0)
            entry = (last[0] + random.randrange(1, 9), last[1] + random.randrange(1, 99))
            model.append(entry)
            index.append(*entry)
        elif step == 2 and model and random.random() < 0.2:
            offset = random.choice(model)[0]
            model = [entry for entry in model if entry[0] < offset]
            index.truncate_to(offset)
        elif step == 3:
            index.flush(sync=random.random() < 0.5)
        else:
            index.flush(sync=False)
            index = offsets(fs)
        probe = random.randrange(90, 1500)
        below = [entry for entry in model if entry[0] <= probe]
        assert index.lookup(probe) == (below[-1] if below else (100, 0))
        assert index.entry_count == len(model)


def test_half_a_flush_leaves_nothing_behind_a_cut(fs: MemoryFileSystem) -> None:
    """Entries that got to the file by a flush that failed are not taken for later ones."""
    index = offsets(fs, new=True)
    index.append(103, 70)
    index.flush(sync=True)
    for offset in (105, 107, 109, 111):
        index.append(offset, offset)
    fs.write_fault = lambda path, position, size: (size // 2, OSError(errno.ENOSPC, "injected"))
    with pytest.raises(OSError, match="injected"):
        index.flush(sync=True)
    fs.heal()
    index.truncate_to(104)
    index.flush(sync=True)
    assert fs.size_bytes(PATH) == 8
    assert offsets(fs).entry_count == 1
