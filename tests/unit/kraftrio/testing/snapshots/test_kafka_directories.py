"""Clusters that begin with the log directories that Apache Kafka left."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kraftrio import Producer, TopicPartition
from kraftrio.broker.log.checkpoints import format_partition_metadata
from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import ConfigResource, ConfigResourceType
from kraftrio.testing import KafkaBroker, KafkaWorld, Snapshot, SnapshotError

RECORDED = Path(__file__).resolve().parents[4] / "data" / "log-dirs"
COUNTS = {
    "codec-gzip": 10,
    "codec-lz4": 10,
    "codec-snappy": 10,
    "codec-zstd": 10,
    "compacted": 10,
    "deleted-records": 2,
    "indexed": 30,
    "logappend": 3,
    "plain": 14,
    "rolled": 3,
    "txn": 12,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Directories of the test's own."""
    return Path(shutil.copytree(RECORDED, tmp_path / "data"))


def _tree(folder: Path) -> Mapping[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_topics_groups_and_transactions(data: Path) -> None:
    """All of it is there, and goes on; the directories stay as they are."""
    before = _tree(data)
    world = KafkaWorld(brokers=1, start=data)

    async def look() -> None:
        counts = {name: len(await world.records(name)) for name in await world.topics()}
        assert counts == COUNTS
        assert len(await world.records("txn", read_committed=True)) == 6
        assert await world.committed("group-classic") == {
            TopicPartition("plain", 0): 7,
            TopicPartition("plain", 1): 3,
        }
        assert (await world.groups())["group-static"].state == "Stable"
        async with Admin(world.bootstrap_servers) as admin:
            topic = ConfigResource(ConfigResourceType.TOPIC, "compacted")
            settings = (await admin.describe_configs([topic]))[topic]
            assert settings["cleanup.policy"].value == "compact"
            found = await admin.transactions.describe(["txn-A", "txn-open"])
            states = {name: one.state for name, one in found.items()}
            assert states == {"txn-A": "CompleteCommit", "txn-open": "Ongoing"}
        async with Producer(world.bootstrap_servers, transactional_id="txn-open") as producer:
            await world.transaction("txn-open").ended()
            async with producer.transaction():
                await producer.send("txn", b"new")
        committed = await world.records("txn", read_committed=True)
        assert [record.offset for record in committed][-2:] == [17, 20]
        (sent,) = await world.produce("plain", "new", partition=0)
        assert sent.offset == 8

    world.run(look)
    assert _tree(data) == before


@pytest.mark.kafka(start=RECORDED)
async def test_with_three_nodes(kafka_world: KafkaWorld) -> None:
    """Each partition has three replicas, which go on together; ids of producers are new ones."""
    await kafka_world.healthy()
    partitions = (await kafka_world.topics())["plain"].partitions
    assert [sorted(partition.isr) for partition in partitions.values()] == [[1, 2, 3], [1, 2, 3]]
    assert partitions[0].leader_id != partitions[1].leader_id
    kafka_world.node(partitions[0].leader_id).kill()
    (sent,) = await kafka_world.produce("plain", "new", partition=0)
    assert sent.offset == 8
    async with Admin(kafka_world.bootstrap_servers) as admin:
        plain = TopicPartition("plain", 0)
        producers = (await admin.transactions.describe_producers([plain]))[plain]
        assert max(producer.producer_id for producer in producers) >= 2000


def test_with_real_sockets(data: Path, tmp_path: Path) -> None:
    """Also where several directories, or brokers, have the partitions; saved as any other."""
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(data / "meta.properties", other)
    for name in ("plain-1", "txn-0"):
        shutil.move(data / name, other / name)
    shutil.copytree(data / "plain-0", other / "plain-0")
    with pytest.raises(SnapshotError, match="topic plain has 2 partitions, of which 1 are not in"):
        KafkaBroker(start=data)
    snapshot = Snapshot.load(data, other)
    with KafkaBroker(start=snapshot, folder=tmp_path / "folder") as broker:
        assert len(broker.records("txn")) == 12
        broker.save(tmp_path / "case.tar.zst")
    with KafkaBroker(start=tmp_path / "case.tar.zst") as broker:
        assert len(broker.records("txn")) == 12


def test_what_is_no_such_directory(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"is no log directory of Apache Kafka: it has no meta"):
        Snapshot.load(tmp_path)
    metadata = data / "__cluster_metadata-0"
    with KafkaBroker(folder=tmp_path / "ours") as broker:
        broker.produce("orders", "one")
        with pytest.raises(SnapshotError, match="was not written by Apache Kafka: to begin with"):
            Snapshot.load(tmp_path / "ours" / "node-1")
    shutil.copytree(data, tmp_path / "others")
    properties = tmp_path / "others" / "meta.properties"
    properties.write_text(properties.read_text().replace("AAAQ", "AAAA"))
    with pytest.raises(SnapshotError, match="are of different clusters: name those of one"):
        Snapshot.load(data, tmp_path / "others")
    properties.write_text("nonsense")
    with pytest.raises(SnapshotError, match=f"cannot understand {tmp_path}/others"):
        Snapshot.load(tmp_path / "others")
    shutil.move(metadata, tmp_path / "moved")
    with pytest.raises(SnapshotError, match=r"there is no __cluster_metadata-0 in .*data: name"):
        Snapshot.load(data)


def test_damaged_directories(data: Path) -> None:
    """A log of a former topic with the same name is none of this one."""
    stored = data / "rolled-0" / "partition.metadata"
    before = stored.read_bytes()
    stored.write_bytes(format_partition_metadata(bytes(15) + b"\7"))
    with pytest.raises(SnapshotError, match="topic rolled has 1 partitions, of which 0 are not in"):
        Snapshot.load(data)
    stored.write_bytes(b"nonsense")
    with pytest.raises(SnapshotError, match="topic rolled has 1 partitions, of which 0 are not in"):
        Snapshot.load(data)
    stored.write_bytes(before)
    (data / "recovery-point-offset-checkpoint").write_bytes(b"")
    assert Snapshot.load(data).disks
    (data / "recovery-point-offset-checkpoint").write_bytes(b"nonsense")
    with pytest.raises(SnapshotError, match=f"cannot understand {data}: "):
        Snapshot.load(data)
    (data / "recovery-point-offset-checkpoint").unlink()
    (data / "rolled-0" / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    with pytest.raises(SnapshotError, match="cannot understand rolled-0: "):
        Snapshot.load(data)
