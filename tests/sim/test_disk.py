"""The disk in memory: what survives a dead process, and what survives a power cut."""

from __future__ import annotations

import errno
from random import Random

import pytest

from kraftrio.testing.simulation.damage import BadReads, bit_to_flip
from kraftrio.testing.simulation.disk import SimDisk
from kraftrio.testing.simulation.disk_calls import FailingCalls
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.records.batch import Record, build_batch, iter_headers, parse_header, verify_crc


def disk_with(path: str, data: bytes) -> SimDisk:
    """A disk with one durable file."""
    disk = SimDisk(lambda: 0)
    disk.make_directory("/data")
    disk.sync_directory("/")
    file = disk.open(path, create=True)
    file.write_at(data, 0)
    file.sync()
    disk.sync_directory("/data")
    return disk


def test_a_killed_process_loses_nothing_written() -> None:
    """The kernel keeps what was written; what the dead process still does changes nothing."""
    disk = disk_with("/data/log", b"synced")
    file = disk.open("/data/log")
    file.write_at(b" written", 6)
    successor = disk.after_kill()
    file.write_at(b" too late", 14)
    file.truncate(0)
    disk.remove("/data/log")
    assert successor.read_file("/data/log") == b"synced written"


def test_a_power_cut_takes_unsynced_tails() -> None:
    """Of what was not synced a prefix survives, torn anywhere; what was synced is there."""
    found = set()
    for seed in range(200):
        disk = disk_with("/data/log", b"synced")
        file = disk.open("/data/log")
        file.write_at(b"-one", 6)
        file.write_at(b"-two", 10)
        disk.open("/data/new", create=True).write_at(b"new", 0)
        successor = disk.after_power_cut(Random(seed))
        data = successor.read_file("/data/log")
        assert data.startswith(b"synced")
        found.add((data, successor.exists("/data/new")))
    contents = {data for data, _ in found}
    assert {b"synced", b"synced-one-two", b"synced-one", b"synced-o"} <= contents
    assert any(b"\0" in data for data in contents), "a length may survive without its bytes"
    assert {is_there for _, is_there in found} == {True, False}


def test_a_synced_rename_survives() -> None:
    """A name is as durable as its directory's last sync."""
    disk = disk_with("/data/old", b"x")
    disk.rename("/data/old", "/data/new")
    names = {
        tuple(disk.after_power_cut(Random(seed)).list_directory("/data")) for seed in range(50)
    }
    assert ("old",) in names
    assert ("new",) in names
    disk.is_dead = False
    disk.sync_directory("/data")
    assert disk.after_power_cut(Random(1)).list_directory("/data") == ["new"]


def test_a_full_disk_takes_a_part() -> None:
    """The write that does not fit is torn and fails; overwriting needs no room."""
    disk = disk_with("/data/log", b"abc")
    disk.room_bytes = 2
    file = disk.open("/data/log")
    with pytest.raises(OSError) as caught:
        file.write_at(b"defg", 3)
    assert caught.value.errno == errno.ENOSPC
    assert disk.read_file("/data/log") == b"abcde"
    file.write_at(b"ABC", 0)
    disk.room_bytes = None
    file.write_at(b"DEFG", 3)
    assert disk.read_file("/data/log") == b"ABCDEFG"


def test_a_lock_excludes() -> None:
    """A lock file is held until released, and not by the dead."""
    disk = disk_with("/data/log", b"")
    lock = disk.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    assert disk.after_kill().lock("/data/.lock") is not None
    lock.release()


def batches(count: int) -> bytes:
    """So many batches of a log, of different sizes."""
    records = [Record(0, 1, None, b"v" * (7 * n)) for n in range(count)]
    return b"".join(build_batch([r], base_offset=n) for n, r in enumerate(records))


def test_a_bad_read_is_right_when_repeated() -> None:
    """A bit of a batch is wrong in what is read; on the disk, and the next time, it is not."""
    data = batches(5)
    disk = disk_with("/data/log.log", data)
    disk.bad_reads = BadReads(Random(1), 1.0)
    file = disk.open("/data/log.log")
    found = [file.read_at(0, len(data)) for _ in range(40)]
    assert found[1::2] == [data] * 20
    for wrong in found[::2]:
        assert sum((a ^ b).bit_count() for a, b in zip(wrong, data, strict=True)) == 1
    with disk.as_written():
        assert file.read_at(0, len(data)) == data


