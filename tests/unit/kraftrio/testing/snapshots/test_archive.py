"""Archives of snapshots: what is written is read; what is damaged or hostile is refused whole."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
import zstandard

from kraftrio.testing.simulation.disk_image import DiskImage, FileImage
from kraftrio.testing.snapshots import archive
from kraftrio.testing.snapshots.archive import Manifest
from kraftrio.testing.snapshots.errors import SnapshotError

LOG = bytes(range(256)) * 40
DISK = DiskImage(
    ("/data", "/data/orders-0", "/data/empty"),
    {
        "/data/meta.properties": FileImage(b"version=1\n", 1_700_000_000_123),
        "/data/orders-0/00000000000000000000.log": FileImage(LOG, 1_700_000_001_999),
        "/data/orders-0/00000000000000000000.index": FileImage(b"", 5),
    },
)
MANIFEST = Manifest([1, 2], 1_700_000_002_000)
DESCRIBED = {
    "format": "kraftrio snapshot",
    "version": 1,
    "node_ids": [1],
    "wall_ms": 0,
    "file_count": 0,
    "size_bytes": 0,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "case.tar.zst"


def _member(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", link: str = "") -> Member:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, len(data)
    return member, data


Member = tuple[tarfile.TarInfo, bytes]


def _write(path: Path, members: Iterable[Member], **described: object) -> None:
    """Write an archive as another program may have made it."""
    manifest = json.dumps({**DESCRIBED, **described}).encode()
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, data in (_member("snapshot.json", data=manifest), *members):
            tar.addfile(member, io.BytesIO(data))
    path.write_bytes(zstandard.compress(plain.getvalue()))


def test_what_is_written_is_read(path: Path) -> None:
    """Also where there was an older one; nothing else is left in the folder."""
    path.write_text("older")
    archive.write(path, MANIFEST, {1: DISK, 2: DiskImage((), {})})
    assert archive.read(path) == (MANIFEST, {1: DISK, 2: DiskImage((), {})})
    assert list(path.parent.iterdir()) == [path]


def test_other_programs_can_open_it(path: Path) -> None:
    archive.write(path, MANIFEST, {1: DISK, 2: DiskImage((), {})})
    plain = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        file = tar.extractfile("node-1/data/orders-0/00000000000000000000.log")
        assert file is not None and file.read() == LOG


def test_what_cannot_be_written_leaves_nothing(path: Path) -> None:
    gone = DiskImage((), {"/data": FileImage(path / "not there", 0)})
    with pytest.raises(OSError):
        archive.write(path, MANIFEST, {1: gone})
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (_member("node-1/../../etc/passwd"), "leads out of its folder"),
        (_member("node-1//etc/passwd"), "leads out of its folder"),
        (_member("/etc/passwd"), "of no node of the cluster"),
        (_member("../passwd"), "of no node of the cluster"),
        (_member("node-2/data", tarfile.DIRTYPE), "of no node of the cluster"),
        (_member("node-1"), "leads out of its folder"),
        (_member("node-1/" + "a" * 300), "leads out of its folder"),
        (_member("node-1/data", tarfile.SYMTYPE, link="/etc"), "neither a file nor a folder"),
        (_member("node-1/data", tarfile.LNKTYPE, link="/etc/passwd"), "neither a file nor a"),
        (_member("node-1/data", tarfile.CHRTYPE), "neither a file nor a folder"),
        (_member("node-1/data/file"), "has no folder, or is there twice"),
        (_member("node-1/file"), "is damaged: it has 1 files of 0 bytes, and should have 0 of 0"),
    ],
)
def test_a_hostile_archive(path: Path, member: Member, said: str) -> None:
    _write(path, [member])
    with pytest.raises(SnapshotError, match=f"{path} .*{said}"):
        archive.read(path)


def test_a_name_that_is_there_twice(path: Path) -> None:
    _write(path, [_member("node-1/a", tarfile.DIRTYPE), _member("node-1/a")])
    with pytest.raises(SnapshotError, match="there twice"):
        archive.read(path)


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"version": 9}, "is a snapshot of version 9; this kraftrio knows version 1"),
        ({"format": "another"}, "cannot understand its snapshot.json"),
        ({"node_ids": 3}, "cannot understand its snapshot.json"),
        ({"wall_ms": "today"}, "cannot understand its snapshot.json"),
        ({"wall_ms": float("inf")}, "cannot understand its snapshot.json"),
        ({"wall_ms": 10**20}, "cannot understand its snapshot.json"),
        ({"file_count": 7}, "is damaged: it has 0 files of 0 bytes, and should have 7 of 0"),
    ],
)
def test_a_manifest_of_another_kind(path: Path, described: dict[str, object], said: str) -> None:
    _write(path, [], **described)
    with pytest.raises(SnapshotError, match=said):
        archive.read(path)


@pytest.mark.parametrize("written", ["nan", "inf", "-5", "1e30"])
def test_a_time_that_cannot_be(path: Path, written: str) -> None:
    member, data = _member("node-1/file")
    member.pax_headers = {"mtime": written}
    _write(path, [(member, data)], file_count=1)
    with pytest.raises(SnapshotError, match="has no time at which it was written"):
        archive.read(path)


def test_a_file_of_holes(path: Path) -> None:
    """It would be read as the zeros that are not in it."""
    member, data = _member("node-1/file", data=b"1\n0\n1\n".ljust(512, b"\0") + b"x")
    member.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "node-1/file",
        "GNU.sparse.realsize": str(1 << 50),
    }
    _write(path, [(member, data)], file_count=1)
    with pytest.raises(SnapshotError, match="'node-1/file' is neither a file nor a folder"):
        archive.read(path)


def test_what_is_no_archive(path: Path) -> None:
    with pytest.raises(SnapshotError, match=f"cannot read {path}: No such file"):
        archive.read(path)
    deep = io.BytesIO()
    with tarfile.open(fileobj=deep, mode="w") as tar:
        member, manifest = _member("snapshot.json", data=b"[" * 100_000)
        tar.addfile(member, io.BytesIO(manifest))
    path.write_bytes(zstandard.compress(deep.getvalue()))
    with pytest.raises(SnapshotError, match="is damaged: cannot understand its"):
        archive.read(path)
    for data in (b"", b"text", zstandard.compress(b""), zstandard.compress(b"text" * 1000)):
        path.write_bytes(data)
        with pytest.raises(SnapshotError, match="no snapshot"):
            archive.read(path)


def test_damage_anywhere_is_noticed(path: Path) -> None:
    """A bit that is flipped, and an end that is missing: it is refused, or does not matter."""
    written = MANIFEST, {1: DISK, 2: DiskImage((), {})}
    archive.write(path, *written)
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        for data in (bytes(damaged), whole[:position]):
            path.write_bytes(data)
            try:
                assert archive.read(path) == written
            except SnapshotError as error:
                assert str(path) in str(error)
                refused += 1
    assert refused >= 2 * (len(whole) // 7) - 5


def test_too_much(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as is allowed is read, and no more, however small the file is."""
    monkeypatch.setattr(archive, "MAX_SIZE_BYTES", 1 << 20)
    bomb = bytes(1 << 22)
    _write(path, [_member("node-1/file", data=bomb)], file_count=1, size_bytes=len(bomb))
    assert path.stat().st_size < 10_000
    with pytest.raises(SnapshotError, match="has more than 0 GiB in it"):
        archive.read(path)
