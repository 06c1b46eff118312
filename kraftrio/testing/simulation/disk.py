"""One node's disk in memory: its contents, what of them survives a crash, and its faults.

Owns: `SimDisk` (`broker.log.files.FileSystem`) and its faults; its contents are a `file_tree`.

Faults: only those that a cluster must survive.
- The process dies (kill -9): what was written is there, synced or not; nothing else is lost.
- The power fails: of its unsynced changes each file keeps what `survival` chooses, torn anywhere,
  or with holes; names changed since the directory's sync may be as before. The nemesis does this
  only to a node whose in-sync partners all live: if every in-sync replica loses its unsynced tail,
  acknowledged records are lost in Kafka as well.
- A full disk: writes fail with ENOSPC after a part of their bytes, until there is room again.
- A slow disk: work in threads takes long (`cluster.DiskSpeed`).
- Bad reads: a read of a log returns a flipped bit, and the right bytes when it is repeated.
- Rot: a bit of a file reads wrong from now on, until it is written again or the disk is repaired
  (`scrub`: as from the mirror of an array, or from a copy). Rot of a log may cost a replica all
  that follows once it recovers, so the nemesis does it like a power cut: to one replica while its
  partners live. Rot of the only copy is loss in Kafka as well.
- A sync that fails: what was not synced of the file is lost at once, as the page cache drops it
  sooner or later, and later syncs succeed (what PostgreSQL's developers called fsyncgate). If the
  file is a partition's log, the replica loses its tail, so that is done like a power cut, too.
- Syncs that lie: a power cut leaves the disk as it was when they began to, except for the files of
  the metadata: a quorum cannot survive voters that forget what they promised.
- A disk, or one directory, is replaced by an empty one; the injector of the fault does that.
- A whole log directory fails: every call in it, until it is repaired.
- Single calls fail for want of a file descriptor or of room (see `disk_calls`).
See `damage` for which bits are flipped.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kraftrio.testing.simulation.damage import BadReads, bit_to_flip, flipped, is_metadata
from kraftrio.testing.simulation.disk_calls import FailingCalls
from kraftrio.testing.simulation.disk_image import DiskImage
from kraftrio.testing.simulation.file_tree import Directory, FileTree, Inode
from kraftrio.wire.primitives import Buffer

BROKEN = "the disk is broken"  # in the text of each error of a directory that failed


class SimFile:
    """An open file of a `SimDisk`."""

    __slots__ = ("_closed", "_disk", "_inode", "_path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
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
        """Everything is in memory already."""

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


class SimDisk:
    """The FileSystem port over a tree in memory.

    Attributes:
        tree: what was written, without the damage that reads return.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.room_bytes: int | None = None  # how much can still be written; None: enough
        self.has_metadata_apart = False  # on another disk, which has room
        self.is_dead = False  # its process was killed, so calls change nothing any more
        self.locks: set[str] = set()
        self.bad_reads: BadReads | None = None
        self.failing_calls: FailingCalls | None = None
        self.broken_path: str | None = None  # every call below it fails
        self.met_broken = False  # such a call of this process has failed
        self.misread: set[str] = set()  # files of which this process has read rotten bits
        self.holes = False  # a power cut may leave some in what was not synced
        self._frozen: FileTree | None = None  # what a power cut leaves, while syncs lie
        self.sync_fails: Callable[[str], bool] | None = None  # for which path the next one does
        self.failed_syncs: list[str] = []  # paths
        self._shows_damage = True
        self.tree = FileTree()

    def check_call(self, operation: str, path: str) -> None:
        """Raise OSError if this call is to fail."""
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

    def shown(self, path: str, inode: Inode, position: int, found: bytes) -> bytes:
        """Return what a read returns where `found` was written."""
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
            bit = self.bad_reads.choose(path, inode.data, position, len(found))
            if bit is not None:
                inode.was_bad = True
                found = flipped(found, position, dict([bit]))
        return found

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Let reads in the body return what was written, for invariants that look at the disk."""
        before, self._shows_damage = self._shows_damage, False
        try:
            yield
        finally:
            self._shows_damage = before

    def rot(self, path: str, rng: random.Random) -> bool:
        """Let a bit of a file read wrong from now on; False: there is none to flip."""
        inode = self.tree.file(path)
        bit = bit_to_flip(path, inode.data, rng, 0, len(inode.data))
        if bit is None:
            return False
        inode.rot[bit.position] = bit.mask
        return True

    def is_rotten(self, path: str) -> bool:
        """Whether there is such a file, and a bit of it reads wrong."""
        found = self.tree.find(path)
        return isinstance(found, Inode) and bool(found.rot)

    def scrub(self) -> None:
        """Repair everything that is rotten."""
        for path in self.tree.files():
            self.tree.file(path).rot.clear()

    def freeze(self) -> None:
        """From now on syncs lie, as on a disk that keeps everything in a cache and loses that."""
        self._frozen = self.tree.copy()

    def thaw(self) -> None:
        """Syncs are honest again, also those before."""
        self._frozen = None

    # -- images ---------------------------------------------------------------------------------

    def image(self) -> DiskImage:
        """Return what is written now, synced or not, without damage."""
        return self.tree.image()

    @classmethod
    def of(cls, image: DiskImage, now_ms: Callable[[], int]) -> SimDisk:
        """Return a disk with the contents of an image, all of it durable."""
        disk = cls(now_ms)
        disk.tree = FileTree.of(image)
        return disk

    # -- crashes --------------------------------------------------------------------------------

    def after_kill(self) -> SimDisk:
        """Return the disk for the next process; what still runs of this one changes nothing."""
        successor = self._successor()
        successor._frozen = self._frozen
        successor.tree = self.tree
        return successor

    def _successor(self) -> SimDisk:
        successor = SimDisk(self.now_ms)
        successor.room_bytes = self.room_bytes
        successor.has_metadata_apart = self.has_metadata_apart
        successor.holes, successor.broken_path = self.holes, self.broken_path
        self.is_dead = True
        return successor

    def after_power_cut(self, rng: random.Random) -> SimDisk:
        """Return the disk as it is when the power is back."""
        tree = self.tree.after_power_cut(rng, holes=self.holes)
        if self._frozen is not None:
            tree = self._frozen.with_metadata_of(tree)
        successor = self._successor()
        successor.tree = tree
        return successor

    # -- the port -------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimFile:
        found = self.tree.find(path)
        self.check_call("create" if create and found is None else "open", path)
        if found is None and create and self.is_dead:
            found = Inode(self.now_ms())
        elif found is None and create:
            parent, name = self.tree.parent(path)
            if len(name) > 255:
                raise OSError(errno.ENAMETOOLONG, "name over 255", path)
            found = Inode(self.now_ms())
            parent.put(name, found)
        if not isinstance(found, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return SimFile(self, path, found)

    def read_file(self, path: str) -> bytes:
        inode = self.tree.file(path)
        self.check_call("read_file", path)
        return self.shown(path, inode, 0, bytes(inode.data))

    def exists(self, path: str) -> bool:
        return self.tree.find(path) is not None

    def size_bytes(self, path: str) -> int:
        return len(self.tree.file(path).data)

    def modified_ms(self, path: str) -> int:
        return self.tree.file(path).modified_ms

    def list_directory(self, path: str) -> list[str]:
        found = self.tree.directory(path)
        self.check_call("list", path)
        return sorted(found.names)

    def is_directory(self, path: str) -> bool:
        return isinstance(self.tree.find(path), Directory)

    def make_directory(self, path: str) -> None:
        if self.is_dead:
            return
        if self.tree.find(path) is None:
            self.check_call("make_directory", path)
        self.tree.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        if self.is_dead:
            return
        parent, name = self.tree.parent(source)
        try:
            self.check_call("rename", target)
        except OSError:
            # Only some files of a compacted segment, or of what it replaces, are renamed: the node
            # gives the directory up until a restart.
            self.met_broken |= source.endswith((".cleaned", ".swap"))
            self.met_broken |= any(other.endswith(".log.swap") for other in parent.names)
            raise
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        new_parent, new_name = self.tree.parent(target)
        if len(new_name) > 255:
            raise OSError(errno.ENAMETOOLONG, "name over 255", target)
        new_parent.put(new_name, parent.drop(name))

    def remove(self, path: str) -> None:
        if self.is_dead:
            return
        self.check_call("remove", path)
        if isinstance(self.tree.find(path), Inode):
            parent, name = self.tree.parent(path)
            parent.drop(name)

    def remove_directory(self, path: str) -> None:
        if self.is_dead:
            return
        self.check_call("remove", path)
        if isinstance(self.tree.find(path), Directory):
            parent, name = self.tree.parent(path)
            parent.drop(name)

    def sync_directory(self, path: str) -> None:
        if self.is_dead:
            return
        found = self.tree.directory(path)
        self.check_call("sync_directory", path)
        found.sync()

    def lock(self, path: str) -> SimLock:
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.open(path, create=True)
        self.locks.add(path)
        return SimLock(self, path)
