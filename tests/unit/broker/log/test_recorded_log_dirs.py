"""Logs that Apache Kafka wrote: opened, read, indexed again and compared byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftrio.broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    read_meta_properties,
    read_offset_checkpoint,
)
from kraftrio.broker.log.leader_epoch_cache import EpochEntry
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.log_parts import CheckpointedOffsets, LogResources
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.log.partition.recovery import open_log
from kraftrio.broker.log.partition.timestamp_search import (
    offset_for_timestamp,
    offset_of_max_timestamp,
)
from kraftrio.wire.primitives import TopicPartition, uuid_from_text
from tests.support.logs import NOW_MS, load_all, load_tree, records_of
from tests.support.memory_files import MemoryFileSystem

RECORDED = Path(__file__).resolve().parents[3] / "data" / "log-dirs"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
T0 = 1_700_000_000_000
ENDS = {
    "plain-0": 8, "plain-1": 6, "txn-0": 19, "compacted-0": 29, "logappend-0": 3,
    "logappend-1": 0, "rolled-0": 3, "deleted-records-0": 6, "indexed-0": 30,
    "codec-gzip-0": 10, "codec-snappy-0": 10, "codec-lz4-0": 10, "codec-zstd-0": 10,
    "__consumer_offsets-0": 29, "__consumer_offsets-1": 18, "__transaction_state-0": 22,
    "__transaction_state-1": 6, "__share_group_state-0": 3, "__share_group_state-1": 1,
}  # fmt: skip


def partition(name: str) -> TopicPartition:
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, int(index))


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    load_tree(fs, RECORDED, "/data")
    return fs


@pytest.fixture
def manager(fs: MemoryFileSystem) -> LogManager:
    manager = LogManager(fs, ["/data"])
    load_all(manager, manager.start(CLUSTER_ID, 1), NOW_MS)
    return manager


def get(manager: LogManager, name: str) -> PartitionLog:
    log = manager.get_log(partition(name))
    assert log is not None
    return log


def read_all(log: PartitionLog) -> list[tuple[int, int, bytes | None, bytes | None]]:
    records = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 300, max_offset=log.log_end_offset, min_one_batch=True)
        records += [r[:4] for r in records_of(read.records) if r.offset >= offset]
        assert read.next_offset > offset
        offset = read.next_offset
    return records


def test_every_partition_opens_at_its_recorded_end(manager: LogManager) -> None:
    """All logs are found and end where the recovery points say, with no repair."""
    assert {str(log.topic_partition): log.log_end_offset for log in manager.logs()} == ENDS
    for log in manager.logs():
        assert log.recovery_events == ()
        assert log.high_watermark == log.recovery_point == log.log_end_offset
    assert get(manager, "plain-0").topic_id == uuid_from_text("nhZEL7knQ9mPkpKCbIc_pA")


@pytest.mark.parametrize("name", [*ENDS, "__cluster_metadata-0"])
def test_unclean_opening_rebuilds_the_same_files(fs: MemoryFileSystem, name: str) -> None:
    """A full recovery of a good log cuts nothing and writes Kafka's own index bytes again."""
    before = {p: fs.read_file(p) for p in fs.files if p.startswith(f"/data/{name}/")}
    config = LogConfig(
        index_interval_bytes=200 if name == "indexed-0" else 4096,
        cleanup_policy="compact" if name == "compacted-0" else "delete",
    )
    log = open_log(
        LogResources(fs),
        f"/data/{name}",
        partition(name),
        config,
        CheckpointedOffsets(log_start_offset=4 if name == "deleted-records-0" else 0),
        topic_id=None,
        clean_shutdown=False,
        now_ms=NOW_MS,
    )
    assert log.recovery_events == ()
    assert log.log_end_offset == ENDS.get(name, 235)
    log.close()
    # Kafka wrote these in two runs: a stop in between adds time index entries and starts to
    # count index.interval.bytes again, which the batches do not show.
    in_two_runs = name in ("plain-1", "txn-0") or name.startswith("__")
    same = (".log", ".txnindex") if in_two_runs else (".log", ".index", ".timeindex")
    for path, data in before.items():
        if path.endswith(same):
            assert fs.read_file(path) == data, path


def test_plain_records_are_right(manager: LogManager) -> None:
    """Null and empty keys and values come out as they went in, over two segments."""
    records = read_all(get(manager, "plain-0"))
    assert [r[0] for r in records] == list(range(8))
    tomb = next(r for r in records if r[2] == b"tomb")
    assert tomb[3] is None
    assert any(r[2] == b"" and r[3] == b"" for r in records)


