"""The metadata log on disk: appends, torn tails, truncation, snapshots, crashes at every byte."""

from __future__ import annotations

import contextlib
import errno
import json
import random
from collections.abc import Callable

import pytest

from kraftrio.broker.log.metadata.metadata_log import METADATA_TOPIC_ID, MetadataLog
from kraftrio.broker.log.metadata.names import MetadataLogError
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.kraft_meta.quorum.log_batches import encode_batch
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch, SnapshotId
from kraftrio.wire.records.batch import iter_headers, iter_records
from kraftrio.wire.records.control import ControlRecordType, control_key
from tests.support.memory_files import MemoryFileSystem

DIRECTORY = "/data/__cluster_metadata-0"
FIRST = f"{DIRECTORY}/{0:020d}.log"
ALL = 2**62


def batch(base_offset: int, *values: bytes, epoch: int = 1) -> LogBatch:
    return LogBatch(base_offset, epoch, 1000 + base_offset, values or (b"x",))


def new_disk() -> MemoryFileSystem:
    """Give a disk whose log directory is there and durable, with nothing in it."""
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    fs.sync_directory("/")
    return fs


def open_log(fs: MemoryFileSystem, **options: int) -> MetadataLog:
    return MetadataLog(fs, DIRECTORY, **options)


def content(log: MetadataLog) -> list[LogBatch]:
    return log.read(log.log_start_offset, log.log_end_offset, ALL)


def segments(fs: MemoryFileSystem) -> list[str]:
    return [name for name in fs.list_directory(DIRECTORY) if name.endswith(".log")]


def snapshots(fs: MemoryFileSystem) -> list[str]:
    return [name for name in fs.list_directory(DIRECTORY) if name.endswith(".checkpoint")]


CONTROL = LogBatch(0, 1, 1000, (b"value",), (control_key(ControlRecordType.LEADER_CHANGE),))
BATCHES = [CONTROL, batch(1, b"a", b"b"), batch(3, b"c"), batch(4, b"d", epoch=3)]


def test_what_was_appended_is_read_again_after_a_restart() -> None:
    """Control keys, epochs and timestamps included."""
    fs = new_disk()
    log = open_log(fs)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert log.append(BATCHES) == log.size_bytes > 0
    assert content(log) == BATCHES
    log.flush()
    again = open_log(fs.after_crash())
    assert content(again) == BATCHES
    assert again.epoch_starts() == [(1, 0), (3, 4)]
    assert again.size_bytes == log.size_bytes


def test_the_files_are_record_batches_of_kafka() -> None:
    """Magic 2, leader epoch, control bit; partition.metadata names the metadata topic's id."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)
    data = fs.read_file(FIRST)
    headers = list(iter_headers(data))
    assert [h.base_offset for h in headers] == [0, 1, 3, 4]
    assert [h.is_control for h in headers] == [True, False, False, False]
    assert [h.partition_leader_epoch for h in headers] == [1, 1, 1, 3]
    assert [r.value for r in iter_records(data, headers[1])] == [b"a", b"b"]
    assert bytes(15) + b"\x01" == METADATA_TOPIC_ID
    metadata = fs.read_file(f"{DIRECTORY}/partition.metadata")
    assert metadata == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_reads_start_and_end_at_batches() -> None:
    """The batch that holds the start, whole; at least one; not beyond max_offset or max_bytes."""
    log = open_log(new_disk())
    log.append(BATCHES)
    assert log.read(2, ALL, ALL) == BATCHES[1:]
    assert log.read(0, 3, ALL) == BATCHES[:2]
    assert log.read(1, ALL, 1) == BATCHES[1:2]
    assert log.read(5, ALL, ALL) == []


def test_a_crash_at_any_byte_leaves_a_prefix() -> None:
    """Unsynced appends: what is left opens, ends at a whole batch, and takes appends again."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES[:2])
    log.flush()
    log.append(BATCHES[2:])
    for keep in range(fs.unsynced_units + 1):
        survivor = fs.after_crash(keep)
        again = open_log(survivor)
        left = content(again)
        assert left == BATCHES[: len(left)]
        assert len(left) >= 2
        again.append([batch(again.log_end_offset, b"new", epoch=9)])
        again.flush()
        assert content(open_log(survivor.after_crash()))[-1].values == (b"new",)


