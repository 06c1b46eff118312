"""One node's disk in memory: what is written, what of it would survive, and how it fails.

Owns: `SimDisk` (`broker.log.files.FileSystem`) and the rules of survival. Every file keeps the
changes made since its last sync, every directory the names changed since its own.

Faults that a cluster must survive, hence all that are injected
- The process dies (kill -9): what was written is there, synced or not; nothing else is lost.
- The power fails: of its unsynced changes each file keeps what `survival` chooses, torn anywhere,
  or with holes; names changed since the directory's sync may be as before. The nemesis does this
  only to a node whose in-sync partners all live: losing the unsynced tails of every in-sync
  replica loses acknowledged records in Kafka as well.
- A full disk: writes fail with ENOSPC after a part of their bytes, until there is room again.
- A slow disk: what runs in threads takes long (`delay_s`).
- Bad reads: a read of a log gives a flipped bit, and the right bytes when it is repeated.
- Rot: a bit of a file reads wrong from now on, until it is written again or the disk is mended
  (`scrub`: as from the mirror of an array, or from a copy). Rot of a log may cost a replica all
  that follows once it recovers, so the nemesis does it like a power cut: to one replica while its
  partners live. Rot of the only copy is loss in Kafka as well.
- A sync that fails: what of the file was not synced is gone at once, as the page cache drops it
  sooner or later, and later syncs succeed (what PostgreSQL's developers called fsyncgate). Of a
  partition's log it costs the replica its tail, so that is done like a power cut, too.
- Syncs that lie: a power cut leaves the disk as it was when they began to, but for the metadata's
  files: a voter that has forgotten what it promised is not a fault that a quorum can survive.
- A disk, or one directory, is replaced by an empty one by what injects faults.
- A whole log directory fails: all that is done in it, until it is mended.
- Single calls fail for want of a file descriptor or of room (see `disk_calls`).
See `damage` for which bits are flipped.
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kraftrio.testing.simulation.damage import BadReads, flipped, is_metadata, place_of
from kraftrio.testing.simulation.disk_calls import FailingCalls
from kraftrio.testing.simulation.disk_image import DiskImage, FileImage
from kraftrio.testing.simulation.survival import Change, apply_change, survived
from kraftrio.wire.primitives import Buffer

BROKEN = "the disk is broken"  # in the text of each error of a directory that failed


class _Inode:
    __slots__ = ("data", "durable", "modified_ms", "rot", "unsynced", "was_bad")

    def __init__(self, modified_ms: int, data: bytes = b"") -> None:
        self.data: bytes | bytearray = data  # bytes: shared with an image, until it changes
        self.durable: bytes | bytearray = data
        self.unsynced: list[Change] = []
        self.modified_ms = modified_ms
        self.rot: dict[int, int] = {}  # bits that read wrong, by position
        self.was_bad = False  # the last read

    def change(self, position: int, content: bytes | None) -> None:
        """Write, or cut, without syncing it."""
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        apply_change(self.data, position, content)
        self.unsynced.append((position, content))

    def sync(self) -> None:
        """Make durable what was written."""
        if self.unsynced:
            if isinstance(self.durable, bytes):
                self.durable = bytearray(self.durable)
            for position, content in self.unsynced:
                apply_change(self.durable, position, content)
            self.unsynced.clear()

    def image(self) -> FileImage:
        """What is written now; the bytes are shared from now on."""
        self.data = bytes(self.data)
        return FileImage(self.data, self.modified_ms)

    def heal_written(self, start: int, end: int) -> None:
        """What is written again, or cut, is not rotten any more."""
        for position in [place for place in self.rot if start <= place < end]:
            del self.rot[position]

    def lose_unsynced(self) -> None:
        """Go back to what is durable; what was cut stays cut, for that is journalled."""
        cuts = [position for position, data in self.unsynced if data is None]
        self.durable = self.durable[: min(cuts, default=len(self.durable))]
        self.data = self.durable[:]
        self.unsynced.clear()
        self.heal_written(len(self.data), 1 << 62)


class SimFile:
    """An open file of a `SimDisk`."""

    __slots__ = ("_closed", "_disk", "_inode", "_path")

    def __init__(self, disk: SimDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "closed file", self._path)

    def write_at(self, data: Buffer, position: int) -> None:
        self._check()
        if self._disk.is_dead:
            return
        content = bytes(data)
        self._disk.check_call("write", self._path)
        room = self._disk.room_for(self._path)
        if room is not None and position + len(content) > len(self._inode.data):
            if room < len(content):
                self._write(content[:room], position)
                raise OSError(errno.ENOSPC, "disk full", self._path)
            self._disk.room_bytes = room - len(content)
        self._write(content, position)

    def _write(self, content: bytes, position: int) -> None:
        if content:
            inode = self._inode
            inode.change(position, content)
            if inode.rot:
                inode.heal_written(position, position + len(content))
            inode.modified_ms = self._disk.now_ms()

    def write_pieces_at(self, pieces: Sequence[Buffer], position: int) -> None:
        self.write_at(b"".join(pieces), position)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._check()
        self._disk.check_call("read", self._path)
        with memoryview(self._inode.data) as view:
            found = bytes(view[position : position + size_bytes])
        return self._disk.shown(self._path, self._inode, position, found)

    def is_cached(self, position: int, size_bytes: int) -> bool:
        return True

    def load(self, position: int, size_bytes: int) -> None:
        """There already."""

    def loading_ahead(self, position: int) -> None:
        return None

    def descriptor(self) -> int | None:
        return None

    def truncate(self, size_bytes: int) -> None:
        self._check()
        if self._disk.is_dead:
            return
        self._disk.check_call("truncate", self._path)
        self._inode.change(size_bytes, None)
        self._inode.heal_written(size_bytes, 1 << 62)

    def size_bytes(self) -> int:
        self._check()
        return len(self._inode.data)

    def sync(self) -> None:
        if self._disk.is_dead:
            return
        self._disk.check_call("sync", self._path)
        inode = self._inode
        fails = self._disk.sync_fails
        if fails is not None and fails(self._path):
            self._disk.sync_fails = None
            self._disk.failed_syncs.append(self._path)
            inode.lose_unsynced()
            raise OSError(errno.EIO, "sync failed", self._path)
        inode.sync()

    def close(self) -> None:
        self._closed = True


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class _Directory:
    __slots__ = ("changed", "durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.changed: dict[str, None] = {}  # names whose durable entry may differ, in order

    def put(self, name: str, entry: _Inode | _Directory) -> None:
        self.names[name] = entry
        self.changed[name] = None

    def drop(self, name: str) -> _Inode | _Directory:
        self.changed[name] = None
        return self.names.pop(name)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changed.clear()

    def survivors(self, rng: random.Random) -> dict[str, _Inode | _Directory]:
        """What a power cut leaves of the names: some of the unsynced changes came through."""
        survivors = dict(self.durable)
        kept = rng.randrange(len(self.changed) + 1)
        for name in list(self.changed)[:kept]:
            entry = self.names.get(name)
            if entry is None:
                survivors.pop(name, None)
            else:
                survivors[name] = entry
        return survivors


def _copy_of(directory: _Directory) -> _Directory:
    """A tree as it is written now, all of it durable."""
    copy = _Directory()
    for name, entry in directory.names.items():
        if isinstance(entry, _Directory):
            copy.names[name] = _copy_of(entry)
        else:
            copy.names[name] = _Inode(entry.modified_ms, entry.image().read())
    copy.sync()
    return copy


def _with_metadata_of(survived: _Directory, frozen: _Directory) -> _Directory:
    """A frozen tree, with the folders of the metadata from what survived."""
    for name, entry in survived.names.items():
        inside = frozen.names.get(name)
        if is_metadata(name):
            frozen.names[name] = entry
        elif isinstance(entry, _Directory) and isinstance(inside, _Directory):
            _with_metadata_of(entry, inside)
    frozen.sync()
    return frozen


class SimDisk:
    """The FileSystem port over a tree in memory."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.room_bytes: int | None = None  # what still can be written; None: enough
        self.has_metadata_apart = False  # on another disk, which has room
        self.is_dead = False  # of a process that was killed: changes nothing any more
        self.locks: set[str] = set()
        self.bad_reads: BadReads | None = None
        self.failing_calls: FailingCalls | None = None
        self.broken_path: str | None = None  # all that is done below it fails
        self.met_broken = False  # by this process
        self.misread: set[str] = set()  # files of which this process has read what is rotten
        self.holes = False  # a power cut may leave some in what was not synced
        self._frozen: _Directory | None = None  # all that a power cut leaves, since syncs lie
        self.sync_fails: Callable[[str], bool] | None = None  # the next one of such a path, once
        self.failed_syncs: list[str] = []
        self._shows_damage = True
        self._root = _Directory()

    def check_call(self, operation: str, path: str) -> None:
        """Raise OSError if this call is one of those that fail."""
        if self.is_dead or not self._shows_damage:
            return
        if self.broken_path is not None and f"{path}/".startswith(self.broken_path):
            self.met_broken = True
            raise OSError(errno.EIO, BROKEN, path)
        if self.failing_calls is not None:
            self.failing_calls.check(operation, path)

    @property
    def is_limited(self) -> bool:
        """Whether it is full, or fails."""
        return self.room_bytes is not None or self.broken_path is not None

    def room_for(self, path: str) -> int | None:
        """How much can be written to a file; None: enough."""
        return None if self.has_metadata_apart and is_metadata(path) else self.room_bytes

    # -- damage ---------------------------------------------------------------------------------

    def shown(self, path: str, inode: _Inode, position: int, found: bytes) -> bytes:
        """What a read gives."""
        if not self._shows_damage:
            return found
        if inode.rot:
            shown = flipped(found, position, inode.rot)
            if shown != found:
                self.misread.add(path)
            found = shown
        if inode.was_bad:
            inode.was_bad = False
        elif self.bad_reads is not None:
            place = self.bad_reads.place(path, inode.data, position, len(found))
            if place is not None:
                inode.was_bad = True
                found = flipped(found, position, dict([place]))
        return found

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Read what was written: for who looks on."""
        before, self._shows_damage = self._shows_damage, False
        try:
            yield
        finally:
            self._shows_damage = before

    def rot(self, path: str, rng: random.Random) -> bool:
        """Let a bit of a file read wrong from now on; False: there is none to flip."""
        inode = self._file(path)
        place = place_of(path, inode.data, rng, 0, len(inode.data))
        if place is None:
            return False
        inode.rot[place.position] = place.mask
        return True

    def contents(self, path: str) -> bytes:
        """What was written to a file: for who looks on."""
        return bytes(self._file(path).data)

    def is_rotten(self, path: str) -> bool:
        """Whether a file is there that has a bit which reads wrong."""
        found = self._find(path)
        return isinstance(found, _Inode) and bool(found.rot)

    def scrub(self) -> None:
        """Mend all that is rotten."""
        for path in self.files():
            self._file(path).rot.clear()

    def wipe(self, path: str) -> None:
        """Put an empty directory in the place of this one."""
        found = self._find(path)
        if isinstance(found, _Directory):
            found.names.clear()
            found.sync()

    def freeze(self) -> None:
        """From now on syncs lie, as of a disk that keeps all in a cache which it does not drain."""
        self._frozen = _copy_of(self._root)

    def thaw(self) -> None:
        """What was said to be synced is."""
        self._frozen = None

    def files(self, *endings: str) -> list[str]:
        """The paths of all files with one of these endings, in order."""
        found: list[str] = []

        def walk(directory: _Directory, path: str) -> None:
            for name, entry in sorted(directory.names.items()):
                inside = f"{path}/{name}"
                if isinstance(entry, _Directory):
                    walk(entry, inside)
                elif not endings or name.endswith(endings):
                    found.append(inside)

        walk(self._root, "")
        return found

    # -- images ---------------------------------------------------------------------------------

    def image(self) -> DiskImage:
        """What is written on it now, synced or not, without what damage shows."""
        folders: list[str] = []
        files: dict[str, FileImage] = {}

        def walk(directory: _Directory, path: str) -> None:
            for name, entry in sorted(directory.names.items()):
                inside = f"{path}/{name}"
                if isinstance(entry, _Directory):
                    folders.append(inside)
                    walk(entry, inside)
                else:
                    files[inside] = entry.image()

        walk(self._root, "")
        return DiskImage(tuple(folders), files)

    @classmethod
    def of(cls, image: DiskImage, now_ms: Callable[[], int]) -> SimDisk:
        """A disk with what an image has, all of it durable."""
        disk = cls(now_ms)
        for folder in image.folders:
            disk.make_directory(folder)
        for path, file in image.files.items():
            parent, name = disk._parent(path)
            parent.put(name, _Inode(file.modified_ms, file.read()))
        for path in ("/", *image.folders):
            disk.sync_directory(path)
        return disk

    # -- crashes --------------------------------------------------------------------------------

    def after_kill(self) -> SimDisk:
        """The disk as the next process finds it; what still runs of the old one changes nothing."""
        successor = self._successor()
        successor._frozen = self._frozen
        successor._root = self._root
        return successor

    def _successor(self) -> SimDisk:
        successor = SimDisk(self.now_ms)
        successor.room_bytes = self.room_bytes
        successor.has_metadata_apart = self.has_metadata_apart
        successor.holes, successor.broken_path = self.holes, self.broken_path
        self.is_dead = True
        return successor

    def after_power_cut(self, rng: random.Random) -> SimDisk:
        """The disk as the machine finds it when the power is back."""
        copies: dict[int, _Inode | _Directory] = {}

        def copy(entry: _Inode | _Directory) -> _Inode | _Directory:
            found = copies.get(id(entry))
            if found is None:
                if isinstance(entry, _Inode):
                    data = survived(entry.durable, entry.unsynced, rng, holes=self.holes)
                    found = copies[id(entry)] = _Inode(entry.modified_ms, data)
                    found.rot = {p: m for p, m in entry.rot.items() if p < len(found.data)}
                else:
                    found = copies[id(entry)] = _Directory()
                    for name, child in entry.survivors(rng).items():
                        found.names[name] = copy(child)
                    found.durable = dict(found.names)
            return found

        root = copy(self._root)
        assert isinstance(root, _Directory)
        if self._frozen is not None:
            root = _with_metadata_of(root, self._frozen)
        successor = self._successor()
        successor._root = root
        return successor

    # -- the port -------------------------------------------------------------------------------

    def _find(self, path: str) -> _Inode | _Directory | None:
        entry: _Inode | _Directory | None = self._root
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if not isinstance(entry, _Directory):
                return None
            entry = entry.names.get(part)
        return entry

    def _parent(self, path: str) -> tuple[_Directory, str]:
        directory, name = posixpath.split(path)
        found = self._find(directory)
        if not isinstance(found, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        return found, name

    def _file(self, path: str) -> _Inode:
        found = self._find(path)
        if not isinstance(found, _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def open(self, path: str, *, create: bool = False) -> SimFile:
        found = self._find(path)
        self.check_call("create" if create and found is None else "open", path)
        if found is None and create and self.is_dead:
            found = _Inode(self.now_ms())
        elif found is None and create:
            parent, name = self._parent(path)
            if len(name) > 255:
                raise OSError(errno.ENAMETOOLONG, "name over 255", path)
            found = _Inode(self.now_ms())
            parent.put(name, found)
        if not isinstance(found, _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return SimFile(self, path, found)

    def read_file(self, path: str) -> bytes:
        inode = self._file(path)
        self.check_call("read_file", path)
        return self.shown(path, inode, 0, bytes(inode.data))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size_bytes(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def list_directory(self, path: str) -> list[str]:
        found = self._find(path)
        if not isinstance(found, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.check_call("list", path)
        return sorted(found.names)

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def make_directory(self, path: str) -> None:
        if self.is_dead:
            return
        if self._find(path) is None:
            self.check_call("make_directory", path)
        directory = self._root
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if len(part) > 255:
                raise OSError(errno.ENAMETOOLONG, "name over 255", path)
            entry = directory.names.get(part)
            if entry is None:
                entry = _Directory()
                directory.put(part, entry)
            if not isinstance(entry, _Directory):
                raise FileExistsError(errno.EEXIST, "is a file", path)
            directory = entry

    def rename(self, source: str, target: str) -> None:
        if self.is_dead:
            return
        parent, name = self._parent(source)
        try:
            self.check_call("rename", target)
        except OSError:
            # A compacted segment, or what it replaces, stays renamed in part: the directory is
            # given up until a restart.
            self.met_broken |= source.endswith((".cleaned", ".swap"))
            self.met_broken |= any(other.endswith(".log.swap") for other in parent.names)
            raise
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        new_parent, new_name = self._parent(target)
        if len(new_name) > 255:
            raise OSError(errno.ENAMETOOLONG, "name over 255", target)
        new_parent.put(new_name, parent.drop(name))

    def remove(self, path: str) -> None:
        if self.is_dead:
            return
        self.check_call("remove", path)
        if isinstance(self._find(path), _Inode):
            parent, name = self._parent(path)
            parent.drop(name)

    def remove_directory(self, path: str) -> None:
        if self.is_dead:
            return
        self.check_call("remove", path)
        if isinstance(self._find(path), _Directory):
            parent, name = self._parent(path)
            parent.drop(name)

    def sync_directory(self, path: str) -> None:
        if self.is_dead:
            return
        found = self._find(path)
        if not isinstance(found, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.check_call("sync_directory", path)
        found.sync()

    def lock(self, path: str) -> SimLock:
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.open(path, create=True)
        self.locks.add(path)
        return SimLock(self, path)
