"""The only module that touches the file system: the FileSystem port and its real implementation.

Rules:
1. Everything above works on the two Protocols here; tests give an in-memory file system that loses
   unsynced bytes at a crash, tears writes and injects ENOSPC and EIO.
2. `File.write_at` writes all bytes or raises OSError; after an error the bytes from that position
   on are unknown and the caller truncates the file to its last good size.
3. Bytes survive a power cut only after `File.sync`, names only after `FileSystem.sync_directory`.
4. `File.sync` may run in a worker thread while the owner writes to or even closes the same file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Protocol

from kraftrio.broker.log.read_ahead import ReadAhead
from kraftrio.broker.log.sync_times import SYNC_TIMES
from kraftrio.wire.primitives import Buffer

# Linux refuses more pieces in one writev.
MAX_WRITE_PIECES = 1024

# Reads give up instead of waiting for the disk; 0, where the system has no such reads.
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_PROBED_BYTES = 512 << 10  # so many are taken for cached where a page in their middle is
_probed = bytearray(1)


class File(Protocol):
    """An open file, addressed by position."""

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`, or raise OSError."""

    def write_pieces_at(self, pieces: Sequence[Buffer], position: int) -> None:
        """Write the pieces one after the other at `position`, or raise OSError."""

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes`; fewer only at the end of the file."""

    def is_cached(self, position: int, size_bytes: int) -> bool:
        """Whether these bytes can be read without waiting for a disk, as far as the system knows.

        They are about a MB at most, whose ends were read before.
        """

    def load(self, position: int, size_bytes: int) -> None:
        """Wait until these bytes are in memory. Any thread."""

    def loading_ahead(self, position: int) -> Callable[[], None] | None:
        """What a thread should load while a reader is at `position`; None: nothing now."""

    def descriptor(self) -> int | None:
        """The operating system's number of the open file; None: it has none, or is closed."""

    def truncate(self, size_bytes: int) -> None: ...

    def size_bytes(self) -> int: ...

    def sync(self) -> None:
        """Make the written bytes durable."""

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    """A held lock on a log directory."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """What the disk layer asks of a file system. Missing files raise FileNotFoundError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; with `create` make an empty file if there is none."""

    def read_file(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Make a directory and its missing parents; fine if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing the target."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""

    def remove_directory(self, path: str) -> None:
        """Remove a directory with everything in it; a missing one is fine."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in this directory durable."""

    def lock(self, path: str) -> DirectoryLock:
        """Take the exclusive lock file `path`; BlockingIOError when another process holds it."""


@cache
def _nowhere() -> int:
    """Return a file that swallows what is sent to it; open as long as the process runs."""
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class OsFile:
    """A real file by its descriptor."""

    __slots__ = ("_fd", "_path", "_read_ahead")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._read_ahead: ReadAhead | None = None  # made when first loaded: few files ever are

    def __repr__(self) -> str:
        return f"OsFile({self._path!r})"

    def write_at(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            self._write_rest(memoryview(data).cast("B"), position, written)

    def _write_rest(self, data: memoryview, position: int, written: int) -> None:
        """Finish a short write (KAFKA-16541's kind): a full disk then raises ENOSPC by itself."""
        while written < len(data):
            step = os.pwrite(self._fd, data[written:], position + written)
            if step == 0:
                raise OSError(errno.ENOSPC, "write made no progress", self._path)
            written += step

    def write_pieces_at(self, pieces: Sequence[Buffer], position: int) -> None:
        for start in range(0, len(pieces), MAX_WRITE_PIECES):
            chunk = pieces[start : start + MAX_WRITE_PIECES]
            size = sum(map(len, chunk))
            written = os.pwritev(self._fd, chunk, position)
            if written != size:
                self._write_rest(memoryview(b"".join(chunk)), position, written)
            position += size

    def read_at(self, position: int, size_bytes: int) -> bytes:
        data = os.pread(self._fd, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        size = len(data)
        while size < size_bytes:  # a signal or a 2 GiB limit cut the read short
            data = os.pread(self._fd, size_bytes - size, position + size)
            if not data:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def is_cached(self, position: int, size_bytes: int) -> bool:
        # Memory is filled in long stretches, so one page stands for those around it.
        first = position + min(size_bytes, _PROBED_BYTES) // 2
        try:
            for place in range(first, position + size_bytes, _PROBED_BYTES):
                os.preadv(self._fd, [_probed], place, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the system does not know, or an error that the read itself will meet
        return True

    def load(self, position: int, size_bytes: int) -> None:
        read_ahead = self._read_ahead
        if read_ahead is None:
            read_ahead = self._read_ahead = ReadAhead()
        read_ahead.missed(position, position + size_bytes)
        self._fill_memory(position, position + size_bytes)

    def loading_ahead(self, position: int) -> Callable[[], None] | None:
        read_ahead = self._read_ahead
        wanted = None if read_ahead is None else read_ahead.wanted(position)
        return None if wanted is None else partial(self._fill_memory, *wanted)

    def _fill_memory(self, position: int, end: int) -> None:
        """Have the system read a part of the file, and wait for it; nothing of it is copied.

        It is sent nowhere: reading in order makes the system read on by itself, with large pages,
        which costs an eighth of what asking for it costs (POSIX_FADV_WILLNEED).
        """
        try:
            nowhere = _nowhere()
            while position < end and (
                size_bytes := os.sendfile(nowhere, self._fd, position, end - position)
            ):
                position += size_bytes
        except OSError:
            return  # the read itself will meet the error

    def descriptor(self) -> int | None:
        return self._fd if self._fd >= 0 else None

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        # A duplicate keeps the file alive if the owner closes it while this thread waits.
        try:
            fd = os.dup(self._fd)
        except OSError as error:
            if error.errno == errno.EBADF and self._fd < 0:
                return  # closed by its owner, who synced it or deleted it
            raise
        began = time.perf_counter_ns()
        try:
            os.fdatasync(fd)
            SYNC_TIMES.add(self._path, began, time.perf_counter_ns())
        except OSError as error:
            # What was to be written may be gone, also for want of space: no later sync mends that.
            raise OSError(errno.EIO, f"sync failed: {error.strerror}", self._path) from error
        finally:
            os.close(fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsDirectoryLock:
    """An flock on a lock file; the kernel drops it when the process dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsFileSystem:
    """The machine's file system."""

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, 0o644))

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size_bytes(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_directory(self, path: str) -> None:
        try:
            entries = list(os.scandir(path))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                self.remove_directory(entry.path)
            else:
                self.remove(entry.path)
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DirectoryLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return OsDirectoryLock(fd)


def write_atomically(
    fs: FileSystem, path: str, data: bytes, *, sync: bool = True, sync_parent: bool = True
) -> None:
    """Replace the file's content so that a crash leaves the old or the new one, never a mix.

    Without `sync` a power cut may leave an empty file: only for what can be rebuilt. Without
    `sync_parent` the caller syncs the directory itself, once for many files.
    """
    temporary = path + ".tmp"
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(data, 0)
        if sync:
            file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    if sync and sync_parent:
        fs.sync_directory(os.path.dirname(path))


class ReadOnlyFileSystem(OsFileSystem):
    """The machine's file system, only to be read; the process may not be allowed more."""

    def open(self, path: str, *, create: bool = False) -> File:
        assert not create, "nothing is made here"
        return OsFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
