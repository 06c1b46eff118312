"""Snapshots of the metadata: when they are written, and which are installed."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.metadata.records import encode_record
from kraftrio.kraft_meta.quorum.log_batches import snapshot_batches
from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    Fetch,
    FetchReply,
    Vote,
)
from kraftrio.kraft_meta.raft.ready import leader_change_record
from kraftrio.kraft_meta.raft.values import LogBatch, SnapshotId
from tests.unit.kraft_meta.quorum.service_nodes import (
    DIRECTORY,
    Node,
    new_disk,
    plain,
    virtually,
)


def test_snapshots_come_by_size() -> None:
    """metadata.log.max.record.bytes.between.snapshots; the log below is cleaned."""

    async def main() -> None:
        node = Node(new_disk(), metadata_log_max_record_bytes_between_snapshots=5000)
        async with node.running():
            await node.join()
            for n in range(200):
                await node.create(f"t{n}")
            await trio.testing.wait_all_tasks_blocked()
            snapshot_id = node.log.latest_snapshot_id()
            assert snapshot_id is not None
            assert node.log.log_start_offset == snapshot_id.end_offset
            assert node.log.size_bytes < 15_000
            before = plain(node.service.image)
            survivor = node.fs.after_crash()
        async with Node(survivor).running() as again:
            assert plain(again.service.image) == before

    virtually(main)


def test_a_quiet_cluster_makes_no_second_snapshot() -> None:
    """There is nothing new to save when the interval ends."""

    async def main() -> None:
        node = Node(new_disk(), metadata_log_max_snapshot_interval_ms=1000)
        async with node.running():
            await trio.sleep(1.5)
            first = node.log.latest_snapshot_id()
            assert first is not None
            await trio.sleep(10)
            assert node.log.latest_snapshot_id() == first

    virtually(main)


def test_an_interval_of_zero_makes_no_snapshots() -> None:
    """metadata.log.max.snapshot.interval.ms: 0 is never, however much changes."""

    async def main() -> None:
        node = Node(new_disk(), metadata_log_max_snapshot_interval_ms=0)
        async with node.running():
            await node.join()
            for n in range(5):
                await node.create(f"t{n}")
                await trio.sleep(2)
            assert node.log.latest_snapshot_id() is None

    virtually(main)


def test_a_snapshot_without_space_is_left_out() -> None:
    """The log stays whole, nothing of the snapshot takes space, and the node goes on."""

    async def main() -> None:
        node = Node(new_disk(), metadata_log_max_record_bytes_between_snapshots=3000)
        async with node.running():
            await node.join()
            node.fs.fail("write", ".checkpoint", errno.ENOSPC)
            for n in range(40):
                await node.create(f"t{n}")
            await trio.sleep(1)
            assert node.log.latest_snapshot_id() is None
            assert not [f for f in node.fs.list_directory(DIRECTORY) if ".checkpoint" in f]
            assert len(node.service.image.topics_by_name) == 40

    virtually(main)


def test_a_log_that_cannot_be_cleaned_goes_on() -> None:
    """No file can be opened: the log keeps its segment, which goes with the next snapshot."""

    async def main() -> None:
        node = Node(new_disk(), metadata_log_max_record_bytes_between_snapshots=3000)
        async with node.running():
            await node.join()
            node.fs.fail("open", ".log", errno.EMFILE)
            for n in range(40):
                await node.create(f"t{n}")
            await trio.sleep(1)
            kept_bytes = node.log.size_bytes
            node.fs.heal()
            for n in range(40, 80):
                await node.create(f"t{n}")
            await trio.sleep(1)
            assert node.log.size_bytes < kept_bytes
            before = plain(node.service.image)
            survivor = node.fs.after_crash()
        async with Node(survivor).running() as again:
            assert plain(again.service.image) == before

    virtually(main)


async def leaders_snapshot() -> tuple[MetadataImage, SnapshotId, bytearray]:
    """Return what another node's image is, and its snapshot."""
    async with Node(new_disk()).running() as origin:
        await origin.join()
        await origin.create("a")
        image = origin.service.image
    values = [encode_record(record) for record in image.to_records()]
    snapshot_id = SnapshotId(image.offset + 1, image.epoch)
    return image, snapshot_id, bytearray(b"".join(snapshot_batches(snapshot_id, values, 5)))


