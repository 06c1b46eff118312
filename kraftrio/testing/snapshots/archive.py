"""Snapshots as files: a tar archive, compressed with zstd, which other programs can open as well.

Owns: `Manifest`, `write` and `read`. Rules:
1. The first member is the manifest, JSON. The others are what the nodes have on their disks, below
   "node-ID/", with the times at which they were written.
2. An archive is not trusted: names lead nowhere else, there are files and folders alone, and all of
   it together is bounded. Nothing is written anywhere until the whole of it was read.
3. It is whole or refused: zstd has a checksum, and the manifest says how much there has to be.
4. Properties of nodes are not in it: they may name files and addresses of the machine.

Called by: `snapshot`.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import zstandard

from kraftrio.testing.simulation.disk_image import DiskImage, FileImage
from kraftrio.testing.snapshots.errors import SnapshotError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

VERSION: Final = 1
MAX_SIZE_BYTES: Final = 4 << 30  # of all files together
_FORMAT: Final = "kraftrio snapshot"
_MANIFEST: Final = "snapshot.json"
_LONGEST_NAME: Final = 255
_LAST_S: Final = 1e11  # of the times that a file can have


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive says about itself.

    Attributes:
        node_ids: the nodes of the cluster.
        wall_ms: the time of the nodes' clocks, in milliseconds.
    """

    node_ids: list[int]
    wall_ms: int


def write(path: Path, manifest: Manifest, disks: Mapping[int, DiskImage]) -> None:
    """Write an archive; a file that is there is replaced, once the new one is complete.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    sizes = [file.size_bytes() for disk in disks.values() for file in disk.files.values()]
    described = {
        "format": _FORMAT,
        "version": VERSION,
        "file_count": len(sizes),
        "size_bytes": sum(sizes),
        **asdict(manifest),
    }
    try:
        with (
            open(partial, "wb") as raw,
            compressor.stream_writer(raw, closefd=False) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            _add_file(tar, _MANIFEST, json.dumps(described, indent=1).encode(), manifest.wall_ms)
            for node_id, disk in disks.items():
                for folder in disk.folders:
                    tar.addfile(_member(f"node-{node_id}{folder}", tarfile.DIRTYPE))
                for name, file in disk.files.items():
                    _add_file(tar, f"node-{node_id}{name}", file.read(), file.modified_ms)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _member(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return member


def _add_file(tar: tarfile.TarFile, name: str, data: bytes, modified_ms: int) -> None:
    member = _member(name, tarfile.REGTYPE)
    member.size = len(data)
    member.mtime = modified_ms / 1000
    tar.addfile(member, io.BytesIO(data))


def read(path: Path) -> tuple[Manifest, dict[int, DiskImage]]:
    """Read an archive.

    Raises:
        SnapshotError: it cannot be read, is damaged or none of ours; the text says which.
    """
    with _complaints(path), open(path, "rb") as raw:
        plain = _Bounded(zstandard.ZstdDecompressor().stream_reader(raw))
        with tarfile.open(fileobj=plain, mode="r|") as tar:
            found = _read_members(tar)
        plain.finish()
    return found


@contextmanager
def _complaints(path: Path) -> Iterator[None]:
    try:
        yield
    except SnapshotError as error:
        raise SnapshotError(f"{path} {error}") from None
    except OSError as error:
        raise SnapshotError(f"cannot read {path}: {error.strerror or error}") from error
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise SnapshotError(f"{path} is damaged, or no snapshot: {error}") from error


class _Bounded(io.RawIOBase):
    """What is decompressed, up to a limit."""

    def __init__(self, plain: zstandard.ZstdDecompressionReader) -> None:
        self._plain = plain
        self._left_bytes = MAX_SIZE_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._plain.readinto(buffer)
        self._left_bytes -= count
        if self._left_bytes < 0:
            raise SnapshotError(f"has more than {MAX_SIZE_BYTES >> 30} GiB in it")
        return count

    def finish(self) -> None:
        """Read what is left, behind which the checksum is."""
        while self.read(1 << 16):
            pass


def _read_members(tar: tarfile.TarFile) -> tuple[Manifest, dict[int, DiskImage]]:
    members = iter(tar)
    first = next(members, None)
    if first is None or first.name != _MANIFEST:
        raise SnapshotError(f"is not a snapshot of kraftrio: its first file is not {_MANIFEST}")
    manifest, wanted = _parse_manifest(_content(tar, first))
    disks = {node_id: _Disk() for node_id in manifest.node_ids}
    for member in members:
        node_id, name = _place(member.name, manifest.node_ids)
        disks[node_id].add(tar, member, name)
    sizes = [file.size_bytes() for disk in disks.values() for file in disk.files.values()]
    if (len(sizes), sum(sizes)) != wanted:
        raise SnapshotError(
            f"is damaged: it has {len(sizes)} files of {sum(sizes)} bytes, and should have"
            f" {wanted[0]} of {wanted[1]}"
        )
    return manifest, {
        node_id: DiskImage(tuple(disk.folders), disk.files) for node_id, disk in disks.items()
    }


class _Disk:
    """What was read of one so far."""

    def __init__(self) -> None:
        self.folders: dict[str, None] = {}
        self.files: dict[str, FileImage] = {}

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> None:
        parent = posixpath.dirname(name)
        is_new = name not in self.folders and name not in self.files
        if not is_new or (parent != "/" and parent not in self.folders):
            raise SnapshotError(f"is damaged: {member.name!r} has no folder, or is there twice")
        if member.isdir():
            self.folders[name] = None
        else:
            self.files[name] = FileImage(_content(tar, member), _modified_ms(member))


def _modified_ms(member: tarfile.TarInfo) -> int:
    if not 0 <= member.mtime < _LAST_S:
        raise SnapshotError(f"is damaged: {member.name!r} has no time at which it was written")
    return round(member.mtime * 1000)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if not member.isreg() or member.issparse():
        raise SnapshotError(f"is refused: {member.name!r} is neither a file nor a folder")
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def _place(member_name: str, node_ids: list[int]) -> tuple[int, str]:
    """Whose file a member is, and its path there."""
    node, *parts = member_name.split("/")
    if not parts or any(
        part in ("", ".", "..") or "\0" in part or len(os.fsencode(part)) > _LONGEST_NAME
        for part in parts
    ):
        raise SnapshotError(f"is refused: the name {member_name!r} leads out of its folder")
    for node_id in node_ids:
        if node == f"node-{node_id}":
            return node_id, "/" + "/".join(parts)
    raise SnapshotError(f"is refused: {member_name!r} is of no node of the cluster")


def _parse_manifest(data: bytes) -> tuple[Manifest, tuple[int, int]]:
    """The manifest, and how many files of how many bytes there have to be."""
    try:
        described = json.loads(data)
        if described["format"] != _FORMAT:
            raise ValueError(described["format"])
        version = int(described["version"])
        if version != VERSION:
            raise SnapshotError(
                f"is a snapshot of version {version}; this kraftrio knows version {VERSION}"
            )
        node_ids = [int(node_id) for node_id in described["node_ids"]]
        manifest = Manifest(node_ids, int(described["wall_ms"]))
        if not 0 <= manifest.wall_ms < _LAST_S * 1000:
            raise ValueError(manifest.wall_ms)
        wanted = int(described["file_count"]), int(described["size_bytes"])
    except SnapshotError:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise SnapshotError(f"is damaged: cannot understand its {_MANIFEST}") from error
    return manifest, wanted
