"""Damage of many kinds, planted in a copy of a log directory of Apache Kafka: each is found.

`DAMAGE` names for each kind what is done to which file, and what has to be said of it: the file,
the offset where one is concerned, and a word of the fault. In the sound directory nothing is found.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from crc32c import crc32c

from kraftrio.broker.log.files import ReadOnlyFileSystem
from kraftrio.broker.log.inspection.directory_check import DirectoryCheck
from kraftrio.broker.log.inspection.findings import Finding
from tests.unit.wire.batches import LOG_DIRS

FIRST = "00000000000000000000"
Change = Callable[[bytearray], None]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of the recorded directory, to be damaged."""
    copy = tmp_path / "data"
    shutil.copytree(LOG_DIRS, copy)
    return copy


def verify(directory: Path, *, with_records: bool = True) -> list[Finding]:
    verification = DirectoryCheck(ReadOnlyFileSystem(), str(directory), with_records=with_records)
    return list(verification.run(lambda folder: None))


def test_nothing_is_found_in_a_sound_directory(directory: Path) -> None:
    verification = DirectoryCheck(ReadOnlyFileSystem(), str(directory))
    seen: list[str] = []
    assert not list(verification.run(lambda folder: seen.append(folder.path)))
    assert len(seen) == len(verification.folders) == 20
    assert not verify(directory / "plain-0")


# -- what is done to files ------------------------------------------------------------------------


def flip(position: int, mask: int = 0x01) -> Change:
    """Flip a bit."""

    def change(data: bytearray) -> None:
        data[position] ^= mask

    return change


def put(position: int, form: str, value: int, *, seal: bool = False) -> Change:
    """Write a number, and with `seal` make the checksum of the first batch right again."""

    def change(data: bytearray) -> None:
        struct.pack_into(form, data, position, value)
        if seal:
            size = 12 + int.from_bytes(data[8:12], "big")
            struct.pack_into(">I", data, 17, crc32c(bytes(data[21:size])))

    return change


def cut(count: int) -> Change:
    """Take bytes off the end."""

    def change(data: bytearray) -> None:
        del data[-count:]

    return change


def add(more: bytes) -> Change:
    """Put bytes beyond the end."""

    def change(data: bytearray) -> None:
        data += more

    return change


def write(text: bytes) -> Change:
    """Write something else."""

    def change(data: bytearray) -> None:
        data[:] = text

    return change


def repeat(data: bytearray) -> None:
    """Put all batches there twice."""
    data += bytes(data)


def remove(data: bytearray) -> None:
    """Marks a file that is to be removed; see `plant`."""
    raise FileNotFoundError


class Damage(NamedTuple):
    """One kind of damage, and what has to be reported."""

    file: str
    change: Change
    word: str
    offset: int | None = None
    reported_file: str = ""  # another file


