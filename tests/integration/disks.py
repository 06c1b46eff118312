"""Small disks that get full, fail or are read-only, for tests of storage faults.

Mounting takes root and the right to mount; without these a test is skipped.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

import pytest


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the system; a missing one fails like any other."""
    try:
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def must(*command: str | Path) -> str:
    """Run a command that must succeed, and return its output."""
    done = run(*command)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()


def unmount(path: Path) -> None:
    """Take a disk away, even if a process still has files open there."""
    if run("umount", path).returncode:
        run("umount", "-l", path)


class SmallDisk:
    """A mounted tmpfs. Use as a context manager: it is unmounted at the end, whatever happens."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        size = f"size={self.size_bytes}"
        mounted = run("mount", "-t", "tmpfs", "-o", size, "kraftrio-test", self.path)
        if mounted.returncode:
            pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
        return self

    def __exit__(self, *reason: object) -> None:
        unmount(self.path)

    def set_read_only(self) -> None:
        """Forbid writing; no process may have a file open for it."""
        must("mount", "-o", "remount,ro", self.path)

    def fill(self, leave_bytes: int) -> Path:
        """Fill the disk with one file, but for some bytes, and return that file."""
        ballast = self.path / "ballast"
        with ballast.open("wb") as file:
            file.write(bytes(self.size_bytes - leave_bytes))
        return ballast

    def fill_up(self, name: str) -> None:
        """Fill the rest of the disk, to the last bytes, with one more file."""
        with (self.path / name).open("wb", buffering=0) as file:
            for size in (64 << 10, 4096, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue


class FailingDisk:
    """An ext4 file system that can be made to fail: it is read-only from one moment on.

    That is what Linux does to a disk with errors; open files cannot be written to any more, either.
    """

    def __init__(self, path: Path, image: Path, size_bytes: int) -> None:
        self.path = path
        self.image = image
        self.size_bytes = size_bytes

    def __enter__(self) -> Self:
        with self.image.open("wb") as file:
            file.truncate(self.size_bytes)
        self.path.mkdir(parents=True, exist_ok=True)
        made = run("mkfs.ext4", "-q", "-F", self.image)
        mounted = made if made.returncode else self._mount()
        if mounted.returncode:
            pytest.skip(f"cannot make and mount a disk image: {mounted.stderr.strip()}")
        if not self._trigger().exists():
            unmount(self.path)
            pytest.skip("this kernel offers no way to let a file system fail")
        return self

    def __exit__(self, *reason: object) -> None:
        unmount(self.path)

    def _mount(self) -> subprocess.CompletedProcess[str]:
        return run("mount", "-o", "loop,errors=remount-ro", self.image, self.path)

    def _trigger(self) -> Path:
        device = Path(must("findmnt", "-no", "SOURCE", self.path))
        return Path("/sys/fs/ext4") / device.name / "trigger_fs_error"

    def fail(self) -> None:
        """Let the file system meet an error, by which it becomes read-only."""
        self._trigger().write_text("test")

    def repair(self) -> None:
        """Let the disk work again; no process may have files open there."""
        must("umount", self.path)
        assert run("e2fsck", "-p", self.image).returncode in (0, 1)
        mounted = self._mount()
        assert mounted.returncode == 0, mounted.stderr
