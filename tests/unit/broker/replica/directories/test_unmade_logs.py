"""Where replicas lie, and what becomes of those whose log directory is offline."""

from __future__ import annotations

import errno

import pytest

from kraftrio.kraft_meta.metadata.directories import LOST, MIGRATING, UNASSIGNED
from kraftrio.kraft_meta.metadata.records import (
    LEADER_RECOVERING,
    NO_LEADER,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch
from tests.support.memory_files import MemoryFileSystem
from tests.unit.broker.replica.replica_context import OTHER_ID, TOPIC_ID, TP, Broker, topic

PATHS = ("/a", "/b")


def placed_topic(
    directory: bytes, *, isr: tuple[int, ...] = (1, 2), leader: int = 1
) -> list[MetadataRecord]:
    """The records of a topic t on the brokers 1 and 2."""
    directories = () if directory == MIGRATING else (directory, UNASSIGNED)
    return [
        TopicRecord("t", TOPIC_ID),
        PartitionRecord(TOPIC_ID, 0, (1, 2), isr, leader, directories=directories),
    ]


def directory_id(broker: Broker, path: str) -> bytes:
    return next(one.directory_id for one in broker.logs.dirs if one.path == path)


def path_of(broker: Broker, topic_partition: TopicPartition = TP) -> str:
    log_dir = broker.logs.dir_of(topic_partition)
    assert log_dir is not None
    return log_dir.path


def touch(broker: Broker) -> None:
    """Let the log of t-0 be made, whichever broker leads."""
    try:
        broker.replicas.hosted.leader(TP)
    except KafkaError as error:
        assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def after_failure(records: list[MetadataRecord]) -> tuple[Broker, MemoryFileSystem, str]:
    """A broker that restarts while the directory is offline in which t-0 has a record."""
    first = Broker(paths=PATHS)
    first.publish(*topic())
    first.replicas.led.append_to_leader(TP, batch(b"kept"))
    path = path_of(first)
    first.logs.close()
    first.fs.fail("read", f"{path}/meta.properties")
    second = Broker(first.fs, paths=PATHS)
    second.publish(*records)
    return second, first.fs, path


@pytest.mark.parametrize("assigned", [MIGRATING, UNASSIGNED])
async def test_where_a_log_was_made_is_reported_once(assigned: bytes) -> None:
    """Unless the controller said where to make it."""
    broker = Broker(paths=PATHS)
    broker.publish(*placed_topic(assigned))
    broker.replicas.led.append_to_leader(TP, batch(b"x"))
    assert broker.placed == [(TOPIC_ID, 0, directory_id(broker, path_of(broker)))]
    broker.replicas.led.append_to_leader(TP, batch(b"x"))
    assert len(broker.placed) == 1


@pytest.mark.parametrize("assigned", [LOST, b"gone" * 4])
async def test_a_log_that_was_on_another_disk_is_recreated_to_follow(assigned: bytes) -> None:
    """The disk was replaced, and the replica is in no ISR any more."""
    broker = Broker(paths=PATHS)
    broker.publish(*placed_topic(assigned, isr=(2,), leader=2))
    touch(broker)
    assert broker.placed == [(TOPIC_ID, 0, directory_id(broker, path_of(broker)))]


@pytest.mark.parametrize("assigned", [LOST, b"gone" * 4])
async def test_the_last_of_an_isr_makes_no_log_on_another_disk(assigned: bytes) -> None:
    """It would lead without what was acknowledged; an unclean election lets it begin again."""
    broker = Broker(paths=PATHS)
    broker.publish(*placed_topic(assigned, isr=(1,), leader=NO_LEADER))
    with pytest.raises(KafkaError) as caught:
        broker.replicas.hosted.leader(TP)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.made() == 0
    assert broker.placed == ([] if assigned == LOST else [(TOPIC_ID, 0, LOST)])
    broker.placed.clear()
    elected = PartitionChangeRecord(
        TOPIC_ID,
        0,
        leader=1,
        leader_recovery_state=LEADER_RECOVERING,
        directories=(UNASSIGNED, UNASSIGNED),
    )
    broker.publish(elected)
    broker.replicas.led.append_to_leader(TP, batch(b"x"))
    assert broker.placed == [(TOPIC_ID, 0, directory_id(broker, path_of(broker)))]


@pytest.mark.parametrize("assigned", [LOST, b"gone" * 4])
async def test_the_only_replica_begins_again_on_another_disk(assigned: bytes) -> None:
    """There is nobody who could have what it lost."""
    broker = Broker(paths=PATHS)
    alone = PartitionRecord(TOPIC_ID, 0, (1,), (1,), NO_LEADER, directories=(assigned,))
    broker.publish(TopicRecord("t", TOPIC_ID), alone)
    touch(broker)
    assert broker.placed == [(TOPIC_ID, 0, directory_id(broker, path_of(broker)))]


@pytest.mark.parametrize("path", PATHS)
async def test_a_log_is_made_where_the_controller_says(path: str) -> None:
    """And nothing is left to report."""
    broker = Broker(paths=PATHS)
    broker.publish(*placed_topic(directory_id(broker, path)))
    broker.replicas.led.append_to_leader(TP, batch(b"x"))
    assert path_of(broker) == path
    assert broker.placed == []


async def test_where_a_log_was_found_is_reported() -> None:
    """It was moved while the broker was down, or assigned before directories were kept."""
    first = Broker(paths=PATHS)
    first.publish(*placed_topic(directory_id(first, "/a")))
    first.replicas.led.append_to_leader(TP, batch(b"x"))
    first.logs.close()
    second = Broker(first.fs, paths=PATHS)
    second.publish(*placed_topic(directory_id(second, "/b")))
    assert path_of(second) == "/a"
    assert second.placed == [(TOPIC_ID, 0, directory_id(second, "/a"))]


@pytest.mark.parametrize("assigned", [MIGRATING, UNASSIGNED])
async def test_a_lost_replica_is_reported_where_the_controller_cannot_know(assigned: bytes) -> None:
    """It takes it for online else, and elects it."""
    broker, _fs, _path = after_failure(placed_topic(assigned))
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            broker.replicas.led.append_to_leader(TP, batch(b"x"))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert set(broker.placed) == {(TOPIC_ID, 0, LOST)}
    assert broker.replicas.failures.offline_partitions() == [TP]


@pytest.mark.parametrize("assigned", [LOST, b"gone" * 4])
async def test_what_the_controller_knows_to_be_lost_is_not_reported(assigned: bytes) -> None:
    """The directory is not in the registration."""
    broker, _fs, _path = after_failure(placed_topic(assigned))
    with pytest.raises(KafkaError) as caught:
        broker.replicas.led.append_to_leader(TP, batch(b"x"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.placed == []
    assert broker.made() == 0


async def test_a_lost_log_is_back_with_its_directory() -> None:
    """The next restart finds it, and reports it."""
    broker, fs, path = after_failure(placed_topic(LOST))
    broker.logs.close()
    fs.heal()
    third = Broker(fs, paths=PATHS)
    third.publish(*placed_topic(LOST))
    assert third.replicas.led.log(TP).log_end_offset == 1
    assert third.placed == [(TOPIC_ID, 0, directory_id(third, path))]


async def test_a_log_whose_directory_is_online_is_made_there() -> None:
    """It was never made: another directory that is offline cannot have it."""
    first = Broker(paths=PATHS)
    first.logs.close()
    first.fs.fail("read", "/a/meta.properties")
    second = Broker(first.fs, paths=PATHS)
    second.publish(*placed_topic(directory_id(second, "/b")))
    second.replicas.led.append_to_leader(TP, batch(b"x"))
    assert path_of(second) == "/b"
    assert second.placed == []


async def test_a_replica_made_while_the_broker_was_down_is_made_in_what_is_left() -> None:
    """Nobody said where it is, and it is in no ISR: there is nothing to lose."""
    first = Broker(paths=PATHS)
    first.logs.close()
    first.fs.fail("read", "/a/meta.properties")
    second = Broker(first.fs, paths=PATHS)
    second.publish(*placed_topic(UNASSIGNED, isr=(2,), leader=2))
    touch(second)
    assert path_of(second) == "/b"
    assert second.placed == [(TOPIC_ID, 0, directory_id(second, "/b"))]


async def test_a_directory_that_fails_at_once_is_reported_all_the_same() -> None:
    """The log was made there, and the controller is notified of the failure itself."""
    broker = Broker(paths=PATHS)
    failures: list[list[bytes]] = []
    broker.logs.on_failed = lambda: failures.append(broker.logs.dirs.offline_ids())
    broker.publish(*placed_topic(UNASSIGNED))
    broker.replicas.led.append_to_leader(TP, batch(b"x"))
    failed = directory_id(broker, path_of(broker))
    broker.fs.fail("write", path_of(broker), errno.EIO)
    for _ in range(2):
        with pytest.raises(KafkaError):
            broker.replicas.led.append_to_leader(TP, batch(b"x"))
    assert broker.placed == [(TOPIC_ID, 0, failed)]
    assert failures == [[failed]]


async def test_an_empty_directory_that_fails_is_reported_too() -> None:
    """A new log cannot be made there; it goes to the other one with the next request."""
    broker = Broker(paths=PATHS)
    failures: list[list[bytes]] = []
    broker.logs.on_failed = lambda: failures.append(broker.logs.dirs.offline_ids())
    broker.fs.fail("write", "/a/t-0", errno.EIO)
    broker.publish()
    broker.publish(*placed_topic(directory_id(broker, "/a")))
    with pytest.raises(KafkaError):
        broker.replicas.led.append_to_leader(TP, batch(b"x"))
    assert failures == [[directory_id(broker, "/a")]]
    broker.replicas.led.append_to_leader(TP, batch(b"x"))
    assert broker.placed == [(TOPIC_ID, 0, directory_id(broker, "/b"))]


async def test_another_topic_of_the_name_gets_a_new_log() -> None:
    """A log that was never made goes with its topic, and only with that."""
    broker, _fs, _path = after_failure(placed_topic(LOST))
    second = TopicRecord("new", OTHER_ID)
    broker.publish(second, PartitionRecord(OTHER_ID, 0, (1,), (1,), 1, directories=(UNASSIGNED,)))
    new = TopicPartition("new", 0)
    broker.replicas.led.append_to_leader(new, batch(b"x"))
    assert broker.placed == [(OTHER_ID, 0, directory_id(broker, path_of(broker, new)))]
