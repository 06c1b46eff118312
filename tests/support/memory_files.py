"""An in-memory FileSystem that forgets what was not synced, tears writes and injects faults.

Every change (bytes written, a cut, a name made, moved or removed) is pending until `sync` of the
file or `sync_directory` of the parent makes it durable. `after_crash(keep)` gives the file system
that a machine finds after a power cut when the first `keep` units of the pending changes (a byte,
or one change that writes none) had reached the disk, so a loop over `keep` crashes at every byte.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from kraftrio.wire.primitives import Buffer


@dataclass(eq=False)
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    modified_ms: int = 0


@dataclass
class _Write:
    inode: _Inode
    position: int
    data: bytes

    def units(self) -> int:
        return len(self.data)


@dataclass
class _Truncate:
    inode: _Inode
    size_bytes: int

    def units(self) -> int:
        return 1


@dataclass
class _Names:
    """Names that change together; None removes. A directory is a name with an inode of its own."""

    parents: frozenset[str]
    files: dict[str, _Inode | None]
    directories: dict[str, bool] = field(default_factory=dict)

    def units(self) -> int:
        return 1


_Change = _Write | _Truncate | _Names


def _apply_data(target: bytearray, change: _Write | _Truncate, units: int | None = None) -> None:
    if isinstance(change, _Truncate):
        size = change.size_bytes
        target.extend(bytes(max(0, size - len(target))))
        del target[size:]
        return
    data = change.data if units is None else change.data[:units]
    if not data:
        return
    end = change.position + len(data)
    target.extend(bytes(max(0, end - len(target))))
    target[change.position : end] = data


@dataclass
class FailedCall:
    """One call of the port that fails, by its number from the moment this is set.

    Args:
        number: 1 for the next call.
        partly: a write leaves the first half of its bytes behind.
    """

    number: int
    code: int
    partly: bool = True
    calls: int = 0
    place: str = ""  # which call it was, once it has failed

    def on_call(self, operation: str, path: str) -> None:
        """Count a call; raise OSError when it is the one."""
        self.calls += 1
        if self.calls == self.number:
            self.place = f"{operation} {path}"
            raise OSError(self.code, f"injected into {self.place}")


# Gives what a read of a file from a position gives instead of these bytes.
ReadFault = Callable[[str, int, bytes], bytes]
# Gives the bytes to write before failing and the error, or None to let the write pass.
WriteFault = Callable[[str, int, int], tuple[int, OSError] | None]


class MemoryFile:
    def __init__(self, fs: MemoryFileSystem, path: str, inode: _Inode) -> None:
        self._fs = fs
        self._path = path
        self._inode = inode
        self._closed = False
        fs.open_files.add(self)

    def _check(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "closed file", self._path)

    def write_at(self, data: Buffer, position: int) -> None:
        self._check()
        self._fs.write(self._path, self._inode, bytes(data), position)

    def write_pieces_at(self, pieces: Sequence[Buffer], position: int) -> None:
        self.write_at(b"".join(pieces), position)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._check()
        self._fs.check_fault("read_at", self._path)
        self._fs.read_count += 1
        data = bytes(self._inode.data[position : position + size_bytes])
        fault = self._fs.read_fault
        return data if fault is None else fault(self._path, position, data)

    def is_cached(self, position: int, size_bytes: int) -> bool:
        return self._fs.is_cached

    def load(self, position: int, size_bytes: int) -> None:
        self._fs.loads.append((position, size_bytes))

    def loading_ahead(self, position: int) -> None:
        return None

    def descriptor(self) -> int | None:
        return None

    def truncate(self, size_bytes: int) -> None:
        self._check()
        self._fs.check_fault("truncate", self._path)
        change = _Truncate(self._inode, size_bytes)
        _apply_data(self._inode.data, change)
        self._fs.pending.append(change)

    def size_bytes(self) -> int:
        self._check()
        return len(self._inode.data)

    def sync(self) -> None:
        self._fs.check_fault("sync", self._path)
        self._fs.sync_inode(self._inode)

    def close(self) -> None:
        self._closed = True
        self._fs.open_files.discard(self)


class MemoryLock:
    def __init__(self, fs: MemoryFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def release(self) -> None:
        self._fs.locks.discard(self._path)


class MemoryFileSystem:
    """The FileSystem port over dictionaries."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.files: dict[str, _Inode] = {}
        self.directories: set[str] = {"", "/"}
        self.durable_files: dict[str, _Inode] = {}
        self.durable_directories: set[str] = {"", "/"}
        self.pending: list[_Change] = []
        self.locks: set[str] = set()
        self.open_files: set[MemoryFile] = set()
        self.write_fault: WriteFault | None = None
        self.read_fault: ReadFault | None = None
        self.faults: dict[tuple[str, str], OSError] = {}
        self.failed_call: FailedCall | None = None
        self.on_call: Callable[[str, str], None] | None = None  # called with each (operation, path)
        self.is_cached = True
        self.loads: list[tuple[int, int]] = []
        self.sync_count = 0
        self.read_count = 0
        self._now_ms = now_ms

    # Faults.

    def check_fault(self, operation: str, path: str) -> None:
        if self.on_call is not None:
            self.on_call(operation, path)
        if self.failed_call is not None:
            self.failed_call.on_call(operation, path)
        for (wanted, part), error in self.faults.items():
            if wanted == operation and part in path:
                raise error

    def fail(self, operation: str, path_part: str, code: int = errno.EIO) -> None:
        """Let `operation` (write, sync, truncate, open, rename, remove) fail on matching paths."""
        self.faults[operation, path_part] = OSError(code, "injected", path_part)

    def heal(self) -> None:
        self.faults.clear()
        self.failed_call = None
        self.write_fault = None
        self.read_fault = None

    @property
    def unsynced_units(self) -> int:
        return sum(change.units() for change in self.pending)

    def after_crash(self, keep: int = 0, random: Random | None = None) -> MemoryFileSystem:
        """The file system after a power cut; this one stays as it is.

        With `random` each file and each directory keeps its own prefix: disks reorder.
        """
        survivor = MemoryFileSystem(self._now_ms)
        copies: dict[int, bytearray] = {}

        def content(inode: _Inode) -> bytearray:
            return copies.setdefault(id(inode), bytearray(inode.durable))

        files = dict(self.durable_files)
        directories = set(self.durable_directories)
        budget = keep
        share: dict[object, float] = {}
        for change in self.pending:
            units = change.units()
            if random is not None:
                key = change.parents if isinstance(change, _Names) else id(change.inode)
                part = share.setdefault(key, random.random())
                kept = units if part > random.random() else random.randrange(units + 1)
                if kept < units:
                    share[key] = -1.0
                if part < 0:
                    continue
            else:
                kept = min(units, budget)
                budget -= kept
            if isinstance(change, _Names):
                if kept:
                    _apply_names(files, directories, change)
            elif isinstance(change, _Write):
                _apply_data(content(change.inode), change, kept)
            elif kept:
                _apply_data(content(change.inode), change)
            if random is None and kept < units:
                break
        survivor.directories = {d for d in directories if _has_parents(d, directories)}
        survivor.durable_directories = set(survivor.directories)
        for path, inode in files.items():
            if posixpath.dirname(path) in survivor.directories:
                data = bytes(content(inode))
                fresh = _Inode(bytearray(data), bytearray(data), inode.modified_ms)
                survivor.files[path] = survivor.durable_files[path] = fresh
        return survivor

    # Called by files.

    def write(self, path: str, inode: _Inode, data: bytes, position: int) -> None:
        fault = self.write_fault(path, position, len(data)) if self.write_fault else None
        try:
            self.check_fault("write", path)
        except OSError as error:
            if self.failed_call is None or not self.failed_call.partly:
                raise
            fault = (len(data) // 2, error)
        if fault is not None:
            data = data[: fault[0]]
        change = _Write(inode, position, data)
        _apply_data(inode.data, change)
        inode.modified_ms = self._now_ms()
        if data:
            self.pending.append(change)
        if fault is not None:
            raise fault[1]

    def sync_inode(self, inode: _Inode) -> None:
        self.sync_count += 1
        rest: list[_Change] = []
        for change in self.pending:
            if isinstance(change, _Names) or change.inode is not inode:
                rest.append(change)
            else:
                _apply_data(inode.durable, change)
        self.pending = rest

    # The port.

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.check_fault("open", path)
        inode = self.files.get(path)
        if inode is None:
            if not create or posixpath.dirname(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._check_name(path)
            inode = _Inode(modified_ms=self._now_ms())
            self._names({path: inode})
        return MemoryFile(self, path, inode)

    def read_file(self, path: str) -> bytes:
        self.check_fault("read", path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(self.files[path].data)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def size_bytes(self, path: str) -> int:
        self.check_fault("stat", path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return len(self.files[path].data)

    def modified_ms(self, path: str) -> int:
        return self.files[path].modified_ms

    def list_directory(self, path: str) -> list[str]:
        self.check_fault("list", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        names = [posixpath.basename(p) for p in self.files if posixpath.dirname(p) == path]
        names += [posixpath.basename(d) for d in self.directories if posixpath.dirname(d) == path]
        return sorted(name for name in names if name)

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def make_directory(self, path: str) -> None:
        self.check_fault("make_directory", path)
        if path in self.directories:
            return
        self._check_name(path)
        self.make_directory(posixpath.dirname(path))
        self._names({}, {path: True})

    def rename(self, source: str, target: str) -> None:
        self.check_fault("rename", source)
        self._check_name(target)
        if source in self.directories:
            below = {p: i for p, i in self.files.items() if p.startswith(source + "/")}
            files: dict[str, _Inode | None] = dict.fromkeys(below)
            files |= {target + p[len(source) :]: inode for p, inode in below.items()}
            nested = {d for d in self.directories if d.startswith(source + "/")} | {source}
            directories = dict.fromkeys(nested, False)
            directories |= {target + d[len(source) :]: True for d in nested}
            self._names(files, directories)
            return
        if source not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._names({source: None, target: self.files[source]})

    def remove(self, path: str) -> None:
        self.check_fault("remove", path)
        if path in self.files:
            self._names({path: None})

    def remove_directory(self, path: str) -> None:
        self.check_fault("remove", path)
        if path not in self.directories:
            return
        files = {p: None for p in self.files if p.startswith(path + "/")}
        nested = {d for d in self.directories if d.startswith(path + "/")} | {path}
        self._names(dict(files), dict.fromkeys(nested, False))

    def sync_directory(self, path: str) -> None:
        self.check_fault("sync", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.sync_count += 1
        rest: list[_Change] = []
        for change in self.pending:
            if isinstance(change, _Names) and path in change.parents:
                _apply_names(self.durable_files, self.durable_directories, change)
            else:
                rest.append(change)
        self.pending = rest

    def lock(self, path: str) -> MemoryLock:
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.open(path, create=True)
        self.locks.add(path)
        return MemoryLock(self, path)

    def _check_name(self, path: str) -> None:
        if len(posixpath.basename(path)) > 255:
            raise OSError(errno.ENAMETOOLONG, "name over 255", path)

    def _names(
        self, files: dict[str, _Inode | None], directories: dict[str, bool] | None = None
    ) -> None:
        paths = [*files, *(directories or {})]
        change = _Names(frozenset(map(posixpath.dirname, paths)), files, directories or {})
        _apply_names(self.files, self.directories, change)
        self.pending.append(change)


def _apply_names(files: dict[str, _Inode], directories: set[str], change: _Names) -> None:
    for path, inode in change.files.items():
        if inode is None:
            files.pop(path, None)
        else:
            files[path] = inode
    for path, present in change.directories.items():
        if present:
            directories.add(path)
        else:
            directories.discard(path)


def _has_parents(path: str, directories: set[str]) -> bool:
    while path not in ("", "/"):
        if path not in directories:
            return False
        path = posixpath.dirname(path)
    return True
