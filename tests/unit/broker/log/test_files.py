"""The real file system behind the port, and the atomic rewrite."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kraftrio.broker.log.files import OsFileSystem, write_atomically


@pytest.fixture
def fs() -> OsFileSystem:
    return OsFileSystem()


def test_writes_reads_and_cuts_by_position(fs: OsFileSystem, tmp_path: Path) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    file.write_at(b"0123456789", 0)
    file.write_at(memoryview(b"ab"), 4)
    file.write_pieces_at([b"xy", bytearray(b"z")], 10)
    assert file.read_at(0, 100) == b"0123ab6789xyz"
    assert file.read_at(11, 1) == b"y"
    assert file.read_at(99, 1) == b""
    file.truncate(3)
    assert (file.size_bytes(), file.read_at(0, 9)) == (3, b"012")
    file.sync()
    file.close()
    assert fs.read_file(str(tmp_path / "f")) == b"012"


def test_short_writes_are_finished(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may take fewer bytes than given; the rest follows (KAFKA-16541's kind)."""
    real_pwrite, real_pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, data[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, at: real_pwritev(fd, [pieces[0][:1]], at))
    file = fs.open(str(tmp_path / "f"), create=True)
    file.write_at(b"0123456789", 0)
    file.write_pieces_at([b"abc", b"de"], 10)
    assert file.read_at(0, 99) == b"0123456789abcde"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="no progress") as error:
        file.write_at(b"x", 0)
    assert error.value.errno == errno.ENOSPC


def test_many_pieces(fs: OsFileSystem, tmp_path: Path) -> None:
    """More pieces than one writev takes."""
    file = fs.open(str(tmp_path / "f"), create=True)
    file.write_pieces_at([b"%05d" % n for n in range(3000)], 0)
    assert file.size_bytes() == 15000
    assert file.read_at(14995, 5) == b"02999"


def test_sync_of_a_closed_file_is_nothing(fs: OsFileSystem, tmp_path: Path) -> None:
    """A worker thread may come late: the owner has closed and perhaps deleted the file."""
    file = fs.open(str(tmp_path / "f"), create=True)
    file.write_at(b"a", 0)
    file.close()
    fs.remove(str(tmp_path / "f"))
    file.sync()
    file.close()
    assert not fs.exists(str(tmp_path / "f"))


def test_missing_things(fs: OsFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    for act in (fs.open, fs.read_file, fs.size_bytes, fs.list_directory):
        with pytest.raises(FileNotFoundError):
            act(path)
    fs.remove(path)
    fs.remove_directory(path)
    assert not fs.exists(path)


def test_directories(fs: OsFileSystem, tmp_path: Path) -> None:
    base = str(tmp_path / "a")
    fs.make_directory(base + "/b/c")
    fs.make_directory(base + "/b/c")
    fs.open(base + "/b/f", create=True).close()
    fs.sync_directory(base)
    assert fs.list_directory(base + "/b") == ["c", "f"]
    assert fs.is_directory(base + "/b/c")
    assert not fs.is_directory(base + "/b/f")
    assert fs.modified_ms(base + "/b/f") > 1_600_000_000_000
    fs.rename(base + "/b", base + "/d")
    fs.remove_directory(base)
    assert not fs.exists(base)


def test_lock_is_exclusive_until_released(fs: OsFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = fs.lock(path)
    with pytest.raises(BlockingIOError):
        fs.lock(path)
    lock.release()
    fs.lock(path).release()


def test_atomic_rewrite(fs: OsFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    write_atomically(fs, path, b"one, longer")
    write_atomically(fs, path, b"two", sync=False)
    assert fs.read_file(path) == b"two"
    assert fs.list_directory(str(tmp_path)) == ["f"]
