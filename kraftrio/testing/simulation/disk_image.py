"""The contents of a disk at one instant, as a value: taken from one disk, and copied to others.

Owns: `DiskImage` and `FileImage`. Rules:
1. An image never changes. Disks that begin with it share its bytes until they write to a file.
2. All of it is durable: what was written and not yet synced counts as synced.

Called by: `disk`, and `kraftrio.testing.snapshots`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileImage:
    """One file.

    Attributes:
        content: its bytes, or the path of a file with them, which is not written to.
        modified_ms: when it was last written, in milliseconds of the wall clock.
    """

    content: bytes | Path
    modified_ms: int

    def size_bytes(self) -> int:
        """Return the file's size."""
        if isinstance(self.content, bytes):
            return len(self.content)
        return self.content.stat().st_size

    def read(self) -> bytes:
        """Return the file's bytes."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A tree of files.

    Attributes:
        folders: the path of each folder, a parent before what is in it, such as "/data".
        files: by path.
    """

    folders: tuple[str, ...]
    files: Mapping[str, FileImage] = field(repr=False)
