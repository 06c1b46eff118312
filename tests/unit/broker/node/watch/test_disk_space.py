"""A log directory that runs full is warned of before it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftrio.broker.node.watch.disk_space import DiskSpace, Usage

GIB = 1 << 30


class Disk:
    """One log directory, on a disk that the test fills."""

    def __init__(self) -> None:
        self.free = 100 * GIB
        self.log_dir = SimpleNamespace(path="/data", is_online=True)
        self.space = DiskSpace(cast(Any, [self.log_dir]), GIB, self.usage)

    def usage(self, _path: str) -> Usage:
        if self.free < 0:
            raise OSError("gone")
        return Usage(200 * GIB, 200 * GIB - self.free, self.free)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    caplog.clear()
    return found


def test_it_is_logged_once_and_again_when_much_less_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    disk = Disk()
    disk.space.check()
    assert lines(caplog) == []
    disk.free = GIB - 1
    disk.space.check()
    disk.free -= 1000
    disk.space.check()
    (line,) = lines(caplog)
    assert line.startswith("WARNING log directory is running full directory=/data free_mib=1023")
    disk.free = GIB // 4
    disk.space.check()
    assert len(lines(caplog)) == 1
    disk.free = 2 * GIB
    disk.space.check()
    assert lines(caplog) == ["INFO log directory has room again directory=/data free_mib=2048"]


def test_figures(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    assert disk.space.labelled_statistics() == {
        "free_bytes": {("/data",): 100 * GIB},
        "total_bytes": {("/data",): 200 * GIB},
        "online": {("/data",): True},
    }
    disk.free = -1
    disk.space.check()
    assert disk.space.labelled_statistics()["free_bytes"] == {}
    disk.log_dir.is_online = False
    assert disk.space.labelled_statistics()["online"] == {("/data",): False}
    assert not caplog.records