def test_a_torn_tail_is_counted() -> None:
    """The shell can report what was cut."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)
    size = fs.size_bytes(FIRST)
    fs.open(FIRST).truncate(size - 1)
    again = open_log(fs)
    assert content(again) == BATCHES[:3]
    assert again.truncated_bytes > 0
    assert fs.size_bytes(FIRST) == again.size_bytes


def test_segments_roll_by_size_and_are_read_as_one() -> None:
    """A segment is durable before the next one exists."""
    fs = new_disk()
    log = open_log(fs, segment_bytes=1)
    log.append(BATCHES)
    assert segments(fs) == [f"{n:020d}.log" for n in (0, 1, 3, 4)]
    assert content(log) == BATCHES
    assert log.read(2, ALL, 100) == BATCHES[1:2]
    again = open_log(fs.after_crash())
    assert content(again) == BATCHES[:3]
    assert again.log_end_offset == 4


def test_damage_before_the_newest_segment_is_refused() -> None:
    """Cutting there would lose committed metadata without a word."""
    fs = new_disk()
    log = open_log(fs, segment_bytes=1)
    log.append(BATCHES)
    file = fs.open(f"{DIRECTORY}/{1:020d}.log")
    file.write_at(b"\xff", 40)
    with pytest.raises(MetadataLogError, match="damaged"):
        open_log(fs)


def test_a_missing_segment_is_refused() -> None:
    """In the middle, and at the beginning without a snapshot."""
    for missing in (1, 0):
        fs = new_disk()
        open_log(fs, segment_bytes=1).append(BATCHES)
        fs.remove(f"{DIRECTORY}/{missing:020d}.log")
        with pytest.raises(MetadataLogError):
            open_log(fs)


def test_truncation_goes_back_over_segments() -> None:
    """It is durable when it returns, and the log goes on from there."""
    for segment_bytes in (1, 1 << 30):
        fs = new_disk()
        log = open_log(fs, segment_bytes=segment_bytes)
        log.append(BATCHES)
        log.flush()
        log.truncate_to(1)
        assert content(log) == BATCHES[:1]
        assert content(open_log(fs.after_crash())) == BATCHES[:1]
        log.append([batch(1, b"other", epoch=4)])
        assert log.epoch_starts() == [(1, 0), (4, 1)]


def test_a_snapshot_keeps_its_values() -> None:
    """Header and footer around them (KIP-630), in as many batches as needed."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)
    snapshot_id = SnapshotId(4, 1)
    values = [b"%d" % n for n in range(2500)]
    log.write_snapshot(snapshot_id, values, 77)
    assert snapshots(fs) == ["00000000000000000004-0000000001.checkpoint"]
    survivor = fs.after_crash()
    again = open_log(survivor)
    assert again.latest_snapshot_id() == snapshot_id
    assert again.read_snapshot(snapshot_id) == values
    data = survivor.read_file(f"{DIRECTORY}/{snapshots(fs)[0]}")
    headers = list(iter_headers(data))
    assert [h.is_control for h in headers] == [True, False, False, False, True]
    assert [h.base_offset for h in headers] == [0, 1, 1001, 2001, 2501]


def test_the_log_starts_at_its_newest_snapshot() -> None:
    """Older snapshots and whole segments below are deleted; the rest stays readable."""
    fs = new_disk()
    log = open_log(fs, segment_bytes=1)
    log.append(BATCHES)
    log.write_snapshot(SnapshotId(1, 1), [b"old"], 0)
    log.write_snapshot(SnapshotId(3, 1), [b"new"], 0)
    log.clean_before(SnapshotId(3, 1))
    assert segments(fs) == [f"{n:020d}.log" for n in (3, 4, 5)]
    assert len(snapshots(fs)) == 1
    for opened in (log, open_log(fs.after_crash())):
        assert (opened.log_start_offset, opened.log_end_offset) == (3, 5)
        assert content(opened) == BATCHES[2:]
        assert opened.epoch_starts() == [(1, 3), (3, 4)]


