"""The files and directories of a simulated disk, and what a power cut leaves of them.

Owns `FileTree`. Every file keeps the changes made since its last sync, every directory the names
changed since its own. Errors are those of the operating system; faults are the disk's.

Called by: `disk`, which serves the tree to a node; invariants and tests.
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Iterator

from kraftrio.testing.simulation.damage import is_metadata
from kraftrio.testing.simulation.disk_image import DiskImage, FileImage
from kraftrio.testing.simulation.survival import Change, apply_change, survived


class Inode:
    """One file: what is written, how much of it is durable, and which bits read wrong."""

    __slots__ = ("data", "durable", "modified_ms", "rot", "unsynced", "was_bad")

    def __init__(self, modified_ms: int, data: bytes = b"") -> None:
        self.data: bytes | bytearray = data  # bytes: shared with an image, until it changes
        self.durable: bytes | bytearray = data
        self.unsynced: list[Change] = []
        self.modified_ms = modified_ms
        self.rot: dict[int, int] = {}  # bits that read wrong, by position
        self.was_bad = False  # the last read returned a flipped bit

    def change(self, position: int, content: bytes | None) -> None:
        """Write at a position, or truncate the file to it (None), without a sync."""
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
        """Return what is written now; the bytes are shared from then on."""
        self.data = bytes(self.data)
        return FileImage(self.data, self.modified_ms)

    def heal_written(self, start: int, end: int) -> None:
        """End the rot between two positions, which were written again or truncated."""
        for position in [place for place in self.rot if start <= place < end]:
            del self.rot[position]

    def lose_unsynced(self) -> None:
        """Go back to what is durable; a truncation stays, for the file system journals it."""
        sizes = [position for position, data in self.unsynced if data is None]
        self.durable = self.durable[: min(sizes, default=len(self.durable))]
        self.data = self.durable[:]
        self.unsynced.clear()
        self.heal_written(len(self.data), 1 << 62)


class Directory:
    """Names, and those that would survive a power cut."""

    __slots__ = ("changed", "durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.changed: dict[str, None] = {}  # names whose durable entry may differ, in order

    def put(self, name: str, entry: Inode | Directory) -> None:
        self.names[name] = entry
        self.changed[name] = None

    def drop(self, name: str) -> Inode | Directory:
        self.changed[name] = None
        return self.names.pop(name)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changed.clear()

    def survivors(self, rng: random.Random) -> dict[str, Inode | Directory]:
        """Return the names that a power cut leaves: some of the unsynced changes are kept."""
        survivors = dict(self.durable)
        kept = rng.randrange(len(self.changed) + 1)
        for name in list(self.changed)[:kept]:
            entry = self.names.get(name)
            if entry is None:
                survivors.pop(name, None)
            else:
                survivors[name] = entry
        return survivors


class FileTree:
    """A tree of directories and files, looked up by path from `root` down."""

    def __init__(self, root: Directory | None = None) -> None:
        self.root = Directory() if root is None else root

    # -- looking up -----------------------------------------------------------------------------

    def find(self, path: str) -> Inode | Directory | None:
        """Return what is at a path; None: nothing."""
        entry: Inode | Directory | None = self.root
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if not isinstance(entry, Directory):
                return None
            entry = entry.names.get(part)
        return entry

    def directory(self, path: str) -> Directory:
        """Return a directory, or raise FileNotFoundError."""
        found = self.find(path)
        if not isinstance(found, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return found

    def parent(self, path: str) -> tuple[Directory, str]:
        """Return the directory that a path is in, and its name there."""
        folder, name = posixpath.split(path)
        return self.directory(folder), name

    def file(self, path: str) -> Inode:
        """Return a file, or raise FileNotFoundError."""
        found = self.find(path)
        if not isinstance(found, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def contents(self, path: str) -> bytes:
        """Return what was written to a file."""
        return bytes(self.file(path).data)

    def files(self, *endings: str) -> list[str]:
        """Return the paths of all files with one of these endings, in order."""
        return [
            path
            for path, entry in _walk(self.root, "")
            if isinstance(entry, Inode) and (not endings or path.endswith(endings))
        ]

    # -- changes --------------------------------------------------------------------------------

    def make_directory(self, path: str) -> None:
        """Make a directory and its missing parents."""
        directory = self.root
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if len(part) > 255:
                raise OSError(errno.ENAMETOOLONG, "name over 255", path)
            entry = directory.names.get(part)
            if entry is None:
                entry = Directory()
                directory.put(part, entry)
            if not isinstance(entry, Directory):
                raise FileExistsError(errno.EEXIST, "is a file", path)
            directory = entry

    def wipe(self, path: str) -> None:
        """Put an empty directory in the place of this one."""
        found = self.find(path)
        if isinstance(found, Directory):
            found.names.clear()
            found.sync()

    # -- copies ---------------------------------------------------------------------------------

    def image(self) -> DiskImage:
        """Return what is written now, synced or not; the bytes are shared from then on."""
        folders: list[str] = []
        files: dict[str, FileImage] = {}
        for path, entry in _walk(self.root, ""):
            if isinstance(entry, Directory):
                folders.append(path)
            else:
                files[path] = entry.image()
        return DiskImage(tuple(folders), files)

    @classmethod
    def of(cls, image: DiskImage) -> FileTree:
        """Return a tree with the contents of an image, all of it durable."""
        tree = cls()
        for folder in image.folders:
            tree.make_directory(folder)
        for path, file in image.files.items():
            parent, name = tree.parent(path)
            parent.put(name, Inode(file.modified_ms, file.read()))
        for path in ("/", *image.folders):
            tree.directory(path).sync()
        return tree

    def copy(self) -> FileTree:
        """Return the tree as it is written now, all of it durable."""
        return FileTree(_copy_of(self.root))

    def with_metadata_of(self, survived: FileTree) -> FileTree:
        """Take the folders of the metadata from another tree, and return this one."""
        _take_metadata(self.root, survived.root)
        return self

    def after_power_cut(self, rng: random.Random, *, holes: bool) -> FileTree:
        """Return what a power cut leaves.

        Args:
            holes: there may be some in what was not synced.
        """
        copies: dict[int, Inode | Directory] = {}

        def copy(entry: Inode | Directory) -> Inode | Directory:
            found = copies.get(id(entry))
            if found is None:
                if isinstance(entry, Inode):
                    data = survived(entry.durable, entry.unsynced, rng, holes=holes)
                    found = copies[id(entry)] = Inode(entry.modified_ms, data)
                    found.rot = {p: m for p, m in entry.rot.items() if p < len(found.data)}
                else:
                    found = copies[id(entry)] = Directory()
                    for name, child in entry.survivors(rng).items():
                        found.names[name] = copy(child)
                    found.durable = dict(found.names)
            return found

        root = copy(self.root)
        assert isinstance(root, Directory)
        return FileTree(root)


def _walk(directory: Directory, path: str) -> Iterator[tuple[str, Inode | Directory]]:
    """Everything below a directory, by name, each directory before what is in it."""
    for name, entry in sorted(directory.names.items(), key=lambda item: item[0]):
        inside = f"{path}/{name}"
        yield inside, entry
        if isinstance(entry, Directory):
            yield from _walk(entry, inside)


def _copy_of(directory: Directory) -> Directory:
    copy = Directory()
    for name, entry in directory.names.items():
        if isinstance(entry, Directory):
            copy.names[name] = _copy_of(entry)
        else:
            copy.names[name] = Inode(entry.modified_ms, entry.image().read())
    copy.sync()
    return copy


def _take_metadata(frozen: Directory, survived: Directory) -> None:
    for name, entry in survived.names.items():
        inside = frozen.names.get(name)
        if is_metadata(name):
            frozen.names[name] = entry
        elif isinstance(entry, Directory) and isinstance(inside, Directory):
            _take_metadata(inside, entry)
    frozen.sync()
