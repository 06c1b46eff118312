"""The text files of a log directory: Kafka's bytes, and what counts as garbled."""

from __future__ import annotations

import pytest

from kraftrio.broker.log import checkpoints
from kraftrio.broker.log.checkpoints import CheckpointError, MetaProperties
from kraftrio.broker.log.leader_epoch_cache import EpochEntry
from kraftrio.wire.primitives import TopicPartition
from tests.support.memory_files import MemoryFileSystem

OFFSETS = {TopicPartition("a-b.c_d", 0): 7, TopicPartition("x", 12): 2**40}
TOPIC_ID = bytes(range(16))


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/d")
    fs.sync_directory("/")
    return fs


def test_offset_checkpoint_bytes() -> None:
    data = checkpoints.format_offset_checkpoint(OFFSETS)
    assert data == b"0\n2\na-b.c_d 0 7\nx 12 1099511627776\n"
    assert checkpoints.parse_offset_checkpoint(data) == OFFSETS
    assert checkpoints.parse_offset_checkpoint(b"0\n0\n") == {}


def test_missing_offset_checkpoint_is_empty(fs: MemoryFileSystem) -> None:
    assert checkpoints.read_offset_checkpoint(fs, "/d/none") == {}


def test_leader_epochs_bytes() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(2, 7)]
    data = checkpoints.format_leader_epochs(entries)
    assert data == b"0\n2\n0 0\n2 7\n"
    assert checkpoints.parse_leader_epochs(data) == entries


def test_partition_metadata_bytes() -> None:
    data = checkpoints.format_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.parse_partition_metadata(data) == TOPIC_ID


def test_every_cut_of_a_checkpoint_is_noticed_or_harmless() -> None:
    """A prefix of a file never reads as other values than the whole file has."""
    offsets = checkpoints.format_offset_checkpoint(OFFSETS)
    for size in range(len(offsets) - 1):
        try:
            found = checkpoints.parse_offset_checkpoint(offsets[:size])
        except CheckpointError:
            continue
        # The number of a last line may be cut: only a sync before the rename prevents that.
        assert found.keys() == OFFSETS.keys()
    metadata = checkpoints.format_partition_metadata(TOPIC_ID)
    for size in range(len(metadata)):
        with pytest.raises(CheckpointError):
            checkpoints.parse_partition_metadata(metadata[:size])


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 30, b"1\n0\n", b"0\n1\n", b"0\nx\n", b"0\n1\na 1\n", b"0\n1\na 1 z\n",
             b"\xff\xfe"],
)  # fmt: skip
def test_garbled_offset_checkpoints(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        checkpoints.parse_offset_checkpoint(data)


@pytest.mark.parametrize("data", [b"", b"0\n2\n3 5\n2 9\n", b"0\n2\n1 5\n2 4\n", b"0\n1\n1\n"])
def test_garbled_epochs(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        checkpoints.parse_leader_epochs(data)


def test_meta_properties(fs: MemoryFileSystem) -> None:
    """Written and read; a file by Java, with comments and escapes, is read as well."""
    assert checkpoints.read_meta_properties(fs, "/d") is None
    properties = MetaProperties("cluster", 3, TOPIC_ID)
    checkpoints.write_meta_properties(fs, "/d", properties)
    assert checkpoints.read_meta_properties(fs, "/d") == properties
    java = b"#\n#Fri Nov 27\nnode.id=3\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nversion=1\n"
    assert checkpoints.parse_meta_properties(java + b"cluster.id=cluster\n") == properties
    for bad in (b"", java, java + b"cluster.id=c\nnode.id=x\n", b"version=9\n" + java, b"\xff"):
        with pytest.raises(CheckpointError):
            checkpoints.parse_meta_properties(bad)


def test_clean_shutdown_marker_is_taken_once(fs: MemoryFileSystem) -> None:
    """Reading it removes it, durably."""
    assert checkpoints.take_clean_shutdown(fs, "/d") is None
    checkpoints.write_clean_shutdown(fs, "/d", 174)
    assert fs.read_file("/d/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":174}'
    assert checkpoints.take_clean_shutdown(fs, "/d") == 174
    assert checkpoints.take_clean_shutdown(fs.after_crash(0), "/d") is None
    fs.open("/d/.kafka_cleanshutdown", create=True).write_at(b"[]", 0)
    assert checkpoints.take_clean_shutdown(fs, "/d") == -1


def test_checkpoints_are_old_or_new_after_a_crash(fs: MemoryFileSystem) -> None:
    """At every byte of a rewrite the file is one of the two."""
    path = "/d/" + checkpoints.REPLICATION_CHECKPOINT
    checkpoints.write_offset_checkpoint(fs, path, OFFSETS)
    newer = {key: value + 1 for key, value in OFFSETS.items()}
    data = checkpoints.format_offset_checkpoint(newer)
    for keep in range(len(data) + 10):
        copy = fs.after_crash(0)
        checkpoints.write_offset_checkpoint(copy, path, newer)
        assert checkpoints.read_offset_checkpoint(copy.after_crash(0), path) == newer
        # Without the syncs: cut the write at any byte.
        copy = fs.after_crash(0)
        file = copy.open(path + ".tmp", create=True)
        file.write_at(data, 0)
        found = checkpoints.read_offset_checkpoint(copy.after_crash(keep), path)
        assert found == OFFSETS