def test_leader_epochs_are_read(manager: LogManager) -> None:
    """Epochs 0 and 2 of a log written in two runs; epochs of an empty log end at its end."""
    log = get(manager, "plain-0")
    assert log.leader_epochs.entries == [EpochEntry(0, 0), EpochEntry(2, 7)]
    assert log.end_offset_for_epoch(1) == (0, 7)
    assert log.leader_epochs.epoch_for_offset(6) == 0
    assert log.leader_epochs.epoch_for_offset(7) == 2
    assert get(manager, "logappend-1").leader_epochs.entries == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_timestamps_inside_compressed_batches(manager: LogManager, codec: str) -> None:
    """A search by time looks into the batch and gives the record's own offset and time."""
    log = get(manager, f"codec-{codec}-0")
    assert offset_for_timestamp(log, T0 + 4) == (4, T0 + 4, 0)
    assert offset_of_max_timestamp(log) == (9, T0 + 9, 0)
    assert offset_for_timestamp(log, T0 + 10) is None


def test_log_append_time_records_show_the_time_of_their_batch(manager: LogManager) -> None:
    log = get(manager, "logappend-0")
    found = offset_of_max_timestamp(log)
    assert found is not None
    assert {r[1] for r in read_all(log)} == {found.timestamp}
    assert offset_for_timestamp(log, found.timestamp) == found._replace(offset=0)


def test_transactions(manager: LogManager) -> None:
    """Aborted transactions, the open one and the producers come from Kafka's own files."""
    log = get(manager, "txn-0")
    assert log.last_stable_offset == 16
    assert [(t.producer_id, t.first_offset) for t in log.aborted_transactions(0, 19)] == [
        (1, 4), (2, 10), (1, 12),
    ]  # fmt: skip
    assert log.aborted_transactions(7, 10) == []
    entry = log.producer_state.get(3)
    assert entry is not None
    assert entry.current_txn_first_offset == 16
    assert {e.producer_id for e in log.producer_state.active_producers()} == {1, 2, 3}


def test_compacted_log_is_read_over_its_holes(manager: LogManager) -> None:
    """Compaction left holes and a batch that ends in one; reading goes on behind them."""
    log = get(manager, "compacted-0")
    offsets = [r[0] for r in read_all(log)]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == 28
    assert len(offsets) < 29
    read = log.read(25, 1, max_offset=29, min_one_batch=True)
    assert read.next_offset >= 26


def test_deleted_records_stay_deleted(manager: LogManager) -> None:
    """The log start offset comes from its checkpoint; the batch that covers it is given whole."""
    log = get(manager, "deleted-records-0")
    assert log.log_start_offset == 4
    assert [r[0] for r in read_all(log)] == [4, 5]


def test_indexes_are_read(manager: LogManager) -> None:
    """Look-ups use the recorded entries: the second batch of each pair is indexed."""
    segment = get(manager, "indexed-0").segments[0]
    assert segment.indexes.offsets.entry_count == 14
    assert segment.indexes.offsets.lookup(5) == (4, 636)
    assert segment.indexes.times.lookup(T0 + 4_500) == (T0 + 4_000, 4)
    assert offset_for_timestamp(get(manager, "indexed-0"), T0 + 4_500) == (5, T0 + 5_000, 0)


def test_clean_stop_leaves_what_kafka_left(fs: MemoryFileSystem, manager: LogManager) -> None:
    """After opening and stopping, the small files say the same as before."""
    names = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint",
             "log-start-offset-checkpoint")  # fmt: skip
    before = {name: sorted(fs.read_file(f"/data/{name}").splitlines()) for name in names}
    manager.close(broker_epoch=174)
    for name, lines in before.items():
        assert sorted(fs.read_file(f"/data/{name}").splitlines()) == lines
    recorded = (RECORDED / ".kafka_cleanshutdown").read_bytes()
    assert fs.read_file("/data/.kafka_cleanshutdown") == recorded
    assert read_offset_checkpoint(fs, f"/data/{CLEANER_CHECKPOINT}") == {
        TopicPartition("compacted", 0): 28
    }
    properties = read_meta_properties(fs, "/data")
    assert properties is not None
    assert (properties.node_id, properties.cluster_id) == (1, CLUSTER_ID)