def test_what_is_flipped_can_be_noticed() -> None:
    """The checksum, the magic or the lengths give away each bit that may be flipped in a log."""
    data = batches(4)
    starts = [header.position for header in iter_headers(data)]
    places = set()
    for seed in range(3000):
        place = bit_to_flip("/data/t-0/0.log", data, Random(seed), 0, len(data))
        assert place is not None
        places.add(place.position)
        wrong = bytearray(data)
        wrong[place.position] ^= place.mask
        with pytest.raises(CorruptBatchError):
            for header in iter_headers(wrong):
                verify_crc(wrong, header)
    offsets_and_epochs = {s + at for s in starts for at in (*range(8), *range(12, 16))}
    assert places == set(range(len(data))) - offsets_and_epochs


def test_rot_of_metadata_leaves_whole_batches() -> None:
    """A length that is wrong would look like a torn write, which a node may cut."""
    data = batches(3)
    for seed in range(500):
        place = bit_to_flip("/data/__cluster_metadata-0/0.log", data, Random(seed), 0, len(data))
        assert place is not None
        wrong = bytearray(data)
        wrong[place.position] ^= place.mask
        sizes = [header.size_bytes for header in iter_headers(wrong)]
        assert sizes == [header.size_bytes for header in iter_headers(data)]


def test_rot_lasts_until_it_is_written_again() -> None:
    """It is there for the next process, too, and whole again after a scrub."""
    data = batches(3)
    disk = disk_with("/data/log.log", data)
    assert disk.rot("/data/log.log", Random(3))
    disk = disk.after_kill()
    wrong = disk.read_file("/data/log.log")
    assert wrong != data
    assert disk.after_power_cut(Random(1)).read_file("/data/log.log") == wrong
    disk.is_dead = False
    disk.open("/data/log.log").write_at(data, 0)
    assert disk.read_file("/data/log.log") == data
    assert disk.rot("/data/log.log", Random(3))
    disk.scrub()
    assert not disk.is_rotten("/data/log.log")
    assert disk.rot("/data/log.log", Random(3))
    file = disk.open("/data/log.log")
    file.truncate(0)
    file.write_at(data, 0)
    assert parse_header(disk.read_file("/data/log.log")).base_offset == 0
    assert not disk.is_rotten("/data/log.log")


def test_a_failed_sync_loses_what_was_not_synced() -> None:
    """And the next one succeeds, with nothing to write: a caller that tries again is deceived."""
    disk = disk_with("/data/log", b"synced")
    other = disk.open("/data/other", create=True)
    other.write_at(b"x", 0)
    file = disk.open("/data/log")
    file.write_at(b"SYNCED, not", 0)
    disk.sync_fails = lambda path: path == "/data/log"
    other.sync()
    with pytest.raises(OSError, match="sync failed"):
        file.sync()
    file.sync()
    assert disk.failed_syncs == ["/data/log"]
    assert disk.read_file("/data/log") == b"synced"
    assert disk.after_power_cut(Random(1)).read_file("/data/log") == b"synced"


def test_a_failed_sync_does_not_bring_back_what_was_cut() -> None:
    disk = disk_with("/data/log", b"one two")
    file = disk.open("/data/log")
    file.truncate(4)
    file.write_at(b"six", 4)
    disk.sync_fails = lambda path: True
    with pytest.raises(OSError, match="sync failed"):
        file.sync()
    assert disk.read_file("/data/log") == b"one "


def test_holes_keep_what_was_synced() -> None:
    """Sectors of what was not synced come through or not; what was synced stays."""
    found = set()
    synced = b"s" * 700
    for seed in range(300):
        disk = disk_with("/data/log", synced)
        disk.holes = True
        file = disk.open("/data/log")
        for number in range(4):
            file.write_at(bytes([97 + number]) * 500, 700 + 500 * number)
        data = disk.after_power_cut(Random(seed)).read_file("/data/log")
        assert data.startswith(synced)
        assert set(data[700:]) <= {0, *b"abcd"}
        found.add(data)
    assert any(data[1100:1300] == bytes(200) and data.endswith(b"d") for data in found)
    assert len(found) > 20


def test_a_cut_that_did_not_come_through_leaves_the_old_end() -> None:
    """What was written behind it did not either."""
    for seed in range(100):
        disk = disk_with("/data/log", b"o" * 1500)
        disk.holes = True
        file = disk.open("/data/log")
        file.truncate(600)
        file.write_at(b"n" * 900, 600)
        data = disk.after_power_cut(Random(seed)).read_file("/data/log")
        assert data[:600] == b"o" * 600
        assert b"no" not in data, "old bytes behind new ones"


