"""Log directories without a broker: partitions, segments, what an interrupted cleaner left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraftrio.clients.errors import ConfigError
from kraftrio.clients.spark.log_files import (
    MAX_OFFSET,
    AbortedRange,
    SegmentFile,
    aborted_by_producer,
    find_partitions,
    is_aborted,
    iter_segment_batches,
    iter_segment_headers,
    scan_transactions,
)
from kraftrio.wire.errors import CorruptBatchError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Record, build_batch
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch

RECORDED = Path(__file__).resolve().parents[3] / "data" / "log-dirs"


def batch(base_offset: int, count: int = 1, producer_id: int = -1, size: int = 3) -> bytes:
    """Build a batch, transactional if it has a producer."""
    records = [Record(0, 1000 + n, None, b"v" * size) for n in range(count)]
    return bytes(
        build_batch(
            records,
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
    )


def marker(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Build the end of a transaction."""
    return bytes(
        build_end_transaction_batch(
            producer_id, 0, EndTransactionMarker(commit, 0), timestamp=2000, base_offset=base_offset
        )
    )


def write(folder: Path, name: str, *batches: bytes) -> SegmentFile:
    """Write a segment file, the last of its log."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(batches))
    return SegmentFile(str(path), int(name[:20]))


def name(base_offset: int, suffix: str = "") -> str:
    """Name a segment."""
    return f"{base_offset:020d}.log{suffix}"


def offsets(segment: SegmentFile, start: int = 0, end: int = MAX_OFFSET) -> list[int]:
    """Return the base offsets of a segment's batches."""
    batches = iter_segment_batches(segment, start, end, check_crcs=True, tolerate_damage=False)
    return [header.base_offset for _, header in batches]


def test_recorded_directory() -> None:
    """Partitions are found with their segments and log start offsets."""
    found = {item.topic_partition: item for item in find_partitions(str(RECORDED))}
    assert TopicPartition("__cluster_metadata", 0) in found
    rolled = found[TopicPartition("rolled", 0)].segments
    assert [(one.base_offset, one.next_base_offset) for one in rolled] == [
        (0, 1),
        (1, 2),
        (2, MAX_OFFSET),
    ]
    assert found[TopicPartition("deleted-records", 0)].log_start_offset == 4
    assert found[TopicPartition("plain", 0)].log_start_offset == 0


def test_transactions_of_the_recorded_log() -> None:
    """What was aborted is what the broker wrote into its transaction index."""
    [found] = find_partitions(str(RECORDED / "txn-0"))
    transactions = scan_transactions(found.segments)
    index = (RECORDED / "txn-0" / f"{0:020d}.txnindex").read_bytes()
    entries = [index[at : at + 34] for at in range(0, len(index), 34)]
    recorded = [
        AbortedRange(*(int.from_bytes(entry[at : at + 8], "big") for at in (2, 10, 18)))
        for entry in entries
    ]
    assert transactions.aborted == recorded
    assert transactions.last_stable_offset == 16


def test_transactions(tmp_path: Path) -> None:
    """Transactions run through segments; one is aborted only between its own ends."""
    segments = (
        write(tmp_path, name(0), batch(0, 2, 7), batch(2, 1, 8), marker(3, 7, commit=True)),
        write(tmp_path, name(4), batch(4, 1, 7), marker(5, 8, commit=False), batch(6)),
        write(tmp_path, name(7), marker(7, 7, commit=False), batch(8, 1, 8)),
    )
    transactions = scan_transactions(segments)
    assert transactions.aborted == [AbortedRange(8, 2, 5), AbortedRange(7, 4, 7)]
    assert transactions.last_stable_offset == 8
    grouped = aborted_by_producer(transactions.aborted, 0, 8)
    hidden = [
        header.base_offset
        for segment in segments
        for header in iter_segment_headers(segment)
        if not header.is_control and is_aborted(header, grouped)
    ]
    assert hidden == [2, 4]
    assert aborted_by_producer(transactions.aborted, 0, 3) == {8: [AbortedRange(8, 2, 5)]}


