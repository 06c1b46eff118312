"""Replicas that move between log directories: nothing lost, whatever happens on the way."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.duplicate_logs import Placement, set_duplicates_aside
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.replica.moves import ReplicaMoves
from kraftrio.broker.replica.quota import NO_LIMIT, SlidingRate
from kraftrio.kraft_meta.metadata.directories import LOST
from kraftrio.kraft_meta.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import iter_headers, iter_records
from tests.support.logs import batch
from tests.support.memory_files import MemoryFileSystem
from tests.unit.broker.replica.replica_context import OTHER_ID, TOPIC_ID, TP, Broker

PATHS = ("/a", "/b")
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


async def in_place(work: Callable[[], object]) -> None:
    work()


class Mover:
    """Broker 1 with two log directories; the metadata takes what it is told, when it may."""

    def __init__(
        self, fs: MemoryFileSystem | None = None, config: LogConfig | None = None, isr: int = 1
    ) -> None:
        self.broker = Broker(fs, paths=PATHS, config=config)
        self.limit = NO_LIMIT
        self.moves = ReplicaMoves(
            self.broker.replicas,
            self.broker.metadata,
            self.broker,
            self.broker.clock,
            in_place,
            lambda: self.limit,
            SlidingRate(11, 1),
        )
        self.replica_ids = tuple(range(1, isr + 1))

    @property
    def fs(self) -> MemoryFileSystem:
        return self.broker.fs

    def directory_id(self, path: str) -> bytes:
        return next(one.directory_id for one in self.broker.logs.dirs if one.path == path)

    def lead(self, path: str = "/a") -> None:
        """Lead t-0, which the metadata has in this directory."""
        ids = self.replica_ids
        directories = (self.directory_id(path),) + (bytes(15) + b"\x09",) * (len(ids) - 1)
        is_new = self.broker.metadata.topic("t") is None
        self.broker.publish(
            *([TopicRecord("t", TOPIC_ID)] if is_new else []),
            PartitionRecord(TOPIC_ID, 0, ids, ids, 1, directories=directories),
        )
        self.broker.replicas.hosted.leader(TP)

    def take_placements(self) -> None:
        """The controller commits where the replica lies."""
        placed, self.broker.placed = self.broker.placed, []
        if placed:
            topic = self.broker.metadata.image.topics_by_id[TOPIC_ID]
            partition = topic.partitions[0]
            others = partition.directories[1:]
            self.broker.publish(
                PartitionRecord(
                    TOPIC_ID,
                    0,
                    partition.replicas,
                    partition.isr,
                    partition.leader,
                    partition.leader_epoch,
                    partition.partition_epoch + 1,
                    directories=(placed[-1][2], *others),
                )
            )

    def append(self, *values: bytes) -> None:
        for value in values:
            self.broker.replicas.led.append_to_leader(TP, batch(value))

    def values(self) -> list[bytes | None]:
        """What the partition holds, in order."""
        log = self.broker.replicas.led.log(TP)
        found: list[bytes | None] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True)
            data = bytes(read.records)
            for header in iter_headers(data):
                found += [record.value for record in iter_records(data, header)]
            offset = read.next_offset
        return found

    def serving(self) -> str:
        return self.broker.replicas.led.log(TP).directory[:2]

    def names(self, path: str) -> list[str]:
        return [name for name in self.fs.list_directory(path) if name.startswith("t-0")]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.moves.run)
            yield
            nursery.cancel_scope.cancel()

    async def settle(self) -> None:
        """Let the moves go as far as they come."""
        for _ in range(20):
            await trio.sleep(1)
            self.take_placements()


async def test_a_replica_moves_with_all_it_has_and_gets(autojump_clock: object) -> None:
    """Appended to all the time; the metadata knows the new directory before the swap."""
    mover = Mover()
    mover.lead()
    mover.append(*(b"%d" % i for i in range(200)))
    first = mover.serving()
    assert first == "/a"
    assert mover.moves.alter(TP, "/b") is ErrorCode.NONE
    async with mover.running():
        await trio.sleep(1)
        assert mover.serving() == "/a", "the metadata does not know of it yet"
        assert mover.broker.placed == [(TOPIC_ID, 0, mover.directory_id("/b"))]
        mover.append(b"late")
        mover.take_placements()
        await trio.sleep(1)
    assert mover.serving() == "/b"
    mover.append(b"after")
    assert mover.values() == [*(b"%d" % i for i in range(200)), b"late", b"after"]
    assert mover.names("/b") == ["t-0"]
    assert [name.endswith("-delete") for name in mover.names("/a")] == [True]
    assert not mover.moves.is_moving(TP)


async def test_waiting_producers_and_readers_go_on(autojump_clock: object) -> None:
    """The high watermark and who waits for it are the partition's, not the log's."""
    mover = Mover(isr=2)
    mover.lead()
    mover.append(b"x")
    committed: list[ErrorCode] = []
    mover.broker.replicas.led.when_committed(TP, 1, None, committed.append)
    mover.moves.alter(TP, "/b")
    async with mover.running():
        await mover.settle()
        assert mover.serving() == "/b" and committed == []
        mover.broker.fetched(2, 1)
    assert committed == [ErrorCode.NONE]
    assert mover.broker.replicas.led.log(TP).high_watermark == 1


async def test_what_is_asked_is_answered_as_kafka_does() -> None:
    mover = Mover()
    mover.lead()
    assert mover.moves.alter(TP, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert mover.moves.alter(TP, "/a/") is ErrorCode.NONE
    assert not mover.moves.is_moving(TP), "it is there already"
    unknown = TopicPartition("u", 0)
    assert mover.moves.alter(unknown, "/b") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    long = TopicPartition("l" * 230, 0)
    assert mover.moves.alter(long, "/b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    mover.broker.logs.fail_dir(mover.broker.logs.dirs[1], OSError(errno.EIO, "broken"))
    assert mover.moves.alter(TP, "/b") is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_replica_to_come_is_made_where_it_was_asked_for() -> None:
    """kafka-reassign-partitions names the directory before the replica is there."""
    mover = Mover()
    elsewhere = PartitionRecord(TOPIC_ID, 0, (2,), (2,), 2, directories=(bytes(15) + b"\x09",))
    mover.broker.publish(TopicRecord("t", TOPIC_ID), elsewhere)
    assert mover.moves.alter(TP, "/b") is ErrorCode.REPLICA_NOT_AVAILABLE
    mover.lead("/a")
    assert mover.serving() == "/b"
    assert mover.broker.placed[-1] == (TOPIC_ID, 0, mover.directory_id("/b"))


async def test_another_wish_ends_a_move(autojump_clock: object) -> None:
    """Back to where it is: the copy goes, and the controller is sent what holds."""
    mover = Mover()
    mover.lead()
    mover.append(b"x")
    mover.moves.alter(TP, "/b")
    async with mover.running():
        await trio.sleep(1)
        assert mover.moves.alter(TP, "/a") is ErrorCode.NONE
        assert mover.broker.placed[-1] == (TOPIC_ID, 0, mover.directory_id("/a"))
        await mover.settle()
    assert mover.serving() == "/a" and mover.values() == [b"x"]
    assert [name.endswith("-delete") for name in mover.names("/b")] == [True]


async def test_no_faster_than_allowed(autojump_clock: object) -> None:
    mover = Mover()
    mover.lead()
    for _ in range(8):
        mover.append(bytes(200_000))
    mover.limit = 200_000
    mover.moves.alter(TP, "/b")
    async with mover.running():
        await trio.sleep(4)
        (future,) = mover.moves.futures_in(mover.broker.logs.dirs[1]).values()
        assert 400_000 < future.size_bytes < 1_300_000 and future.offset_lag > 1
        await trio.sleep(10)
        mover.take_placements()
        await trio.sleep(2)
    assert mover.serving() == "/b"


async def test_what_the_log_cuts_off_the_copy_cuts_off(autojump_clock: object) -> None:
    """A follower's log is truncated behind what was copied, and goes on in another epoch."""
    mover = Mover(isr=2)
    partition = mover.broker.follow_broker_2(epoch=3)

    def copied_from_leader(value: bytes, offset: int, epoch: int) -> None:
        data = batch(value, base_offset=offset, leader_epoch=epoch)
        mover.broker.replicas.follower_writes.append_as_follower(
            TP,
            data,
            epoch,
            leader_high_watermark=0,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )

    copied_from_leader(b"a", 0, 3)
    copied_from_leader(b"b", 1, 3)
    other = "/b" if partition.log.directory.startswith("/a") else "/a"
    mover.moves.alter(TP, other)
    async with mover.running():
        await trio.sleep(1)
        mover.broker.publish(PartitionRecord(TOPIC_ID, 0, (1, 2, 3), (1, 2, 3), 2, leader_epoch=5))
        mover.broker.replicas.follower_writes.truncate(TP, 1, 5, TOPIC_ID)
        copied_from_leader(b"c", 1, 5)
        await trio.sleep(1)
        directory_id = mover.directory_id(other)
        mover.broker.publish(
            PartitionRecord(
                TOPIC_ID, 0, (1, 2, 3), (1, 2, 3), 2, 5, 9,
                directories=(directory_id, bytes(15) + b"\x09", bytes(15) + b"\x09"),
            )
        )  # fmt: skip
        await trio.sleep(1)
    log = partition.log
    assert log.directory.startswith(other)
    # The fetcher follows with the other log from now on.
    assert mover.broker.fetching[-1] == (TP, TOPIC_ID, 2, 5)
    assert mover.broker.logs_fetched[-1] is log
    data = bytes(log.read(0, 1000, max_offset=2, min_one_batch=True).records)
    values = [
        record.value for header in iter_headers(data) for record in iter_records(data, header)
    ]
    assert values == [b"a", b"c"] and log.latest_epoch == 5