def test_a_snapshot_within_the_newest_segment_hides_what_is_below() -> None:
    """Bytes stay until the segment goes, but the log starts at the snapshot."""
    log = open_log(new_disk())
    log.append(BATCHES)
    log.write_snapshot(SnapshotId(3, 1), [], 0)
    log.clean_before(SnapshotId(3, 1))
    assert content(log) == BATCHES[2:]
    assert log.epoch_starts() == [(1, 3), (3, 4)]
    log.append([batch(5, epoch=3)])
    log.write_snapshot(SnapshotId(6, 3), [], 0)
    log.clean_before(SnapshotId(6, 3))
    assert (log.size_bytes, log.log_start_offset, log.log_end_offset) == (0, 6, 6)


def test_an_incomplete_snapshot_is_refused() -> None:
    """Without footer, or with damage; leftovers of unfinished ones are removed."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)
    log.write_snapshot(SnapshotId(4, 1), [b"a", b"b"], 0)
    path = f"{DIRECTORY}/{snapshots(fs)[0]}"
    data = fs.read_file(path)
    file = fs.open(path)
    last = list(iter_headers(data))[-1]
    file.truncate(last.position)
    with pytest.raises(MetadataLogError, match="incomplete"):
        log.read_snapshot(SnapshotId(4, 1))
    file.write_at(b"\xff", 30)
    with pytest.raises(MetadataLogError, match="damaged"):
        log.read_snapshot(SnapshotId(4, 1))
    fs.open(f"{path}.part", create=True)
    open_log(fs)
    assert not fs.exists(f"{path}.part")


def test_a_snapshot_from_the_leader_replaces_the_log() -> None:
    """The log goes on at its end."""
    fs = new_disk()
    log = open_log(fs, segment_bytes=1)
    log.append(BATCHES)
    snapshot_id = SnapshotId(100, 7)
    log.write_snapshot(snapshot_id, [b"v"], 0)
    log.reset_to(snapshot_id)
    log.append([batch(100, epoch=7)])
    log.flush()
    again = open_log(fs.after_crash())
    assert (again.log_start_offset, again.log_end_offset) == (100, 101)
    assert again.epoch_starts() == [(7, 100)]


def test_a_diverged_log_does_not_go_on_from_the_leaders_snapshot() -> None:
    """A crash before the old log was dropped: other records lead up to the same offset."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)
    log.flush()
    log.write_snapshot(SnapshotId(3, 2), [b"v"], 0)
    again = open_log(fs.after_crash())
    assert (again.log_start_offset, again.log_end_offset) == (3, 3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("replaces", [False, True])
def test_a_crash_anywhere_in_a_snapshot_leaves_a_whole_log(replaces: bool, seed: int) -> None:
    """Own snapshots and those of the leader, with the cleaning after: before or after, no mix."""
    fs = new_disk()
    log = open_log(fs, segment_bytes=1)
    log.append(BATCHES)
    log.write_snapshot(SnapshotId(1, 1), [b"old"], 0)
    log.flush()
    start = fs.after_crash()

    def work(disk: MemoryFileSystem) -> None:
        opened = open_log(disk, segment_bytes=1)
        if replaces:
            opened.write_snapshot(SnapshotId(100, 7), [b"new"], 0)
            opened.reset_to(SnapshotId(100, 7))
        else:
            opened.write_snapshot(SnapshotId(4, 1), [b"new"], 0)
            opened.clean_before(SnapshotId(4, 1))

    rng = random.Random(seed)
    for operation in ("sync", "rename", "remove", "open", "write"):
        for part in ("checkpoint", "00000000000000000000.log", f"{1:020d}.log", f"{3:020d}.log"):
            disk = start.after_crash()
            disk.fail(operation, part)
            with contextlib.suppress(OSError):
                work(disk)
            for survivor in (disk.after_crash(), disk.after_crash(0, rng)):
                again = open_log(survivor)
                snapshot_id = again.latest_snapshot_id()
                assert snapshot_id is not None
                old = again.read_snapshot(snapshot_id) == [b"old"]
                assert old == (snapshot_id == SnapshotId(1, 1))
                assert again.log_start_offset == snapshot_id.end_offset
                if old or not replaces:
                    assert again.log_end_offset == 5
                    assert content(again) == [
                        b for b in BATCHES if b.base_offset >= again.log_start_offset
                    ]
                else:
                    assert again.log_end_offset == 100


def test_disk_errors_propagate() -> None:
    """A metadata log that cannot be written ends the node."""
    fs = new_disk()
    log = open_log(fs)
    fs.fail("sync", ".log", errno.EIO)
    log.append(BATCHES)
    with pytest.raises(OSError, match="injected"):
        log.flush()


# ---- quorum-state


def test_the_election_state_is_durable_when_written() -> None:
    """Kafka's fields and two of ours; another log directory's is not believed."""
    fs = new_disk()
    open_log(fs)
    store = QuorumStateFile(fs, DIRECTORY, b"\x01" * 16)
    assert store.read() is None
    assert store.directory_id() is None
    state = ElectionState(2, 1, -1, is_proven=True, committed_offset=7)
    store.write(state, (1, 2))
    survivor = fs.after_crash()
    assert QuorumStateFile(survivor, DIRECTORY, b"\x01" * 16).read() == state
    other = QuorumStateFile(survivor, DIRECTORY, b"\x02" * 16)
    assert other.read() == ElectionState(2, 1, -1, is_proven=False, committed_offset=7)
    assert other.directory_id() == b"\x01" * 16
    assert json.loads(survivor.read_file(f"{DIRECTORY}/quorum-state")) == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 2,
        "votedId": -1,
        "appliedOffset": 7,
        "currentVoters": [{"voterId": 1}, {"voterId": 2}],
        "isProven": True,
        "directoryId": "AQEBAQEBAQEBAQEBAQEBAQ",
        "data_version": 0,
    }