DAMAGE = {
    "a bit in a value": Damage(f"codec-gzip-0/{FIRST}.log", flip(100), "CRC", 0),
    "a bit in the last batch": Damage(f"plain-1/{FIRST}.log", flip(-1), "CRC"),
    "the magic": Damage(f"codec-lz4-0/{FIRST}.log", put(16, "b", 7), "magic 7"),
    "an old format": Damage(f"codec-lz4-0/{FIRST}.log", put(16, "b", 1), "must have magic 2"),
    "a length of nothing": Damage(f"codec-zstd-0/{FIRST}.log", put(8, ">i", 3), "length 3", 0),
    "a length beyond the file": Damage(
        f"codec-zstd-0/{FIRST}.log", put(8, ">i", 1 << 20), "are left in the file", 0
    ),
    "a torn tail": Damage(f"rolled-0/{'2'.zfill(20)}.log", cut(5), "are left in the file", 2),
    "garbage at the end": Damage(f"plain-1/{FIRST}.log", add(b"x" * 90), "magic 120"),
    "zeros at the end": Damage(f"plain-1/{FIRST}.log", add(bytes(4096)), "(4096 bytes)"),
    "batches that come again": Damage(f"codec-gzip-0/{FIRST}.log", repeat, "comes again", 0),
    "an offset of another segment": Damage(
        f"rolled-0/{FIRST}.log", put(0, ">q", 1), "belongs to the next segment", 1
    ),
    "an offset below the segment": Damage(
        f"rolled-0/{'2'.zfill(20)}.log", put(0, ">q", 1), "is below the segment's first", 1
    ),
    "more records than offsets": Damage(
        f"codec-gzip-0/{FIRST}.log", put(23, ">i", 3, seal=True), "cannot have 4 offsets", 0
    ),
    "fewer records than it says": Damage(
        f"logappend-0/{FIRST}.log", put(57, ">i", 1, seal=True), "records cannot be read", 0
    ),
    "compressed data that is none": Damage(
        f"codec-zstd-0/{FIRST}.log", put(61, ">q", -1, seal=True), "records cannot be read", 0
    ),
    "a record later than the batch": Damage(
        f"codec-gzip-0/{FIRST}.log", put(35, ">q", 1_700_000_000_000, seal=True), "later than", 0
    ),
    "an epoch that the checkpoint lacks": Damage(
        f"codec-gzip-0/{FIRST}.log", put(12, ">i", 9), "written in epoch 9", 0,
        "codec-gzip-0/leader-epoch-checkpoint",
    ),
    "a leader epoch that falls": Damage(
        f"plain-0/{FIRST}.log", put(12, ">i", 5), "comes after 5"
    ),
    "a segment that is gone": Damage(
        f"rolled-0/{'1'.zfill(20)}.log", remove, "log of this segment is not there", 1,
        f"rolled-0/{'1'.zfill(20)}.index",
    ),
    "an offset index that is cut": Damage(
        f"indexed-0/{FIRST}.index", cut(3), "no whole number of entries"
    ),
    "an offset index that falls": Damage(
        f"indexed-0/{FIRST}.index", put(8, ">I", 0), "does not rise", 0
    ),
    "an offset index into a batch": Damage(
        f"indexed-0/{FIRST}.index", flip(7), "where no batch begins"
    ),
    "an offset index of other offsets": Damage(
        f"indexed-0/{FIRST}.index", put(0, ">I", 0), "but it is not", 0
    ),
    "an offset index that is gone": Damage(f"plain-1/{FIRST}.index", remove, "is not there", 0),
    "a time index that is cut": Damage(
        f"indexed-0/{FIRST}.timeindex", cut(1), "no whole number of entries"
    ),
    "a time index that falls": Damage(
        f"indexed-0/{FIRST}.timeindex", put(12, ">q", 5), "does not rise"
    ),
    "a time index with another time": Damage(
        f"indexed-0/{FIRST}.timeindex", flip(6), "the latest is"
    ),
    "a time index with another offset": Damage(
        f"indexed-0/{FIRST}.timeindex", put(8, ">I", 900), "which is not here", 900
    ),
    "a time index that is gone": Damage(
        f"plain-1/{FIRST}.timeindex", remove, "is not there", 0
    ),
    "a transaction index that is cut": Damage(
        f"txn-0/{FIRST}.txnindex", cut(1), "no whole number of transaction index entries"
    ),
    "a transaction index of nobody": Damage(
        f"txn-0/{FIRST}.txnindex", put(2, ">q", 12345), "producer 12345 aborted nothing"
    ),
    "a transaction index that begins elsewhere": Damage(
        f"txn-0/{FIRST}.txnindex", put(10, ">q", 0), "began with"
    ),
    "a transaction index that is gone": Damage(
        f"txn-0/{FIRST}.txnindex", remove, "is not in it"
    ),
    "leader epochs that are none": Damage(
        "plain-0/leader-epoch-checkpoint", write(b"0\n1\nzero 0\n"), "a number is not one"
    ),
    "leader epochs that fall": Damage(
        "plain-0/leader-epoch-checkpoint", write(b"0\n2\n2 0\n0 7\n"), "do not rise"
    ),
    "leader epochs that are too few": Damage(
        "plain-0/leader-epoch-checkpoint", write(b"0\n1\n0 0\n"), "it says 0"
    ),
    "leader epochs beyond the end": Damage(
        "plain-0/leader-epoch-checkpoint", write(b"0\n3\n0 0\n2 7\n9 99\n"), "beyond the end", 99
    ),
    "leader epochs that are gone": Damage(
        "plain-0/leader-epoch-checkpoint", remove, "is not there"
    ),
    "a producer snapshot": Damage(f"plain-1/{'5'.zfill(20)}.snapshot", flip(12), "checksum"),
    "a producer snapshot that is cut": Damage(
        f"plain-1/{'5'.zfill(20)}.snapshot", cut(4), "snapshot"
    ),
    "a topic id": Damage("plain-0/partition.metadata", write(b"version: 0\n"), "no topic id"),
    "a topic id that is gone": Damage("plain-0/partition.metadata", remove, "is not there"),
    "recovery points": Damage("recovery-point-offset-checkpoint", write(b"0\nx\n"), "no version"),
    "a recovery point beyond the end": Damage(
        "recovery-point-offset-checkpoint", write(b"0\n1\nplain 0 99\n"),
        "beyond the end of its log", 99,
    ),
    "a log start beyond the end": Damage(
        "log-start-offset-checkpoint", write(b"0\n2\nplain 0 77\ndeleted-records 0 4\n"),
        "beyond the end of its log", 77,
    ),
    "the owner": Damage("meta.properties", write(b"version=1\n"), "KeyError"),
}  # fmt: skip


