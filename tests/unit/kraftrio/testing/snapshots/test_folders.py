"""Log directories as images, and back: whole, with their times, sharing nothing that changes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kraftrio.testing.simulation.disk_image import DiskImage, FileImage
from kraftrio.testing.snapshots.errors import SnapshotError
from kraftrio.testing.snapshots.folders import check_one_directory, copy_file, image_of, lay


def _made(folder: Path) -> Path:
    (folder / "orders-0").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "meta.properties").write_text("version=1")
    (folder / "orders-0" / "0.log").write_bytes(b"records")
    os.utime(folder / "orders-0" / "0.log", (5, 5))
    return folder


def test_there_and_back(tmp_path: Path) -> None:
    """What is written later to the one or the other is not in the image."""
    source = _made(tmp_path / "source")
    image = image_of(source, tmp_path / "copies")
    assert image.folders == ("/data", "/data/empty", "/data/orders-0")
    (source / "orders-0" / "0.log").write_bytes(b"later")
    target = tmp_path / "target"
    target.mkdir()
    (target / "of before").write_text("gone")
    lay(image, target)
    with open(target / "orders-0" / "0.log", "ab") as file:
        file.write(b" and more")
    assert image.files["/data/orders-0/0.log"] == FileImage(
        tmp_path / "copies" / "orders-0" / "0.log", 5000
    )
    assert image.files["/data/orders-0/0.log"].read() == b"records"
    lay(image, target)
    assert sorted(path.name for path in target.iterdir()) == [
        "empty",
        "meta.properties",
        "orders-0",
    ]
    assert (target / "orders-0" / "0.log").read_bytes() == b"records"
    assert (target / "orders-0" / "0.log").stat().st_mtime == 5


def test_an_image_in_memory(tmp_path: Path) -> None:
    lay(DiskImage(("/data",), {"/data/file": FileImage(b"here", 7_000)}), tmp_path / "deep" / "er")
    assert (tmp_path / "deep" / "er" / "file").read_bytes() == b"here"


def test_several_log_directories(tmp_path: Path) -> None:
    """They have no place in one folder."""
    with pytest.raises(SnapshotError, match="the log directory /other cannot go into a folder"):
        check_one_directory(DiskImage(("/data", "/other"), {}))
    check_one_directory(image_of(_made(tmp_path / "source"), tmp_path / "copies"))


def test_between_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system cannot copy, the bytes are read and written."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "between devices")

    (tmp_path / "source").write_bytes(b"records" * 100_000)
    copy_file(tmp_path / "source", tmp_path / "by the system")
    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    copy_file(tmp_path / "source", tmp_path / "by hand")
    monkeypatch.delattr(os, "copy_file_range")
    copy_file(tmp_path / "source", tmp_path / "elsewhere")
    for name in ("by the system", "by hand", "elsewhere"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "source").read_bytes()