def test_syncs_that_lie_are_found_out_by_a_power_cut() -> None:
    """It leaves the disk of the moment when they began; the metadata's files are spared."""
    disk = disk_with("/data/log", b"before")
    disk.make_directory("/data/__cluster_metadata-0")
    disk.sync_directory("/data")
    disk.freeze()
    for path in ("/data/log", "/data/new", "/data/__cluster_metadata-0/new"):
        file = disk.open(path, create=True)
        file.write_at(b"after ", 0)
        file.sync()
    disk.sync_directory("/data")
    disk.sync_directory("/data/__cluster_metadata-0")
    killed = disk.after_kill()
    assert killed.read_file("/data/log") == b"after ", "a kill is not a power cut"
    disk = killed.after_power_cut(Random(1))
    assert disk.read_file("/data/log") == b"before"
    assert not disk.exists("/data/new")
    assert disk.read_file("/data/__cluster_metadata-0/new") == b"after "
    disk.open("/data/log").write_at(b"BEFORE", 0)
    disk.open("/data/log").sync()
    assert disk.after_power_cut(Random(1)).read_file("/data/log") == b"BEFORE", "it lies no more"


def test_single_calls_fail() -> None:
    """For want of a descriptor or of room; the others are not touched."""
    disk = disk_with("/data/log", b"abc")
    file = disk.open("/data/log")
    disk.failing_calls = FailingCalls(Random(1), errno.EMFILE, 1.0)
    file.write_at(b"def", 3)
    for call in (disk.open, disk.read_file, disk.sync_directory):
        with pytest.raises(OSError, match="Too many open files"):
            call("/data/log" if call != disk.sync_directory else "/data")
    disk.failing_calls = FailingCalls(Random(1), errno.ENOSPC, 0.5)
    refused = 0
    for _ in range(40):
        try:
            file.write_at(b"ghi", 6)
        except OSError as error:
            refused += error.errno == errno.ENOSPC
    assert 0 < refused < 40
    assert len(disk.failing_calls.failed) == refused
    assert disk.read_file("/data/log") == b"abcdefghi"


def test_an_image_stays_as_it_is() -> None:
    """Disks that begin from one share its bytes, and change them for themselves alone."""
    disk = disk_with("/data/log", b"synced")
    file = disk.open("/data/log")
    file.write_at(b" written", 6)
    disk.make_directory("/data/orders-0")
    image = disk.image()
    assert disk.image().files["/data/log"].content is image.files["/data/log"].content
    file.write_at(b" later", 14)
    file.sync()
    one, other = (SimDisk.of(image, lambda: 7) for _ in range(2))
    one.open("/data/log").write_at(b"S", 0)
    other.open("/data/log").truncate(3)
    assert disk.read_file("/data/log") == b"synced written later"
    assert one.read_file("/data/log") == b"Synced written"
    assert other.read_file("/data/log") == b"syn"
    third = SimDisk.of(image, lambda: 7)
    third.open("/data/log").write_at(b" too", 14)
    assert third.is_directory("/data/orders-0")
    for seed in range(9):
        assert third.after_power_cut(Random(seed)).read_file("/data/log")[:14] == b"synced written"
    assert image.files["/data/log"].read() == b"synced written"


@pytest.mark.parametrize(
    ("files", "source", "target"),
    [
        (["0.log.cleaned"], "0.log.cleaned", "0.log.swap"),
        (["0.log.swap"], "0.log.swap", "0.log"),
        (["0.log.swap", "5.index"], "5.index", "5.index.deleted"),
    ],
)
def test_a_half_swapped_segment_wants_a_restart(files: list[str], source: str, target: str) -> None:
    """Its node gives the directory up, so an operator has to start it again."""
    disk = SimDisk(lambda: 0)
    disk.make_directory("/data")
    for name in files:
        disk.open(f"/data/{name}", create=True)
    disk.failing_calls = FailingCalls(Random(1), errno.ENOSPC, 1.0)
    with pytest.raises(OSError, match="No space left"):
        disk.rename(f"/data/{source}", f"/data/{target}")
    assert disk.met_broken


def test_a_segment_that_is_only_deleted_wants_none() -> None:
    """Its removal is tried again."""
    disk = disk_with("/data/5.index", b"")
    disk.failing_calls = FailingCalls(Random(1), errno.ENOSPC, 1.0)
    with pytest.raises(OSError, match="No space left"):
        disk.rename("/data/5.index", "/data/5.index.deleted")
    assert not disk.met_broken
