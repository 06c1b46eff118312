"""Damaged files and disks that are full or read-only: nothing acknowledged is lost unreported.

A record's value is its own offset, so that a read shows at once what is missing or doubled.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftrio.wire.errors import CorruptBatchError, ErrorCode
from kraftrio.wire.records.batch import Record, build_batch, iter_headers
from tests.conformance.broker_process import Broker
from tests.integration.disks import FailingDisk, SmallDisk
from tests.integration.wire_client import WireClient, wait_until

MIB = 1 << 20
FAST_CHECKPOINTS = {
    "log_flush_offset_checkpoint_interval_ms": 200,
    "replica_high_watermark_checkpoint_interval_ms": 200,
}


NOW_MS = int(time.time() * 1000)  # what is old may be deleted at any time


def client_of(broker: Broker) -> WireClient:
    return WireClient((broker.host, broker.port))


def batch_at(offset: int, count: int = 3, padding_bytes: int = 100) -> bytearray:
    """A batch whose records have their offsets as values."""
    return build_batch(
        [
            Record(n, NOW_MS + n, None, b"%d " % (offset + n) + b"x" * padding_bytes)
            for n in range(count)
        ]
    )


def produce(client: WireClient, topic: str, offset: int, **options: int) -> ErrorCode:
    """Append the batch that belongs at an offset, and check that it went there."""
    code, base_offset = client.produce(topic, 0, batch_at(offset, **options))
    if code is ErrorCode.NONE:
        assert base_offset == offset
    return code


def check_records(client: WireClient, topic: str, count: int) -> None:
    """The topic holds the records 0..count-1."""
    numbers = [
        (record.offset, int((record.value or b"-1").split()[0]))
        for record in client.fetch_all(topic, 0)
    ]
    assert numbers == [(n, n) for n in range(count)]


def newest_segment(broker: Broker, topic: str) -> Path:
    return sorted((broker.data_directory / f"{topic}-0").glob("*.log"))[-1]


# -- damaged files --------------------------------------------------------------------------------


def test_torn_tails_are_truncated(make_broker: Callable[..., Broker]) -> None:
    """A batch that was only written in part is gone; what was acknowledged before it stays."""
    broker = make_broker()
    torn = {
        "garbage": b"\xff" * 300,
        "zeros": bytes(5000),
        "half-header": bytes(batch_at(30))[:20],
        "half-batch": bytes(batch_at(30))[:-1],
        "bad-sum": bytes(batch_at(30))[:-1] + b"?",
    }
    with client_of(broker) as client:
        for topic in torn:
            assert client.create_topic(topic) is ErrorCode.NONE
            for offset in range(0, 30, 3):
                assert produce(client, topic, offset) is ErrorCode.NONE
    broker.kill9()
    for topic, tail in torn.items():
        with newest_segment(broker, topic).open("ab") as file:
            file.write(tail)
    broker.start()
    with client_of(broker) as client:
        for topic, tail in torn.items():
            check_records(client, topic, 30)
            assert produce(client, topic, 30) is ErrorCode.NONE
            check_records(client, topic, 33)
            assert f"{len(tail)} bytes from position" in broker.log_text()


def test_damage_in_the_middle_is_reported(make_broker: Callable[..., Broker]) -> None:
    """After a crash recovery truncates the log before a damaged batch, and says what it removed.

    After a clean stop nothing is checked at the start, as in Kafka: the reader sees the bad sum.
    """
    broker = make_broker()
    with client_of(broker) as client:
        for topic in ("killed", "stopped"):
            assert client.create_topic(topic) is ErrorCode.NONE
            for offset in range(0, 30, 3):
                assert produce(client, topic, offset) is ErrorCode.NONE
    broker.restart()
    damage_batch(newest_segment(broker, "stopped"), 5)
    with client_of(broker) as client:
        code, records, _ = client.fetch("killed", 0, 0)
        assert (code, len(records)) == (ErrorCode.NONE, 30)
        with pytest.raises(CorruptBatchError):
            client.fetch("stopped", 0, 0)
    broker.kill9()
    # Without a recovery point all of the log is in doubt.
    (broker.data_directory / "recovery-point-offset-checkpoint").unlink()
    damage_batch(newest_segment(broker, "killed"), 5)
    broker.start()
    with client_of(broker) as client:
        check_records(client, "killed", 15)
        assert "(offset 15) on" in broker.log_text()
        assert produce(client, "killed", 15) is ErrorCode.NONE
        check_records(client, "killed", 18)


def damage_batch(path: Path, number: int) -> None:
    """Flip a bit in the records of a batch."""
    data = bytearray(path.read_bytes())
    header = next(itertools.islice(iter_headers(data), number, None))
    data[header.position + header.size_bytes - 5] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xfe garbage \0\n" * 10),
    "short": lambda path: path.write_bytes(path.read_bytes()[:-5]),
}
PARTITION_FILES = (
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "snapshot",
)
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_small_files_of_partitions_are_rebuilt(
    make_broker: Callable[..., Broker], stop: str
) -> None:
    """Any of indexes, epochs, topic ids and producers may be gone or garbled: the records stay."""
    broker = make_broker(log_index_interval_bytes=1000, log_segment_bytes=MIB)
    cases = [(f"{how}-{name}".lower(), name, how) for name in PARTITION_FILES for how in DAMAGES]
    with client_of(broker) as client:
        for topic, _, _ in cases:
            assert client.create_topic(topic) is ErrorCode.NONE
            for offset in range(0, 12, 3):
                code = produce(client, topic, offset, padding_bytes=100_000)
                assert code is ErrorCode.NONE
            assert len(list((broker.data_directory / f"{topic}-0").glob("*.log"))) == 2
    if stop == "clean":
        broker.terminate()
    else:
        broker.kill9()
    for topic, name, how in cases:
        directory = broker.data_directory / f"{topic}-0"
        found = sorted(directory.glob("*.snapshot"))[-1] if name == "snapshot" else directory / name
        DAMAGES[how](found)
    broker.start()
    with client_of(broker) as client:
        for topic, _, _ in cases:
            check_records(client, topic, 12)
            assert produce(client, topic, 12) is ErrorCode.NONE
            code, records, _ = client.fetch(topic, 0, 7)
            assert (code, records[0].offset) == (ErrorCode.NONE, 7)
    broker.restart()
    with client_of(broker) as client:
        for topic, _, _ in cases:
            check_records(client, topic, 15)


@pytest.mark.parametrize("how", DAMAGES)
def test_checkpoints_are_rebuilt(make_broker: Callable[..., Broker], how: str) -> None:
    """Without any of the directory's checkpoints the records are all there."""
    broker = make_broker(**FAST_CHECKPOINTS)
    with client_of(broker) as client:
        assert client.create_topic("t") is ErrorCode.NONE
        for offset in range(0, 30, 3):
            assert produce(client, "t", offset) is ErrorCode.NONE
    for stop in (broker.terminate, broker.kill9):
        stop()
        for name in CHECKPOINTS:
            path = broker.data_directory / name
            if path.exists():
                DAMAGES[how](path)
        broker.start()
        with client_of(broker) as client:
            check_records(client, "t", 30)


