"""A partition in two log directories: the one that the metadata means is kept."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.duplicate_logs import Placement, set_duplicates_aside
from kraftrio.broker.log.manager.log_dir import PendingLog
from kraftrio.broker.log.manager.log_dirs import LogDirError
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.kraft_meta.metadata.directories import MIGRATING
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import NOW_MS, batch, load_all
from tests.support.memory_files import MemoryFileSystem

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
ID, OTHER_ID = b"1" * 16, b"2" * 16
TP, SINGLE = TopicPartition("t", 0), TopicPartition("t", 1)


class Directories:
    """Two log directories with t-0 in both and t-1 in one.

    In /a it has one record, in /b two.
    """

    def __init__(self, id_in_a: bytes = ID, id_in_b: bytes = ID) -> None:
        self.fs = MemoryFileSystem()
        for path, topic_id, records in (("/a", id_in_a, 1), ("/b", id_in_b, 2)):
            manager = self.manager(path)
            load_all(manager, manager.start(CLUSTER, 1), NOW_MS)
            log = manager.create_log(TP, topic_id, LogConfig(), NOW_MS)
            for _ in range(records):
                log.append_as_leader(batch(b"x"), 0, NOW_MS)
            if path == "/a":
                manager.create_log(SINGLE, topic_id, LogConfig(), NOW_MS)
            manager.close()

    def manager(self, *paths: str) -> LogManager:
        ids = {"/a": b"a" * 16, "/b": b"b" * 16}
        return LogManager(self.fs, paths, new_id=lambda: ids[paths[0]])

    def start(self, placement: Placement | None) -> tuple[LogManager, list[PendingLog]]:
        """Find the logs, and keep those that the metadata means."""
        manager = self.manager("/a", "/b")
        kept = set_duplicates_aside(
            manager, manager.start(CLUSTER, 1), lambda key: placement if key == TP else None
        )
        return manager, kept

    def strays(self) -> list[str]:
        """The folders that were set aside."""
        return [
            f"{path}/{name}"
            for path in ("/a", "/b")
            for name in self.fs.list_directory(path)
            if name.endswith("-stray")
        ]


@pytest.mark.parametrize(
    ("make", "placement", "records"),
    [
        (lambda: Directories(ID, OTHER_ID), Placement(OTHER_ID, MIGRATING), 2),
        (lambda: Directories(ID, OTHER_ID), Placement(ID, b"b" * 16), 1),
        (Directories, Placement(ID, b"a" * 16), 1),
        (Directories, Placement(ID, b"b" * 16), 2),
    ],
    ids=["newer topic", "topic before directory", "directory a", "directory b"],
)
def test_the_one_that_is_meant_is_kept(
    make: Callable[[], Directories],
    placement: Placement,
    records: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By topic id first, then by directory; the other's files stay, under another name."""
    directories = make()
    manager, kept = directories.start(placement)
    load_all(manager, kept, NOW_MS)
    log = manager.get_log(TP)
    assert log is not None
    assert log.log_end_offset == records
    assert manager.get_log(SINGLE) is not None
    [stray] = directories.strays()
    assert stray.startswith("/b/t-0." if records == 1 else "/a/t-0.")
    assert any(name.endswith(".log") for name in directories.fs.list_directory(stray))
    assert "t-0" in directories.fs.list_directory("/a" if records == 1 else "/b")
    [line] = [line for line in caplog.messages if "two log directories" in line]
    assert stray in line


@pytest.mark.parametrize("directory_id", [MIGRATING, b"c" * 16])
def test_where_it_cannot_be_decided_the_start_is_refused(directory_id: bytes) -> None:
    """Nothing is touched: only a person knows which of the two to remove."""
    directories = Directories()
    manager, kept = directories.start(Placement(ID, directory_id))
    assert len(kept) == 3
    with pytest.raises(LogDirError, match="two log directories"):
        load_all(manager, kept, NOW_MS)
    assert directories.strays() == []


@pytest.mark.parametrize("placement", [None, Placement(b"3" * 16, b"a" * 16)])
def test_of_two_strays_one_is_left_to_be_set_aside_later(placement: Placement | None) -> None:
    """The partition is not placed here any more, or both logs are of topics before this one."""
    directories = Directories(ID, OTHER_ID)
    manager, kept = directories.start(placement)
    load_all(manager, kept, NOW_MS)
    assert len(directories.strays()) == 1
    assert {one.topic_partition for one in kept} == {TP, SINGLE}


def test_a_directory_that_fails_meanwhile_goes_offline() -> None:
    """The other one is kept all the same."""
    directories = Directories()
    manager = directories.manager("/a", "/b")
    pending = manager.start(CLUSTER, 1)
    directories.fs.fail("rename", "/b", errno.EIO)
    set_duplicates_aside(manager, pending, lambda _: Placement(ID, b"a" * 16))
    assert [one.is_online for one in manager.dirs] == [True, False]