async def offer(node: Node, snapshot_id: SnapshotId) -> Fetch:
    """Have the leader of epoch 7 name a snapshot; return the request that it answers with it."""
    node.service.messages.step(BeginQuorumEpoch(2, 1, 7))
    await trio.sleep(0.1)
    (asked,) = (m for m in node.sent if isinstance(m, Fetch) and m.epoch == 7)
    offset_and_epoch = asked.fetch_offset, asked.last_fetched_epoch
    reply = FetchReply(2, 1, 7, 2, *offset_and_epoch, snapshot_id=snapshot_id)
    node.service.messages.step(reply)
    return asked


@pytest.mark.parametrize("damage", [False, True])
def test_a_received_snapshot_is_checked(damage: bool) -> None:
    """A whole one takes the log's place, durably; of a damaged one nothing stays."""

    async def main() -> None:
        image, snapshot_id, data = await leaders_snapshot()
        if damage:
            data[len(data) // 2] ^= 1
        node = Node(new_disk(), voters=(1, 2, 3))
        async with node.running():
            service = node.service
            asked = await offer(node, snapshot_id)
            await trio.sleep(0.1)
            assert node.wanted == [(2, snapshot_id)]
            service.snapshots.on_received(snapshot_id, data)
            await trio.sleep(0.1)
            survivor = MetadataLog(node.fs.after_crash(), DIRECTORY)
            if damage:
                assert service.image.topic("a") is None
                assert survivor.latest_snapshot_id() is None
                fetch = node.sent[-1]
                assert isinstance(fetch, Fetch) and fetch.fetch_offset == 0
                assert fetch is not asked
            else:
                assert plain(service.image) == plain(image)
                assert survivor.latest_snapshot_id() == snapshot_id
                assert survivor.log_end_offset == snapshot_id.end_offset

    virtually(main)


def test_a_received_snapshot_waits_for_room() -> None:
    """Nothing of it takes space meanwhile; then it takes the log's place."""

    async def main() -> None:
        image, snapshot_id, data = await leaders_snapshot()
        node = Node(new_disk(), voters=(1, 2, 3))
        async with node.running():
            await offer(node, snapshot_id)
            await trio.sleep(0.1)
            node.fs.fail("write", ".checkpoint", errno.ENOSPC)
            node.service.snapshots.on_received(snapshot_id, data)
            await trio.sleep(5)
            assert not [f for f in node.fs.list_directory(DIRECTORY) if ".checkpoint" in f]
            node.fs.heal()
            await trio.sleep(1)
            assert plain(node.service.image) == plain(image)
            survivor = MetadataLog(node.fs.after_crash(), DIRECTORY)
            assert survivor.latest_snapshot_id() == snapshot_id

    virtually(main)


def test_the_log_rests_while_a_snapshot_is_installed() -> None:
    """Its last piece came from a leader that was deposed; the new one's answer comes meanwhile."""

    async def main() -> None:
        image, snapshot_id, data = await leaders_snapshot()
        node = Node(new_disk(), voters=(1, 2, 3))
        async with node.running():
            service = node.service
            asked = await offer(node, snapshot_id)
            offset_and_epoch = asked.fetch_offset, asked.last_fetched_epoch
            await trio.sleep(0.1)
            service.messages.step(BeginQuorumEpoch(3, 1, 8))
            await trio.sleep(0.1)
            (fetch,) = (m for m in node.sent if isinstance(m, Fetch) and m.epoch == 8)
            node.hold = trio.Event()
            service.snapshots.on_received(snapshot_id, data)
            await trio.sleep(0.01)
            key, value = leader_change_record(3, (1, 2, 3), [2, 3])
            batch = LogBatch(0, 8, 5, (value,), (key,))
            answer = FetchReply(
                3, 1, 8, 3, *offset_and_epoch, batches=(batch,), fetch_id=fetch.fetch_id
            )
            service.messages.step(answer)
            await trio.sleep(30)  # nor does it stand for election meanwhile
            assert not [m for m in node.sent if isinstance(m, Vote)]
            node.hold.set()
            await trio.sleep(3)
            assert plain(service.image) == plain(image)
            survivor = MetadataLog(node.fs.after_crash(), DIRECTORY)
            assert survivor.log_end_offset == snapshot_id.end_offset
            assert node.sent[-1].fetch_offset == snapshot_id.end_offset

    virtually(main)