def plant(directory: Path, damage: Damage) -> None:
    path = directory / damage.file
    data = bytearray(path.read_bytes())
    try:
        damage.change(data)
    except FileNotFoundError:
        path.unlink()
    else:
        path.write_bytes(data)


@pytest.mark.parametrize("kind", DAMAGE)
def test_planted_damage_is_found(directory: Path, kind: str) -> None:
    damage = DAMAGE[kind]
    plant(directory, damage)
    found = verify(directory)
    path = str(directory / (damage.reported_file or damage.file))
    reported = [
        finding for finding in found if finding.path == path and damage.word in finding.fault
    ]
    assert reported, found
    if damage.offset is not None:
        assert reported[0].offset == damage.offset
    assert reported[0].remains
    # Nobody else is accused but the files of that partition, or the checkpoints that name it.
    partition = damage.file.split("/")[0]
    others = {
        finding.path
        for finding in found
        if partition not in finding.path and not finding.path.endswith("-offset-checkpoint")
    }
    assert not others, others


def test_files_that_say_nothing_yet(directory: Path) -> None:
    """Kafka makes them when it starts; what is said of a log that is not empty is missed."""
    for name in ("recovery-point", "replication", "cleaner"):
        (directory / f"{name}-offset-checkpoint").write_bytes(b"")
    (directory / "logappend-1" / "leader-epoch-checkpoint").write_bytes(b"")
    assert not verify(directory)
    (directory / "plain-1" / "leader-epoch-checkpoint").write_bytes(b"")
    assert "but it says none" in verify(directory)[0].fault


def test_a_segment_that_is_gone_with_all_its_files(directory: Path) -> None:
    for path in (directory / "rolled-0").glob(f"{'1'.zfill(20)}.*"):
        path.unlink()
    (finding,) = verify(directory)
    assert finding.fault == "nothing is there from offset 1 to 1"
    assert finding.offset == 1


def test_what_is_behind_damage_is_found_again(directory: Path) -> None:
    """Also where the damaged batch does not say any more where it ends."""
    path = directory / "indexed-0" / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    size = 12 + int.from_bytes(data[8:12], "big")
    data[size : size + 40] = b"\xff" * 40
    path.write_bytes(data)
    (finding,) = verify(directory)
    assert finding.position == size
    assert f"again from position {2 * size} on" in finding.remains


def test_headers_alone(directory: Path) -> None:
    """Records are not looked into, checksums are."""
    plant(directory, DAMAGE["compressed data that is none"])
    assert verify(directory)
    assert not verify(directory, with_records=False)
    plant(directory, DAMAGE["a bit in a value"])
    assert verify(directory, with_records=False)


def test_a_large_file_is_read_in_windows(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies over the end of a window is seen whole."""
    monkeypatch.setattr("kraftrio.broker.log.inspection.batches._WINDOW_BYTES", 100)
    assert not verify(directory)
    path = directory / "indexed-0" / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[8:12] = b"\xff" * 4
    path.write_bytes(data)
    (finding,) = verify(directory)
    assert finding.position == 0