# -- full and read-only disks ---------------------------------------------------------------------


@dataclass
class Storage:
    """A small disk and brokers on it."""

    disk: SmallDisk
    directory: Path

    def broker(self, **config: object) -> Broker:
        """A broker whose log directory is on the disk."""
        return OnDisk(self.directory, self.disk.path / "data", **config)


class OnDisk(Broker):
    """A broker whose data is not where its event log is, and may be in several directories."""

    def __init__(self, directory: Path, data: Path, **config: object) -> None:
        super().__init__(directory, **config)
        self._data = data

    @property
    def data_directory(self) -> Path:
        return self._data


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with SmallDisk(tmp_path / "disk", size_bytes=16 * MIB) as disk:
        yield Storage(disk, tmp_path / "broker")


def produce_until_full(client: WireClient, topic: str, offset: int) -> int:
    """Append until there is no space; return the offset after what was acknowledged."""
    for at in itertools.count(offset, 3):
        code = produce(client, topic, at, padding_bytes=20_000)
        if code is not ErrorCode.NONE:
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            return at
    raise AssertionError


def create_until_full(client: WireClient) -> str:
    """Create topics until one has to wait for space; return its name."""
    for n in range(200):
        code = client.create_topic(f"waiting-{n}", timeout_ms=500)
        if code is not ErrorCode.NONE:
            assert code is ErrorCode.REQUEST_TIMED_OUT
            return f"waiting-{n}"
    raise AssertionError("the disk is not full")


