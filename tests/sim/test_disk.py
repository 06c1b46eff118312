"""The disk in memory: what survives a dead process, and what survives a power cut."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.sim.disk import SimDisk


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