def test_a_crash_while_writing_leaves_the_old_or_the_new_state() -> None:
    """Never a mix, at any byte."""
    fs = new_disk()
    open_log(fs)
    store = QuorumStateFile(fs, DIRECTORY)
    old, new = ElectionState(2, 1, -1), ElectionState(3, -1, 2)
    store.write(old, (1,))
    fs.fail("rename", "quorum-state")
    with pytest.raises(OSError, match="injected"):
        store.write(new, (1,))
    assert QuorumStateFile(fs.after_crash(), DIRECTORY).read() == old


def test_kafkas_file_of_version_1_is_read() -> None:
    """Without the voters, with a directory id."""
    fs = new_disk()
    fs.make_directory(DIRECTORY)
    data = {"leaderId": -1, "leaderEpoch": 4, "votedId": 2, "votedDirectoryId": "x"}
    fs.open(f"{DIRECTORY}/quorum-state", create=True).write_at(json.dumps(data).encode(), 0)
    assert QuorumStateFile(fs, DIRECTORY).read() == ElectionState(4, -1, 2)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"leaderEpoch":"x"}'])
def test_a_damaged_state_is_refused(data: bytes) -> None:
    """A node that forgot its vote must not vote again."""
    fs = new_disk()
    fs.make_directory(DIRECTORY)
    fs.open(f"{DIRECTORY}/quorum-state", create=True).write_at(data, 0)
    with pytest.raises(MetadataLogError):
        QuorumStateFile(fs, DIRECTORY).read()


def flip(fs: MemoryFileSystem, position: int, path: str = FIRST) -> None:
    """Change a bit of a file for good."""
    file = fs.open(path)
    file.write_at(bytes([file.read_at(position, 1)[0] ^ 1]), position)
    file.sync()


