"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraftrio.wire.records.batch import Compression, Record, build_batch
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    append,
    batch_of,
    create_topic,
    delete_records,
    end_offset,
    fetch,
    list_offset,
    produce,
    records_in,
    wait_for_leaders,
)
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def timed_batch(*timestamps: int, codec: Compression = Compression.NONE) -> bytearray:
    return build_batch([Record(0, at, None, b"%d" % at) for at in timestamps], compression=codec)


def find(client: RawClient, topic: str, timestamp: int) -> tuple[int, int]:
    """Return the offset and the timestamp that a time query finds."""
    answer = list_offset(client, topic, timestamp)
    assert answer.error_code == NONE
    return answer.offset, answer.timestamp


# ListOffsets


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("together", [True, False])
def test_first_record_at_or_after_a_time(
    client: RawClient, new_topic: Callable[..., str], codec: Compression, together: bool
) -> None:
    """With its own timestamp, within a batch as over batches; beyond the last there is none."""
    topic, times = new_topic(), (2000, 4000, 6000, 8000)
    for batch in [times] if together else [(one,) for one in times]:
        assert produce(client, topic, timed_batch(*batch, codec=codec)).error_code == NONE
    for target in range(0, 8001, 500):
        expected = next(offset for offset, at in enumerate(times) if at >= target)
        assert find(client, topic, target) == (expected, times[expected]), target
    assert find(client, topic, 8001) == (-1, -1)


def test_no_match_carries_no_leader_epoch(client: RawClient, new_topic: Callable[..., str]) -> None:
    """There is no batch that it could be of."""
    topic = new_topic()
    append(client, topic, b"v")
    answer = list_offset(client, topic, 2**62)
    assert (answer.error_code, answer.offset, answer.timestamp) == (NONE, -1, -1)
    assert answer.leader_epoch == -1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_record_with_the_max_timestamp(
    client: RawClient, new_topic: Callable[..., str], codec: Compression
) -> None:
    """The record, not the end of its batch; the first of equals."""
    topic = new_topic()
    assert find(client, topic, MAX_TIMESTAMP) == (-1, -1)
    produce(client, topic, timed_batch(10, 50, 30, codec=codec))
    assert find(client, topic, MAX_TIMESTAMP) == (1, 50)
    produce(client, topic, timed_batch(40, codec=codec))
    assert find(client, topic, MAX_TIMESTAMP) == (1, 50)
    produce(client, topic, timed_batch(50, 50, codec=codec))
    assert find(client, topic, MAX_TIMESTAMP) == (1, 50)
    produce(client, topic, timed_batch(20, 60, 60, codec=codec))
    assert find(client, topic, MAX_TIMESTAMP) == (7, 60)


