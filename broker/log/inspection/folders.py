"""Which partitions lie in log directories, and which files each of them has.

Owns `PartitionFolder` and `find_folders`. A path may be a log directory, several with commas
between them as in `log.dirs`, or the folder of one partition. Copies in the making and what waits
for its removal (`.cleaned`, `.swap`, `.deleted`, `-future`, `-delete`, `-stray`) are left out.

Called by: the checks of this room and the command line.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.log.manager.directories import METADATA_DIRECTORY, parse_directory_name
from kraftrio.broker.log.segment.names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    base_offset_of,
)
from kraftrio.wire.primitives import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """The folder of one partition.

    Attributes:
        bases: the base offsets of its segments, in order.
        names: of all files in it.
    """

    path: str
    topic_partition: TopicPartition
    bases: list[int] = field(default_factory=list)
    names: frozenset[str] = frozenset()

    @property
    def is_metadata(self) -> bool:
        """Whether it is the metadata log, which brokers keep differently."""
        return posixpath.basename(self.path) == METADATA_DIRECTORY

    def file(self, base_offset: int, suffix: str) -> str:
        """Return the path of a segment's file."""
        return posixpath.join(self.path, f"{base_offset:020d}{suffix}")

    def has(self, base_offset: int, suffix: str) -> bool:
        """Whether a segment has that file."""
        return f"{base_offset:020d}{suffix}" in self.names

    def offsets_of(self, suffix: str) -> list[int]:
        """Return the offsets in the names of the files with a suffix."""
        found = (base_offset_of(name, suffix) for name in self.names)
        return sorted(offset for offset in found if offset is not None)

    @property
    def snapshots(self) -> list[int]:
        """The offsets of its producer snapshots."""
        return self.offsets_of(SNAPSHOT_SUFFIX)


class NothingFoundError(Exception):
    """There is no log in a directory; says so in a sentence."""


def find_folders(fs: FileSystem, paths: str) -> list[PartitionFolder]:
    """Return the partitions in log directories, by name.

    Raises:
        NothingFoundError: a path is not a directory, or no partition lies there.
        OSError: a directory cannot be read.
    """
    found: list[PartitionFolder] = []
    for path in directories_of(paths):
        if not fs.is_directory(path):
            raise NothingFoundError(f"{path} is not a directory")
        here = _folder(fs, path)
        if here is not None and here.bases:
            found.append(here)
            continue
        inside = [_folder(fs, posixpath.join(path, name)) for name in fs.list_directory(path)]
        logs = [folder for folder in inside if folder is not None]
        if not logs:
            raise NothingFoundError(f"no log of a partition lies in {path}")
        found += logs
    return sorted(found, key=lambda folder: (folder.topic_partition, folder.path))


def directories_of(paths: str) -> list[str]:
    """Split paths as `log.dirs` has them."""
    return [posixpath.normpath(path) for path in map(str.strip, paths.split(",")) if path]


def _folder(fs: FileSystem, path: str) -> PartitionFolder | None:
    item = parse_directory_name(posixpath.basename(path))
    if item is None or not fs.is_directory(path):
        return None
    names = frozenset(fs.list_directory(path))
    bases = sorted(base for name in names if (base := base_offset_of(name, LOG_SUFFIX)) is not None)
    return PartitionFolder(path, item, bases, names)


def orphans(folder: PartitionFolder) -> list[tuple[int, str]]:
    """Return (base offset, suffix) of a segment's files whose log is not there."""
    bases = set(folder.bases)
    return [
        (base, suffix)
        for suffix in SEGMENT_SUFFIXES
        for base in folder.offsets_of(suffix)
        if base not in bases
    ]