def test_directories(tmp_path: Path) -> None:
    """Several directories are read as one broker's; deleted partitions do not count."""
    write(tmp_path / "one" / "a-b-12", name(0), batch(0))
    write(tmp_path / "one" / f"gone-0.{'f' * 32}-delete", name(0), batch(0))
    write(tmp_path / "two" / "c-0", name(5), batch(5))
    (tmp_path / "two" / "log-start-offset-checkpoint").write_text("0\n1\nc 0 5\n")
    found = find_partitions(f"{tmp_path / 'one'}, {tmp_path / 'two'}")
    assert [item.topic_partition for item in found] == [("a-b", 12), ("c", 0)]
    assert found[1].log_start_offset == 5
    shutil.copytree(tmp_path / "two" / "c-0", tmp_path / "one" / "c-0")
    with pytest.raises(ConfigError, match="c-0 is both in"):
        find_partitions(f"{tmp_path / 'one'},{tmp_path / 'two'}")
    with pytest.raises(ConfigError, match="there is no partition"):
        find_partitions(str(tmp_path))


def test_interrupted_compaction(tmp_path: Path) -> None:
    """A swapped segment stands for those it was made from; one not all there is ignored."""
    folder = tmp_path / "t-0"
    write(folder, name(0), batch(0, 10))
    write(folder, name(10), batch(10, 10))
    write(folder, name(20), batch(20))
    write(folder, name(0, ".swap"), batch(3, 2), batch(17, 3))
    [found] = find_partitions(str(folder))
    assert [segment.base_offset for segment in found.segments] == [0, 20]
    assert [offset for segment in found.segments for offset in offsets(segment)] == [3, 17, 20]
    write(folder, name(0, ".cleaned"), batch(3, 2))
    [found] = find_partitions(str(folder))
    assert [segment.base_offset for segment in found.segments] == [0, 10, 20]
    assert offsets(found.segments[0]) == [0]


def test_part_of_a_segment(tmp_path: Path) -> None:
    """Only batches that hold wanted offsets are handed out, however large they are."""
    big = 3 << 20
    segment = write(
        tmp_path, name(0), *(batch(10 * n, 10, size=big if n == 3 else 5) for n in range(6))
    )
    assert offsets(segment) == [0, 10, 20, 30, 40, 50]
    assert offsets(segment, 19, 41) == [10, 20, 30, 40]
    assert offsets(segment, 20, 40) == [20, 30]


@pytest.mark.parametrize("cut", [1, 40, 61, 70])
def test_torn_tail(tmp_path: Path, cut: int) -> None:
    """The last segment ends at its last whole batch; in another, that is damage."""
    whole, torn = batch(0, 2), batch(2, 2)
    torn = torn[: len(torn) - cut] if cut < len(torn) else b""
    segment = write(tmp_path, name(0), whole, torn)
    assert offsets(segment) == [0]
    if torn:
        with pytest.raises(CorruptBatchError, match="is damaged from byte"):
            offsets(SegmentFile(segment.path, 0, 4))


def test_preallocated_tail(tmp_path: Path) -> None:
    """Zeros behind the last batch are no batch."""
    segment = write(tmp_path, name(0), batch(0, 2), bytes(1000))
    assert offsets(segment) == [0]
    assert [header.base_offset for header in iter_segment_headers(segment)] == [0]


def test_old_formats(tmp_path: Path) -> None:
    """Message sets from before record batches are refused by name, also at the end."""
    old = bytearray(batch(2))
    old[16] = 1
    segment = write(tmp_path, name(0), batch(0, 2), bytes(old))
    with pytest.raises(CorruptBatchError, match="message formats before 2"):
        offsets(segment)


def test_damage(tmp_path: Path) -> None:
    """A wrong checksum ends the last segment, fails another, or costs its rest."""
    bad = bytearray(batch(2))
    bad[-1] ^= 1
    segment = write(tmp_path, name(0), batch(0, 2), bytes(bad), batch(3))
    assert offsets(segment) == [0]
    inner = SegmentFile(segment.path, 0, 4)
    with pytest.raises(CorruptBatchError, match="failOnDataLoss=false"):
        offsets(inner)
    tolerated = iter_segment_batches(inner, 0, 4, check_crcs=True, tolerate_damage=True)
    assert [header.base_offset for _, header in tolerated] == [0]
    unchecked = iter_segment_batches(inner, 0, 4, check_crcs=False, tolerate_damage=False)
    assert [header.base_offset for _, header in unchecked] == [0, 2, 3]


def test_a_damaged_header_is_not_believed(tmp_path: Path) -> None:
    """A batch that begins within the range is not passed over for saying that it ends before."""
    bad = bytearray(batch(2, 2))
    bad[23] ^= 0x80  # the delta of its last offset
    segment = write(tmp_path, name(0), batch(0, 2), bytes(bad), batch(4))
    with pytest.raises(CorruptBatchError, match="failOnDataLoss=false"):
        offsets(SegmentFile(segment.path, 0, 5), 2, 5)