async def test_deleted_records_stay_deleted(autojump_clock: object) -> None:
    mover = Mover()
    mover.lead()
    mover.append(b"a", b"b", b"c")
    mover.moves.alter(TP, "/b")
    async with mover.running():
        await trio.sleep(1)
        mover.broker.replicas.deletions.delete_records(mover.broker.replicas.hosted.leader(TP), 2)
        await mover.settle()
    assert mover.serving() == "/b"
    assert mover.broker.replicas.led.log(TP).log_start_offset == 2
    mover.moves.alter(TP, "/a")
    async with mover.running():
        await mover.settle()
    assert mover.serving() == "/a" and mover.values() == [b"c"]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_move_goes_on_after_a_restart(autojump_clock: object, clean: bool) -> None:
    mover = Mover()
    mover.lead()
    mover.append(*(b"%d" % i for i in range(50)))
    mover.moves.alter(TP, "/b")
    async with mover.running():
        await trio.sleep(1)
    if clean:
        mover.moves.close()
        mover.broker.logs.close()
    else:
        mover.broker.logs.release()
    again = Mover(mover.fs)
    await again.moves.load()
    again.lead()
    assert again.moves.is_moving(TP)
    again.append(b"new")
    async with again.running():
        await again.settle()
    assert again.serving() == "/b"
    assert again.values() == [*(b"%d" % i for i in range(50)), b"new"]


