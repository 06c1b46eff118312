"""Disk images of real folders: a copy of one is an image, and an image is laid into one.

Rules:
1. A file is copied by the system, which shares its blocks until one of both is written to, where
   the file system can (Btrfs, XFS). Never by a hard link: also a closed segment is truncated in
   place, when a replica finds that its log has diverged from its leader's.
2. The one log directory of a node is "/data" in an image, as on the disks in memory.

Called by: `snapshot`, and `kraftrio.testing.local_nodes`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from kraftrio.testing.simulation.disk_image import DiskImage, FileImage
from kraftrio.testing.snapshots.errors import SnapshotError

LOG_DIRECTORY: Final = "/data"
_INSIDE: Final = f"{LOG_DIRECTORY}/"


def image_of(folder: Path, copies: Path) -> DiskImage:
    """Copy a log directory, which is not written to meanwhile.

    Args:
        copies: where the copies go; it is made.
    """
    folders, files = [LOG_DIRECTORY], {}
    copies.mkdir(parents=True)
    for parent, names, file_names in os.walk(folder):
        inside = Path(parent).relative_to(folder)
        names.sort()
        for name in names:
            folders.append(_path(inside / name))
            (copies / inside / name).mkdir()
        for name in sorted(file_names):
            source, copy = folder / inside / name, copies / inside / name
            copy_file(source, copy)
            modified_ms = source.stat().st_mtime_ns // 1_000_000
            files[_path(inside / name)] = FileImage(copy, modified_ms)
    return DiskImage(tuple(folders), files)


def _path(inside: Path) -> str:
    return f"{LOG_DIRECTORY}/{inside.as_posix()}"


def check_one_directory(image: DiskImage) -> None:
    """Raise SnapshotError if an image is of more than the one log directory."""
    for path in (*image.folders, *image.files):
        if path != LOG_DIRECTORY and not path.startswith(_INSIDE):
            raise SnapshotError(
                f"a snapshot with the log directory {path} cannot go into a folder: start it"
                " without folder="
            )


def lay(image: DiskImage, folder: Path) -> None:
    """Make a folder hold what an image has, which was checked, and nothing else."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for path in image.folders[1:]:
        (folder / path.removeprefix(_INSIDE)).mkdir()
    for path, file in image.files.items():
        target = folder / path.removeprefix(_INSIDE)
        if isinstance(file.content, Path):
            copy_file(file.content, target)
        else:
            target.write_bytes(file.content)
        os.utime(target, ns=(file.modified_ms * 1_000_000,) * 2)


def copy_file(source: Path, target: Path) -> None:
    """Copy the bytes of a file, sharing its blocks where the file system can."""
    if not hasattr(os, "copy_file_range"):
        shutil.copyfile(source, target)
        return
    with open(source, "rb") as reading, open(target, "wb") as writing:
        left = os.fstat(reading.fileno()).st_size
        try:
            while left:
                copied = os.copy_file_range(reading.fileno(), writing.fileno(), left)
                if not copied:
                    return
                left -= copied
        except OSError:  # not between these two file systems
            writing.truncate(0)
            reading.seek(0)
            writing.seek(0)
            shutil.copyfileobj(reading, writing)
