"""Brokers with real sockets that go back, go two ways, and begin where others ended."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from kraftrio import Producer
from kraftrio.testing import KafkaBroker, KafkaCluster, KafkaWorld, Snapshot, SnapshotError
from kraftrio.testing.simulation.disk_image import DiskImage
from tests.unit.kraftrio.testing.snapshots import past
from tests.unit.kraftrio.testing.snapshots.past import picture


async def _made(broker: KafkaCluster) -> tuple[past.Picture, Snapshot]:
    """The past, with a transaction that is open in the snapshot."""
    broker.create_topic("orders", partitions=2)
    broker.create_topic("states", config=past.COMPACTED)
    broker.produce("states", "one", "two", key="k")
    await past.make(broker.bootstrap_servers)
    async with (
        Producer(broker.bootstrap_servers, transactional_id="open") as producer,
        producer.transaction(),
    ):
        await (await producer.send("payments", b"not paid"))
        before = await picture(broker)
        return before, broker.snapshot()


async def test_back_and_two_ways(tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        before, snapshot = await _made(broker)
        assert before.transactions == {"ended": "CompleteCommit", "open": "Ongoing"}
        address = broker.bootstrap_servers
        broker.produce("orders", "too much", partition=0)
        for _ in range(2):
            broker.restore(snapshot)
            assert broker.bootstrap_servers == address
            assert await picture(broker) == before
        with broker.fork() as other:
            other.produce("orders", "there", partition=0)
            broker.produce("orders", "here", "here", partition=0)
            assert len((await picture(other)).orders) == len(before.orders) + 1
        assert len((await picture(broker)).orders) == len(before.orders) + 2
        snapshot.save(tmp_path / "case.tar.zst")
        broker.save(tmp_path / "later.tar.zst")
    with KafkaBroker(start=tmp_path / "case.tar.zst") as broker:
        assert await picture(broker) == before
    with KafkaBroker(start=tmp_path / "later.tar.zst", in_process=False) as broker:
        assert len(broker.records("orders")) == len(before.orders) + 2
        with pytest.raises(ValueError, match="cannot be copied: make the cluster with in_process="):
            broker.snapshot()
        with pytest.raises(ValueError, match="cannot go back"):
            broker.restore(snapshot)


async def test_in_a_folder(tmp_path: Path) -> None:
    """Copies lie beside the data until the end; what begins with them has files of its own."""
    with KafkaBroker(folder=tmp_path / "data") as broker:
        before, snapshot = await _made(broker)
        broker.produce("orders", "too much", partition=0)
        with broker.fork(snapshot) as other:
            other.produce("orders", "there", partition=0)
            broker.restore(snapshot)
            assert await picture(broker) == before
        broker.produce("orders", "here", partition=0)
        with KafkaBroker(folder=tmp_path / "other", start=snapshot) as other:
            assert await picture(other) == before
        with pytest.raises(SnapshotError, match="other/node-1 is not empty: a cluster that begins"):
            KafkaBroker(folder=tmp_path / "other", start=snapshot).start()
        snapshot.save(tmp_path / "case.tar.zst")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["node-1"]
    with pytest.raises(SnapshotError, match="is gone when that is stopped: save"):
        KafkaBroker(start=snapshot)
    with pytest.raises(SnapshotError, match="is gone when that is stopped: save"):
        snapshot.save(tmp_path / "again.tar.zst")
    with KafkaBroker(start=tmp_path / "case.tar.zst") as broker:
        assert await picture(broker) == before


def test_a_cluster_goes_back() -> None:
    """Of three nodes, one of which is dead by then; another world can begin with it."""
    with KafkaCluster() as cluster:
        cluster.produce("orders", "one")
        snapshot = cluster.snapshot()
        cluster.produce("orders", "two")
        cluster.node(2).kill()
        cluster.restore(snapshot)
        cluster.healthy(timeout_s=30).wait()
        cluster.produce("orders", "another")
        values = [record.value for record in cluster.records("orders")]
        assert values == [b"one", b"another"]
    world = KafkaWorld(start=snapshot)

    async def look() -> list[bytes | None]:
        assert abs(time.time() - snapshot.wall_ms / 1000) < 60
        return [record.value for record in await world.records("orders")]

    assert world.run(look) == [b"one"]


def test_what_cannot_be(tmp_path: Path) -> None:
    with KafkaBroker(config={"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}, folder=tmp_path) as broker:
        with pytest.raises(SnapshotError, match=r"node 1 has several log directories, .*/a, .*/b"):
            broker.snapshot()
        assert broker.produce("orders", "one")
        with pytest.raises(SnapshotError, match="node 1 has several log directories"):
            broker.restore(Snapshot({1: DiskImage(("/data",), {})}, 0))
        with pytest.raises(SnapshotError, match="a cluster with 0 nodes, and this one has 1 node:"):
            broker.restore(Snapshot({}, 0))
        assert len(broker.records("orders")) == 1, "nothing was done by halves"
    with pytest.raises(SnapshotError, match="a cluster with 0 nodes, and this one has 1 node:"):
        KafkaBroker(start=Snapshot({}, 0))
    with pytest.raises(SnapshotError, match=r"cannot read .*none: No such file or directory"):
        KafkaBroker(start=tmp_path / "none")


def test_how_long_it_takes() -> None:
    """Of the processor's time: it is that of a start."""
    times: dict[str, list[float]] = {"snapshot": [], "restore": []}
    with KafkaBroker() as broker:
        broker.produce("orders", *map(str, range(1000)))
        for _ in range(5):
            began_s = time.process_time()
            snapshot = broker.snapshot()
            times["snapshot"].append(time.process_time() - began_s)
            began_s = time.process_time()
            broker.restore(snapshot)
            times["restore"].append(time.process_time() - began_s)
    median_ms = {name: 1000 * statistics.median(found) for name, found in times.items()}
    print({name: f"{found:.1f} ms" for name, found in median_ms.items()})
    assert all(found < 100 for found in median_ms.values())