async def test_a_crash_at_any_step_loses_no_record(autojump_clock: object) -> None:
    """A power cut after every turn of the loop keeps any prefix of what is not synced yet."""
    mover = Mover()
    mover.lead()
    mover.append(b"a", b"b", b"c")
    mover.broker.replicas.led.log(TP).flush()
    mover.broker.logs.write_checkpoints()
    mover.moves.alter(TP, "/b")
    crashes = 0
    seen = set()
    async with mover.running():
        while mover.serving() == "/a" or crashes == 0:
            mover.take_placements()
            await trio.testing.wait_all_tasks_blocked()
            for keep in range(mover.fs.unsynced_units + 1):
                seen.add(await check_crash(mover.fs.after_crash(keep)))
                crashes += 1
            await trio.sleep(0.1)
    assert {(True, False), (True, True), (False, True)} <= seen


async def check_crash(fs: MemoryFileSystem) -> tuple[bool, bool]:
    """Start on what a crash left; where was the partition found?"""
    found = fs.is_directory("/a/t-0"), fs.is_directory("/b/t-0")
    assigned = "/b" if found[1] else "/a"  # the metadata knows it before the renames
    set_aside_duplicates(fs, assigned)
    again = Mover(fs)
    await again.moves.load()
    again.lead(assigned)
    assert again.values() == [b"a", b"b", b"c"], found
    return found