def test_full_disk(storage: Storage) -> None:
    """Writes fail with KAFKA_STORAGE_ERROR, reads succeed, and all works once there is space.

    The metadata log is on the same disk: changes wait, and time out for the client.
    """
    disk = storage.disk
    ballast = disk.fill(leave_bytes=5 * MIB)
    with storage.broker(**FAST_CHECKPOINTS) as broker, client_of(broker) as client:
        assert client.create_topic("t") is ErrorCode.NONE
        assert client.create_topic("u") is ErrorCode.NONE
        end = produce_until_full(client, "t", 0)
        assert end > 100
        disk.fill_up("rest")
        for _ in range(20):
            assert produce(client, "t", end, padding_bytes=5000) is ErrorCode.KAFKA_STORAGE_ERROR
        check_records(client, "t", end)
        waiting = create_until_full(client)
        assert "No space left on device" in broker.log_text()
        lines = [line for line in broker.log_text().splitlines() if " ERROR " in line]
        assert len(lines) < 10, "a full disk fails often: not a line for each time"

        ballast.unlink()
        assert produce(client, "t", end) is ErrorCode.NONE
        assert produce(client, "u", 0) is ErrorCode.NONE
        wait_until(lambda: client.create_topic("again") is ErrorCode.NONE, "a topic created")
        assert client.create_topic(waiting) is ErrorCode.TOPIC_ALREADY_EXISTS
        check_records(client, "t", end + 3)
        broker.restart()
        with client_of(broker) as later:
            check_records(later, "t", end + 3)
            check_records(later, "u", 3)
            assert produce(later, waiting, 0) is ErrorCode.NONE


def test_crash_and_start_on_a_full_disk(storage: Storage) -> None:
    """A start without space ends with one sentence; with space everything acknowledged is there."""
    disk = storage.disk
    ballast = disk.fill(leave_bytes=5 * MIB)
    broker = storage.broker().start()
    with client_of(broker) as client:
        assert client.create_topic("t") is ErrorCode.NONE
        end = produce_until_full(client, "t", 0)
    disk.fill_up("rest")
    broker.kill9()
    ended = subprocess.run(broker.command(), capture_output=True, text=True, timeout=20)
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stderr
    assert "No space left on device" in ended.stderr
    assert ended.stdout == ""
    ballast.unlink()
    with broker, client_of(broker) as client:
        check_records(client, "t", end)
        assert produce(client, "t", end) is ErrorCode.NONE


def test_stop_on_a_full_disk(storage: Storage) -> None:
    """The broker stops, though not cleanly; the next start recovers."""
    disk = storage.disk
    ballast = disk.fill(leave_bytes=5 * MIB)
    broker = storage.broker(**FAST_CHECKPOINTS).start()
    with client_of(broker) as client:
        assert client.create_topic("t") is ErrorCode.NONE
        end = produce_until_full(client, "t", 0)
    disk.fill_up("rest")
    assert broker.terminate() == 0
    assert not (broker.data_directory / ".kafka_cleanshutdown").exists()
    ballast.unlink()
    with broker, client_of(broker) as client:
        check_records(client, "t", end)


