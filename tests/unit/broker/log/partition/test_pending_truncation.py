"""The rest of a truncation is done once, in order, and again after a failure."""

from __future__ import annotations

import errno

import pytest

from kraftrio.broker.log.leader_epoch_cache import EpochEntry, LeaderEpochCache
from kraftrio.broker.log.partition.partition_files import PartitionFiles
from kraftrio.broker.log.partition.pending_truncation import PendingTruncation
from tests.support.memory_files import MemoryFileSystem


def test_what_is_left_is_done_until_it_succeeds() -> None:
    """Epochs are saved after the directory is synced: they must not outlive what was truncated."""
    fs = MemoryFileSystem()
    fs.make_directory("/t-0")
    epochs = LeaderEpochCache([EpochEntry(1, 0), EpochEntry(2, 5)])
    pending = PendingTruncation(fs, PartitionFiles(fs, "/t-0", epochs))
    epochs.truncate_from_end(5)
    done: list[str] = []
    pending.rest = lambda: done.append("rest")
    fs.fail("sync", "/t-0", errno.EIO)
    with pytest.raises(OSError, match="injected"):
        pending.finish()
    assert pending.rest is not None
    assert not fs.exists("/t-0/leader-epoch-checkpoint")
    fs.heal()
    pending.finish()
    assert pending.rest is None
    assert fs.read_file("/t-0/leader-epoch-checkpoint") == b"0\n1\n1 0\n"
    pending.finish()
    assert done == ["rest", "rest"]