def set_aside_duplicates(fs: MemoryFileSystem, assigned: str) -> None:
    """What the start does when it finds a partition in two directories."""
    logs = LogManager(fs, PATHS)
    pending = logs.start(CLUSTER_ID, 1)
    directory_id = next(one.directory_id for one in logs.dirs if one.path == assigned)
    set_duplicates_aside(logs, pending, lambda _: Placement(TOPIC_ID, directory_id))
    logs.release()


async def test_a_new_directory_that_fails_ends_the_move(autojump_clock: object) -> None:
    mover = Mover()
    mover.lead()
    mover.append(b"x")
    mover.moves.alter(TP, "/b")
    mover.fs.fail("write", "/b/", errno.EIO)
    async with mover.running():
        await mover.settle()
    assert not mover.moves.is_moving(TP)
    assert not mover.broker.logs.dirs[1].is_online
    assert mover.values() == [b"x"]


async def test_a_full_new_directory_delays_the_move(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    mover = Mover()
    mover.lead()
    mover.append(b"x")
    mover.moves.alter(TP, "/b")
    mover.fs.fail("write", "/b/", errno.ENOSPC)
    async with mover.running():
        await trio.sleep(30)
        assert sum("replica move delayed" in line for line in caplog.messages) == 1
        mover.fs.heal()
        await mover.settle()
    assert mover.serving() == "/b" and mover.values() == [b"x"]


async def test_the_directory_it_leaves_fails(autojump_clock: object) -> None:
    """Offline as ever; and the controller does not go on to believe in the unfinished copy."""
    mover = Mover()
    mover.lead()
    mover.append(b"x")
    mover.moves.alter(TP, "/b")
    async with mover.running():
        await trio.sleep(1)
        mover.broker.logs.fail_dir(mover.broker.logs.dirs[0], OSError(errno.EIO, "broken"))
        await trio.sleep(1)
    assert not mover.moves.is_moving(TP)
    assert mover.broker.placed[-1] == (TOPIC_ID, 0, LOST)


async def test_an_abandoned_copy_is_no_replica(autojump_clock: object) -> None:
    """The metadata names the new directory already, and the old one fails at the restart."""
    mover = Mover()
    mover.lead()
    mover.append(b"x")
    mover.moves.alter(TP, "/b")
    async with mover.running():
        await trio.sleep(1)
    mover.broker.logs.release()
    mover.fs.fail("read", "/a/meta.properties")
    again = Mover(mover.fs)
    await again.moves.load()
    with pytest.raises(KafkaError) as caught:
        again.lead("/b")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert again.broker.placed == [(TOPIC_ID, 0, LOST)]


async def test_a_topic_that_goes_takes_its_copy_with_it(autojump_clock: object) -> None:
    mover = Mover()
    mover.lead()
    mover.append(b"x")
    mover.moves.alter(TP, "/b")
    async with mover.running():
        await trio.sleep(1)
        mover.broker.publish(RemoveTopicRecord(TOPIC_ID))
        mover.broker.publish(
            TopicRecord("t", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1,), (1,), 1)
        )
        mover.broker.replicas.hosted.leader(TP)
        await trio.sleep(1)
        assert not mover.moves.is_moving(TP)
    assert mover.values() == []
