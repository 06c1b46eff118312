"""Syncs of files are counted, and slow ones remembered."""

from __future__ import annotations

from pathlib import Path

from kraftrio.base.histogram import Spread
from kraftrio.broker.log.files import OsFileSystem
from kraftrio.broker.log.sync_times import SYNC_TIMES, SyncTimes

MS = 1_000_000


def count(times: SyncTimes) -> int:
    spread = times.labelled_statistics()["sync_nanoseconds"][()]
    assert isinstance(spread, Spread)
    return spread.count


def test_a_sync_of_a_file_is_counted(tmp_path: Path) -> None:
    before = count(SYNC_TIMES)
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.sync()
    file.close()
    assert count(SYNC_TIMES) == before + 1


def test_slow_ones_are_found_by_when_they_were() -> None:
    times = SyncTimes()
    times.add("quick", 0, 2 * MS)
    times.add("slow", 10 * MS, 40 * MS)
    assert count(times) == 2
    assert times.during(0, 9 * MS) == []
    assert [one.path for one in times.during(39 * MS, 50 * MS)] == ["slow"]
    assert times.during(41 * MS, 50 * MS) == []