def test_empty_log(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Latest and earliest are 0; times find nothing."""
    topic = new_topic()
    assert find(client, topic, LATEST) == (0, -1)
    assert find(client, topic, EARLIEST) == (0, -1)
    for timestamp in (0, 1000, MAX_TIMESTAMP):
        assert find(client, topic, timestamp) == (-1, -1)


def test_trimmed_log(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Times find live records only."""
    topic = new_topic()
    for at in (1000, 2000, 3000):
        produce(client, topic, timed_batch(at, at + 500))
    assert delete_records(client, topic, 3).low_watermark == 3
    assert find(client, topic, EARLIEST) == (3, -1)
    assert find(client, topic, 0) == (3, 2500)
    assert find(client, topic, 2600) == (4, 3000)
    assert delete_records(client, topic, -1).low_watermark == 6
    assert find(client, topic, EARLIEST) == (6, -1)
    assert find(client, topic, LATEST) == (6, -1)
    assert find(client, topic, 0) == (-1, -1)


def test_leader_epochs_of_offsets(make_broker: Callable[..., Broker]) -> None:
    """Latest carries the current epoch, every other the epoch of the batch that it names."""
    broker = make_broker()
    with RawClient(broker.address) as client:
        topic = create_topic(client, "epochs", message_timestamp_type="CreateTime")
        epochs = [list_offset(client, topic, LATEST).leader_epoch]
        produce(client, topic, timed_batch(1000))
    for at in (2000, 3000):
        broker.restart()
        with RawClient(broker.address) as client:
            wait_for_leaders(client, topic)
            epochs.append(list_offset(client, topic, LATEST).leader_epoch)
            produce(client, topic, timed_batch(at))
    assert epochs == sorted(set(epochs)), "a restarted broker leads in a new epoch"
    with RawClient(broker.address) as client:
        asked = (EARLIEST, 1500, 2500, MAX_TIMESTAMP, LATEST)
        answers = [list_offset(client, topic, one) for one in asked]
        assert [one.offset for one in answers] == [0, 1, 2, 2, 3]
        assert [one.leader_epoch for one in answers] == [*epochs, epochs[2], epochs[2]]
        check_epoch_ends(client, topic, epochs)
        older = list_offset(client, topic, LATEST, current_leader_epoch=epochs[0])
        assert older.error_code == ErrorCode.FENCED_LEADER_EPOCH
        older_fetch = fetch(client, topic, 0, current_leader_epoch=epochs[0])
        assert older_fetch.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert end_of_epoch(client, topic, 0, current=epochs[0]).error_code == (
            ErrorCode.FENCED_LEADER_EPOCH
        )


def check_epoch_ends(client: RawClient, topic: str, epochs: list[int]) -> None:
    """Check where each epoch ends, with one record in each."""
    ends = {one: end_of_epoch(client, topic, one) for one in range(-1, epochs[2] + 3)}
    for offset, epoch in enumerate(epochs):
        found = ends[epoch]
        assert (found.error_code, found.leader_epoch, found.end_offset) == (NONE, epoch, offset + 1)
    for between in range(epochs[0] + 1, epochs[1]):
        found = ends[between]
        assert (found.leader_epoch, found.end_offset) == (epochs[0], 1)
    for unknown in (-1, epochs[2] + 1, epochs[2] + 2):
        found = ends[unknown]
        assert (found.error_code, found.leader_epoch, found.end_offset) == (NONE, -1, -1)
    for before in range(epochs[0]):
        found = ends[before]
        assert (found.leader_epoch, found.end_offset) == (before, 0)


def test_partition_named_twice(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Which of the two is meant? Neither is answered; other partitions are."""
    topic = new_topic(partitions=2)
    parts = [ListOffsetsPartition(partition_index=one, timestamp=LATEST) for one in (0, 0, 1)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)]
    )
    for version in (1, 11):
        answers = [
            one for topic in client.call(request, version).topics for one in topic.partitions
        ]
        by_index = {index: set[int]() for index in (0, 1)}
        for answer in answers:
            by_index[answer.partition_index].add(answer.error_code)
        assert by_index == {0: {ErrorCode.INVALID_REQUEST}, 1: {NONE}}


@pytest.mark.parametrize("version", range(1, 12))
def test_special_offsets_by_version(
    client: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    """An older version does not know the newer ones."""
    topic = new_topic()
    append(client, topic, b"a", b"b")
    for timestamp, first_version in FIRST_VERSION.items():
        answer = list_offset(client, topic, timestamp, version=version)
        if version < first_version:
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        else:
            expected = {MAX_TIMESTAMP: 0, EARLIEST_LOCAL: 0}.get(timestamp, -1)
            assert (answer.error_code, answer.offset) == (NONE, expected)
    assert list_offset(client, topic, LATEST, version=version).offset == 2
    assert list_offset(client, topic, EARLIEST, version=version).offset == 0


def test_unknown_special_offset(client: RawClient, new_topic: Callable[..., str]) -> None:
    """There is none below -6."""
    topic = new_topic()
    assert list_offset(client, topic, -7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_replica_ids_and_leader_epochs_of_list_offsets(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str]
) -> None:
    """Consumers are -1, debuggers -2; an epoch of -1 is not a check, a newer one not known."""
    topic = new_topic()
    append(client, topic, b"v")
    for replica_id in (-1, -2):
        assert list_offset(client, topic, LATEST, replica_id=replica_id).offset == 1
    epoch = list_offset(client, topic, LATEST).leader_epoch
    assert list_offset(client, topic, LATEST, current_leader_epoch=epoch).error_code == NONE
    newer = list_offset(client, topic, LATEST, current_leader_epoch=epoch + 1)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    for name, partition in ((topic, 7), (unique_topic(), 0)):
        answer = list_offset(client, name, LATEST, partition)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (answer.offset, answer.timestamp) == (-1, -1)


# OffsetForLeaderEpoch


def end_of_epoch(
    client: RawClient,
    topic: str,
    epoch: int,
    *,
    partition: int = 0,
    current: int = -1,
    version: int = 4,
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    ((answer,),) = [one.partitions for one in client.call(request, version).topics]
    assert isinstance(answer, EpochEndOffset)
    return answer


@pytest.mark.parametrize("version", [2, 3, 4])
def test_end_of_the_current_epoch(
    client: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    """It is the end of the log."""
    topic = new_topic()
    append(client, topic, b"a", b"b")
    epoch = list_offset(client, topic, LATEST).leader_epoch
    found = end_of_epoch(client, topic, epoch, version=version)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (NONE, epoch, 2)
    newer = end_of_epoch(client, topic, epoch, current=epoch + 1, version=version)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_end_of_epoch_of_an_unknown_partition(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str]
) -> None:
    """Topic or partition."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert end_of_epoch(client, new_topic(), 0, partition=7).error_code == unknown
    assert end_of_epoch(client, unique_topic(), 0).error_code == unknown


# DeleteRecords


def test_delete_records(client: RawClient, new_topic: Callable[..., str]) -> None:
    """The log start only goes up, at most to the high watermark."""
    topic = new_topic()
    for _ in range(5):
        append(client, topic, b"v")
    assert delete_records(client, topic, 3).low_watermark == 3
    assert delete_records(client, topic, 2).low_watermark == 3
    beyond = delete_records(client, topic, 6)
    assert (beyond.error_code, beyond.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    negative = delete_records(client, topic, -2)
    assert negative.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(client, topic, -1).low_watermark == 5
    assert end_offset(client, topic) == 5
    assert append(client, topic, b"v") == 5


def test_delete_records_of_what_is_not_there(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str]
) -> None:
    """Topic or partition; and compacted topics are not for it."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_records(client, new_topic(), 0, 7).error_code == unknown
    assert delete_records(client, unique_topic(), 0).error_code == unknown
    compacted = new_topic(cleanup_policy="compact")
    assert delete_records(client, compacted, 0).error_code == ErrorCode.POLICY_VIOLATION


def test_deleted_records_stay_deleted(make_broker: Callable[..., Broker]) -> None:
    """Also within a batch, over a clean restart."""
    broker = make_broker()
    with RawClient(broker.address) as client:
        topic = create_topic(client, "trimmed")
        produce(client, topic, batch_of(*[b"%d" % one for one in range(10)]))
        assert delete_records(client, topic, 5).low_watermark == 5
    broker.restart()
    with RawClient(broker.address) as client:
        wait_for_leaders(client, topic)
        assert find(client, topic, EARLIEST) == (5, -1)
        assert fetch(client, topic, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert len(records_in(fetch(client, topic, 5).records)) == 10
