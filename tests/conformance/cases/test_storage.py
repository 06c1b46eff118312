"""Files on disk: damage that a start finds, retention, and topics that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftrio.wire.errors import ErrorCode
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import (
    EARLIEST,
    LATEST,
    SETTLE_DEADLINE_S,
    append,
    batch_of,
    create_topic,
    delete_topic,
    end_offset,
    fetch,
    list_offset,
    new_producer_id,
    produce,
    records_in,
    wait_for_leaders,
)
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
T0 = 1_700_000_000_000
BATCHES = 5
MIB = 1 << 20


def fill(client: RawClient, topic: str) -> int:
    """Write batches of 400 KB, so that there are several segments of 1 MiB; return a producer."""
    producer_id = new_producer_id(client)
    for index in range(BATCHES):
        batch = batch_of(
            b"%d" % index * 200_000,
            b"%d" % index * 200_000,
            timestamp=T0 + 1000 * index,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=2 * index,
        )
        assert produce(client, topic, batch).error_code == NONE
    return producer_id


def check(client: RawClient, topic: str, producer_id: int) -> None:
    """Everything is there, by offset, by time and by producer; the log goes on."""
    wait_for_leaders(client, topic)
    assert end_offset(client, topic) == 2 * BATCHES
    for index in range(BATCHES):
        for offset in (2 * index, 2 * index + 1):
            answer = fetch(client, topic, offset, max_bytes=MIB // 2)
            assert answer.error_code == NONE
            records = {one.offset: one.value for one in records_in(answer.records)}
            assert records[offset] == b"%d" % index * 200_000
        found = list_offset(client, topic, T0 + 1000 * index)
        assert (found.offset, found.timestamp) == (2 * index, T0 + 1000 * index)
    batch = batch_of(b"next", producer_id=producer_id, producer_epoch=0, base_sequence=2 * BATCHES)
    assert produce(client, topic, batch).base_offset == 2 * BATCHES
    assert [one.value for one in records_in(fetch(client, topic, 2 * BATCHES).records)] == [b"next"]


def remove(path: Path) -> None:
    path.unlink()


def garble(path: Path) -> None:
    path.write_bytes(b"\xa5" * (path.stat().st_size // 8 * 8 + 5))


def empty(path: Path) -> None:
    path.write_bytes(b"")


FILES = ("*.index", "*.timeindex", "*.snapshot")
# Apache Kafka takes a log folder offline when it cannot read one of these.
MORE_FILES = ("leader-epoch-checkpoint",)
CHECKPOINTS = {
    "recovery-point-offset-checkpoint": garble,
    "replication-offset-checkpoint": empty,
    "log-start-offset-checkpoint": remove,
}


@pytest.mark.parametrize("ending", ["kill -9", "clean stop"])
def test_damaged_helper_files_are_rebuilt(make_broker: Callable[..., Broker], ending: str) -> None:
    """Indexes, snapshots and checkpoints can be missing, garbled or empty: the log has it all.

    One topic for each kind of damage, and all of the folder's checkpoints with the last of them.
    """
    broker = make_broker()
    is_apache = broker.kind == "apache"
    if is_apache and ending == "clean stop":
        pytest.skip("Apache Kafka trusts its indexes after a clean stop, and finds nothing then")
    damages = [
        (pattern, damage)
        for pattern in (FILES if is_apache else FILES + MORE_FILES)
        for damage in (remove, garble, empty)
    ]
    topics = {}
    with RawClient(broker.address) as client:
        for number, (pattern, damage) in enumerate(damages):
            topic = create_topic(
                client,
                f"damage-{number}",
                segment_bytes=MIB,
                index_interval_bytes=1000,
                retention_ms=-1,
            )
            topics[topic] = (pattern, damage, fill(client, topic))
    if ending == "kill -9":
        broker.kill9()
    else:
        broker.terminate()
    for topic, (pattern, damage, _) in topics.items():
        for path in (broker.data_directory / f"{topic}-0").glob(pattern):
            damage(path)
    for name, damage in ({} if is_apache else CHECKPOINTS).items():
        path = broker.data_directory / name
        if path.exists():
            damage(path)
    broker.start()
    with RawClient(broker.address) as client:
        for topic, (_, _, producer_id) in topics.items():
            check(client, topic, producer_id)


def test_a_torn_batch_at_the_end_is_truncated(make_broker: Callable[..., Broker]) -> None:
    """A batch of which a crash left a part was never acknowledged."""
    broker = make_broker()
    with RawClient(broker.address) as client:
        topic = create_topic(client, "torn")
        producer_id = fill(client, topic)
    broker.kill9()
    (segment,) = (broker.data_directory / f"{topic}-0").glob("*.log")
    with segment.open("ab") as file:
        file.write(bytes(batch_of(b"half" * 100))[:200])
    broker.start()
    with RawClient(broker.address) as client:
        check(client, topic, producer_id)


def test_retention_by_time(make_broker: Callable[..., Broker]) -> None:
    """Old segments go; times find the first live record; an empty log goes on where it was."""
    broker = make_broker(
        log_retention_check_interval_ms=100,
        log_initial_task_delay_ms=100,
        log_segment_delete_delay_ms=0,
    )
    with RawClient(broker.address) as client:
        topic = create_topic(client, "ages", retention_ms=3_600_000, segment_ms=1)
        old = batch_of(b"old", b"old", timestamp=T0)
        assert produce(client, topic, old).error_code == NONE
        assert append(client, topic, b"new") == 2
        wait_for_start(client, topic, 2)
        found = list_offset(client, topic, 0)
        assert (found.error_code, found.offset) == (NONE, 2)
        assert fetch(client, topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert [one.value for one in records_in(fetch(client, topic, 2).records)] == [b"new"]
        other = create_topic(client, "empties", retention_ms=1000)
        assert produce(client, other, batch_of(b"old", b"old", timestamp=T0)).error_code == NONE
        wait_for_start(client, other, 2)
        found = list_offset(client, other, 0)
        assert (found.error_code, found.offset, found.timestamp) == (NONE, -1, -1)
        assert append(client, other, b"v") == 2


def test_retention_by_size(make_broker: Callable[..., Broker]) -> None:
    """Whole segments, and never the last one."""
    broker = make_broker(log_retention_check_interval_ms=100, log_initial_task_delay_ms=100)
    with RawClient(broker.address) as client:
        topic = create_topic(client, "grows", retention_bytes=MIB, segment_bytes=MIB)
        for _ in range(8):
            append(client, topic, b"x" * 400_000)
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        while list_offset(client, topic, EARLIEST).offset < 4:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert end_offset(client, topic) == 8
        assert len(records_in(fetch(client, topic, 7).records)) == 1


def wait_for_start(client: RawClient, topic: str, offset: int) -> None:
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while list_offset(client, topic, EARLIEST).offset < offset:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list_offset(client, topic, EARLIEST).offset == offset


def test_a_deleted_topic_stays_deleted(make_broker: Callable[..., Broker]) -> None:
    """Also over a crash right after the answer; and a topic of its name stays empty."""
    broker = make_broker()
    with RawClient(broker.address) as client:
        for name in ("gone", "again"):
            create_topic(client, name, partitions=2)
            append(client, name, b"v", partition=1)
        delete_topic(client, "gone")
        delete_topic(client, "again")
        create_topic(client, "again")
    broker.kill9()
    broker.start()
    with RawClient(broker.address) as client:
        wait_for_leaders(client, "again")
        assert end_offset(client, "again") == 0
        for topic, partition in (("gone", 0), ("gone", 1), ("again", 1)):
            answer = list_offset(client, topic, LATEST, partition)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        create_topic(client, "gone")
        assert end_offset(client, "gone") == 0