def test_topics_created_while_the_log_disk_is_full(storage: Storage, tmp_path: Path) -> None:
    """With the metadata elsewhere they are created, but written to only once there is space."""
    ballast = storage.disk.fill(leave_bytes=MIB)
    metadata = tmp_path / "metadata"
    with (
        storage.broker(metadata_log_dir=metadata, **FAST_CHECKPOINTS) as broker,
        client_of(broker) as client,
    ):
        assert client.create_topic("t") is ErrorCode.NONE
        end = produce_until_full(client, "t", 0)
        storage.disk.fill_up("rest")
        topics = [f"new-{n}" for n in range(5)]
        for topic in topics:
            assert client.create_topic(topic) is ErrorCode.NONE
            code, _ = client.produce(topic, 0, batch_at(0))
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
        check_records(client, "t", end)
        ballast.unlink()
        for topic in topics:
            assert produce(client, topic, 0) is ErrorCode.NONE
        assert produce(client, "t", end) is ErrorCode.NONE
        broker.restart()
        with client_of(broker) as later:
            check_records(later, "t", end + 3)
            for topic in topics:
                check_records(later, topic, 3)


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[FailingDisk]:
    with FailingDisk(tmp_path / "disk", tmp_path / "image", size_bytes=24 * MIB) as disk:
        yield disk


def test_the_only_disk_fails(failing_disk: FailingDisk, tmp_path: Path) -> None:
    """Nothing is acknowledged any more, and the node ends with one line that says why."""
    data = failing_disk.path / "data"
    broker = OnDisk(tmp_path / "broker", data, **FAST_CHECKPOINTS).start()
    with client_of(broker) as client:
        assert client.create_topic("t") is ErrorCode.NONE
        for offset in range(0, 30, 3):
            assert produce(client, "t", offset) is ErrorCode.NONE
        os.sync()
        failing_disk.fail()
        with contextlib.suppress(ConnectionError, EOFError):  # a checkpoint noticed it before
            assert produce(client, "t", 30) is ErrorCode.KAFKA_STORAGE_ERROR
        process = broker.process
        assert process is not None
        assert process.wait(30) == 1
    broker.kill9()  # forgets the process that has ended
    last_line = broker.log_text().splitlines()[-1]
    assert " FATAL node " in last_line
    assert "Read-only file system" in last_line
    broker.check_log()
    ended = subprocess.run(
        broker.command(), capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 1
    sentence = f"kraftrio: no log directory can be used: {data}: Read-only file system"
    assert ended.stderr.splitlines()[-1] == sentence
    failing_disk.repair()
    with broker, client_of(broker) as client:
        check_records(client, "t", 30)
        assert produce(client, "t", 30) is ErrorCode.NONE


def test_one_of_two_disks_fails(failing_disk: FailingDisk, tmp_path: Path) -> None:
    """Its partitions answer KAFKA_STORAGE_ERROR; the others go on, also after a restart."""
    good, bad = tmp_path / "good", failing_disk.path / "data"
    broker = OnDisk(tmp_path / "broker", good, log_dirs=f"{good},{bad}", **FAST_CHECKPOINTS)
    with broker:
        with client_of(broker) as client:
            for topic in ("a", "b"):
                assert client.create_topic(topic) is ErrorCode.NONE
                assert produce(client, topic, 0) is ErrorCode.NONE
            [lost] = [topic for topic in ("a", "b") if (bad / f"{topic}-0").exists()]
            [kept] = {"a", "b"} - {lost}
            os.sync()
            failing_disk.fail()
            assert produce(client, lost, 3) is ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(client, kept, 3) is ErrorCode.NONE
            wait_until(lambda: f"log directory {bad} is offline" in broker.log_text(), "a line")
            assert produce(client, lost, 3) is ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(client, kept, 6) is ErrorCode.NONE
        broker.restart()
        with client_of(broker) as client:
            assert produce(client, lost, 3) is ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(client, kept, 9) is ErrorCode.NONE
            assert client.create_topic("new") is ErrorCode.NONE
            assert produce(client, "new", 0) is ErrorCode.NONE
        broker.terminate()
        failing_disk.repair()
        broker.start()
        with client_of(broker) as client:
            check_records(client, lost, 3)
            check_records(client, kept, 12)
            assert produce(client, lost, 3) is ErrorCode.NONE
