"""Every call of the file system in what the metadata log does fails once.

An append is tried again at once where only room was missing, and everything else ends the node: so
the log is opened again, after a stop of the process and after a power cut. What was synced is there
each time, and what is there is a beginning of what was appended, or follows a snapshot.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch, SnapshotId
from tests.support.memory_files import FailedCall, MemoryFileSystem

DIRECTORY = "/data/__cluster_metadata-0"
ALL = 2**62
CODES = [errno.EMFILE, errno.ENOSPC, errno.EIO]


def batch(offset: int, epoch: int = 1) -> LogBatch:
    return LogBatch(offset, epoch, 1000 + offset, (b"%d" % offset * (1 + offset % 7),))


class Quorum:
    """One node's metadata log; `appended` is what a leader had it append, `synced` how far."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_directory("/data")
        self.fs.sync_directory("/")
        self.log = self.open()
        self.appended: list[LogBatch] = []
        self.synced = 0
        self.snapshot: SnapshotId | None = None
        self.append(8)
        self.sync()

    def open(self) -> MetadataLog:
        self.log = MetadataLog(self.fs, DIRECTORY, segment_bytes=250)
        return self.log

    def append(self, count: int) -> None:
        for _ in range(count):
            new = batch(self.log.log_end_offset)
            try:
                self.log.append([new])
            except OSError:
                self.log.append([new])  # there is room again
            self.appended.append(new)

    def sync(self) -> None:
        self.log.flush()
        self.synced = len(self.appended)

    def write_snapshot(self, offset: int) -> SnapshotId:
        snapshot = SnapshotId(offset, 1)
        self.log.write_snapshot(snapshot, [b"state"], 1000)
        self.snapshot = snapshot
        return snapshot


Step = Callable[[Quorum], None]


def append(quorum: Quorum) -> None:
    quorum.append(9)
    quorum.sync()


def truncate(quorum: Quorum) -> None:
    quorum.synced = 3
    quorum.log.truncate_to(3)
    del quorum.appended[3:]


def snapshot(quorum: Quorum) -> None:
    quorum.write_snapshot(5)


def clean_up(quorum: Quorum) -> None:
    """The log begins at the newer of two snapshots from now on."""
    quorum.log.clean_before(quorum.write_snapshot(4))
    quorum.append(4)
    quorum.sync()
    quorum.log.clean_before(quorum.write_snapshot(10))


def take_snapshot_of_leader(quorum: Quorum) -> None:
    """A follower that is far behind gives up its log."""
    quorum.log.reset_to(quorum.write_snapshot(100))
    quorum.appended = [batch(offset) for offset in range(100)]
    quorum.synced = 100


def open_again(quorum: Quorum) -> None:
    quorum.append(3)
    quorum.log.close()
    file = quorum.fs.open(
        f"{DIRECTORY}/00000000000000000003-0000000001.checkpoint.part", create=True
    )
    file.write_at(b"half", 0)
    file.close()
    quorum.open()


STEPS: list[Step] = [append, truncate, snapshot, clean_up, take_snapshot_of_leader, open_again]


def failed_once(step: Step) -> Iterator[tuple[str, Quorum]]:
    for number in range(1, 1000):
        quorum = Quorum()
        call = FailedCall(number, CODES[number % len(CODES)])
        quorum.fs.failed_call = call
        try:
            step(quorum)
        except OSError as error:
            assert call.place in str(error)
        quorum.fs.heal()
        if not call.place:
            assert number > 1
            return
        yield call.place, quorum
    raise AssertionError("the step does not end")


def check(quorum: Quorum, where: str) -> None:
    log, newest = quorum.log, quorum.log.latest_snapshot_id()
    if newest is not None:
        assert log.read_snapshot(newest) == [b"state"], where
        assert log.log_start_offset == newest.end_offset, where
    found = log.read(log.log_start_offset, log.log_end_offset, ALL)
    expected = {one.base_offset: one for one in quorum.appended}
    for one in found:
        assert one == expected.get(one.base_offset, one), where
    for before, after in pairwise(found):
        assert before.end_offset == after.base_offset, where
    assert log.log_end_offset >= quorum.synced, where
    new = batch(log.log_end_offset, epoch=2)
    log.append([new])
    log.flush()
    assert log.read(new.base_offset, ALL, ALL) == [new], where


@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_what_was_synced_is_there(step: Step, power_fails: bool) -> None:
    """See the module."""
    for where, quorum in failed_once(step):
        quorum.log.close()
        if power_fails:
            quorum.fs = quorum.fs.after_crash()
        quorum.open()
        check(quorum, where)


@pytest.mark.parametrize("rolls", [False, True])
def test_half_an_append_leaves_nothing_behind(rolls: bool) -> None:
    """A leader that was without room is deposed, and its log goes on with other batches."""
    quorum = Quorum()
    quorum.log.roll()
    large = LogBatch(8, 1, 1000, (b"x" * 200, b"y" * 200))

    def fault(path: str, position: int, size: int) -> tuple[int, OSError] | None:
        return (size - 1, OSError(errno.ENOSPC, "injected")) if path.endswith(".log") else None

    for fails_to_cut in (False, True):
        quorum.fs.write_fault = fault
        if fails_to_cut:
            quorum.fs.fail("truncate", ".log")
        with pytest.raises(OSError, match="injected"):
            quorum.log.append([large])
        quorum.fs.heal()
    if rolls:
        quorum.append(1)
        with pytest.raises(OSError, match="injected"):
            quorum.fs.write_fault = fault
            quorum.log.append([replace(large, base_offset=9)])
        quorum.fs.heal()
        quorum.log.roll()
    quorum.append(1)
    quorum.sync()
    paths = [path for path in quorum.fs.files if path.endswith(".log")]
    assert sum(quorum.fs.size_bytes(path) for path in paths) == quorum.log.size_bytes
    quorum.log.close()
    quorum.open()
    check(quorum, "")


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_the_election_state_is_the_old_or_the_new_one(code: int) -> None:
    """A vote that is not on disk is not given, but one that is there is known."""
    old = ElectionState(epoch=3, leader_id=1, voted_id=-1)
    new = ElectionState(epoch=4, leader_id=-1, voted_id=2)
    for number in range(1, 100):
        quorum = Quorum()
        QuorumStateFile(quorum.fs, DIRECTORY).write(old, [1, 2, 3])
        call = FailedCall(number, code)
        quorum.fs.failed_call = call
        try:
            QuorumStateFile(quorum.fs, DIRECTORY).write(new, [1, 2, 3])
        except OSError:
            quorum.fs.heal()
            for fs in (quorum.fs, quorum.fs.after_crash()):
                assert QuorumStateFile(fs, DIRECTORY).read() in (old, new), call.place
            QuorumStateFile(quorum.fs, DIRECTORY).write(new, [1, 2, 3])
        assert QuorumStateFile(quorum.fs.after_crash(), DIRECTORY).read() == new
        if not call.place:
            assert number > 5
            return
    raise AssertionError("the write does not end")