def flip_once(position: int, suffix: str = ".log") -> Callable[[str, int, bytes], bytes]:
    """Change a bit in the first read of it; the disk is right."""
    done: list[bool] = []

    def read(path: str, start: int, data: bytes) -> bytes:
        at = position - start
        if done or not path.endswith(suffix) or not 0 <= at < len(data):
            return data
        done.append(True)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return read


@pytest.mark.parametrize("index", range(len(BATCHES)))
@pytest.mark.parametrize("at", [21, 45, -2])
def test_damage_in_the_newest_segment_is_refused(index: int, at: int) -> None:
    """A batch that is all there is no torn tail: cutting it would take back what was promised."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)
    log.flush()
    header = list(iter_headers(fs.read_file(FIRST)))[index]
    flip(fs, header.position + at % header.size_bytes)
    with pytest.raises(MetadataLogError, match=f"damaged at position {header.position}"):
        open_log(fs)


@pytest.mark.parametrize("before_sector", [1, 4, 7, 12, 15, 16, 20])
def test_zeros_that_belong_there_are_no_unwritten_sector(before_sector: int) -> None:
    """Offsets begin with zeros, which may be all that a sector holds of a batch."""
    start = 1024 - before_sector
    candidates = (batch(0, b"v" * size) for size in range(start))
    first = next(found for found in candidates if len(encode_batch(found)) == start)
    fs = new_disk()
    log = open_log(fs)
    log.append([first, batch(1, b"w" * 50), batch(2, b"x")])
    log.flush()
    flip(fs, start + 80)
    with pytest.raises(MetadataLogError, match=f"position {start}"):
        open_log(fs)


def test_a_damaged_length_is_refused_when_whole_batches_follow() -> None:
    """What looks like a batch without its end cannot have others behind it."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)
    flip(fs, list(iter_headers(fs.read_file(FIRST)))[1].position + 9)
    with pytest.raises(MetadataLogError, match="damaged"):
        open_log(fs)


def test_sectors_that_were_never_written_are_a_torn_tail() -> None:
    """A power cut may keep a later part of an unsynced append and lose an earlier one."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES[:2])
    log.flush()
    log.append([batch(3, b"v" * 3000)])
    fs.open(FIRST).write_at(bytes(512), 1024)
    again = open_log(fs)
    assert content(again) == BATCHES[:2]


def test_one_bad_read_is_read_again() -> None:
    """Neither opening nor serving the log believes in damage that is not there the second time."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)
    log.flush()
    fs.read_fault = flip_once(30)
    log = open_log(fs)
    assert log.truncated_bytes == 0
    fs.read_fault = flip_once(30)
    assert content(log) == BATCHES
    assert log.log_end_offset == 5


def test_batches_that_cannot_be_read_back_are_a_failure_of_the_disk() -> None:
    """Damage is not handed to the followers, nor taken for committed metadata."""
    fs = new_disk()
    open_log(fs).append(BATCHES)
    log = open_log(fs)
    flip(fs, list(iter_headers(fs.read_file(FIRST)))[1].position + 70)
    assert log.read(0, 1, ALL) == BATCHES[:1]
    with pytest.raises(OSError, match="damaged") as caught:
        log.read(1, ALL, ALL)
    assert caught.value.errno == errno.EIO


def test_a_batch_that_is_another_one_is_not_given_out() -> None:
    """Offset and epoch are not in the checksum: they are compared with what was there."""
    fs = new_disk()
    open_log(fs).append(BATCHES)
    log = open_log(fs)
    flip(fs, list(iter_headers(fs.read_file(FIRST)))[1].position + 15)
    with pytest.raises(OSError, match="damaged"):
        log.read(1, ALL, ALL)


def test_what_opening_finds_is_durable() -> None:
    """A killed process leaves unsynced records: they count from now on, so no power cut may cost
    them."""
    fs = new_disk()
    log = open_log(fs)
    log.append(BATCHES)  # and killed before the flush
    QuorumStateFile(fs, DIRECTORY).write(ElectionState(3, 1, 2), [1, 2, 3])
    found = open_log(fs)
    survivor = open_log(fs.after_crash())
    assert content(survivor) == content(found) == BATCHES
