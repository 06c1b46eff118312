"""Small disks that get full or read-only, for tests of storage faults: a tmpfs of their own.

Mounting takes root and the right to mount; where that is not given the test is skipped.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

import pytest


class SmallDisk:
    """A mounted tmpfs. Use as a context manager: it is unmounted at the end, whatever happens."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        mounted = self._run(
            "mount", "-t", "tmpfs", "-o", f"size={self.size_bytes}", "kraftrio-test"
        )
        if mounted.returncode:
            pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
        return self

    def __exit__(self, *reason: object) -> None:
        if self._run("umount").returncode:
            self._run("umount", "-l")

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [*command, str(self.path)], capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            return subprocess.CompletedProcess(command, 1, "", str(error))

    def set_read_only(self, read_only: bool = True) -> None:
        """Remount; open files can not be written any more either."""
        option = "remount,ro" if read_only else "remount,rw"
        done = self._run("mount", "-o", option)
        assert done.returncode == 0, done.stderr

    def resize(self, size_bytes: int) -> None:
        """Make the disk larger or smaller."""
        done = self._run("mount", "-o", f"remount,size={size_bytes}")
        assert done.returncode == 0, done.stderr
        self.size_bytes = size_bytes

    def fill(self, leave_bytes: int = 0) -> Path:
        """Take all the space but some bytes with one file, and return that file."""
        ballast = self.path / "ballast"
        with ballast.open("wb", buffering=0) as file:
            block = bytes(64 << 10)
            try:
                while True:
                    file.write(block)
            except OSError:
                size = file.tell()
            file.truncate(max(size - leave_bytes, 0))
        return ballast
